//go:build unix

package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
)

// The load of the benchmarks, of which the environment changes the size.
var (
	// benchURLs are added, of benchDomains domains, in batches of benchBatch.
	benchURLs    = benchEnv("URLAKE_BENCH_URLS", 400_000)
	benchDomains = benchEnv("URLAKE_BENCH_DOMAINS", 20_000)
	// benchRate are the URLs a second that benchWorkers workers claim, benchClaims at a time, at
	// a fixed rate for benchSeconds in each phase.
	benchRate    = benchEnv("URLAKE_BENCH_RATE", 10_000)
	benchWorkers = benchEnv("URLAKE_BENCH_WORKERS", 500)
	benchSeconds = benchEnv("URLAKE_BENCH_SECONDS", 3)
	benchClaims  = benchEnv("URLAKE_BENCH_CLAIMS", 20)
	benchAdders  = benchEnv("URLAKE_BENCH_ADDERS", 2)
	// benchPhases are the only phases to run, with commas in between; empty is all of them.
	benchPhases = os.Getenv("URLAKE_BENCH_PHASES")
)

const benchBatch = 10_000

func benchEnv(name string, n int) int {
	if s := os.Getenv(name); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			panic(name + ": " + err.Error())
		}
	}
	return n
}

// queueUnderTest is what the benchmarks compare.
type queueUnderTest interface {
	// add adds URLs and returns how many were new.
	add(ctx context.Context, urls []string) (int, error)
	// claim claims up to n URLs, of as many domains.
	claim(ctx context.Context, n int) (leases []string, err error)
	settle(ctx context.Context, leases []string) error
	// seen returns how many of some URLs were added before.
	seen(ctx context.Context, urls []string) (int, error)
}

// bench is a run of a benchmark.
type bench struct {
	*testing.B
	q queueUnderTest
	// next is the number of the next URL.
	next atomic.Int64
	// leases have been claimed and not been reported.
	leases []string
	rows   [][2]string
	// processes are those of which the time is reported.
	processes []process
}

// usage is when a phase began, and what the processes had used until then.
type usage struct {
	time.Time
	used []time.Duration
}

type process struct {
	name string
	pid  int
}

