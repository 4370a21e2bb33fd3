//go:build unix

package example_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/command"
	"github.com/urlake/urlake/frontier/example"
	"github.com/urlake/urlake/frontier/example/sites"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
)

// TestMain is one of the two programs if a test has started it as that.
func TestMain(m *testing.M) {
	switch os.Getenv("EXAMPLE_TEST") {
	case "frontierd":
		cli.Main(command.New())
	case "crawler":
		cli.Main(example.NewCommand())
	}
	os.Exit(m.Run())
}

// program is a running program.
type program struct {
	cmd    *exec.Cmd
	log    *bytes.Buffer // to be read when it has ended
	exited chan struct{}
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{exec.Command(os.Args[0], args...), &bytes.Buffer{}, make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "EXAMPLE_TEST="+name)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.stop(os.Kill)
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.log)
		}
	})
	return p
}

func (p *program) stop(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.exited
}

// frontier is a frontierd that can be killed and started again at its address.
type frontier struct {
	t    *testing.T
	args []string
	base string
	p    *program
}

func newFrontier(t *testing.T, delay time.Duration, tries int) *frontier {
	address := testenv.FreeAddress(t)
	f := &frontier{t: t, base: "http://" + address, args: []string{"--redis", testenv.NewRedis(t).URL, "--data", t.TempDir(), "--http", address,
		"--crawl-delay", delay.String(), "--tries", fmt.Sprint(tries), "--lease", "10s", "--own", "5s", "--shards", "4"}}
	f.start()
	return f
}

func (f *frontier) start() {
	f.p = start(f.t, "frontierd", f.args...)
	testenv.Until(f.t, "frontierd answers", func() bool {
		select {
		case <-f.p.exited:
			f.t.Fatal("frontierd has exited")
		default:
		}
		res, err := http.Get(f.base + "/healthz")
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
}

func (f *frontier) request(method, path, body string) string {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil || res.StatusCode != 200 {
		f.t.Fatal(err, res.Status, b.String())
	}
	return b.String()
}

// left is how many URLs wait or are leased, -1 while that is not known.
func (f *frontier) left() int {
	res, err := http.Get(f.base + "/v1/stats")
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	var s struct{ Shards, Waiting, Later, Leased int }
	if json.NewDecoder(res.Body).Decode(&s) != nil || s.Shards != 4 {
		return -1
	}
	return s.Waiting + s.Later + s.Leased
}

// TestCrawl crawls the test sites. In the middle frontierd and the crawler are killed, and another
// crawler is asked to stop. The requests that the sites got are those of a polite crawler.
func TestCrawl(t *testing.T) {
	const tries = 5 // so many that the last one of no URL ends with a crawler that is killed
	delay := 50 * time.Millisecond
	web := sites.New(30, 6)
	server := httptest.NewServer(web)
	defer server.Close()
	f := newFrontier(t, delay, tries)
	pages := t.TempDir()
	crawl := func() *program {
		return start(t, "crawler", "--frontier", f.base, "--user-agent", "urlakebot/1.0 (+https://example.org)", "--allow-private",
			"--resolve", "*.test="+server.Listener.Addr().String(), "--max-depth", "6", "--max-bytes", "100000", "--timeout", "5s", "--pages", pages)
	}
	var body strings.Builder
	for _, s := range sites.Seeds {
		fmt.Fprintf(&body, "{\"url\":%q}\n", s)
	}
	if got := f.request("POST", "/v1/urls", body.String()); strings.Count(got, "added") != len(sites.Seeds) {
		t.Fatal(got)
	}
	hits := func(n int) {
		t.Helper()
		testenv.Until(t, "requests", func() bool { return len(web.Hits()) >= n })
	}
	c := crawl()
	hits(25)
	f.p.stop(os.Kill)
	f.start()
	hits(35)
	c.stop(os.Kill)
	killed := []time.Time{time.Now()}
	c = crawl()
	hits(55)
	c.stop(syscall.SIGINT)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the crawler ended with %d", code)
	}
	killed = append(killed, time.Now()) // the next one knows no robots.txt
	c = crawl()
	for f.left() != 0 {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.stop(syscall.SIGINT)
	v := web.Check(sites.Crawl{Delay: delay, Tries: tries, Killed: killed})
	t.Logf("%d requests, %d pages, %d robots.txt, again: %v", v.Requests, v.Pages, v.Robots, v.Again)
	for _, w := range v.Wrong {
		t.Error(w)
	}
	visits := f.request("GET", "/v1/visited", "")
	content := regexp.MustCompile(`"url":"http://rules.test/meta".*"content":"([^"]+)"`).FindStringSubmatch(visits)
	if content == nil {
		t.Fatal(visits)
	}
	if data, err := os.ReadFile(filepath.Join(pages, content[1])); err != nil || !bytes.Contains(data, []byte("noindex")) {
		t.Errorf("%s, %v", data, err)
	}
	for _, want := range []string{
		`"url":"http://rules.test/secret/x".*"status":0,"error":"robots.txt forbids it"`,
		`"url":"http://moved.test/b".*"status":301.*"redirect":"http://new.moved.test/c"`,
		`"url":"http://broken.test/cut".*"status":200,"error":"cut off after 100000 bytes"`,
		`"url":"http://closed.test/".*"status":0,"error":"robots.txt cannot be had"`,
		`"url":"http://failing.test/error".*"status":500`,
		`"url":"http://busy.test/limited".*"status":200`,
	} {
		if !regexp.MustCompile(want).MatchString(visits) {
			t.Errorf("no visit %s in\n%s", want, visits)
		}
	}
}

// TestTwoCrawlers lets two crawlers work on the same domains: together they are as polite as one,
// and fetch each robots.txt once or, if both meet a host at the same time, twice.
func TestTwoCrawlers(t *testing.T) {
	// A crawler that is slow to send what it has claimed sends it nearer to the next request.
	delay := 250 * time.Millisecond
	web := sites.New(20, 6)
	server := httptest.NewServer(web)
	defer server.Close()
	f := newFrontier(t, delay, 3)
	var crawlers []*program
	for range 2 {
		crawlers = append(crawlers, start(t, "crawler", "--frontier", f.base, "--user-agent", "urlakebot", "--allow-private",
			"--resolve", "*.test="+server.Listener.Addr().String(), "--max-depth", "6", "--at-once", "2"))
	}
	seeds := "{\"url\":\"plain.test\"}\n{\"url\":\"www.plain.test\"}\n{\"url\":\"rules.test\"}\n{\"url\":\"far.test\"}\n{\"url\":\"trap.test\"}"
	if got := f.request("POST", "/v1/urls", seeds); strings.Count(got, "added") != 5 {
		t.Fatal(got)
	}
	for f.left() != 0 && t.Context().Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	for _, c := range crawlers {
		c.stop(syscall.SIGINT)
		if !strings.Contains(c.log.String(), " fetched") || strings.Contains(c.log.String(), " 0 fetched") {
			t.Errorf("a crawler has done nothing:\n%s", c.log)
		}
	}
	v := web.Check(sites.Crawl{Delay: delay, Tries: 3})
	for _, w := range v.Wrong {
		crawled := regexp.MustCompile(`^(www\.)?(plain|rules|far|robots\.far|trap)\.test`).MatchString(w)
		if crawled && !strings.Contains(w, "robots.txt was fetched 2 times") && !strings.Contains(w, "far.txt was fetched 2 times") {
			t.Error(w)
		}
	}
	if v.Pages < 30 {
		t.Errorf("only %d pages", v.Pages)
	}
}
