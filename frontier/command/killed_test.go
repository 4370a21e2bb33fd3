//go:build unix

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
)

// TestMain is frontierd itself, or the control of the benchmarks, if a test has started it as that.
func TestMain(m *testing.M) {
	if os.Getenv("FRONTIERD_TEST") == "1" {
		if len(os.Args) > 2 && os.Args[1] == controlCommand {
			panic(serveControl(os.Args[2]))
		}
		if name := os.Getenv("URLAKE_BENCH_PROFILE"); name != "" {
			f, err := os.Create(name)
			if err != nil {
				panic(err)
			}
			if err := pprof.StartCPUProfile(f); err != nil {
				panic(err)
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			cli.Run(ctx, New())
			stop()
			pprof.StopCPUProfile()
			return
		}
		cli.Main(New())
		return
	}
	os.Exit(m.Run())
}

// daemon is a running frontierd.
type daemon struct {
	base string
	cmd  *exec.Cmd
	log  *os.File
	// exited is closed when the process has ended.
	exited chan struct{}
}

func startDaemon(t testing.TB, log string, args ...string) *daemon {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{cmd: exec.Command(os.Args[0], append(args, "--http", "127.0.0.1:0")...), log: f}
	d.cmd.Env = append(os.Environ(), "FRONTIERD_TEST=1")
	d.cmd.Stderr = f
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.exited = make(chan struct{})
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	at := regexp.MustCompile(`http=(\S+)`)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if m := at.FindSubmatch(text[before:]); m != nil {
			d.base = string(m[1])
			return d
		}
		select {
		case <-d.exited:
			t.Fatalf("frontierd has exited:\n%s", text[before:])
		default:
		}
		if time.Now().After(end) {
			d.kill(t)
			t.Fatalf("frontierd does not serve:\n%s", text[before:])
		}
	}
}

func (d *daemon) kill(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-d.exited
	d.log.Close()
}

// stop ends the process as its user would.
func (d *daemon) stop(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-d.exited
	d.log.Close()
}

// crawl is a crawl under which processes die, and what the test knows of it.
type crawl struct {
	t     *testing.T
	dir   string // of all
	start func(i int) *daemon
	delay time.Duration
	lease time.Duration
	// dies is of how many of a hundred claims no worker reports.
	dies int
	// prefix is part of what addMany adds.
	prefix string

	mu      sync.Mutex
	daemons []*daemon
	asked   map[string]bool      // to be added
	added   map[string]bool      // acknowledged
	settled map[string]time.Time // when it was acknowledged
	live    map[string]claimed
	last    map[string]time.Time // the last claim of a domain
	claims  int
	wrong   []string
}

// await waits until a condition holds, which is asked with the lock held.
func (c *crawl) await(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		ok := holds()
		c.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("there are no %s", what)
		}
	}
}

// crawlShards is how many shards the frontier of a crawl has.
const crawlShards = 8

// newCrawl starts two processes of a frontier, with their data and logs in a folder.
func newCrawl(t *testing.T, redis, dir string) *crawl {
	c := &crawl{
		t: t, dir: dir, delay: 20 * time.Millisecond, lease: 2 * time.Second, dies: 3, asked: map[string]bool{}, added: map[string]bool{},
		settled: map[string]time.Time{}, live: map[string]claimed{}, last: map[string]time.Time{},
	}
	c.start = func(i int) *daemon {
		return startDaemon(t, filepath.Join(dir, fmt.Sprintf("log%d", i)), "--redis", redis, "--data", filepath.Join(dir, "data"),
			"--crawl-delay", c.delay.String(), "--lease", c.lease.String(), "--own", "1s", "--shards", strconv.Itoa(crawlShards), "--memory", "1", "--tries", "1000")
	}
	for i := range 2 {
		c.daemons = append(c.daemons, c.start(i))
	}
	t.Cleanup(func() {
		for _, d := range c.daemons {
			d.kill(t)
		}
	})
	return c
}

type claimed struct {
	lease   string
	expires time.Time
}

type claimLine struct {
	Lease, URL, Domain string
	Expires            time.Time
}