// cpu is how much time of processors a process has used.
func cpu(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, f := range fields[11:13] {
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// begin begins a phase.
func (b *bench) begin() usage {
	p := usage{Time: time.Now()}
	for _, of := range b.processes {
		p.used = append(p.used, cpu(of.pid))
	}
	return p
}

func (b *bench) row(name, format string, args ...any) {
	b.rows = append(b.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

func (b *bench) rate(name string, count int, since usage) {
	v := float64(count) / time.Since(since.Time).Seconds()
	b.ReportMetric(v, name+"/s")
	text := ""
	for i, p := range b.processes {
		text += fmt.Sprintf("; %s %.1f µs each", p.name, float64((cpu(p.pid)-since.used[i]).Microseconds())/float64(count))
	}
	b.row(name+" a second", "%.0f%s", v, text)
}

func (b *bench) fail(err error) {
	if err != nil && b.Context().Err() == nil {
		b.Error(err)
	}
}

// appendURL appends the nth URL. Domains are of any size, and those of one batch are of many.
func appendURL(b []byte, n int64) []byte {
	var rng rand.PCG
	rng.Seed(uint64(n), 1)
	b = strconv.AppendUint(append(b, "https://site"...), rng.Uint64()%uint64(benchDomains), 10)
	return append(strconv.AppendInt(append(b, ".example/path/to/page-"...), n, 10), ".html"...)
}

// batches calls do with n URLs, some at a time. They are made beside it, and cheaply: it shares the
// processors.
func (b *bench) batches(n int, do func(urls []string)) {
	batches := make(chan []string, 2*benchAdders)
	go func() {
		defer close(batches)
		var text []byte
		var ends [benchBatch]int
		for n > 0 {
			batch := make([]string, min(benchBatch, n))
			first := b.next.Add(int64(len(batch))) - int64(len(batch))
			text = text[:0]
			for i := range batch {
				text = appendURL(text, first+int64(i))
				ends[i] = len(text)
			}
			all, from := string(text), 0
			for i := range batch {
				batch[i], from = all[from:ends[i]], ends[i]
			}
			n -= len(batch)
			batches <- batch
		}
	}()
	var adders sync.WaitGroup
	for range benchAdders {
		adders.Go(func() {
			for batch := range batches {
				do(batch)
			}
		})
	}
	adders.Wait()
}

// insert adds n new URLs.
func (b *bench) insert(name string, n int) {
	started := b.begin()
	var added atomic.Int64
	b.batches(n, func(urls []string) {
		got, err := b.q.add(b.Context(), urls)
		b.fail(err)
		added.Add(int64(got))
	})
	b.rate(name, n, started)
	if added.Load() != int64(n) {
		b.Errorf("%d of %d URLs were added", added.Load(), n)
	}
}

// seen asks for n URLs, of which half were added.
func (b *bench) seen(name string, n int) {
	known := b.next.Load() - int64(n/2)
	began := b.next.Swap(known)
	started := b.begin()
	var seen atomic.Int64
	b.batches(n, func(urls []string) {
		got, err := b.q.seen(b.Context(), urls)
		b.fail(err)
		seen.Add(int64(got))
	})
	b.next.Store(began)
	b.rate(name, n, started)
	if seen.Load() != int64(n/2) {
		b.Errorf("%d of %d URLs are known", seen.Load(), n/2)
	}
}

// timed is how long an answer took, and when it came.
type timed struct{ took, at time.Duration }

// tenth is the time of which percentiles are reported by themselves: what else takes a processor on
// a machine takes it for some of many.
const tenth = time.Second / 10

// percentiles reports times: of all, and the p99 of the median tenth of a second.
func (b *bench) percentiles(name string, all []timed) {
	if len(all) == 0 {
		b.Errorf("%s: nothing was measured", name)
		return
	}
	tenths := map[time.Duration][]time.Duration{}
	var took []time.Duration
	for _, t := range all {
		took = append(took, t.took)
		tenths[t.at/tenth] = append(tenths[t.at/tenth], t.took)
	}
	percentile := func(of []time.Duration, n int) time.Duration {
		slices.Sort(of)
		return of[len(of)*n/100]
	}
	var p99s []time.Duration
	for _, of := range tenths {
		p99s = append(p99s, percentile(of, 99))
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	p50, p99, median, most := ms(percentile(took, 50)), ms(percentile(took, 99)), ms(percentile(p99s, 50)), ms(slices.Max(took))
	b.ReportMetric(p50, name+"-p50-ms")
	b.ReportMetric(p99, name+"-p99-ms")
	b.row(name+" p50, p99, max", "%.2f, %.2f, %.1f ms; p99 of the median tenth of a second %.2f ms", p50, p99, most, median)
}

// claimAtRate claims at a fixed rate, whatever the answers take: a worker sends a request when it
// is due, and the time of an answer is from then on, also if all workers were busy. It goes on
// until done, and reports leases in between if settle says so.
func (b *bench) claimAtRate(name string, done <-chan struct{}, settle bool) {
	every := time.Second * time.Duration(benchClaims) / time.Duration(benchRate)
	started := b.begin()
	var turn, claimed atomic.Int64
	var workers sync.WaitGroup
	all := make([][]timed, benchWorkers)
	kept := make([][]string, benchWorkers) // leases
	for w := range benchWorkers {
		workers.Go(func() {
			for !b.Failed() {
				due := started.Add(time.Duration(turn.Add(1)) * every)
				select {
				case <-done:
					return
				case <-time.After(time.Until(due)):
				}
				leases, err := b.q.claim(b.Context(), benchClaims)
				b.fail(err)
				all[w] = append(all[w], timed{time.Since(due), time.Since(started.Time)})
				claimed.Add(int64(len(leases)))
				if settle {
					b.fail(b.q.settle(b.Context(), leases))
					continue
				}
				kept[w] = append(kept[w], leases...)
			}
		})
	}
	workers.Wait()
	b.leases = slices.Concat(kept...)
	b.rate(name, int(claimed.Load()), started)
	b.percentiles(name, slices.Concat(all...))
}

func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// claimAll lets all workers claim and report one after the other, as fast as they are answered.
func (b *bench) claimAll(name string, n int) {
	started := b.begin()
	var workers sync.WaitGroup
	var claimed atomic.Int64
	all := make([][]timed, benchWorkers)
	for w := range benchWorkers {
		workers.Go(func() {
			for claimed.Load() < int64(n) && !b.Failed() {
				asked := time.Now()
				leases, err := b.q.claim(b.Context(), benchClaims)
				b.fail(err)
				all[w] = append(all[w], timed{time.Since(asked), time.Since(started.Time)})
				claimed.Add(int64(len(leases)))
				b.fail(b.q.settle(b.Context(), leases))
			}
		})
	}
	workers.Wait()
	b.rate(name, int(claimed.Load()), started)
	b.percentiles(name, slices.Concat(all...))
}

// settleAll reports all leases, in batches.
func (b *bench) settleAll(name string) {
	started := b.begin()
	var reporters sync.WaitGroup
	batches := slices.Collect(slices.Chunk(b.leases, benchBatch))
	var next atomic.Int64
	for range benchAdders {
		reporters.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				b.fail(b.q.settle(b.Context(), batches[i]))
			}
		})
	}
	reporters.Wait()
	b.rate(name, len(b.leases), started)
	b.leases = nil
}

// phase is a part of a benchmark.
type phase struct {
	name string
	do   func(name string)
}

// disturbance is something that happens while URLs are claimed.
type disturbance struct {
	name string
	do   func()
}

// run puts the load on a queue. Memory is called when the URLs are there.
func (b *bench) run(memory func(), disturbances ...disturbance) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the clients are to take little of the processors
	seconds := time.Duration(benchSeconds) * time.Second
	b.insert("added", benchURLs)
	memory()
	phases := []phase{
		{"claims-after-adds", func(name string) {
			b.claimAtRate(name, after(seconds), false)
			b.settleAll("reported")
		}},
		{"claimed-and-reported", func(name string) { b.claimAll(name, benchURLs/8) }},
		{"seen", func(name string) { b.seen(name, min(benchURLs, 1_000_000)) }},
		{"claims-at-rate", func(name string) { b.claimAtRate(name, after(seconds), true) }},
	}
	disturbances = append(disturbances, disturbance{"adds", func() { b.insert("added-while-claimed", benchURLs/4) }})
	for _, d := range disturbances {
		phases = append(phases, phase{"claims-during-" + d.name, func(name string) {
			done := make(chan struct{})
			go func() {
				d.do()
				close(done)
			}()
			b.claimAtRate(name, done, true)
		}})
	}
	for _, p := range phases {
		if wanted(p.name) {
			p.do(p.name)
		}
	}
}

// wanted says that a phase is to be run.
func wanted(phase string) bool {
	return benchPhases == "" || slices.Contains(strings.Split(benchPhases, ","), phase)
}

// print prints what was measured.
func (b *bench) print() {
	width := 0
	for _, r := range b.rows {
		width = max(width, len(r[0]))
	}
	text := ""
	for _, r := range b.rows {
		text += fmt.Sprintf("  %-*s  %s\n", width, r[0], r[1])
	}
	fmt.Fprintf(os.Stderr, "%s: %d URLs, %d domains, %d workers, %d claims a second wanted\n%s", b.Name(), benchURLs, benchDomains, benchWorkers, benchRate, text)
}

// BenchmarkFrontierd measures a frontierd over HTTP.
func BenchmarkFrontierd(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		// As docs/frontier.md advises: what a rewrite costs is measured by itself.
		server := testenv.NewRedis(b, "--auto-aof-rewrite-min-size", "1gb")
		opt, err := redis.ParseURL(server.URL)
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(opt)
		data := filepath.Join(dir, "data")
		d := startDaemon(b, filepath.Join(dir, "log"), "--redis", server.URL, "--data", data, "--crawl-delay", "0s",
			"--fsync", "never") // as the server of BenchmarkPostgresQueue
		q := &daemonUnderTest{address: strings.TrimPrefix(d.base, "http://")}
		r := &bench{B: b, q: q}
		r.processes = []process{{"frontierd", d.cmd.Process.Pid}, {"Redis", server.PID()}, {"the clients", os.Getpid()}}
		r.run(func() { r.memory(client, d, data) }, disturbance{"rewrite", func() { r.rewrite(client, server) }},
			disturbance{"snapshot", func() { r.snapshot(d, filepath.Join(dir, "store")) }})
		q.close()
		resident := rss(b, d.cmd.Process.Pid)
		d.stop(b)
		if err := client.Close(); err != nil {
			b.Fatal(err)
		}
		if wanted(controlPhase) {
			r.control(controlPhase, dir, resident)
		}
		r.print()
	}
}

