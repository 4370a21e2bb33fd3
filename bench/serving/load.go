package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// pageSize is the number of URLs of a page.
	pageSize = 100
	// paths is how many lookups a client sends before it begins again; one in unknownEvery is of a
	// domain that no list has.
	paths        = 200_000
	unknownEvery = 10
	// compared is how many domains all contestants must answer alike.
	compared = 300
	// startTime is how long a server may take to become ready.
	startTime = 2 * time.Minute
)

func seconds() time.Duration { return time.Duration(setting("BENCH_SECONDS", 5)) * time.Second }
func connections() int       { return int(setting("BENCH_CLIENTS", 16)) }

// The answers, as far as they are read here.
type (
	domainAnswer struct {
		Domain   string         `json:"domain"`
		Datasets []datasetCount `json:"datasets"`
	}
	datasetCount struct {
		ID    int64 `json:"dataset_id"`
		Count int64 `json:"url_count_est"`
	}
	pageAnswer struct {
		Items []pageItem `json:"items"`
	}
	pageItem struct {
		URL string `json:"url"`
	}
)

// workload is what every contestant is asked.
type workload struct {
	lookups []string // paths
	domains []string // to compare
	largest string   // the domain whose pages are read
}

func newWorkload() (*workload, error) {
	c, err := lists()
	if err != nil {
		return nil, err
	}
	w, suffixes := &workload{}, urlnorm.BuiltinSuffixes()
	state, counts := uint64(42), map[string]int{}
	for i := range paths {
		// Databases know domains alone, and a sample can be a host.
		domain := suffixes.Domain(c.Sample(&state))
		counts[domain]++
		if i < compared {
			w.domains = append(w.domains, domain)
		}
		if i%unknownEvery == 0 {
			domain = fmt.Sprintf("unknown-%d.example", i)
		}
		w.lookups = append(w.lookups, "/v1/domain/"+domain)
	}
	w.domains = append(w.domains, "unknown-1.example")
	w.largest = slices.MaxFunc(slices.Collect(maps.Keys(counts)), func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
	return w, nil
}

// answers are what a contestant says of the compared domains: the counts, and the URLs of small
// lists, sorted.
type answers struct {
	counts map[string][]datasetCount
	urls   map[string][]string
	// dataset has the most URLs of the largest domain, this many.
	dataset, rows int64
}

// figures are those of one round.
type figures struct {
	LookupRate, PageRate float64
	Lookup, Page         latencies
	Resident             int64
}

// latencies are quantiles in microseconds, as the client sees them.
type latencies struct{ P50, P95, P99 float64 }

func quantiles(us []float64) latencies {
	if len(us) == 0 {
		return latencies{}
	}
	slices.Sort(us)
	at := func(q float64) float64 { return us[int(q*float64(len(us)-1))] }
	return latencies{at(0.5), at(0.95), at(0.99)}
}

// buildServe builds the read server, in the module that is measured.
func buildServe(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/urlake/urlake").Output()
	if err != nil {
		return "", fmt.Errorf("find the project (run this in its folder bench): %w", err)
	}
	program := filepath.Join(dir, "serve")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", program, "./serve")
	cmd.Stderr = os.Stderr
	return program, cmd.Run()
}

// process is a contestant that runs.
type process struct {
	cmd    *exec.Cmd
	client *fasthttp.HostClient
}

// start starts a contestant and waits until it answers.
func start(ctx context.Context, name, program, dir string) (*process, error) {
	if name == "urlake" {
		return startServe(ctx, program, filepath.Join(dir, "lake"), filepath.Join(dir, "cache"))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch(ctx, self, "serve", name, dir)
}

// startServe starts the read server of a lake, with a folder for its cache.
func startServe(ctx context.Context, program, lake, cache string) (*process, error) {
	return launch(ctx, program, "--lake", lake, "--listen", "127.0.0.1:0", "--cache", cache, "--log-format", "json", "--access-log=false")
}

// launch starts a server that says where it listens, and waits until it answers.
func launch(ctx context.Context, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = write, write
	err = p.cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	address, said := make(chan string, 1), ""
	go func() {
		defer read.Close()
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			var e struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Msg == "listening" {
				address <- e.Address
			} else if len(said) < 4<<10 {
				said += lines.Text() + "\n"
			}
		}
		close(address)
	}()
	select {
	case a, ok := <-address:
		if !ok {
			return nil, errors.Join(fmt.Errorf("it ended: %s", said), p.cmd.Wait())
		}
		p.client = &fasthttp.HostClient{Addr: a, MaxConns: connections() + 1, ReadTimeout: startTime}
	case <-time.After(startTime):
		return nil, errors.Join(errors.New("it does not listen"), p.stop())
	}
	for until := time.Now().Add(startTime); ; {
		_, err := p.get("/v1/domain/example.com")
		if err == nil {
			return p, nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("it does not answer: %w", err), p.stop())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// get returns the body of an answer. A status other than 200 is an error.
func (p *process) get(path string) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + p.client.Addr + path)
	if err := p.client.Do(req, resp); err != nil {
		return nil, err
	}
	body := slices.Clone(resp.Body())
	if code := resp.StatusCode(); code != fasthttp.StatusOK {
		return nil, &statusError{path, code, body}
	}
	return body, nil
}

// statusError is an answer other than 200.
type statusError struct {
	path string
	code int
	body []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("GET %s: status %d: %s", e.path, e.code, e.body)
}

func (p *process) getJSON(path string, v any) error {
	body, err := p.get(path)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	return err
}

// measure runs one contestant through a round, after its answers were compared with those of
// another one, if there is one.
func measure(ctx context.Context, name, program, dir string, work *workload, other *answers) (f *figures, got *answers, err error) {
	p, err := start(ctx, name, program, dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if got, err = p.ask(work); err != nil {
		return nil, nil, err
	}
	if other != nil {
		if err := got.equal(other); err != nil {
			return nil, nil, err
		}
	}
	f = new(figures)
	if f.LookupRate, f.Lookup, err = p.lookUp(ctx, dir, work); err != nil {
		return nil, nil, err
	}
	page := fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=%d&offset=", work.largest, got.dataset, pageSize)
	if f.PageRate, f.Page, err = p.load(ctx, 1, func(_ int, rng *rand.Rand) string {
		return page + strconv.FormatInt(rng.Int64N(max(1, got.rows-pageSize)), 10)
	}); err != nil {
		return nil, nil, err
	}
	f.Resident, err = residentBytes(p.cmd.Process.Pid)
	return f, got, err
}

// ask asks for what is compared.
func (p *process) ask(work *workload) (*answers, error) {
	out := &answers{counts: map[string][]datasetCount{}, urls: map[string][]string{}}
	for _, domain := range append(slices.Clone(work.domains), work.largest) {
		var a domainAnswer
		if err := p.getJSON("/v1/domain/"+domain, &a); err != nil {
			return nil, err
		}
		out.counts[domain] = a.Datasets
		for _, d := range a.Datasets {
			if domain == work.largest {
				if d.Count > out.rows {
					out.dataset, out.rows = d.ID, d.Count
				}
				continue
			}
			if _, done := out.urls[domain]; done || d.Count > pageSize {
				continue
			}
			var page pageAnswer
			if err := p.getJSON(fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=%d&offset=0", domain, d.ID, pageSize), &page); err != nil {
				return nil, err
			}
			urls := make([]string, len(page.Items))
			for i := range page.Items {
				urls[i] = page.Items[i].URL
			}
			slices.Sort(urls) // the orders of lists differ
			out.urls[domain] = urls
		}
	}
	if out.rows == 0 {
		return nil, fmt.Errorf("no dataset has %s", work.largest)
	}
	return out, nil
}

// equal returns an error that names the first domain of which two contestants say something else.
func (a *answers) equal(b *answers) error {
	for domain := range a.counts {
		if !slices.Equal(a.counts[domain], b.counts[domain]) {
			return fmt.Errorf("counts of %s: %v; another one has %v", domain, a.counts[domain], b.counts[domain])
		}
		if !slices.Equal(a.urls[domain], b.urls[domain]) {
			return fmt.Errorf("URLs of %s: %q; another one has %q", domain, a.urls[domain], b.urls[domain])
		}
	}
	return nil
}

// lookUp requests the lookups of a workload: with wrk if the machine has it.
func (p *process) lookUp(ctx context.Context, dir string, work *workload) (float64, latencies, error) {
	if lookupClient() == wrkProgram {
		return p.wrk(ctx, dir, work)
	}
	return p.load(ctx, connections(), func(i int, _ *rand.Rand) string { return work.lookups[i%paths] })
}

// load requests paths over several connections at once, and returns answers a second and latencies.
func (p *process) load(ctx context.Context, conns int, path func(i int, rng *rand.Rand) string) (float64, latencies, error) {
	times, errs := make([][]float64, conns), make([]error, conns)
	started := time.Now()
	var wg sync.WaitGroup
	for c := range conns {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			defer fasthttp.ReleaseRequest(req)
			defer fasthttp.ReleaseResponse(resp)
			for i := c * paths / conns; time.Since(started) < seconds() && ctx.Err() == nil; i++ {
				req.SetRequestURI("http://" + p.client.Addr + path(i, rng))
				sent := time.Now()
				if errs[c] = p.client.Do(req, resp); errs[c] == nil && resp.StatusCode() != fasthttp.StatusOK {
					errs[c] = fmt.Errorf("GET %s: status %d", req.URI().Path(), resp.StatusCode())
				}
				if errs[c] != nil {
					return
				}
				times[c] = append(times[c], float64(time.Since(sent).Nanoseconds())/1e3)
			}
		})
	}
	wg.Wait()
	took := time.Since(started).Seconds()
	all := slices.Concat(times...)
	return float64(len(all)) / took, quantiles(all), errors.Join(errors.Join(errs...), ctx.Err())
}

// residentBytes is the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), " kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory is resident")
}
