//go:build soak

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
)

// What a gate before a store does with requests.
const (
	gateOpen    = iota
	gateAway    // it closes connections without an answer
	gateExpired // it says that the credentials have expired
)

// gate is a proxy before an S3 server that can cut clients off.
type gate struct {
	*httptest.Server
	state   atomic.Int32
	refused atomic.Int64 // requests that did not pass
	next    atomic.Pointer[closing]
}

// closing is when a gate that is open shuts: at the first write of a key of a kind, which is
// refused.
type closing struct {
	state  int32
	key    *regexp.Regexp
	closed chan struct{}
}

// shutAt says when the gate shuts next, before it can come to that.
func (g *gate) shutAt(state int32, key string) *closing {
	c := &closing{state, regexp.MustCompile(key), make(chan struct{})}
	g.next.Store(c)
	return c
}

func newGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // requests are signed with it
	}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := r.Method == http.MethodPut || r.Method == http.MethodPost
		if c := g.next.Load(); c != nil && write && g.state.Load() == gateOpen && c.key.MatchString(r.URL.Path) &&
			g.next.CompareAndSwap(c, nil) {
			g.state.Store(c.state)
			close(c.closed)
		}
		switch g.state.Load() {
		case gateAway:
			g.refused.Add(1)
			panic(http.ErrAbortHandler)
		case gateExpired:
			g.refused.Add(1)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>`+
				`<Message>The provided token has expired.</Message></Error>`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// shut waits until the gate has shut and opens it after a while. It fails the test if no request
// came meanwhile.
func (g *gate) shut(t *testing.T, c *closing, what string, d time.Duration, meanwhile func()) {
	t.Helper()
	select {
	case <-c.closed:
	// After an outage a step may wait for a minute before it is repeated.
	case <-time.After(20 * time.Minute):
		t.Fatalf("%s: no key like %s was written", what, c.key)
	}
	t.Logf("%s: %s for %v", time.Now().Format(time.TimeOnly), what, d)
	end := time.After(d)
	meanwhile()
	<-end
	g.state.Store(gateOpen)
	n := g.refused.Swap(0)
	t.Logf("%s: over, %d requests were refused", time.Now().Format(time.TimeOnly), n)
	if n == 0 {
		t.Errorf("%s: no request was refused", what)
	}
}

// TestOutage ingests 20 million lines in 8 lists. While they are read, the store goes away for 30
// minutes; in that time Temporal is killed and started again. While Parquet is written, the
// credentials of the store have expired for ten minutes. The ingest has to end by itself with the
// objects of an undisturbed one. URLAKE_SOAK_SCALE scales lines and times.
func TestOutage(t *testing.T) {
	lines := testenv.Scaled(t, 20_000_000, 800_000)
	seconds := func(n int) time.Duration { return time.Duration(testenv.Scaled(t, n, 15)) * time.Second }
	dir := t.TempDir()
	const lists = 8
	order := newPermutation(lines)
	inputs := make([]string, lists)
	for i := range inputs {
		inputs[i], _ = writeList(t, dir, fmt.Sprintf("list-%d.txt", i), lines/lists, func(b []byte, n int) []byte {
			x := order.at(i*(lines/lists) + n)
			return fmt.Appendf(b, "https://www.site-%d.example/%d/directory/page-%d?id=%d", x%(lines/40), x%17, x/7, x)
		})
	}
	ingest := func(u *urlake) []string {
		return append([]string{
			"ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--wait", "--json",
		}, inputs...)
	}

	undisturbed := startAlone(t, "file://"+filepath.ToSlash(t.TempDir())+"/lake", [][]string{allPools})
	var want largeAnswer
	undisturbed.starterJSON(t, &want, ingest(undisturbed)...)

	s3 := testenv.NewS3Server(t)
	g := newGate(t, s3.Endpoint)
	for _, kv := range s3.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", g.URL)
	u := startAlone(t, s3.NewBucketURL(t), [][]string{allPools})
	t.Setenv("AWS_ENDPOINT_URL_S3", s3.Endpoint) // the test looks into the store behind the gate

	type outcome struct {
		out, errs string
		code      int
	}
	away, expired := g.shutAt(gateAway, `/staging/[^/]+/splits/`), (*closing)(nil)
	ended := make(chan outcome, 1)
	go func() {
		out, errs, code := u.starter(t, ingest(u)...)
		ended <- outcome{out, errs, code}
	}()
	g.shut(t, away, "the store is away", seconds(30*60), func() {
		expired = g.shutAt(gateExpired, `/urls/.*\.parquet$`)
		time.Sleep(seconds(30*60) / 3)
		u.temporalServer.Process.Signal(syscall.SIGKILL)
		u.temporalServer.Wait()
		time.Sleep(seconds(30*60) / 6)
		u.startTemporal(t)
		t.Logf("%s: Temporal was killed and is back", time.Now().Format(time.TimeOnly))
		until(t, "progress says what is waited for", func(context.Context) error {
			out, errs, _ := u.starter(t, "status", "--lake", u.lake, "--running")
			if !strings.Contains(out, "waiting since") || !strings.Contains(errs, u.lake) {
				return fmt.Errorf("status prints %s %s", out, errs)
			}
			t.Logf("starter status --running prints:\n%s", out)
			return nil
		})
	})
	g.shut(t, expired, "the credentials have expired", seconds(10*60), func() {})

	got := <-ended
	if got.code != 0 {
		t.Fatalf("starter ingest: exit %d\n%s\n%s", got.code, got.out, got.errs)
	}
	t.Logf("%s: the ingest has ended by itself", time.Now().Format(time.TimeOnly))
	u.awaitTidied(t)
	if diff := gocmp.Diff(objects(t, undisturbed.lake), objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-undisturbed +disturbed):\n%s", diff)
	}
	verify := exec.Command(filepath.Join(u.bin, "starter"), "verify", "--lake", u.lake)
	verify.Env = append(os.Environ(), u.env...)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