func (c *crawl) errorf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *crawl) base() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.daemons[rand.N(len(c.daemons))].base
}

// post sends a body, and returns the lines of the answer if it is whole.
func (c *crawl) post(ctx context.Context, path, body string) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d: %s", res.StatusCode, data)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n"), err
}

// add adds batches of new URLs, each until it is acknowledged.
func (c *crawl) add(ctx, drain context.Context, worker, domains int) {
	rng := rand.New(rand.NewPCG(uint64(worker), 1))
	for n := 0; ctx.Err() == nil; n++ {
		var body strings.Builder
		var urls []string
		for i := range 1 + rng.IntN(12) {
			u := fmt.Sprintf("https://site%d.example/%d/%d/%d", rng.IntN(domains), worker, n, i)
			urls = append(urls, u)
			fmt.Fprintf(&body, "{\"url\":%q,\"priority\":%d,\"depth\":%d}\n", u, rng.IntN(3), rng.IntN(3))
		}
		c.mu.Lock()
		for _, u := range urls {
			c.asked[u] = true
		}
		c.mu.Unlock()
		for drain.Err() == nil {
			lines, err := c.post(drain, "/v1/urls", body.String())
			if err == nil && len(lines) == len(urls) {
				if c.acknowledged(urls, lines) {
					break
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(20+rng.IntN(60)) * time.Millisecond)
	}
}

// isElsewhere says that a line is the result for what no process serves at the moment.
func isElsewhere(line string) bool { return strings.HasPrefix(line, `{"result":"elsewhere"`) }

// acknowledged notes the results of added URLs. It is false if some have to be sent again.
func (c *crawl) acknowledged(urls, lines []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	for i, l := range lines {
		switch {
		case l == `{"result":"added"}`, l == `{"result":"known"}`:
			c.added[urls[i]] = true
		case isElsewhere(l):
			all = false
		default:
			c.errorf("%s: %s", urls[i], l)
		}
	}
	return all
}

// work claims URLs and reports of them.
func (c *crawl) work(ctx context.Context, worker int) {
	rng := rand.New(rand.NewPCG(uint64(worker), 2))
	for ctx.Err() == nil {
		claims := c.claim(ctx)
		var body bytes.Buffer
		var reported []claimLine
		for _, cl := range claims {
			switch n := rng.IntN(100); {
			case n < c.dies: // the worker dies with it
			case n < 10:
				fmt.Fprintf(&body, "{\"lease\":%q,\"error\":\"no answer\"}\n", cl.Lease)
				reported = append(reported, claimLine{Lease: cl.Lease})
			default:
				fmt.Fprintf(&body, "{\"lease\":%q,\"status\":200}\n", cl.Lease)
				reported = append(reported, cl)
			}
		}
		if len(reported) == 0 {
			continue
		}
		// From now on the leases may end.
		c.mu.Lock()
		for _, cl := range claims {
			if c.live[cl.URL].lease == cl.Lease {
				delete(c.live, cl.URL)
			}
		}
		c.mu.Unlock()
		lines, err := c.post(ctx, "/v1/results", body.String())
		if err != nil || len(lines) != len(reported) {
			continue
		}
		c.mu.Lock()
		for i, l := range lines {
			if l == `{"result":"settled"}` && reported[i].URL != "" {
				c.settled[reported[i].URL] = time.Now()
			}
		}
		c.mu.Unlock()
	}
}

// claim claims URLs, and checks the claims. It returns none, after a while, if the frontier does
// not answer.
func (c *crawl) claim(ctx context.Context) []claimLine {
	lines, err := c.post(ctx, "/v1/claims", `{"max":20,"wait_ms":200}`)
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	var got struct{ Claims []claimLine }
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		c.mu.Lock()
		c.errorf("%s: %v", lines[0], err)
		c.mu.Unlock()
		return nil
	}
	c.claimed(got.Claims)
	return got.Claims
}

// claimed checks claims: nobody else has their URLs, and their domains had their delay.
func (c *crawl) claimed(claims []claimLine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range claims {
		c.claims++
		at := cl.Expires.Add(-c.lease)
		if other, ok := c.live[cl.URL]; ok && at.Before(other.expires) {
			c.errorf("%s has two live leases, until %v and from %v", cl.URL, other.expires, at)
		}
		// The answer of a process that was stopped can come when the URL's next lease has
		// ended. Its own lease was over then before the URL was settled.
		if settled, ok := c.settled[cl.URL]; ok && cl.Expires.After(settled) {
			c.errorf("%s was settled by %v and is claimed again, from %v until %v", cl.URL, settled, at, cl.Expires)
		}
		c.live[cl.URL] = claimed{cl.Lease, cl.Expires}
		// Answers come in any order.
		if last, ok := c.last[cl.Domain]; ok && at.Sub(last).Abs() < c.delay {
			c.errorf("%s: claims %v apart", cl.Domain, at.Sub(last))
		}
		if at.After(c.last[cl.Domain]) {
			c.last[cl.Domain] = at
		}
	}
}

// soakTime is how long processes die, by default and as URLAKE_SOAK_TIME says.
func soakTime(t *testing.T, lasts time.Duration) time.Duration {
	if s := os.Getenv("URLAKE_SOAK_TIME"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	return lasts
}

// fault is something that happens to a frontier under load.
type fault func()

// killDaemon kills a process of the frontier, and starts another one.
func (c *crawl) killDaemon(i int) fault {
	return func() {
		c.daemons[i].kill(c.t)
		d := c.start(i)
		c.mu.Lock()
		c.daemons[i] = d
		c.mu.Unlock()
	}
}

// pauseDaemon stops a process for longer than it owns its shards.
func (c *crawl) pauseDaemon(i int) fault {
	return func() {
		for _, s := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := c.daemons[i].cmd.Process.Signal(s); err != nil {
				c.t.Error(err)
			}
			if s == syscall.SIGSTOP {
				time.Sleep(rand.N(1800 * time.Millisecond))
			}
		}
	}
}

// killRedis kills a server, and starts it again.
func (c *crawl) killRedis(r *testenv.Redis) fault {
	return func() {
		r.Kill(c.t)
		time.Sleep(rand.N(300 * time.Millisecond))
		r.Start(c.t)
	}
}

// pauseRedis stops a server for a while.
func (c *crawl) pauseRedis(r *testenv.Redis) fault {
	return func() {
		r.Pause(c.t)
		time.Sleep(rand.N(time.Second))
		r.Resume(c.t)
	}
}

// soak puts load on the frontier while faults happen to it, and afterwards compares what it says
// with what it has acknowledged.
func (c *crawl) soak(lasts time.Duration, faults ...fault) {
	t := c.t
	adding, stopAdding := context.WithTimeout(t.Context(), lasts)
	defer stopAdding()
	working, stopWorking := context.WithCancel(t.Context())
	defer stopWorking()
	var adders, workers sync.WaitGroup
	for w := range 4 {
		adders.Go(func() { c.add(adding, t.Context(), w, 200) })
	}
	for w := range 6 {
		workers.Go(func() { c.work(working, w) })
	}
	happened := 0
	for turn := []fault(nil); adding.Err() == nil; turn = turn[1:] {
		time.Sleep(100*time.Millisecond + rand.N(500*time.Millisecond))
		if len(turn) == 0 { // each once, in any order
			for _, i := range rand.Perm(len(faults)) {
				turn = append(turn, faults[i])
			}
		}
		happened++
		turn[0]()
	}
	adders.Wait()
	for end := time.Now().Add(2 * time.Minute); c.waiting() != 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%d URLs still wait", c.waiting())
			break
		}
	}
	stopWorking()
	workers.Wait()
	visits := c.visits()
	for u := range c.added {
		if visits[u] != 1 {
			c.errorf("%s was settled %d times", u, visits[u])
		}
	}
	for u := range c.settled {
		if visits[u] == 0 {
			c.errorf("%s was acknowledged as settled, but is not visited", u)
		}
	}
	if len(visits) < len(c.added) || happened == 0 || len(c.added) == 0 {
		t.Errorf("%d visits, %d added, %d faults", len(visits), len(c.added), happened)
	}
	for i, w := range c.wrong {
		if i == 20 {
			t.Errorf("and %d more", len(c.wrong)-i)
			break
		}
		t.Error(w)
	}
	t.Logf("%d faults, %d URLs added, %d claims", happened, len(c.added), c.claims)
	if t.Failed() {
		for i := range c.daemons {
			log, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("log%d", i)))
			t.Logf("log %d: %v\n%s", i, err, log)
		}
	}
}