// memory reports what Redis, frontierd and the files take.
func (b *bench) memory(client *redis.Client, d *daemon, data string) {
	info, err := client.InfoMap(b.Context(), "memory").Result()
	b.fail(err)
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	b.fail(err)
	bytes, files := int64(0), int64(0)
	b.fail(filepath.WalkDir(data, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // merged
			return nil
		}
		if err == nil {
			files++
			if info, failed := e.Info(); failed == nil && !e.IsDir() {
				bytes += info.Size()
			}
		}
		return err
	}))
	report := func(name string, v int64) {
		b.row(name, "%s; a million URLs %s, a domain %d bytes", cli.Size(v), cli.Size(v*1_000_000/int64(benchURLs)), v/int64(benchDomains))
	}
	report("used_memory of Redis", used)
	report("RSS of frontierd", rss(b.B, d.cmd.Process.Pid))
	report("files", bytes)
	b.row("inodes", "%d", files)
	b.ReportMetric(float64(used)/float64(benchDomains), "redis-bytes/domain")
}

// rss is how much memory of a process is in RAM, 0 if the process is gone.
func rss(b *testing.B, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0
	}
	if err != nil {
		b.Error(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		return 0 // it is ending
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		b.Error(err)
	}
	return kib << 10
}

// rewrite lets Redis write its file anew, and reports the memory that this takes.
func (b *bench) rewrite(client *redis.Client, server *testenv.Redis) {
	ctx := b.Context()
	time.Sleep(time.Second)
	before := rss(b.B, server.PID())
	b.fail(client.BgRewriteAOF(ctx).Err())
	peak := before
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", server.PID(), server.PID()))
		b.fail(err)
		sum := rss(b.B, server.PID())
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			b.fail(err)
			sum += private(pid)
		}
		peak = max(peak, sum)
		info, err := client.InfoMap(ctx, "persistence").Result()
		b.fail(err)
		if p := info["Persistence"]; p["aof_rewrite_in_progress"] == "0" && p["aof_rewrite_scheduled"] == "0" {
			if p["aof_last_bgrewrite_status"] != "ok" {
				b.Errorf("the rewrite has failed: %v", p)
			}
			break
		}
	}
	time.Sleep(time.Second)
	b.row("RSS of Redis, and with the rewrite", "%s, %s", cli.Size(before), cli.Size(peak))
}

