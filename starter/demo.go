package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// The demo's fixed places; --once takes free ports instead.
const (
	demoListen       = "127.0.0.1:8080"
	demoTemporalPort = 7233
	demoUIPort       = 8233
)

type demo struct {
	cmd     *cobra.Command
	once    bool
	keep    string
	data    string
	out     io.Writer
	procs   []*process
	address string // Temporal
}

func demoCommand() *cobra.Command {
	d := demo{}
	cmd := &cobra.Command{
		Use:   "demo [--once]",
		Short: "Show the whole path on small real datasets",
		Long: `Demo starts what urlake needs on this machine (Temporal's dev server, a worker, the read server), ingests the
datasets in testdata/, publishes them and asks both queries. It then stays up, with the API on ` + demoListen + `
and Temporal's UI on port 8233, until Ctrl-C stops everything it started. With --once it takes free ports, prints
the answers and ends. Temporal is the temporal on PATH, else the one that "make bin/temporal" puts beside this program.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("json") {
				return cli.Usagef("the demo prints what the server answers, and takes no --json")
			}
			return cli.Args(cobra.NoArgs)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.cmd, d.out = cmd, cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().Bool("json", false, "") // in the place of all verbs' flag
	cmd.Flags().Lookup("json").Hidden = true
	cmd.Flags().BoolVar(&d.once, "once", false, "do it all on free ports, print the answers, end")
	cmd.Flags().StringVar(&d.keep, "dir", "", "keep the demo's lake in this `FOLDER` (default: a temporary one)")
	cmd.Flags().StringVar(&d.data, "data", "testdata", "`FOLDER` with the datasets, one folder a dataset")
	return cmd
}

func (d *demo) run(ctx context.Context) (err error) {
	// A reader that goes away, as head does, must not end the demo before it has stopped what it started.
	signal.Ignore(syscall.SIGPIPE)
	datasets, err := os.ReadDir(d.data)
	if err != nil {
		return fmt.Errorf("demo data: %w (run it in the project's folder, or name --data)", err)
	}
	dir := d.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "urlake-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			// Ctrl-C is how a demo ends, whatever it was at.
			fmt.Fprintln(d.out, "\nStopping.")
			err = nil
		}
		err = errors.Join(err, d.stop())
	}()
	// The server refuses a folder that is not there, and it is started before anything is in it.
	if err := os.MkdirAll(filepath.Join(dir, "lake"), 0o777); err != nil {
		return err
	}
	lakeURL, err := cli.LakeURL(filepath.Join(dir, "lake"))
	if err != nil {
		return err
	}

	ui := ""
	if err := d.startTemporal(ctx, dir, &ui); err != nil {
		return err
	}
	if err := d.start(dir, "worker", sibling("worker"), "--lake", lakeURL, "--temp-dir", dir); err != nil {
		return err
	}
	listen := demoListen
	if d.once {
		if listen, err = freeAddress(); err != nil {
			return err
		}
	} else if err := free(listen); err != nil {
		return fmt.Errorf("the demo serves on %s: %w", listen, err)
	}
	if err := d.start(dir, "serve", sibling("serve"), "--lake", lakeURL, "--listen", listen, "--cache", filepath.Join(dir, "cache")); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Lake      %s\nTemporal  %s\n", lakeURL, d.address)
	if ui != "" {
		fmt.Fprintf(d.out, "UI        %s\n", ui)
	}
	fmt.Fprintln(d.out)

	version, err := d.ingestAll(ctx, lakeURL, datasets)
	if err != nil {
		return d.explain(err)
	}
	base := "http://" + listen
	if err := d.waitVersion(ctx, base, version); err != nil {
		return d.explain(err)
	}
	fmt.Fprintf(d.out, "Version %s is served. The two questions:\n\n", version)
	if err := d.ask(ctx, base); err != nil {
		return d.explain(err)
	}
	if d.once {
		return nil
	}
	fmt.Fprintf(d.out, `Try
  open %s/ in a browser, and %s for the workflows
  curl '%s/v1/domain/cdc.gov?explain=1'
  bin/starter status --lake %s
  TEMPORAL_ADDRESS=%s bin/starter ingest --lake %s --dataset mine --wait FILE…

Ctrl-C stops everything.
`, base, ui, base, lakeURL, d.address, lakeURL)
	select {
	case <-ctx.Done():
		return nil
	case p := <-d.firstExit():
		return d.explain(fmt.Errorf("%s ended by itself", p.name))
	}
}

// sibling is the path of another of urlake's programs: they lie beside this one.
func sibling(name string) string {
	if self, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(self), name)
	}
	return name
}

// temporalProgram is a temporal on PATH, else the one built into bin/.
func temporalProgram() (string, error) {
	if p, err := exec.LookPath("temporal"); err == nil {
		return p, nil
	}
	p := sibling("temporal")
	if _, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("no temporal on PATH and none beside this program: run `make bin/temporal`")
	}
	return p, nil
}

func (d *demo) startTemporal(ctx context.Context, dir string, ui *string) error {
	program, err := temporalProgram()
	if err != nil {
		return err
	}
	port := demoTemporalPort
	args := []string{"server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"}
	if d.once {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		_, p, _ := net.SplitHostPort(address)
		fmt.Sscan(p, &port)
		args = append(args, "--headless")
	} else {
		for _, p := range []int{demoTemporalPort, demoUIPort} {
			if err := free(fmt.Sprintf("127.0.0.1:%d", p)); err != nil {
				return fmt.Errorf("the demo's Temporal listens on port %d: %w", p, err)
			}
		}
		*ui = fmt.Sprintf("http://127.0.0.1:%d", demoUIPort)
		args = append(args, "--ui-port", fmt.Sprint(demoUIPort))
	}
	args = append(args, "--port", fmt.Sprint(port))
	d.address = fmt.Sprintf("127.0.0.1:%d", port)
	os.Setenv("TEMPORAL_ADDRESS", d.address) // for the worker and for connect
	if err := d.start(dir, "temporal", program, args...); err != nil {
		return err
	}
	return d.wait(ctx, "Temporal", func(ctx context.Context) error {
		c, err := connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
}

// ingestAll ingests every folder of the demo's data as one dataset and returns the last version.
func (d *demo) ingestAll(ctx context.Context, lakeURL string, datasets []os.DirEntry) (string, error) {
	c, err := connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	version := ""
	for _, e := range datasets {
		if !e.IsDir() {
			continue
		}
		dir, err := filepath.Abs(filepath.Join(d.data, e.Name()))
		if err != nil {
			return "", err
		}
		var in workflows.IngestInput
		// What a user would give as flags. The glob keeps the file out of the input.
		if data, err := os.ReadFile(filepath.Join(dir, "_ingest.json")); err == nil {
			if err := json.Unmarshal(data, &in); err != nil {
				return "", fmt.Errorf("%s/_ingest.json: %w", dir, err)
			}
		}
		in.Lake, in.Dataset, in.Inputs = lakeURL, e.Name(), []string{filepath.Join(dir, "[^_]*")}
		run, err := startIngest(ctx, c, in)
		if err != nil {
			return "", err
		}
		var res workflows.IngestResult
		bar := newBar(d.cmd.ErrOrStderr(), false)
		bar.plain = nil // the report that follows says it all
		err = await(d.cmd, run, &res, true, c, func(ctx context.Context) {
			if p, ok := progress(ctx, c, run); ok {
				bar.show(p, time.Now())
			}
		})
		bar.finish()
		if err != nil {
			return "", err
		}
		report(d.out, &res, took(ctx, c, run))
		fmt.Fprintln(d.out)
		version = res.Version
	}
	return version, nil
}

// waitVersion waits until the server answers from the version.
func (d *demo) waitVersion(ctx context.Context, base, version string) error {
	return d.wait(ctx, "the read server", func(ctx context.Context) error {
		body, err := get(ctx, base+"/readyz")
		if err != nil {
			return err
		}
		if !bytes.Contains(body, []byte(version)) {
			return fmt.Errorf("it serves another version: %s", body)
		}
		return nil
	})
}

// ask prints both queries and their answers.
func (d *demo) ask(ctx context.Context, base string) error {
	domain := "cdc.gov"
	body, err := d.show(ctx, base+"/v1/domain/"+url.PathEscape(domain))
	if err != nil {
		return err
	}
	var answer struct {
		Datasets []struct {
			DatasetID uint32 `json:"dataset_id"`
		} `json:"datasets"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if len(answer.Datasets) == 0 {
		return fmt.Errorf("no dataset holds %s, which the demo's data does", domain)
	}
	_, err = d.show(ctx, fmt.Sprintf("%s/v1/domain/%s/datasets/%d/urls?limit=3", base, url.PathEscape(domain), answer.Datasets[0].DatasetID))
	return err
}

func (d *demo) show(ctx context.Context, address string) ([]byte, error) {
	body, err := get(ctx, address)
	if err != nil {
		return nil, err
	}
	text, err := pretty(body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address, err)
	}
	fmt.Fprintf(d.out, "GET %s\n%s\n", address, text)
	return body, nil
}

