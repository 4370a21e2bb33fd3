//go:build soak

package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// These make the test binary another program: serve, so that its memory is that of a server alone,
// or a crowd of clients, so that what they measure is not their own waiting for each other.
const (
	loadArgs  = "URLAKE_TEST_SERVE_ARGS"
	loadCrowd = "URLAKE_TEST_CROWD"
)

func init() {
	if args := os.Getenv(loadArgs); args != "" {
		cmd := New()
		cmd.SetArgs(strings.Split(args, "\n"))
		cli.Main(cmd)
	}
	if text := os.Getenv(loadCrowd); text != "" {
		var c crowd
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(c.run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

const (
	// loadMemory is the --memory-limit of the server, in MiB.
	loadMemory = 256
	// loadBig and loadLong are numbers of URLs: of a domain with usual ones, and of one with URLs
	// of nearly 8 kB.
	loadBig  = 60_000
	loadLong = 8_000
	// loadSmall is the number of domains with one URL.
	loadSmall = 5_000
)

// load is a server under load and its clients.
type load struct {
	t       *testing.T
	base    string
	address string
	pid     int
	// highest is the most resident memory that was seen, in bytes.
	highest atomic.Int64
}

// resident returns the resident memory of the server, in bytes.
func (l *load) resident() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.pid))
	if err != nil {
		l.t.Error(err)
		return 0
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(data)
	if m == nil {
		l.t.Errorf("no VmRSS in %s", data)
		return 0
	}
	kib, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
	now := kib << 10
	for {
		before := l.highest.Load()
		if now <= before || l.highest.CompareAndSwap(before, now) {
			return now
		}
	}
}

// crowd is a number of clients of one kind in a process of their own.
type crowd struct {
	Base string
	// Clients are how many there are, and For how long they ask.
	Clients int
	For     time.Duration
	// Pages is a folder with the right answers of the heaviest pages, each beside its path. Without
	// it the clients look up domains.
	Pages string
}

// crowdReport is what a crowd has seen.
type crowdReport struct {
	// Right and Shed count answers. Faults are the first answers that were neither.
	Right, Shed int64
	Faults      []string
	// Quantiles are times of lookups: the median, 99 of 100, and the longest.
	Quantiles [3]time.Duration
}

// maxFaults is how many faults a crowd tells of.
const maxFaults = 5

// run asks until the time is over.
func (c *crowd) run() (out crowdReport) {
	ctx, cancel := context.WithTimeout(context.Background(), c.For)
	defer cancel()
	var mu sync.Mutex
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if len(out.Faults) < maxFaults {
			out.Faults = append(out.Faults, fmt.Sprintf(format, args...))
		}
	}
	paths, bodies, err := c.pages()
	if err != nil {
		fault("%v", err)
		return out
	}
	var all []time.Duration
	var right, shed atomic.Int64
	var clients sync.WaitGroup
	for n := range c.Clients {
		clients.Go(func() {
			// One of four asks for a compressed page.
			client := &http.Client{Transport: &http.Transport{DisableCompression: n%4 != 0}}
			defer client.CloseIdleConnections()
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			if len(paths) > 0 {
				c.heavy(ctx, client, n, rng, paths, bodies, &right, &shed, fault)
				return
			}
			own := c.lookups(ctx, client, rng, fault)
			right.Add(int64(len(own)))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	clients.Wait()
	out.Right, out.Shed = right.Load(), shed.Load()
	if slices.Sort(all); len(all) > 0 {
		for i, q := range []float64{0.5, 0.99, 1} {
			out.Quantiles[i] = all[int(q*float64(len(all)-1))].Round(10 * time.Microsecond)
		}
	}
	return out
}

// pages reads the right answers.
func (c *crowd) pages() (paths []string, bodies [][]byte, err error) {
	if c.Pages == "" {
		return nil, nil, nil
	}
	for i := 0; ; i++ {
		path, err := os.ReadFile(filepath.Join(c.Pages, fmt.Sprintf("%d.path", i)))
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			return paths, bodies, nil
		}
		body, err2 := os.ReadFile(filepath.Join(c.Pages, fmt.Sprintf("%d.body", i)))
		if err := errors.Join(err, err2); err != nil {
			return nil, nil, err
		}
		paths, bodies = append(paths, string(path)), append(bodies, body)
	}
}

// lookups asks for domains, and returns how long each answer took. Every one has to be right:
// nothing that others do is an excuse.
func (c *crowd) lookups(ctx context.Context, client *http.Client, rng *rand.Rand, fault func(string, ...any)) (times []time.Duration) {
	for ctx.Err() == nil {
		i := rng.IntN(loadSmall + loadSmall/10)
		began := time.Now()
		status, body, _, err := ask(client, c.Base+fmt.Sprintf("/v1/domain/site%d.test", i), "192.0.2.1")
		times = append(times, time.Since(began))
		var answer struct {
			Total int `json:"total_datasets"`
		}
		want := 1
		if i >= loadSmall {
			want = 0
		}
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		if err != nil || status != 200 || answer.Total != want {
			fault("a lookup: %d, %v, %.200s", status, err, body)
		}
		pause(ctx, time.Millisecond)
	}
	return times
}

// heavy asks for the heaviest pages. Every answer is right or shed.
func (c *crowd) heavy(
	ctx context.Context, client *http.Client, n int, rng *rand.Rand, paths []string, bodies [][]byte, right, shed *atomic.Int64, fault func(string, ...any),
) {
	address := fmt.Sprintf("198.51.%d.%d", n/250, n%250)
	for ctx.Err() == nil {
		i := rng.IntN(len(paths))
		status, body, header, err := ask(client, c.Base+paths[i], address)
		switch {
		case err != nil:
			fault("a heavy page: %v", err)
		case status == 200 && bytes.Equal(body, bodies[i]):
			right.Add(1)
		case (status == 429 || status == 503) && header.Get("Retry-After") != "":
			shed.Add(1)
			// Sooner than the server asks for.
			pause(ctx, time.Duration(100+rng.IntN(200))*time.Millisecond)
		default:
			fault("a heavy page: %d, %d bytes: %.200s", status, len(body), body)
		}
	}
}

// assemble runs a crowd in a process of its own, which has the priority of the server.
func (l *load) assemble(c crowd) (out crowdReport) {
	self, err := os.Executable()
	if err != nil {
		l.t.Error(err)
		return out
	}
	c.Base = l.base
	text, err := json.Marshal(&c)
	if err != nil {
		l.t.Error(err)
		return out
	}
	cmd := exec.CommandContext(l.t.Context(), self)
	cmd.Env = append(os.Environ(), loadCrowd+"="+string(text))
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		l.t.Errorf("a crowd of clients: %v", err)
	}
	for _, fault := range out.Faults {
		l.t.Error(fault)
	}
	return out
}

// lookups has clients look up domains, and reports how long that took.
func (l *load) lookups(ctx context.Context, what string, d time.Duration) {
	before := l.served()
	var watch sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	watch.Go(func() {
		for watching.Err() == nil {
			l.resident()
			pause(watching, 20*time.Millisecond)
		}
	})
	seen := l.assemble(crowd{Clients: 4, For: d})
	stop()
	watch.Wait()
	if seen.Right == 0 {
		l.t.Fatalf("%s: no lookup", what)
	}
	l.t.Logf("%-36s %6d lookups, p50 %v, p99 %v (in the server %s), longest %v; resident %d MiB, at most %d MiB so far",
		what, seen.Right, seen.Quantiles[0], seen.Quantiles[1], percentile(before, l.served()), seen.Quantiles[2],
		l.resident()>>20, l.highest.Load()>>20)
}

// bucket is one of the latency of lookups, as the server has measured it.
type bucket struct {
	bound string // in seconds
	count float64
}

func (l *load) served() (list []bucket) {
	_, body, _, err := l.get(http.DefaultClient, "/metrics", "192.0.2.3")
	if err != nil {
		l.t.Error(err)
	}
	line := regexp.MustCompile(`_duration_seconds_bucket{route="domain",status="200",le="([^"]+)"} (\S+)`)
	for _, m := range line.FindAllStringSubmatch(string(body), -1) {
		count, _ := strconv.ParseFloat(m[2], 64) // written by Prometheus
		list = append(list, bucket{m[1], count})
	}
	return list
}

// percentile says in which bucket the slowest of a hundred lookups between two looks were. The
// clients take processors from the server and from each other, so what they measure is more.
func percentile(before, after []bucket) string {
	since := func(i int) float64 {
		if len(before) != len(after) {
			return after[i].count
		}
		return after[i].count - before[i].count
	}
	for i := range after {
		if since(i) >= 0.99*since(len(after)-1) {
			return "below " + after[i].bound + " s"
		}
	}
	return "unknown"
}

// pause is the time that a client thinks.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// get asks as the client with an address.
func (l *load) get(client *http.Client, path, address string) (status int, body []byte, header http.Header, err error) {
	return ask(client, l.base+path, address)
}

// ask asks for a URL as the client with an address.
func ask(client *http.Client, url, address string) (status int, body []byte, header http.Header, err error) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("X-Forwarded-For", address)
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	if resp.ContentLength > 0 {
		body = make([]byte, resp.ContentLength)
		_, err = io.ReadFull(resp.Body, body)
		return resp.StatusCode, body, resp.Header, err
	}
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, resp.Header, err
}