// snapshot takes a snapshot, and another one, each with a process of its own.
func (b *bench) snapshot(d *daemon, folder string) {
	for _, name := range []string{"snapshot", "another snapshot"} {
		cmd := exec.CommandContext(b.Context(), "nice", "-n", "19", os.Args[0], "snapshot", "--frontier", d.base, "--to", folder)
		cmd.Env = append(os.Environ(), "FRONTIERD_TEST=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.fail(fmt.Errorf("%w: %s", err, out))
			return
		}
		b.row(name, "%s; %v of processors", bytes.TrimSpace(out), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
}

// private is how much memory a process shares with no other, 0 if that is not known.
func private(pid int) int64 {
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	sum := int64(0)
	for _, m := range regexp.MustCompile(`Private_\w+:\s+(\d+) kB`).FindAllSubmatch(smaps, -1) {
		kib, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err == nil {
			sum += kib << 10
		}
	}
	return sum
}

// daemonUnderTest is a frontierd at an address. Its clients are cheap, since they share the
// processors with what is measured: requests are bytes, and answers are searched for what counts.
type daemonUnderTest struct {
	address string
	mu      sync.Mutex
	idle    []*benchConn
}

// benchConn is a connection, which one request at a time uses.
type benchConn struct {
	net.Conn
	in         *bufio.Reader
	body, sent []byte
	used       time.Time
}

// benchIdle is how long a connection stays usable between two requests.
const benchIdle = time.Minute

func (d *daemonUnderTest) conn() (*benchConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.idle) > 0 {
		c := d.idle[len(d.idle)-1]
		d.idle = d.idle[:len(d.idle)-1]
		if time.Since(c.used) < benchIdle {
			return c, nil
		}
		c.Close()
	}
	c, err := net.Dial("tcp", d.address)
	return &benchConn{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, err
}

func (d *daemonUnderTest) close() {
	for _, c := range d.idle {
		c.Close()
	}
}

// post calls yield with the body of an answer, which holds until yield returns.
func (d *daemonUnderTest) post(path string, fill func(body []byte) []byte, yield func(body []byte) error) error {
	c, err := d.conn()
	if err != nil {
		return err
	}
	if err := c.post(path, fill, yield); err != nil {
		return errors.Join(err, c.Close())
	}
	c.used = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, c)
	return nil
}

func (c *benchConn) post(path string, fill func(body []byte) []byte, yield func(body []byte) error) error {
	c.body = fill(c.body[:0])
	c.sent = fmt.Appendf(c.sent[:0], "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", path, len(c.body))
	c.sent = append(c.sent, c.body...)
	if _, err := c.Write(c.sent); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer := bytes.NewBuffer(c.body[:0])
	if _, err := answer.ReadFrom(res.Body); err != nil {
		return err
	}
	c.body = answer.Bytes()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, c.body)
	}
	return yield(c.body)
}