// TestNothingIsLostWhateverDies kills and stops frontierd and Redis again and again, and takes the
// disk away from frontierd, while URLs are added and fetched. Afterwards every URL that was
// acknowledged was fetched, and settled once; while it lasted no URL had two live leases, no domain
// was asked sooner than its delay, and nothing settled came back. URLAKE_SOAK_TIME says how long it
// lasts.
func TestNothingIsLostWhateverDies(t *testing.T) {
	redis := testenv.NewRedis(t)
	c := newCrawl(t, redis.URL, t.TempDir())
	c.soak(soakTime(t, 5*time.Second), c.killDaemon(0), c.killDaemon(1), c.killRedis(redis), c.pauseDaemon(0), c.pauseRedis(redis), c.fillDisk(1))
}

// TestNothingIsLostInACluster is the same with a cluster of three servers of Redis, of which one at
// a time dies. Each has shards.
func TestNothingIsLostInACluster(t *testing.T) {
	nodes := testenv.NewRedisCluster(t, 3)
	c := newCrawl(t, nodes[0].Addr()+","+nodes[1].Addr(), t.TempDir())
	var faults []fault
	for _, n := range nodes {
		client := redis.NewClient(&redis.Options{Addr: n.Addr()})
		keys, err := client.Keys(t.Context(), "{frontier:*}:owner").Result()
		if err := errors.Join(err, client.Close()); err != nil || len(keys) == 0 {
			t.Errorf("%s has no shard: %v", n.Addr(), err)
		}
		faults = append(faults, c.killRedis(n))
	}
	c.soak(soakTime(t, 1500*time.Millisecond), append(faults, c.killDaemon(0))...)
}