// TestSteadyUnderLoad is a server with 256 MiB, clients that look up domains, and others that do
// what they can to disturb that: a thousand on the heaviest pages, a hundred that ask for large
// pages and do not read them, headers that never end, and idle connections. Every lookup is
// answered, every page is right or shed, and the memory stays within 1.25 of the limit.
func TestSteadyUnderLoad(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	var small, big, long []testlake.Record
	for i := range loadSmall {
		small = append(small, testlake.Record{URL: fmt.Sprintf("https://site%d.test/", i)})
	}
	for i := range loadBig {
		big = append(big, testlake.Record{URL: fmt.Sprintf("https://www.big.test/a/path/of/usual/length/%08d", i)})
	}
	for i := range loadLong {
		long = append(long, testlake.Record{URL: fmt.Sprintf("https://long.test/%05d/%s", i, strings.Repeat("0123456789", 780))})
	}
	testlake.Ingest(t, store, "small", "b", small)
	testlake.Ingest(t, store, "big", "b", big)
	testlake.Ingest(t, store, "long", "b", long)
	testlake.Publish(t, store)

	l := &load{t: t}
	pages := t.TempDir()
	l.start(dir)
	client := &http.Client{Transport: &http.Transport{}}
	for offset := 0; offset < loadBig; offset += 10_000 {
		path := fmt.Sprintf("/v1/domain/big.test/datasets/big/urls?limit=10000&offset=%d", offset)
		status, body, _, err := l.get(client, path, "192.0.2.2")
		var page struct{ Items []struct{ URL string } }
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil || status != 200 || len(page.Items) != 10_000 {
			t.Fatalf("%s: %d, %v, %d items", path, status, err, len(page.Items))
		}
		for i, item := range page.Items {
			if item.URL != big[offset+i].URL {
				t.Fatalf("%s: item %d is %s, want %s", path, i, item.URL, big[offset+i].URL)
			}
		}
		at := filepath.Join(pages, strconv.Itoa(offset/10_000))
		if err := errors.Join(os.WriteFile(at+".path", []byte(path), 0o666), os.WriteFile(at+".body", body, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	client.CloseIdleConnections()
	seconds := func(n int) time.Duration {
		return time.Duration(testenv.Scaled(t, n*1000, 2000)) * time.Millisecond
	}
	during := func(what string, d time.Duration, disturb func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() { disturb(ctx) })
		l.lookups(ctx, what, d)
		others.Wait()
	}
	limit := int64(loadMemory) << 20

	during("alone", seconds(5), func(context.Context) {})
	during("1,000 clients on pages of 10,000", seconds(20), func(ctx context.Context) {
		until, _ := ctx.Deadline()
		seen := l.assemble(crowd{Clients: 1000, For: time.Until(until), Pages: pages})
		t.Logf("%d pages of 10,000 URLs, %d shed", seen.Right, seen.Shed)
		if seen.Right == 0 || seen.Shed == 0 {
			t.Error("the heavy clients got no page, or were not too many")
		}
	})
	during("100 clients that do not read", seconds(15), func(ctx context.Context) {
		l.hold(ctx, 100, func(i int) string {
			return fmt.Sprintf("GET /v1/domain/long.test/datasets/long/urls?limit=10000 HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.%d\r\n\r\n", i)
		})
	})
	during("2,500 headers of 255 kB without end", seconds(12), func(ctx context.Context) {
		header := "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 255_000)
		l.hold(ctx, 2500, func(int) string { return header })
	})
	idle := 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	idle = min(idle, int(files.Cur)-1000)
	during(fmt.Sprintf("%d idle connections", idle), seconds(10), func(ctx context.Context) {
		l.hold(ctx, idle, func(i int) string { return [...]string{"", "GET /hea"}[i%2] })
	})
	during("alone again", seconds(5), func(context.Context) {})
	if most := l.highest.Load(); most > limit/4*5 {
		t.Errorf("%d MiB were resident with a limit of %d MiB", most>>20, loadMemory)
	}
	// Nothing is left behind.
	testenv.Until(t, "all memory of answers is free", func() bool {
		_, body, _, err := l.get(http.DefaultClient, "/metrics", "192.0.2.3")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(body), `urlake_http_answer_bytes{gate="heavy"} 0`) &&
			strings.Contains(string(body), "urlake_header_bytes 0")
	})
}

// hold opens connections, sends something on each and reads nothing until ctx ends.
func (l *load) hold(ctx context.Context, n int, text func(i int) string) {
	var senders sync.WaitGroup
	connections := make([]net.Conn, n)
	next := atomic.Int64{}
	for range 50 {
		senders.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				c, err := net.DialTimeout("tcp", l.address, 10*time.Second)
				if err != nil {
					continue // there are too many already
				}
				connections[i] = c
				// What the server refuses is what this is about.
				_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
				_, _ = io.WriteString(c, text(i))
			}
		})
	}
	senders.Wait()
	<-ctx.Done()
	for _, c := range connections {
		if c != nil {
			c.Close()
		}
	}
}

// start runs the server as a process of its own until the test ends.
func (l *load) start(dir string) {
	t := l.t
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--lake", dir, "--cache", t.TempDir(), "--listen", "127.0.0.1:0", "--memory-limit", strconv.Itoa(loadMemory),
		"--trusted-proxy", "127.0.0.1", "--access-log=false", "--drain", "0s",
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), loadArgs+"="+strings.Join(args, "\n"))
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.pid = cmd.Process.Pid
	lines := bufio.NewScanner(pipe)
	found := regexp.MustCompile(`msg=listening address=(\S+)`)
	for lines.Scan() {
		if m := found.FindStringSubmatch(lines.Text()); m != nil {
			l.address, l.base = m[1], "http://"+m[1]
			break
		}
	}
	var log sync.WaitGroup
	log.Go(func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), "level=ERROR") || strings.Contains(lines.Text(), "panic") {
				t.Errorf("the server logs: %s", lines.Text())
			}
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		log.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	var ready map[string]any
	testenv.Until(t, "ready", func() bool { return get(t, l.base+"/readyz", &ready) == 200 })
}