// count sends lines, and returns how many lines of the answer have a text.
func (d *daemonUnderTest) count(path string, lines []string, before, after, text string) (n int, err error) {
	err = d.post(path, func(body []byte) []byte {
		for _, line := range lines {
			body = append(append(append(body, before...), line...), after...)
		}
		return body
	}, func(body []byte) error {
		n = bytes.Count(body, []byte(text))
		if got := bytes.Count(body, []byte("\n")); got != len(lines) {
			return fmt.Errorf("%s: %d lines of %d are answered", path, got, len(lines))
		}
		return nil
	})
	return n, err
}

func (d *daemonUnderTest) add(_ context.Context, urls []string) (int, error) {
	return d.count("/v1/urls", urls, `{"url":"`, "\"}\n", `"added"`)
}

func (d *daemonUnderTest) seen(_ context.Context, urls []string) (int, error) {
	return d.count("/v1/seen", urls, `{"url":"`, "\"}\n", `"seen":true`)
}

func (d *daemonUnderTest) claim(_ context.Context, n int) (leases []string, err error) {
	err = d.post("/v1/claims", func(body []byte) []byte {
		return fmt.Appendf(body, `{"max":%d,"wait_ms":1000}`, n)
	}, func(body []byte) error {
		leases, err = leasesOf(body, n)
		return err
	})
	return leases, err
}

// leasesOf returns the leases of an answer, which has a URL with each.
func leasesOf(body []byte, n int) (leases []string, err error) {
	const lease, url = `{"lease":"`, `","url":"https://site`
	all := make([]byte, 0, len(body)/4)
	ends := make([]int, 0, n)
	for rest := body; ; {
		i := bytes.Index(rest, []byte(lease))
		if i < 0 {
			break
		}
		rest = rest[i+len(lease):]
		end := bytes.IndexByte(rest, '"')
		if end < 0 || !bytes.HasPrefix(rest[end:], []byte(url)) {
			return nil, fmt.Errorf("claims: %s", body)
		}
		all = append(all, rest[:end]...)
		ends = append(ends, len(all))
		rest = rest[end+len(url):]
	}
	if len(ends) > n || !bytes.HasSuffix(body, []byte("]}\n")) {
		return nil, fmt.Errorf("claims: %d of %d: %s", len(ends), n, body)
	}
	text := string(all)
	leases = make([]string, len(ends))
	from := 0
	for i, end := range ends {
		leases[i], from = text[from:end], end
	}
	return leases, nil
}

func (d *daemonUnderTest) settle(_ context.Context, leases []string) error {
	if len(leases) == 0 {
		return nil
	}
	n, err := d.count("/v1/results", leases, `{"status":200,"lease":"`, "\"}\n", `"settled"`)
	if err == nil && n != len(leases) {
		err = fmt.Errorf("results: %d of %d are settled", n, len(leases))
	}
	return err
}

