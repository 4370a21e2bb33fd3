//go:build unix

package frontier_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// The design that the frontier was made from has Redis for coordination and a text file for each
// domain. It has the faults below. Each test shows one with sketch, which does what the design
// says step by step, and then that the frontier does not have it.
//
// Other tests hold what needs no sketch: no URL is lost or handed out twice whichever process dies
// (frontier/command, TestNothingIsLostWhateverDies), priorities (TestAnHourOfPoliteness), one delay
// for all crawls (TestCrawlsShareADelay), settings that outlive restarts (TestQueuesAreControlled,
// TestExclude, TestBackoffOutlivesRestarts), and a crash at every step of the files
// (frontier/shard).

// sketch is a process of the design. A set stands in for the Bloom filter.
type sketch struct {
	t     *testing.T
	redis *redis.Client
	dir   string
	now   int64
	lock  sync.Mutex // of one process, as in the design
}

func newSketch(t *testing.T) *sketch {
	t.Helper()
	opt, err := redis.ParseURL(testenv.NewRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return &sketch{t: t, redis: client, dir: t.TempDir(), now: 1_700_000_000}
}

// other is another process of the same frontier.
func (s *sketch) other() *sketch { return &sketch{t: s.t, redis: s.redis, dir: s.dir, now: s.now} }

func (s *sketch) check(err error) {
	s.t.Helper()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
}

func (s *sketch) file(domain string) string { return filepath.Join(s.dir, domain+".frontier") }

func (s *sketch) size(domain string) int {
	n, err := s.redis.HGet(s.t.Context(), "domain:"+domain, "frontier_size").Int()
	s.check(err)
	return n
}

// unseen marks URLs as seen and returns those that were not.
func (s *sketch) unseen(urls []string) (fresh []string) {
	for _, u := range urls {
		n, err := s.redis.SAdd(s.t.Context(), "seen", u).Result()
		s.check(err)
		if n == 1 {
			fresh = append(fresh, u)
		}
	}
	return fresh
}

func (s *sketch) append(domain string, urls []string) {
	f, err := os.OpenFile(s.file(domain), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	s.check(err)
	for _, u := range urls {
		_, err := fmt.Fprintf(f, "%s|%d|1.0|%d\n", u, 0, s.now)
		s.check(err)
	}
	s.check(f.Close())
}

// count sets the size to what it was read as plus what was added, and makes the domain ready.
func (s *sketch) count(domain string, size, added int) {
	ctx := s.t.Context()
	s.check(s.redis.HSet(ctx, "domain:"+domain, "frontier_size", size+added).Err())
	s.check(s.redis.HSetNX(ctx, "domain:"+domain, "frontier_offset", 0).Err())
	s.check(s.redis.ZAddNX(ctx, "domains:ready", redis.Z{Score: float64(s.now), Member: domain}).Err())
}

func (s *sketch) add(domain string, urls ...string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	fresh := s.unseen(urls)
	s.append(domain, fresh)
	s.count(domain, s.size(domain), len(fresh))
}

// claim returns a ready domain that no worker has.
func (s *sketch) claim() (domain string) {
	ctx := s.t.Context()
	ready, err := s.redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "domains:ready", Start: "0", Stop: s.now, ByScore: true, Count: 100}).Result()
	s.check(err)
	for _, d := range ready {
		n, err := s.redis.SAdd(ctx, "domains:active", d).Result()
		s.check(err)
		if n == 1 {
			return d
		}
	}
	return ""
}

// read returns the next URL of a domain, "" if it has none.
func (s *sketch) read(domain string) string {
	ctx := s.t.Context()
	offset, err := s.redis.HGet(ctx, "domain:"+domain, "frontier_offset").Int64()
	s.check(err)
	if offset >= int64(s.size(domain)) {
		return ""
	}
	f, err := os.Open(s.file(domain))
	s.check(err)
	defer f.Close()
	_, err = f.Seek(offset, io.SeekStart)
	s.check(err)
	line, err := bufio.NewReader(f).ReadString('\n')
	if line == "" && errors.Is(err, io.EOF) {
		return ""
	}
	s.check(err)
	s.check(s.redis.HSet(ctx, "domain:"+domain, "frontier_offset", offset+int64(len(line))).Err())
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) != 4 {
		return fmt.Sprintf("%d fields", len(parts))
	}
	return parts[0]
}

// release puts the domain off, or takes it out if it had no URL.
func (s *sketch) release(domain string, had bool) {
	ctx := s.t.Context()
	if had {
		s.check(s.redis.ZAdd(ctx, "domains:ready", redis.Z{Score: float64(s.now + 70), Member: domain}).Err())
	} else {
		s.check(s.redis.ZRem(ctx, "domains:ready", domain).Err())
	}
	s.check(s.redis.SRem(ctx, "domains:active", domain).Err())
}

