package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/internal/compat"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// killer is a proxy before an S3 server. While a worker's request is held there, killer asks
// Temporal which steps that worker has begun, and so kills the worker within a step, at its first
// write: in turn before the store has seen the write, and before the worker has seen the reply.
type killer struct {
	t        *testing.T
	faults   *testenv.S3Faults
	proxy    *httptest.Server
	temporal client.Client
	// worker starts a worker.
	worker func() *exec.Cmd

	mu      sync.Mutex
	running *exec.Cmd
	armed   bool
	// todo are the steps within which the worker is still to be killed, done those within which it
	// was. Steps are types of activities.
	todo, done map[string]bool
	// any tells to kill at a read, too.
	any bool
	// seen has the steps that were ever at work.
	seen  map[string]bool
	kills []string
}

func newKiller(t *testing.T, s3 *testenv.S3Server) *killer {
	t.Helper()
	k := &killer{t: t, faults: testenv.NewS3Faults(t, s3, 1), todo: map[string]bool{}, done: map[string]bool{}, seen: map[string]bool{}}
	k.proxy = httptest.NewServer(k)
	t.Cleanup(func() {
		k.proxy.CloseClientConnections()
		k.proxy.Close()
	})
	return k
}

// steps returns the types of the activities that have begun, of all workflows.
func (k *killer) steps(ctx context.Context) (types []string) {
	open, err := k.temporal.ListOpenWorkflow(ctx, &workflowservice.ListOpenWorkflowExecutionsRequest{})
	if err != nil {
		return nil
	}
	for _, e := range open.Executions {
		d, err := k.temporal.DescribeWorkflowExecution(ctx, e.Execution.WorkflowId, e.Execution.RunId)
		if err != nil {
			continue
		}
		for _, a := range d.PendingActivities {
			if a.State == enums.PENDING_ACTIVITY_STATE_STARTED && !slices.Contains(types, a.ActivityType.Name) {
				types = append(types, a.ActivityType.Name)
			}
		}
	}
	return types
}

// suits reports whether a request of a step is one at which the worker is to die.
func (k *killer) suits(step string, r *http.Request) bool {
	switch {
	case step == "CollectGarbage":
		// A sweep that dies on S3 keeps the next one waiting for 45 minutes. TestKilledInASweep
		// kills one in a folder.
		return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/index/trash/lists/")
	case k.any:
		return true
	case step == "CommitVersion":
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+catalog.ManifestKey)
	}
	return r.Method == http.MethodPut || r.Method == http.MethodPost || r.Method == http.MethodDelete
}

func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	forward := func() *httptest.ResponseRecorder {
		reply := httptest.NewRecorder()
		k.faults.ServeHTTP(reply, r)
		return reply
	}
	k.mu.Lock()
	if !k.armed || len(k.todo) == 0 {
		k.mu.Unlock()
		k.answer(w, forward())
		return
	}
	defer k.mu.Unlock()
	if r.Context().Err() != nil { // of a worker that is dead
		panic(http.ErrAbortHandler)
	}
	steps := k.steps(r.Context())
	at := slices.IndexFunc(steps, func(s string) bool { return k.todo[s] && k.suits(s, r) })
	if at < 0 {
		k.answer(w, forward())
		return
	}
	when := "before"
	if len(k.kills)%2 == 1 {
		when = "after"
		forward()
	}
	k.kills = append(k.kills, fmt.Sprintf("%s: %s %s %s", strings.Join(steps, "+"), when, r.Method, r.URL.Path))
	for _, s := range steps {
		delete(k.todo, s)
		k.done[s] = true
	}
	k.running.Process.Signal(syscall.SIGKILL)
	k.running.Wait()
	k.running = k.worker()
	panic(http.ErrAbortHandler)
}

func (k *killer) answer(w http.ResponseWriter, reply *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), reply.Header())
	w.WriteHeader(reply.Code)
	w.Write(reply.Body.Bytes())
}

// killScenario is what starter is asked to do while the worker dies.
type killScenario struct {
	name string
	args []string // of the worker
	// prepare makes the lake, undisturbed; do is what is disturbed.
	prepare, do func(l *killLake)
}

// killLake is a lake of a scenario.
type killLake struct {
	t *testing.T
	*urlake
	in string
}