// pretty prints a JSON object with a line for each member, and one for each element of a member that is a list.
func pretty(body []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "", fmt.Errorf("the answer is no JSON object: %w", err)
	}
	var out strings.Builder
	out.WriteString("{\n")
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return "", err
		}
		var items []json.RawMessage
		if json.Unmarshal(value, &items) == nil && len(items) > 0 {
			fmt.Fprintf(&out, "  %q: [", name)
			for i, item := range items {
				if i > 0 {
					out.WriteByte(',')
				}
				fmt.Fprintf(&out, "\n    %s", item)
			}
			out.WriteString("\n  ]")
		} else {
			fmt.Fprintf(&out, "  %q: %s", name, value)
		}
		if dec.More() {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteString("}\n")
	return out.String(), nil
}

func get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", address, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// startTimeout is how long one of the demo's servers may take to answer.
const startTimeout = time.Minute

// wait tries ready until it succeeds, a process dies, or the time is over.
func (d *demo) wait(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case p := <-d.firstExit():
			return fmt.Errorf("%s ended while starting", p.name)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-tick.C:
		}
	}
}

// process is one program that the demo started.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start runs a program in a process group of its own, so that Ctrl-C reaches the demo alone and it
// can stop its programs in order.
func (d *demo) start(dir, name, program string, args ...string) error {
	log := filepath.Join(dir, name+".log")
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.done)
	}()
	d.procs = append(d.procs, p)
	return nil
}

