//go:build soak

package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// loadArgs makes the test binary the program serve, so that its memory is that of a server alone.
const loadArgs = "URLAKE_TEST_SERVE_ARGS"

func init() {
	if args := os.Getenv(loadArgs); args != "" {
		cmd := New()
		cmd.SetArgs(strings.Split(args, "\n"))
		cli.Main(cmd)
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
	// pages are paths of the heaviest pages and their right answers.
	pages map[string][]byte
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

// lookups asks for domains until ctx ends, and reports how long that took. Every answer has to be
// right: nothing that others do is an excuse.
func (l *load) lookups(ctx context.Context, what string) {
	var mu sync.Mutex
	var all []time.Duration
	before := l.served()
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			var own []time.Duration
			for ctx.Err() == nil && !l.t.Failed() {
				i := rng.IntN(loadSmall + loadSmall/10)
				began := time.Now()
				status, body, _, err := l.get(client, fmt.Sprintf("/v1/domain/site%d.test", i), "192.0.2.1")
				own = append(own, time.Since(began))
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
					l.t.Errorf("%s: a lookup: %d, %v, %s", what, status, err, body)
				}
				l.pause(ctx, time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	clients.Go(func() {
		for ctx.Err() == nil {
			l.resident()
			l.pause(ctx, 20*time.Millisecond)
		}
	})
	clients.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		l.t.Fatalf("%s: no lookup", what)
	}
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))].Round(10 * time.Microsecond) }
	l.t.Logf("%-36s %6d lookups, p50 %v, p99 %v (in the server %s), longest %v; resident %d MiB, at most %d MiB so far",
		what, len(all), at(0.5), at(0.99), percentile(before, l.served()), at(1), l.resident()>>20, l.highest.Load()>>20)
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
func (l *load) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// get asks as the client with an address.
func (l *load) get(client *http.Client, path, address string) (status int, body []byte, header http.Header, err error) {
	r, err := http.NewRequest("GET", l.base+path, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("X-Forwarded-For", address)
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, resp.Header, err
}

// heavy has clients ask for the heaviest pages until ctx ends. Every answer is right or shed.
func (l *load) heavy(ctx context.Context, n int) (right, shed int64) {
	paths := make([]string, 0, len(l.pages))
	for path := range l.pages {
		paths = append(paths, path)
	}
	var done sync.WaitGroup
	var rights, sheds atomic.Int64
	for i := range n {
		done.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			for ctx.Err() == nil && !l.t.Failed() {
				path := paths[rng.IntN(len(paths))]
				status, body, header, err := l.get(client, path, fmt.Sprintf("198.51.%d.%d", i/250, i%250))
				switch {
				case err != nil:
					l.t.Errorf("a heavy page: %v", err)
				case status == 200 && bytes.Equal(body, l.pages[path]):
					rights.Add(1)
				case (status == 429 || status == 503) && header.Get("Retry-After") != "":
					sheds.Add(1)
					// Sooner than the server asks for.
					l.pause(ctx, time.Duration(100+rng.IntN(200))*time.Millisecond)
				default:
					l.t.Errorf("a heavy page: %d, %d bytes: %.200s", status, len(body), body)
				}
			}
		})
	}
	done.Wait()
	return rights.Load(), sheds.Load()
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

	l := &load{t: t, pages: map[string][]byte{}}
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
		l.pages[path] = body
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
		l.lookups(ctx, what)
		others.Wait()
	}
	limit := int64(loadMemory) << 20

	during("alone", seconds(5), func(context.Context) {})
	during("1,000 clients on pages of 10,000", seconds(20), func(ctx context.Context) {
		right, shed := l.heavy(ctx, 1000)
		t.Logf("%d pages of 10,000 URLs, %d shed", right, shed)
		if right == 0 || shed == 0 {
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
	eventually(t, "all memory of answers is free", func() bool {
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
	eventually(t, "ready", func() bool { return get(t, l.base+"/readyz", &ready) == 200 })
}