// all fetches until nothing is ready for two hours.
func (s *sketch) all() (urls []string) {
	for range 200 {
		for d := s.claim(); d != ""; d = s.claim() {
			u := s.read(d)
			s.release(d, u != "")
			if u != "" {
				urls = append(urls, u)
			}
		}
		s.now += 70
	}
	slices.Sort(urls)
	return urls
}

// everything claims and settles until nothing is ready for two hours.
func everything(t *testing.T, f *frontier.Frontier, c *clock) (urls []string) {
	t.Helper()
	for range 200 {
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 10_000}) {
			urls = append(urls, cl.URL)
			settle(t, f, frontier.Settled, frontier.Outcome{Lease: cl.Lease, Status: 200})
		}
		c.pass(70 * time.Second)
	}
	slices.Sort(urls)
	return urls
}

func pages(domain string, n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprintf("https://%s/%d", domain, i))
	}
	return urls
}

func addAll(t *testing.T, f *frontier.Frontier, urls []string) {
	t.Helper()
	for batch := range slices.Chunk(urls, 1000) {
		var all []frontier.URL
		for _, u := range batch {
			all = append(all, frontier.URL{URL: u})
		}
		add(t, f, frontier.Added, all...)
	}
}

// TestFaultOffsetIsNoCount: the design compares a position in bytes with a number of URLs, so a
// domain ends after its first URL.
func TestFaultOffsetIsNoCount(t *testing.T) {
	urls := pages("a.example", 30)
	s := newSketch(t)
	s.add("a.example", urls...)
	if got := s.all(); len(got) != 1 {
		t.Errorf("the design gives %d URLs", len(got))
	}
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 70*time.Second))
	addAll(t, f, urls)
	slices.Sort(urls)
	if got := everything(t, f, c); !slices.Equal(got, urls) {
		t.Errorf("%d URLs: %v", len(got), got)
	}
}

// TestFaultDeadWorkerKeepsTheDomain: in the design a worker that dies between claim and release
// keeps its domain for ever, and its URL if it had read one.
func TestFaultDeadWorkerKeepsTheDomain(t *testing.T) {
	s := newSketch(t)
	s.add("a.example", "https://a.example/")
	if s.claim() != "a.example" { // and dies
		t.Fatal("nothing is claimed")
	}
	if got := s.other().all(); len(got) != 0 {
		t.Errorf("the design gives %v", got)
	}
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, 70*time.Second))
	urls := pages("a.example", 2)
	addAll(t, f, urls)
	if got := claim(t, f, frontier.ClaimRequest{}); len(got) != 1 { // and dies
		t.Fatal(got)
	}
	c.pass(2 * time.Minute)
	// Leases that are over are looked for every second or so.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if d, err := f.Domain(t.Context(), "a.example"); err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", d, err)
		} else if d.Waiting == 2 {
			break
		}
	}
	if got := everything(t, f, c); !slices.Equal(got, urls) {
		t.Error(got)
	}
}