// waiting is how many URLs wait or are leased, -1 if not all shards are served.
func (c *crawl) waiting() (n int) {
	shards := 0
	for _, d := range c.daemons {
		res, err := http.Get(d.base + "/v1/stats")
		if err != nil {
			return -1
		}
		var s struct{ Shards, Waiting, Later, Leased int }
		err = json.NewDecoder(res.Body).Decode(&s)
		res.Body.Close()
		if err != nil {
			return -1
		}
		n += s.Waiting + s.Later + s.Leased
		shards += s.Shards
	}
	if shards != crawlShards {
		return -1
	}
	return n
}

// visits counts the visits of each URL, of which each process knows all. A page is asked for again
// while nobody serves the shards that are left for it.
func (c *crawl) visits() map[string]int {
	visits := map[string]int{}
	for cursor := ""; ; {
		var page []byte
		testenv.Until(c.t, "a page of visits", func() bool {
			res, err := http.Get(c.daemons[0].base + "/v1/visited?limit=1000&cursor=" + cursor)
			if err != nil {
				c.t.Fatal(err)
			}
			defer res.Body.Close()
			page, err = io.ReadAll(res.Body)
			if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
				c.t.Fatalf("%d: %s", res.StatusCode, page)
			}
			return err == nil && res.StatusCode == http.StatusOK
		})
		n, next := 0, ""
		for text := range bytes.Lines(page) {
			var line struct {
				URL  string
				Next string `json:"next_cursor"`
			}
			if err := json.Unmarshal(text, &line); err != nil {
				c.t.Fatal(err)
			}
			if line.URL != "" {
				visits[line.URL]++
				n++
			}
			next = line.Next
		}
		if next == "" {
			c.t.Fatal("visits without an end")
		}
		if n == 0 {
			return visits
		}
		cursor = next
	}
}