// BenchmarkPostgresQueue measures a queue in PostgreSQL, without HTTP: batches by COPY, and claims
// of one URL of each domain that is not locked (FOR UPDATE SKIP LOCKED), by partial indexes. It has
// no leases that end.
func BenchmarkPostgresQueue(b *testing.B) {
	if testenv.PostgresBin() == "" {
		testenv.Missing(b, "PostgreSQL")
	}
	for b.Loop() {
		pool, err := pgxpool.New(b.Context(), testenv.NewPostgres(b).NewDatabase(b)+" pool_max_conns=32")
		if err != nil {
			b.Fatal(err)
		}
		_, err = pool.Exec(b.Context(), `
CREATE TABLE urls (id bigserial PRIMARY KEY, url text NOT NULL UNIQUE, domain text NOT NULL, priority int NOT NULL DEFAULT 0,
	depth int NOT NULL DEFAULT 0, state smallint NOT NULL DEFAULT 0, status smallint);
CREATE INDEX ON urls (domain, priority DESC, depth, id) WHERE state = 0;
CREATE TABLE domains (domain text PRIMARY KEY, next_at timestamptz NOT NULL DEFAULT now(), waiting bigint NOT NULL);
CREATE INDEX ON domains (next_at) WHERE waiting > 0`)
		if err != nil {
			b.Fatal(err)
		}
		r := &bench{B: b, q: &postgresUnderTest{pool}}
		r.run(func() {})
		pool.Close()
		r.print()
	}
}

type postgresUnderTest struct{ pool *pgxpool.Pool }

// again does something again for as long as PostgreSQL has chosen it to end a deadlock.
func again(do func() error) error {
	for {
		err := do()
		var failed *pgconn.PgError
		if !errors.As(err, &failed) || failed.Code != "40P01" {
			return err
		}
	}
}

func (p *postgresUnderTest) add(ctx context.Context, urls []string) (added int, err error) {
	err = again(func() error { return p.addOnce(ctx, urls, &added) })
	return added, err
}

func (p *postgresUnderTest) addOnce(ctx context.Context, urls []string, added *int) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS fresh (url text, domain text) ON COMMIT DELETE ROWS"); err != nil {
			return err
		}
		rows := pgx.CopyFromSlice(len(urls), func(i int) ([]any, error) {
			domain, _, _ := strings.Cut(strings.TrimPrefix(urls[i], "https://"), "/")
			return []any{urls[i], domain}, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"fresh"}, []string{"url", "domain"}, rows); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
WITH added AS (INSERT INTO urls (url, domain) SELECT url, domain FROM fresh ON CONFLICT DO NOTHING RETURNING domain),
counted AS (SELECT domain, count(*) AS n FROM added GROUP BY domain ORDER BY domain),
woken AS (INSERT INTO domains (domain, waiting) SELECT domain, n FROM counted ORDER BY domain
	ON CONFLICT (domain) DO UPDATE SET waiting = domains.waiting + excluded.waiting)
SELECT count(*) FROM added`).Scan(added)
	})
}

func (p *postgresUnderTest) claim(ctx context.Context, n int) (leases []string, err error) {
	err = again(func() (err error) {
		leases, err = p.claimOnce(ctx, n)
		return err
	})
	return leases, err
}

func (p *postgresUnderTest) claimOnce(ctx context.Context, n int) ([]string, error) {
	rows, err := p.pool.Query(ctx, `
WITH ready AS (SELECT domain FROM domains WHERE waiting > 0 AND next_at <= now() ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED),
picked AS (SELECT u.id FROM ready, LATERAL (SELECT id FROM urls WHERE urls.domain = ready.domain AND state = 0
	ORDER BY priority DESC, depth, id LIMIT 1) u),
put_off AS (UPDATE domains SET next_at = now(), waiting = waiting - 1 FROM ready WHERE domains.domain = ready.domain)
UPDATE urls SET state = 1 FROM picked WHERE urls.id = picked.id RETURNING urls.id::text`, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (p *postgresUnderTest) seen(ctx context.Context, urls []string) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM urls WHERE url = ANY($1)", urls).Scan(&n)
	return n, err
}

func (p *postgresUnderTest) settle(ctx context.Context, leases []string) error {
	ids := make([]int64, 0, len(leases))
	for _, l := range leases {
		id, err := strconv.ParseInt(l, 10, 64)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	return again(func() error {
		_, err := p.pool.Exec(ctx, "UPDATE urls SET state = 2, status = 200 WHERE id = ANY($1)", ids)
		return err
	})
}