// firstExit yields a process that has ended; it blocks while all run.
func (d *demo) firstExit() <-chan *process {
	out := make(chan *process, len(d.procs))
	for _, p := range d.procs {
		select {
		case <-p.done:
			out <- p
			return out
		default:
		}
	}
	for _, p := range d.procs {
		go func() {
			<-p.done
			out <- p
		}()
	}
	return out
}

// stop ends the programs in the reverse order of their start, the worker before Temporal.
func (d *demo) stop() error {
	const patience = 15 * time.Second
	var errs []error
	for i := len(d.procs) - 1; i >= 0; i-- {
		p := d.procs[i]
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
			p.cmd.Process.Kill()
			<-p.done
			errs = append(errs, fmt.Errorf("%s did not stop in %s and was killed", p.name, patience))
		}
	}
	return errors.Join(errs...)
}

// explain adds the last lines of the programs' logs to an error.
func (d *demo) explain(err error) error {
	for _, p := range d.procs {
		data, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		if n := len(lines); n > 5 {
			lines = lines[n-5:]
		}
		if len(lines) > 0 && lines[0] != "" {
			err = fmt.Errorf("%w\n%s:\n  %s", err, p.name, strings.Join(lines, "\n  "))
		}
	}
	return err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// free reports an error when someone listens on address already.
func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