// TestFaultLockOfOneProcess: the lock of the design does not hold between processes, so one of two
// counts is lost, and with it URLs.
func TestFaultLockOfOneProcess(t *testing.T) {
	s := newSketch(t)
	a, b := s, s.other()
	a.lock.Lock()
	b.lock.Lock() // does not wait
	before, same := a.size("a.example"), b.size("a.example")
	a.count("a.example", before, 10)
	b.count("a.example", same, 10)
	if got := s.size("a.example"); got != 10 {
		t.Errorf("the design counts %d URLs", got)
	}
	c := newClock()
	server, o := testenv.NewRedis(t), options(t, c, 0)
	o.Own = time.Second
	one, two := start(t, server, o), start(t, server, o)
	urls := pages("a.example", 2000)
	var processes sync.WaitGroup
	for i, f := range []*frontier.Frontier{one, two} {
		processes.Go(func() {
			for batch := range slices.Chunk(urls[i*1000:(i+1)*1000], 50) {
				if err := addAnywhere(t.Context(), []*frontier.Frontier{f, one, two}, batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	processes.Wait()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		waiting := int64(0)
		for _, f := range []*frontier.Frontier{one, two} {
			d, err := f.Domain(t.Context(), "a.example")
			if err != nil && !errors.Is(err, frontier.ErrElsewhere) {
				t.Fatal(err)
			}
			waiting += d.Waiting
		}
		if waiting == int64(len(urls)) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d URLs wait, want %d", waiting, len(urls))
		}
	}
}

// addAnywhere adds URLs to the process that serves them, as the HTTP front does.
func addAnywhere(ctx context.Context, all []*frontier.Frontier, urls []string) error {
	var left []frontier.URL
	for _, u := range urls {
		left = append(left, frontier.URL{URL: u})
	}
	for end := time.Now().Add(time.Minute); len(left) > 0 && time.Now().Before(end); {
		for _, f := range all {
			results, err := f.Add(ctx, left)
			if err != nil {
				return err
			}
			var again []frontier.URL
			for i, r := range results {
				if r.Result == frontier.Elsewhere {
					again = append(again, left[i])
				}
			}
			left = again
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%d URLs are served nowhere", len(left))
	}
	return nil
}

// TestFaultReplyInsideAPipeline: the design reads the size inside the pipeline that it is about to
// send, where there is no reply yet, so it counts the last batch alone.
func TestFaultReplyInsideAPipeline(t *testing.T) {
	s := newSketch(t)
	ctx := t.Context()
	for _, n := range []int{10, 1} {
		pipe := s.redis.Pipeline()
		size, _ := pipe.HGet(ctx, "domain:a.example", "frontier_size").Int()
		pipe.HSet(ctx, "domain:a.example", "frontier_size", size+n)
		_, err := pipe.Exec(ctx)
		s.check(err)
	}
	if got := s.size("a.example"); got != 1 {
		t.Errorf("the design counts %d URLs", got)
	}
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	urls := pages("a.example", 11)
	addAll(t, f, urls[:10])
	addAll(t, f, urls[10:])
	if d, err := f.Domain(t.Context(), "a.example"); err != nil || d.Waiting != 11 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestFaultWritersInterleave: two processes that append to one file through buffers tear each
// other's lines. Of the frontier one process has a file, and what another is given it sends there.
func TestFaultWritersInterleave(t *testing.T) {
	s := newSketch(t)
	var writers [2]*bufio.Writer
	for i := range writers {
		f, err := os.OpenFile(s.file("a.example"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		s.check(err)
		defer f.Close()
		writers[i] = bufio.NewWriterSize(f, 64)
	}
	for i, u := range pages("a.example", 40) {
		_, err := fmt.Fprintf(writers[i%2], "%s|0|1.0|1\n", u)
		s.check(err)
	}
	s.check(errors.Join(writers[0].Flush(), writers[1].Flush()))
	text, err := os.ReadFile(s.file("a.example"))
	s.check(err)
	torn := 0
	for line := range bytes.Lines(text) {
		if bytes.Count(line, []byte("|")) != 3 || bytes.Count(line, []byte("https")) != 1 {
			torn++
		}
	}
	if torn == 0 {
		t.Error("the design tears no line")
	}
	c := newClock()
	server, o := testenv.NewRedis(t), options(t, c, 0)
	one, two := start(t, server, o), start(t, server, o)
	if a, b := one.Stats().Shards, two.Stats().Shards; a+b > o.Shards {
		t.Fatalf("%d and %d shards are served of %d", a, b, o.Shards)
	}
	urls := pages("a.example", 500)
	if err := errors.Join(addAnywhere(t.Context(), []*frontier.Frontier{one, two}, urls[:250]),
		addAnywhere(t.Context(), []*frontier.Frontier{two, one}, urls[250:])); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range []*frontier.Frontier{one, two} {
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 1000, PerQueue: 1000}) {
			got = append(got, cl.URL)
		}
	}
	slices.Sort(got)
	slices.Sort(urls)
	if !slices.Equal(got, urls) {
		t.Errorf("%d URLs come out, want %d", len(got), len(urls))
	}
}

// TestFaultSeenBeforeItIsKept: the design marks a URL as seen before it is in the file. A process
// that dies in between has lost it, and adding it again does not help.
func TestFaultSeenBeforeItIsKept(t *testing.T) {
	s := newSketch(t)
	s.unseen([]string{"https://a.example/"}) // and dies
	again := s.other()
	again.add("a.example", "https://a.example/")
	if got := again.all(); len(got) != 0 {
		t.Errorf("the design gives %v", got)
	}
	// That the frontier keeps both in one record, and what it does with a record that is torn at
	// any byte, the tests of frontier/journal and frontier/shard hold. Here a process ends without
	// a word, and what it had acknowledged is there once.
	c := newClock()
	server, o := testenv.NewRedis(t), options(t, c, 0)
	f := start(t, server, o)
	addAll(t, f, []string{"https://a.example/"})
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = start(t, server, o)
	add(t, f, frontier.Known, frontier.URL{URL: "https://a.example/"})
	if got := everything(t, f, c); !slices.Equal(got, []string{"https://a.example/"}) {
		t.Error(got)
	}
}

// TestFaultEmptyDomainMissesAnAdd: in the design a URL that is added between the look at an empty
// domain and its removal waits for ever.
func TestFaultEmptyDomainMissesAnAdd(t *testing.T) {
	s := newSketch(t)
	s.add("a.example")
	d := s.claim()
	u := s.read(d)
	s.other().add("a.example", "https://a.example/")
	s.release(d, u != "")
	if got := s.all(); len(got) != 0 {
		t.Errorf("the design gives %v", got)
	}
	// One adds while others claim, without rest: each URL comes out.
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	const n = 300
	urls := pages("a.example", n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan string, n)
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil && len(got) < n {
				claims, err := f.Claim(ctx, frontier.ClaimRequest{Max: 2, Wait: 20 * time.Millisecond})
				if err != nil {
					t.Error(err)
				}
				for _, cl := range claims {
					got <- cl.URL
				}
			}
		})
	}
	for i := range urls {
		addAll(t, f, urls[i:i+1])
	}
	clients.Wait()
	if len(got) != n {
		t.Errorf("%d URLs come out, want %d", len(got), n)
	}
}

// TestFaultHeadOfTheLine: workers of the design look at the first hundred ready domains. If other
// workers have all of these, the rest gets nothing.
func TestFaultHeadOfTheLine(t *testing.T) {
	s := newSketch(t)
	for i := range 100 {
		s.add(fmt.Sprintf("a%02d.example", i), "https://a.example/")
		s.claim() // by a worker that is slow
	}
	s.add("z.example", "https://z.example/")
	if d := s.claim(); d != "" {
		t.Errorf("the design gives %s", d)
	}
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 70*time.Second))
	var urls []string
	for i := range 200 {
		urls = append(urls, fmt.Sprintf("https://a%03d.example/", i), fmt.Sprintf("https://a%03d.example/2", i))
	}
	addAll(t, f, urls)
	if got := claim(t, f, frontier.ClaimRequest{Max: 200}); len(got) != 200 {
		t.Fatalf("%d claims", len(got))
	}
	addAll(t, f, []string{"https://z.example/"})
	if got := claim(t, f, frontier.ClaimRequest{Max: 200}); len(got) != 1 || got[0].URL != "https://z.example/" {
		t.Errorf("%d claims: %v", len(got), got)
	}
}

