package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
	"github.com/urlake/urlake/workflows"
)

// Where the demo listens; with --once it uses free ports instead.
const (
	demoListen       = "127.0.0.1:8080"
	demoTemporalPort = 7233
	demoUIPort       = 8233
)

// demo runs every program of urlake on this machine. Its fields are the flags and what is running.
type demo struct {
	cmd       *cobra.Command
	once      bool
	dir       string
	data      string
	out       io.Writer
	processes []*process // in the order of their start
	addresses addresses.Set
	temporal  string // address of Temporal
}

func demoCommand() *cobra.Command {
	d := demo{}
	cmd := &cobra.Command{
		Use:   "demo [--once]",
		Short: "Ingest, publish and query small real datasets on this machine",
		Long: `Demo starts everything that urlake needs on this machine: Temporal's dev server, a
worker and the read server. It ingests and publishes the datasets in testdata/ and
sends both queries to the server.

It then keeps running, with the API on ` + demoListen + ` and Temporal's UI on port
8233, until Ctrl-C stops all that it started. With --once it uses free ports, prints
the answers and exits.

Demo runs the program temporal from PATH, or else the one that "make bin/temporal"
builds next to starter.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("json") {
				return cli.Usagef("demo has no --json; it prints the server's answers, which are JSON")
			}
			return cli.Args(cobra.NoArgs)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.cmd, d.out = cmd, cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().Bool("json", false, "") // hides the flag that all verbs share
	cmd.Flags().Lookup("json").Hidden = true
	cmd.Flags().BoolVar(&d.once, "once", false, "use free ports, print the answers and exit")
	cmd.Flags().StringVar(&d.dir, "dir", "", "keep the demo's lake in `FOLDER` (default: a temporary folder)")
	cmd.Flags().StringVar(&d.data, "data", "testdata", "`FOLDER` that holds a folder for each dataset")
	return cmd
}

func (d *demo) run(ctx context.Context) (err error) {
	// If the reader of the output exits, as head does, the demo still has to stop its programs.
	signal.Ignore(syscall.SIGPIPE)
	datasets, err := os.ReadDir(d.data)
	if err != nil {
		return fmt.Errorf("demo data: %w; run the demo in the project's folder, or use --data FOLDER", err)
	}
	dir := d.dir
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
			// Ctrl-C is the normal end of a demo, at any time.
			cli.Fprintf(d.out, "\nStopping.\n")
			err = nil
		}
		err = errors.Join(err, d.stop())
	}()
	// The server requires that the folder exists, and starts before the first ingest.
	if err := os.MkdirAll(filepath.Join(dir, "lake"), 0o777); err != nil {
		return err
	}
	lakeURL, err := cli.LakeURL(filepath.Join(dir, "lake"))
	if err != nil {
		return err
	}

	ui, err := d.startTemporal(ctx, dir)
	if err != nil {
		return d.withLogs(err)
	}
	if err := d.start(dir, "worker", supervise.Sibling("worker"), "--lake", lakeURL, "--temp-dir", dir); err != nil {
		return err
	}
	listen := demoListen
	if d.once {
		if listen, err = d.addresses.Free(); err != nil {
			return err
		}
	} else if _, err := d.addresses.Take(listen); err != nil {
		return fmt.Errorf("the demo's server: %w; stop what has the address, or use --once", err)
	}
	err = d.start(dir, "serve", supervise.Sibling("serve"), "--lake", lakeURL, "--listen", listen, "--cache", filepath.Join(dir, "cache"),
		"--drain", "0s")
	if err != nil {
		return err
	}
	cli.Fprintf(d.out, "Lake      %s\nTemporal  %s\n", lakeURL, d.temporal)
	if ui != "" {
		cli.Fprintf(d.out, "UI        %s\n", ui)
	}
	cli.Fprintf(d.out, "\n")

	version, err := d.ingestAll(ctx, lakeURL, datasets)
	if err != nil {
		return d.withLogs(err)
	}
	base := "http://" + listen
	if err := d.waitVersion(ctx, base, version); err != nil {
		return d.withLogs(err)
	}
	cli.Fprintf(d.out, "Version %s is served. The two queries:\n\n", version)
	if err := d.query(ctx, base); err != nil {
		return d.withLogs(err)
	}
	if d.once {
		return nil
	}
	cli.Fprintf(d.out, `Try
  open %s/ in a browser, and %s for the workflows
  curl '%s/v1/domain/cdc.gov?explain=1'
  bin/starter status --lake %s
  TEMPORAL_ADDRESS=%s bin/starter ingest --lake %s --dataset mine --wait FILE…

Ctrl-C stops everything.
`, base, ui, base, lakeURL, d.temporal, lakeURL)
	select {
	case <-ctx.Done():
		return nil
	case p := <-d.firstExit():
		return d.withLogs(fmt.Errorf("%s exited unexpectedly", p.Name))
	}
}

// startTemporal starts Temporal's dev server and waits until it answers. It returns the URL of
// Temporal's UI, "" with --once.
func (d *demo) startTemporal(ctx context.Context, dir string) (ui string, err error) {
	program, err := supervise.TemporalProgram()
	if err != nil {
		return "", fmt.Errorf("%w; run make bin/temporal", err)
	}
	server := supervise.DevServer{Address: fmt.Sprintf("127.0.0.1:%d", demoTemporalPort)}
	if d.once {
		if server.Address, err = d.addresses.Free(); err != nil {
			return "", err
		}
	} else {
		server.UI = fmt.Sprintf("127.0.0.1:%d", demoUIPort)
		for _, address := range []string{server.Address, server.UI} {
			if _, err := d.addresses.Take(address); err != nil {
				return "", fmt.Errorf("the demo's Temporal: %w; stop what has the address, or use --once", err)
			}
		}
		ui = "http://" + server.UI
	}
	d.temporal = server.Address
	// For the worker and for connect.
	if err := os.Setenv("TEMPORAL_ADDRESS", d.temporal); err != nil {
		return "", err
	}
	args, err := server.Args()
	if err != nil {
		return "", err
	}
	if err := d.start(dir, "temporal", program, args...); err != nil {
		return "", err
	}
	return ui, d.wait(ctx, "Temporal", func(ctx context.Context) error {
		c, err := connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
}

// ingestAll ingests every folder of the demo's data as a dataset and returns the last version.
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
		// The file holds what a user would give as flags. The glob below excludes it from the
		// input.
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
		bar := newIngestBar(d.cmd.ErrOrStderr(), false)
		bar.plain = nil // without a terminal the report is enough
		err = await(d.cmd, run, &res, true, c, bar.bar, func(ctx context.Context) {
			if p, ok := progress(ctx, c, run); ok {
				bar.update(p, time.Now())
			}
		})
		bar.finish(err)
		if err != nil {
			return "", err
		}
		printIngest(d.out, &res, duration(ctx, c, run))
		cli.Fprintf(d.out, "\n")
		version = res.Version
	}
	return version, nil
}

// waitVersion waits until the server serves the version.
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

// query sends both queries and prints them and their answers.
func (d *demo) query(ctx context.Context, base string) error {
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
		return fmt.Errorf("no dataset holds %s; the demo's query needs one, see --data", domain)
	}
	_, err = d.show(ctx, fmt.Sprintf("%s/v1/domain/%s/datasets/%d/urls?limit=3",
		base, url.PathEscape(domain), answer.Datasets[0].DatasetID))
	return err
}

// show prints a request and its answer, and returns the answer.
func (d *demo) show(ctx context.Context, address string) ([]byte, error) {
	body, err := get(ctx, address)
	if err != nil {
		return nil, err
	}
	text, err := pretty(body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address, err)
	}
	cli.Fprintf(d.out, "GET %s\n", address)
	for line := range strings.Lines(text) {
		cli.Fprintf(d.out, "%s\n", strings.TrimSuffix(line, "\n"))
	}
	cli.Fprintf(d.out, "\n")
	return body, nil
}

// pretty formats a JSON object with a line for each member, and a line for each element of a member
// that is a list.
func pretty(body []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "", fmt.Errorf("the answer is not a JSON object: %w", err)
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

// get returns the body of a successful answer.
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

// startTimeout is how long one of the demo's servers may take until it answers.
const startTimeout = time.Minute

// wait calls ready until it succeeds, one of the demo's programs exits, or startTimeout passes.
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
			return fmt.Errorf("%s exited during the start", p.Name)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-tick.C:
		}
	}
}

// process is a program that the demo started.
type process struct {
	*supervise.Process
	log string // path
}

// start runs a program, with its output in a log file in dir.
func (d *demo) start(dir, name, program string, args ...string) error {
	log := filepath.Join(dir, name+".log")
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := supervise.Start(name, f, nil, program, args...)
	if err != nil {
		return err
	}
	d.processes = append(d.processes, &process{p, log})
	return nil
}

// firstExit returns a channel that delivers a process that has exited, as soon as there is one.
func (d *demo) firstExit() <-chan *process {
	out := make(chan *process, len(d.processes))
	for _, p := range d.processes {
		select {
		case <-p.Done():
			out <- p
			return out
		default:
		}
	}
	for _, p := range d.processes {
		go func() {
			<-p.Done()
			out <- p
		}()
	}
	return out
}

// stop ends the programs in the reverse order of their start, so the worker before Temporal.
func (d *demo) stop() error {
	defer d.addresses.Release()
	var errs []error
	for i := len(d.processes) - 1; i >= 0; i-- {
		errs = append(errs, d.processes[i].Stop(15*time.Second))
	}
	return errors.Join(errs...)
}

// withLogs returns err joined with the last lines of the programs' logs.
func (d *demo) withLogs(err error) error {
	all := []error{err}
	for _, p := range d.processes {
		data, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		if n := len(lines); n > 5 {
			lines = lines[n-5:]
		}
		for _, line := range lines {
			if line != "" {
				all = append(all, fmt.Errorf("  %s: %s", p.Name, line))
			}
		}
	}
	return errors.Join(all...)
}
