// Demo is what `make demo-crawl` runs: a crawl of test sites on this machine, from the URLs of a
// lake to a dataset of what was visited. It starts a Redis of its own, frontierd, the programs of a
// lake, the sites and a crawler, kills some of them on the way, and compares what the sites were
// asked with what a polite crawler asks. It ends with an error if anything differs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/frontier/example/sites"
	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
)

// demo is the flags and what is running.
type demo struct {
	bin, dir string
	pages    int
	delay    time.Duration

	out       io.Writer
	running   []*supervise.Process // in the order of their start
	addresses addresses.Set
	lake      string
	temporal  string
	web       *sites.Web
	server    *httptest.Server
	frontier  string // address
	frontierd *supervise.Process
	crawler   *supervise.Process
}

const (
	// tries is how often the frontier hands out a URL, depth how many links a page may be from a
	// seed, lease how long the URLs of a killed crawler wait.
	tries = 3
	depth = 8
	lease = 3 * time.Second
	// wait bounds every wait for a program.
	wait = time.Minute
	// userAgent is what the sites see.
	userAgent = "urlakedemo/1.0 (+https://github.com/urlake/urlake)"
)

func main() {
	d := demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Crawl test sites on this machine, from a lake and back",
		Long: `Demo seeds a frontier with the URLs of a lake, crawls test sites with the example crawler,
kills frontierd and the crawler in the middle, compares what the sites were asked with what a
polite crawler asks, and ingests what was visited as a dataset.

It needs the programs of urlake in --bin, as make demo-crawl builds them, and redis-server
(Debian: apt install redis-server). All ports are free ones, and everything ends with it.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.bin, "bin", "bin", "`FOLDER` of the programs")
	f.StringVar(&d.dir, "dir", "", "keep lake, frontier and logs in `FOLDER` (default: a temporary folder)")
	f.IntVar(&d.pages, "pages", 150, "`NUMBER` of pages of the largest site")
	f.DurationVar(&d.delay, "crawl-delay", 100*time.Millisecond, "`DURATION` between two requests to a domain")
	cli.Main(cmd)
}

func (d *demo) run(ctx context.Context) (err error) {
	signal.Ignore(syscall.SIGPIPE) // see starter demo
	redisServer, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("the demo needs redis-server, which is not installed; on Debian: apt install redis-server")
	}
	if d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "urlake-crawl-"); err != nil {
			return err
		}
		defer os.RemoveAll(d.dir)
	} else if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path("redis"), 0o777); err != nil {
		return err
	}
	if d.frontier, err = d.addresses.Free(); err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			d.say("\nStopping.\n")
			err = nil
		}
		if err != nil {
			err = d.withLogs(err)
		}
		err = errors.Join(err, d.stop())
	}()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return d.startRedis(ctx, redisServer) },
		d.startSites, d.startLake, d.seedLake, d.startFrontier, d.seedFrontier, d.crawl, d.reconcile, d.ingest,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(format string, args ...any) { cli.Fprintf(d.out, format, args...) }
func (d *demo) path(name string) string        { return filepath.Join(d.dir, name) }

// start starts a program with its output in a log.
func (d *demo) start(name, program string, args ...string) (*supervise.Process, error) {
	log, err := os.OpenFile(d.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p, err := supervise.Start(name, log, nil, program, args...)
	if err == nil {
		d.running = append(d.running, p)
	}
	return p, err
}

// kill kills a program as a failing machine would.
func (d *demo) kill(p *supervise.Process) {
	p.Kill()
	d.running = slices.DeleteFunc(d.running, func(other *supervise.Process) bool { return other == p })
}

func (d *demo) stop() (err error) {
	defer d.addresses.Release()
	for _, p := range slices.Backward(d.running) {
		err = errors.Join(err, p.Stop(30*time.Second))
	}
	if d.server != nil {
		d.server.Close()
	}
	return err
}

// withLogs adds the last lines of the logs to an error.
func (d *demo) withLogs(err error) error {
	for _, p := range d.running {
		data, _ := os.ReadFile(d.path(p.Name + ".log"))
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		for _, line := range lines[max(0, len(lines)-5):] {
			err = errors.Join(err, fmt.Errorf("%s | %s", p.Name, line))
		}
	}
	return err
}

// until asks again and again until ready has no error.
func (d *demo) until(ctx context.Context, what string, p *supervise.Process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended: %s", what, p.End())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tool runs a program of urlake, prints what it prints, and waits for it.
func (d *demo) tool(ctx context.Context, name string, args ...string) error {
	short := strings.NewReplacer(d.lake, "LAKE", d.path("lake"), "LAKE", "http://"+d.frontier, "FRONTIER")
	d.say("$ %s %s\n", name, short.Replace(strings.Join(args, " ")))
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, name), args...)
	cmd.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+d.temporal)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		d.say("  %s\n", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, args[0], err)
		for line := range strings.Lines(errs.String()) {
			err = errors.Join(err, errors.New(strings.TrimSpace(line)))
		}
		return err
	}
	d.say("\n")
	return nil
}

func (d *demo) startRedis(ctx context.Context, program string) error {
	socket := filepath.Join(d.path("redis"), "s")
	p, err := d.start("redis-server", program, "--port", "0", "--unixsocket", socket, "--dir", d.path("redis"), "--appendonly", "yes", "--save", "")
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer client.Close()
	return d.until(ctx, "Redis", p, func(ctx context.Context) error { return client.Ping(ctx).Err() })
}

func (d *demo) startSites(context.Context) error {
	d.web = sites.New(d.pages, depth)
	d.server = httptest.NewServer(d.web)
	return nil
}

// startLake starts Temporal, a worker and a server for the demo's lake.
func (d *demo) startLake(ctx context.Context) (err error) {
	if d.lake, err = cli.LakeURL(d.path("lake")); err != nil {
		return err
	}
	p, err := d.start("urlake", filepath.Join(d.bin, "urlake"), "up", d.path("lake"), "--state", d.path("state"), "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	state, err := supervise.StateOf(d.path("state"), d.lake)
	if err != nil {
		return err
	}
	return d.until(ctx, "urlake up", p, func(context.Context) error {
		log, _ := os.ReadFile(d.path("urlake.log"))
		running, ok := state.Find()
		if d.temporal = running.Temporal; !ok || !strings.Contains(string(log), "ready ") {
			return errors.New("its programs start")
		}
		return nil
	})
}

// seedLake puts the sites' first URLs into the lake.
func (d *demo) seedLake(ctx context.Context) error {
	list := d.path("seeds.txt")
	if err := os.WriteFile(list, []byte(strings.Join(sites.Seeds, "\n")+"\n"), 0o666); err != nil {
		return err
	}
	d.say("Redis, Temporal, a worker, a read server and the test sites run.\n\n  LAKE      %s\n", d.lake)
	d.say("  FRONTIER  http://%s\n\nThe lake gets the seeds:\n\n", d.frontier)
	return d.tool(ctx, "starter", "ingest", "--lake", d.lake, "--dataset", "seeds", "--wait", list)
}

func (d *demo) startFrontier(ctx context.Context) (err error) {
	d.frontierd, err = d.start("frontierd", filepath.Join(d.bin, "frontierd"), "--redis", "unix://"+filepath.Join(d.path("redis"), "s"),
		"--data", d.path("frontier"), "--http", d.frontier, "--crawl-delay", d.delay.String(), "--lease", lease.String(), "--own", "2s",
		"--tries", fmt.Sprint(tries), "--shards", "8")
	if err != nil {
		return err
	}
	return d.until(ctx, "frontierd", d.frontierd, func(ctx context.Context) error {
		s, err := d.stats(ctx)
		if err == nil && s.Shards < 8 {
			err = errors.New("it waits until nobody else has its shards")
		}
		return err
	})
}

// stats is what frontierd counts.
type stats struct{ Shards, Domains, Waiting, Later, Leased, Visited int }

func (d *demo) stats(ctx context.Context) (s stats, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.frontier+"/v1/stats", nil)
	if err != nil {
		return s, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	return s, json.NewDecoder(res.Body).Decode(&s)
}

func (d *demo) seedFrontier(ctx context.Context) error {
	d.say("frontierd runs. The lake seeds it:\n\n")
	return d.tool(ctx, "starter", "frontier", "seed", "--lake", d.lake, "--dataset", "seeds", "--frontier", "http://"+d.frontier, "--wait")
}

func (d *demo) startCrawler() (err error) {
	d.crawler, err = d.start("crawler", filepath.Join(d.bin, "crawler"), "--frontier", "http://"+d.frontier, "--user-agent", userAgent,
		"--allow-private", "--resolve", "*.test="+d.server.Listener.Addr().String(), "--max-depth", fmt.Sprint(depth),
		"--max-bytes", "1000000", "--pages", d.path("pages"))
	return err
}

// killed are the times at which the crawler was killed.
var killed []time.Time

// crawl crawls until nothing waits. On the way it kills frontierd, and then the crawler.
func (d *demo) crawl(ctx context.Context) error {
	d.say("A crawler begins. It asks each domain once in %s at most, or as its robots.txt says.\n\n", d.delay)
	if err := d.startCrawler(); err != nil {
		return err
	}
	began := time.Now()
	accidents := []struct {
		at   int // requests
		what string
		do   func() error
	}{
		{45, "the crawler is killed, and another one begins; it gets what the first had when the leases end", func() error {
			d.kill(d.crawler)
			killed = append(killed, time.Now())
			return d.startCrawler()
		}},
		{110, "frontierd is killed, and started again", func() error {
			d.kill(d.frontierd)
			return d.startFrontier(ctx)
		}},
	}
	d.say("  seconds  requests   waiting  in work  visited\n")
	var shown time.Time
	for {
		s, err := d.stats(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hits := len(d.web.Hits())
		done := err == nil && s.Shards == 8 && s.Waiting+s.Later+s.Leased == 0 && len(accidents) == 0
		if done || time.Since(shown) >= 2*time.Second {
			shown = time.Now()
			d.say("  %7.0f  %8d  %8d  %7d  %7d\n", time.Since(began).Seconds(), hits, s.Waiting+s.Later, s.Leased, s.Visited)
		}
		if done {
			d.say("\n")
			return nil
		}
		if len(accidents) > 0 && (hits >= accidents[0].at || err == nil && s.Waiting+s.Later+s.Leased == 0) {
			d.say("           %s\n", accidents[0].what)
			if err := accidents[0].do(); err != nil {
				return err
			}
			accidents = accidents[1:]
		}
		select {
		case <-d.crawler.Done():
			return fmt.Errorf("the crawler ended: %s", d.crawler.End())
		case <-d.frontierd.Done():
			return fmt.Errorf("frontierd ended: %s", d.frontierd.End())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// reconcile compares what the sites were asked with what a polite crawler asks.
func (d *demo) reconcile(context.Context) error {
	v := d.web.Check(sites.Crawl{Delay: d.delay, Tries: tries, Killed: killed})
	d.say("What the sites saw, beside what a polite crawler asks:\n\n  %d requests for %d pages and %d robots.txt files\n", v.Requests, v.Pages, v.Robots)
	d.say("  %d pages were in the hands of the killed crawler and were fetched again\n", len(v.Again))
	d.say("  shortest time between two requests:")
	for i, domain := range v.Domains() {
		if i%4 == 0 {
			d.say("\n   ")
		}
		d.say(" %-14s %6s", domain, v.Closest[domain].Round(time.Millisecond))
	}
	d.say("\n")
	for _, w := range v.Wrong {
		d.say("  WRONG: %s\n", w)
	}
	if len(v.Wrong) > 0 {
		return fmt.Errorf("the crawl differs from a polite one in %d ways", len(v.Wrong))
	}
	d.say("  every page that can be reached was fetched, nothing forbidden was, and no domain was asked too soon\n\n")
	return nil
}

// ingest makes a dataset of the visits, and looks them up.
func (d *demo) ingest(ctx context.Context) error {
	d.say("The visits become a dataset of the lake:\n\n")
	if err := d.tool(ctx, "starter", "frontier", "ingest", "--lake", d.lake, "--frontier", "http://"+d.frontier, "--dataset", "visits", "--wait"); err != nil {
		return err
	}
	if err := d.tool(ctx, "urlake", "find", d.path("lake"), "rules.test"); err != nil {
		return err
	}
	return d.tool(ctx, "starter", "urls", "rules.test", "--lake", d.lake, "--dataset", "visits", "--fields", "url,ts,extras", "--format", "ndjson")
}