// TestFaultTextFiles: a URL with the separator breaks its line in the design, and a domain is a
// part of a path. Ours are bytes with a length, and names are in no path.
func TestFaultTextFiles(t *testing.T) {
	s := newSketch(t)
	s.add("a.example", "https://a.example/?q=1|2")
	if got := s.all(); len(got) != 1 || got[0] != "5 fields" {
		t.Errorf("the design gives %v", got)
	}
	if name := s.file("../../b"); filepath.Dir(name) == s.dir {
		t.Errorf("the design keeps %s in its folder", name)
	}
	c := newClock()
	o := options(t, c, 0)
	f := start(t, testenv.NewRedis(t), o)
	want := map[string]string{
		"../../../b": "https://a.example/?q=1%7C2", "/etc/passwd": "https://a.example/%0A", strings.Repeat("k", 500): "https://a.example/%7C%00",
	}
	for key, u := range want {
		add(t, f, frontier.Added, frontier.URL{URL: u, Key: key, Metadata: []byte(`"a|b\n\u0000"`)})
	}
	for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 10}) {
		if cl.URL != want[cl.Key] || string(cl.Metadata) != `"a|b\n\u0000"` {
			t.Errorf("%+v, want %s", cl, want[cl.Key])
		}
		delete(want, cl.Key)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestFaultAFileForEachDomain: a million domains of the design are a million files, and as many
// hashes in Redis for URLs that were fetched. Ours are a few files, and nothing in Redis.
func TestFaultAFileForEachDomain(t *testing.T) {
	const domains = 3000
	server := testenv.NewRedis(t)
	o := options(t, newClock(), 0)
	f := start(t, server, o)
	var urls []string
	for i := range domains {
		urls = append(urls, fmt.Sprintf("https://a%d.example/", i))
	}
	addAll(t, f, urls)
	for n := 0; n < domains; {
		var done []frontier.Outcome
		for _, cl := range claim(t, f, frontier.ClaimRequest{Max: 1000}) {
			done = append(done, frontier.Outcome{Lease: cl.Lease, Status: 200})
		}
		if _, err := f.Settle(t.Context(), done); err != nil || len(done) == 0 {
			t.Fatal(len(done), err)
		}
		n += len(done)
	}
	files := 0
	if err := filepath.WalkDir(o.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if files > 20*o.Shards {
		t.Errorf("%d files for %d domains", files, domains)
	}
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	keys, err := client.DBSize(t.Context()).Result()
	if err != nil || keys > int64(10*o.Shards) {
		t.Errorf("%d keys in Redis; %v", keys, err)
	}
	if got := f.Stats().Visits; got != domains {
		t.Errorf("%d visits", got)
	}
}
