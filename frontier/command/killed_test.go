//go:build unix

package command

import (
	"bufio"
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
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
)

// TestMain is frontierd itself if a test has started it as that.
func TestMain(m *testing.M) {
	if os.Getenv("FRONTIERD_TEST") == "1" {
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
		if d.cmd.ProcessState != nil || time.Now().After(end) {
			t.Fatalf("frontierd does not serve:\n%s", text[before:])
		}
	}
}

func (d *daemon) kill(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = d.cmd.Wait()
	d.log.Close()
}

// crawl is a crawl under which processes die, and what the test knows of it.
type crawl struct {
	t     *testing.T
	delay time.Duration
	lease time.Duration
	// dies is of how many of a hundred claims no worker reports.
	dies int
	// prefix is part of what addMany adds.
	prefix string

	mu      sync.Mutex
	daemons []*daemon
	asked   map[string]bool // to be added
	added   map[string]bool // acknowledged
	settled map[string]bool // acknowledged
	live    map[string]claimed
	last    map[string]time.Time // the last claim of a domain
	claims  int
	wrong   []string
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

// acknowledged notes the results of added URLs. It is false if some have to be sent again.
func (c *crawl) acknowledged(urls, lines []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	for i, l := range lines {
		switch {
		case l == `{"result":"added"}`, l == `{"result":"known"}`:
			c.added[urls[i]] = true
		case strings.HasPrefix(l, `{"result":"elsewhere"`):
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
				c.settled[reported[i].URL] = true
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
		if c.settled[cl.URL] {
			c.errorf("%s was settled and is claimed again", cl.URL)
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

// TestNothingIsLostWhateverDies kills frontierd and Redis again and again while URLs are added and
// fetched. Afterwards every URL that was acknowledged was fetched, and settled once; while it
// lasted no URL had two live leases, no domain was asked sooner than its delay, and nothing settled
// came back. URLAKE_SOAK_TIME says how long it lasts.
func TestNothingIsLostWhateverDies(t *testing.T) {
	lasts := 6 * time.Second
	if s := os.Getenv("URLAKE_SOAK_TIME"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	c := &crawl{
		t: t, delay: 20 * time.Millisecond, lease: 3 * time.Second, dies: 3, asked: map[string]bool{}, added: map[string]bool{}, settled: map[string]bool{},
		live: map[string]claimed{}, last: map[string]time.Time{},
	}
	start := func(i int) *daemon {
		return startDaemon(t, filepath.Join(dir, fmt.Sprintf("log%d", i)), "--redis", redis.URL, "--data", filepath.Join(dir, "data"),
			"--crawl-delay", c.delay.String(), "--lease", c.lease.String(), "--own", "1s", "--shards", "4", "--memory", "1", "--tries", "1000")
	}
	for i := range 2 {
		c.daemons = append(c.daemons, start(i))
	}
	t.Cleanup(func() {
		for _, d := range c.daemons {
			d.kill(t)
		}
	})
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
	kills := 0
	for adding.Err() == nil {
		time.Sleep(200*time.Millisecond + rand.N(time.Second))
		kills++
		if i := rand.IntN(3); i < 2 {
			c.daemons[i].kill(t)
			d := start(i)
			c.mu.Lock()
			c.daemons[i] = d
			c.mu.Unlock()
		} else {
			redis.Kill(t)
			time.Sleep(rand.N(300 * time.Millisecond))
			redis.Start(t)
		}
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
	if len(visits) < len(c.added) || kills == 0 || len(c.added) == 0 {
		t.Errorf("%d visits, %d added, %d kills", len(visits), len(c.added), kills)
	}
	for i, w := range c.wrong {
		if i == 20 {
			t.Errorf("and %d more", len(c.wrong)-i)
			break
		}
		t.Error(w)
	}
	t.Logf("%d kills, %d URLs added, %d claims", kills, len(c.added), c.claims)
	for i := range c.daemons {
		log, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("log%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Logf("log %d:\n%s", i, log)
		}
	}
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
	if shards != 4 {
		return -1
	}
	return n
}

// visits counts the visits of each URL, of which each process knows all.
func (c *crawl) visits() map[string]int {
	visits := map[string]int{}
	for cursor := ""; ; {
		res, err := http.Get(c.daemons[0].base + "/v1/visited?limit=1000&cursor=" + cursor)
		if err != nil {
			c.t.Fatal(err)
		}
		in := bufio.NewScanner(res.Body)
		n, next := 0, ""
		for in.Scan() {
			var line struct {
				URL  string
				Next string `json:"next_cursor"`
			}
			if err := json.Unmarshal(in.Bytes(), &line); err != nil {
				c.t.Fatal(err)
			}
			if line.URL != "" {
				visits[line.URL]++
				n++
			}
			next = line.Next
		}
		res.Body.Close()
		if in.Err() != nil || next == "" {
			c.t.Fatalf("visits without an end: %v", in.Err())
		}
		if n == 0 {
			return visits
		}
		cursor = next
	}
}