func (l *killLake) run(args ...string) {
	l.t.Helper()
	at := 1
	if args[0] == "takedown" || args[0] == "rules" {
		at = 2
	}
	args = slices.Concat(args[:at], []string{"--lake", l.lake}, args[at:])
	if out, errs, code := l.starter(l.t, args...); code != 0 {
		l.t.Fatalf("starter %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
}

// list writes a list of n lines, with few domains, and returns its path.
func (l *killLake) list(name string, n int) string {
	l.t.Helper()
	path := filepath.Join(l.in, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "https://www.site-%d.example/%s/%s%d\n", (i*i+len(name))%7, name, strings.Repeat("directory/", 10), i)
	}
	out.WriteString("mailto:nobody@site-1.example\nhttps://a.pages.example/" + name + "\nhttps://gone.example/" + name + "\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o666); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func (l *killLake) ingest(batch string, n int, more ...string) {
	l.t.Helper()
	l.run(slices.Concat([]string{"ingest", "--dataset", "d", "--batch", batch, "--wait", l.list(batch+".txt", n)}, more)...)
}

// few ingests three batches.
func (l *killLake) few() {
	for _, batch := range []string{"b1", "b2", "b3"} {
		l.ingest(batch, 40)
	}
}

var killHosts = []string{
	"site-0.example", "site-1.example", "site-2.example", "site-3.example", "site-4.example", "site-5.example", "site-6.example",
	"pages.example", "a.pages.example", "gone.example",
}

// killScenarios are all scenarios.
var killScenarios = []killScenario{
	{
		name:    "small list",
		prepare: func(*killLake) {},
		do:      func(l *killLake) { l.ingest("b1", 40) },
	},
	{
		name:    "large list",
		prepare: func(*killLake) {},
		do:      func(l *killLake) { l.ingest("large", 240_000) },
	},
	{
		name:    "many lists",
		prepare: func(l *killLake) { l.few() },
		do: func(l *killLake) {
			for i := range 6 {
				l.list(fmt.Sprintf("lists/l%d.txt", i), 20)
			}
			l.run("ingest", "--datasets-from", "files", "--wait", filepath.Join(l.in, "lists"))
		},
	},
	{
		name:    "compaction",
		prepare: func(l *killLake) { l.few() },
		do:      func(l *killLake) { l.run("compact", "--full") },
	},
	{
		name: "retirement out of a union",
		prepare: func(l *killLake) {
			l.few()
			l.run("compact", "--full")
		},
		do: func(l *killLake) { l.run("retire", "--dataset", "d", "--batch", "b2", "--wait") },
	},
	{
		name:    "replacement of a dataset",
		prepare: func(l *killLake) { l.few() },
		do:      func(l *killLake) { l.ingest("only", 30, "--replace") },
	},
	{
		name:    "rules",
		prepare: func(l *killLake) { l.few() },
		do: func(l *killLake) {
			path := filepath.Join(l.in, "list.dat")
			if err := os.WriteFile(path, []byte("example\npages.example\n"), 0o666); err != nil {
				l.t.Fatal(err)
			}
			l.run("rules", "update", "--psl", path)
		},
	},
	{
		name: "garbage",
		prepare: func(l *killLake) {
			l.few()
			l.run("compact", "--full")
			// Unions without hidden rows are named by the takedown, whose id is another one each
			// time.
			l.run("takedown", "add", "--domain", "gone.example", "--reason", "test")
		},
		do: func(l *killLake) { l.run("gc", "--keep", "1", "--grace", "0s") },
	},
}

// shortKills are the scenarios of a run without the tag soak, and the steps in which the worker is
// killed: each costs half a minute, until Temporal notices.
var shortKills = map[string][]string{"retirement out of a union": {"CommitVersion"}}

// TestKilledOnceAStep kills the worker within each step of ingests, publishes, compactions,
// collections, retirements and changes of the rules: kill -9 of the real program, which is started
// again, with Temporal and an S3 server at work. The command completes, and what is left after a
// garbage collection is what an undisturbed lake has: the same answers, the same objects with the
// same bytes, and of those that have clocks or runs in them the same number.
func TestKilledOnceAStep(t *testing.T) {
	t.Parallel()
	for _, s := range killScenarios {
		only, ok := shortKills[s.name]
		if shortKills != nil && !ok {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.test(t, only)
		})
	}
}

// test tests a scenario. Only are the steps in which the worker is killed, nil for all.
func (s *killScenario) test(t *testing.T, only []string) {
	in := t.TempDir()
	want, _ := s.live(t, in, nil, nil, false)
	seen := want.steps
	if only != nil {
		maps.DeleteFunc(seen, func(step string, _ bool) bool { return !slices.Contains(only, step) })
	}
	if len(seen) == 0 {
		t.Fatal("no step was seen in the undisturbed run")
	}
	left := maps.Clone(seen)
	var kills []string
	// A step can be over before a request of it arrives, so there is another run for what is left,
	// which does not wait for a write.
	for run := 0; run < 4 && len(left) > 0; run++ {
		got, k := s.live(t, in, left, want, run > 0)
		kills = append(kills, k.kills...)
		for step := range got.killed {
			delete(left, step)
		}
		if run > 0 && len(got.killed) == 0 {
			break
		}
	}
	for _, kill := range kills {
		t.Logf("killed in %s", kill)
	}
	t.Logf("%d kills in %d steps: %s", len(kills), len(seen)-len(left), strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
	for step := range left {
		t.Errorf("the worker was never killed in %s", step)
	}
}

// remains are what is left of a lake.
type remains struct {
	rows    compat.Rows
	objects map[string]string // digests by key
	counts  map[string]int    // objects with clocks or runs in them, by folder
	steps   map[string]bool   // that were seen
	killed  map[string]bool
}

// live lets a new lake live through the scenario, and kills the worker once in each step of todo.
func (s *killScenario) live(t *testing.T, in string, todo map[string]bool, want *remains, anyRequest bool) (*remains, *killer) {
	s3 := testenv.NewS3Server(t)
	bucket := s3.NewBucketURL(t)
	k := newKiller(t, s3)
	k.any = anyRequest
	u := startAlone(t, bucket, nil)
	u.env = append(u.env, s3.Env()...)
	workers := *u
	workers.env = append(slices.Clone(u.env), "AWS_ENDPOINT_URL_S3="+k.proxy.URL)
	temp := t.TempDir()
	k.worker = func() *exec.Cmd {
		args := append([]string{"--lake", bucket, "--temp-dir", temp, "--concurrency", "2"}, s.args...)
		return workers.run(t, "worker", filepath.Join(u.bin, "worker"), args...)
	}
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	var err error
	if k.temporal, err = client.NewLazyClient(client.Options{HostPort: u.temporal, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.temporal.Close)
	k.running = k.worker()
	l := &killLake{t: t, urlake: u, in: in}
	s.prepare(l)
	before := stepsOf(t, k.temporal)
	k.mu.Lock()
	maps.Copy(k.todo, todo)
	k.armed = true
	k.mu.Unlock()
	s.do(l)
	k.mu.Lock()
	k.armed = false
	k.mu.Unlock()
	out := &remains{steps: map[string]bool{}, killed: k.done}
	for step, n := range stepsOf(t, k.temporal) {
		out.steps[step] = n > before[step]
	}
	maps.DeleteFunc(out.steps, func(_ string, began bool) bool { return !began })
	l.run("gc", "--keep", "1", "--grace", "0s")
	until(t, "all workflows have ended", func(ctx context.Context) error {
		open, err := k.temporal.ListOpenWorkflow(ctx, &workflowservice.ListOpenWorkflowExecutionsRequest{})
		if err == nil && len(open.Executions) > 0 {
			err = fmt.Errorf("%d are open", len(open.Executions))
		}
		return err
	})
	out.look(t, "file://"+filepath.ToSlash(s3.Folder(bucket)))
	if want == nil {
		return out, k
	}
	for _, c := range []struct {
		what      string
		want, got any
	}{{"answers", want.rows, out.rows}, {"objects", want.objects, out.objects}, {"numbers of objects", want.counts, out.counts}} {
		if diff := gocmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-undisturbed +killed):\n%s", c.what, diff)
		}
	}
	if out, errs, code := u.starter(t, "verify", "--lake", u.lake, "--deep"); code != 0 {
		t.Errorf("verify: exit %d: %s%s", code, out, errs)
	}
	return out, k
}

// look reads a lake.
func (r *remains) look(t *testing.T, lakeURL string) {
	t.Helper()
	r.objects, r.counts = map[string]string{}, map[string]int{}
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := blob.ProbeBegan(strings.TrimPrefix(info.Key, catalog.ProbeRoot)); ok {
			continue // of a process that was killed; garbage collections delete them after an hour
		}
		if own := ofItsOwn.FindString(info.Key); own != "" {
			r.counts[own]++
			continue
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		r.objects[info.Key] = lake.Digest(data)
	}
	if len(r.objects) < 10 {
		t.Fatalf("%s has only %v", lakeURL, r.objects)
	}
	asker := compat.Ask(t, lakeURL)
	r.rows = asker.Rows(killHosts)
	asker.Close()
	if len(r.rows) == 0 {
		t.Fatal("the lake has no rows")
	}
}

// ofItsOwn matches the keys of objects that have clocks, runs or ids of takedowns in them, which
// differ from one run to the next: their kind.
var ofItsOwn = regexp.MustCompile(`^(registry/|pending/|index/versions/|index/pieces/|index/manifest\.json|index/takedowns/|index/trash/sweep\.json|reports/|staging/sweep\.json)`)

// stepsOf counts the activities of all workflows by type.
func stepsOf(t *testing.T, c client.Client) map[string]int {
	t.Helper()
	counts := map[string]int{}
	ctx := t.Context()
	all, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Executions {
		for events := c.GetWorkflowHistory(ctx, e.Execution.WorkflowId, e.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
			event, err := events.Next()
			if err != nil {
				t.Fatal(err)
			}
			if a := event.GetActivityTaskScheduledEventAttributes(); a != nil {
				counts[a.ActivityType.Name]++
			}
		}
	}
	return counts
}
