//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	lakeclient "github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/lease"
)

// TestLivesThrough lets a lake live through random events: ingests, cancellations, killed workers,
// outages of Temporal and of the store, bad networks, damaged objects, deployments and changes of
// the public suffix list. It holds what a server answers against a model, which is a list of the
// lines that each batch holds. The lake is on S3 behind a gate.
//
// URLAKE_SOAK_SCALE scales the number of events, 200 by default. URLAKE_SOAK_SEED repeats the
// choices of a run that failed; timing is not repeated.
func TestLivesThrough(t *testing.T) {
	events := testenv.Scaled(t, 200, 20)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("URLAKE_SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("URLAKE_SOAK_SEED: %v", err)
		}
	}
	l := newLife(t, seed)
	defer func() {
		if t.Failed() {
			t.Logf("to repeat the choices: URLAKE_SOAK_SEED=%d", seed)
		}
	}()
	for n := range events {
		l.event(n)
		l.settleEnded()
		if n%5 == 4 {
			l.check("after some events", 8)
		}
		if t.Failed() {
			return
		}
	}
	l.say("the end: all ingests end, the lake is verified and all domains are looked up")
	l.settleAll()
	l.heal()
	l.check("at the end", len(l.model.domains(l.suffixes)))
	t.Logf("%d events in %v: %v", events, time.Since(l.began).Round(time.Second), l.counts)
}

// line is a line of an input whose host, and path after it, are canonical.
type line struct{ host, path string }

// batchKey names a batch of the model.
type batchKey struct{ dataset, batch string }

// lakeModel is what each batch holds.
type lakeModel map[batchKey][]line

// domain returns the domain of a host: the longest of the suffixes and a label, or else the last
// two labels.
func domain(host string, suffixes []string) string {
	labels := strings.Split(host, ".")
	for i := 1; i < len(labels)-1; i++ {
		if slices.Contains(suffixes, strings.Join(labels[i:], ".")) {
			return strings.Join(labels[i-1:], ".")
		}
	}
	return strings.Join(labels[len(labels)-2:], ".")
}

// answers returns the URLs of each domain and dataset, sorted. A URL is there once for each batch
// that has it.
func (m lakeModel) answers(suffixes []string) map[string]map[string][]string {
	out := map[string]map[string][]string{}
	for key, lines := range m {
		seen := map[line]bool{}
		for _, l := range lines {
			if seen[l] {
				continue
			}
			seen[l] = true
			d := domain(l.host, suffixes)
			if out[d] == nil {
				out[d] = map[string][]string{}
			}
			out[d][key.dataset] = append(out[d][key.dataset], "https://"+l.host+l.path)
		}
	}
	for _, sets := range out {
		for _, urls := range sets {
			slices.Sort(urls)
		}
	}
	return out
}

func (m lakeModel) domains(suffixes []string) []string {
	return slices.Sorted(maps.Keys(m.answers(suffixes)))
}

// running is an ingest that has not been seen to end.
type running struct {
	key       batchKey
	lines     []line
	id        string // of the workflow
	cancelled bool
	ended     chan ended
}

// ended is how "starter watch" of an ingest ended.
type ended struct {
	out, errs string
	code      int
}

// life is a lake, the processes around it, and the model.
type life struct {
	t     *testing.T
	rng   *rand.Rand
	began time.Time
	*urlake
	gate     *gate
	faults   *testenv.S3Faults // behind the gate
	store    blob.Store        // behind the gate
	temporal client.Client
	workers  []*exec.Cmd
	builds   []string // worker programs
	build    int
	hasRules bool

	model    lakeModel
	suffixes []string
	list     string            // the public suffix list that was set last, "" for that of the programs
	ids      map[string]string // dataset id to name
	pending  []*running
	batches  int
	counts   map[string]int
}

func newLife(t *testing.T, seed uint64) *life {
	t.Helper()
	s3 := testenv.NewS3Server(t)
	faults := testenv.NewS3Faults(t, s3, seed)
	g := newGate(t, faults.Endpoint)
	for _, kv := range s3.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	bucket := s3.NewBucketURL(t)
	store, err := blob.Open(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", g.URL)
	l := &life{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), urlake: startAlone(t, bucket, nil), gate: g, faults: faults, store: store,
		model: lakeModel{}, ids: map[string]string{}, counts: map[string]int{},
	}
	t.Logf("seed %d, lake %s", seed, bucket)
	second := filepath.Join(t.TempDir(), "worker")
	build := exec.Command("go", "build", "-ldflags", "-buildid=second", "-o", second, "../../worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	l.builds = []string{filepath.Join(l.bin, "worker"), second}
	help, _, _ := l.starter(t, "--help")
	l.hasRules = strings.Contains(help, "\n  rules ")
	for range 2 {
		l.workers = append(l.workers, l.worker())
	}
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if l.temporal, err = client.NewLazyClient(client.Options{HostPort: l.urlake.temporal, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.temporal.Close)
	first := l.ingest(batchKey{"d0", "b0"}, l.lines(50))
	l.settle(first)
	l.serve(t)
	return l
}

// say prints a line about what happens.
func (l *life) say(format string, args ...any) {
	l.t.Helper()
	l.t.Logf("%6.1f s  %s", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

func (l *life) worker() *exec.Cmd {
	return l.run(l.t, "worker", l.builds[l.build], "--lake", l.lake, "--temp-dir", l.t.TempDir(), "--concurrency", "2")
}

// event lets one random thing happen.
func (l *life) event(n int) {
	kinds := []struct {
		name   string
		weight int
		do     func() string
	}{
		{"ingest", 24, l.ingestNew},
		{"ingest again", 18, l.ingestAgain},
		{"ingest in splits", 3, l.ingestSplits},
		{"cancel", 12, l.cancel},
		{"kill workers", 8, l.killWorkers},
		{"restart Temporal", 5, l.killTemporal},
		{"store away", 10, l.storeAway},
		{"bad network", 8, l.badNetwork},
		{"damage", 14, l.damage},
		{"deploy", 4, l.deploy},
		{"rules", 2, l.rules},
		{"collect garbage", 14, l.collect},
		{"compact", 10, l.compact},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	at := l.rng.IntN(total)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			l.counts[k.name]++
			l.say("%3d %s: %s", n, k.name, k.do())
			return
		}
	}
}

// lines returns up to n random lines. Few hosts and paths make domains of many batches, and lines
// that several batches have.
func (l *life) lines(n int) []line {
	var lines []line
	for range 1 + l.rng.IntN(n) {
		host := fmt.Sprintf("www.site-%d.example", l.rng.IntN(80))
		switch l.rng.IntN(5) {
		case 0:
			host = fmt.Sprintf("user-%d.pages-host.example", l.rng.IntN(20))
		case 1:
			host = fmt.Sprintf("site-%d.example", l.rng.IntN(80))
		}
		lines = append(lines, line{host, fmt.Sprintf("/%d/%d", l.rng.IntN(3), l.rng.IntN(400))})
	}
	return lines
}

// ingest starts the ingest of a batch from one file.
func (l *life) ingest(key batchKey, lines []line) *running {
	l.t.Helper()
	var text strings.Builder
	for _, ln := range lines {
		fmt.Fprintf(&text, "HTTPS://%s%s\n", ln.host, ln.path)
	}
	text.WriteString("http:///\n") // a reject
	return l.start(key, lines, write(l.t, l.t.TempDir(), "list.txt", text.String()))
}

// start starts the ingest of a batch.
func (l *life) start(key batchKey, lines []line, input string) *running {
	l.t.Helper()
	r := &running{key: key, lines: lines, ended: make(chan ended, 1)}
	var started struct {
		WorkflowID string `json:"workflow_id"`
	}
	l.starterJSON(l.t, &started, "ingest", "--lake", l.lake, "--dataset", key.dataset, "--batch", key.batch,
		"--max-reject-rate", "0.9", "--json", input)
	r.id = started.WorkflowID
	go func() { // "starter watch" ends if Temporal goes away for long
		for {
			out, errs, code := l.starter(l.t, "watch", "--json", r.id)
			if code == 0 || !strings.Contains(errs, "no Temporal at") {
				r.ended <- ended{out, errs, code}
				return
			}
		}
	}()
	l.pending = append(l.pending, r)
	return r
}

// stuck is how long an ingest may take after everything that it needs is there.
const stuck = 4 * time.Minute

// settle waits for an ingest, and tells the model what became of it.
func (l *life) settle(r *running) {
	l.t.Helper()
	select {
	case e := <-r.ended:
		l.learn(r, e)
	case <-time.After(stuck):
		out, errs, _ := l.starter(l.t, "status", "--lake", l.lake)
		l.t.Fatalf("%s has not ended in %v; status:\n%s%s", r.id, stuck, out, errs)
	}
}

func (l *life) settleAll() {
	l.t.Helper()
	for len(l.pending) > 0 {
		l.settle(l.pending[0])
	}
}

// settleEnded settles the ingests that have ended, and waits for some if many run.
func (l *life) settleEnded() {
	l.t.Helper()
	for _, r := range slices.Clone(l.pending) {
		select {
		case e := <-r.ended:
			l.learn(r, e)
		default:
		}
	}
	for len(l.pending) > 3 {
		l.settle(l.pending[0])
	}
}

// learn tells the model what became of an ingest.
func (l *life) learn(r *running, e ended) {
	l.t.Helper()
	l.pending = slices.DeleteFunc(l.pending, func(p *running) bool { return p == r })
	if e.code != 0 {
		if !r.cancelled || !strings.Contains(e.errs, "cancel") {
			l.t.Errorf("%s: exit %d\n%s%s", r.id, e.code, e.out, e.errs)
		}
		if strings.Contains(e.errs, "came too late") { // it had finished
			out, errs, code := l.starter(l.t, "retire", "--lake", l.lake, "--dataset", r.key.dataset, "--batch", r.key.batch, "--wait")
			if code != 0 {
				l.t.Errorf("retire %v: exit %d\n%s%s", r.key, code, out, errs)
			}
			delete(l.model, r.key)
		}
		return // else nothing of a cancelled ingest is published
	}
	var res struct {
		DatasetID uint32 `json:"dataset_id"`
		Version   string
		Rows      int64
	}
	if err := json.Unmarshal([]byte(e.out), &res); err != nil {
		l.t.Errorf("%s: %v\n%s", r.id, err, e.out)
		return
	}
	distinct := map[line]bool{}
	for _, ln := range r.lines {
		distinct[ln] = true
	}
	if res.Version == "" || res.Rows != int64(len(distinct)) {
		l.t.Errorf("%s ended with %+v, want %d rows in a version", r.id, res, len(distinct))
	}
	l.ids[fmt.Sprint(res.DatasetID)] = r.key.dataset
	l.model[r.key] = r.lines
}

// free returns a random batch that is not being ingested: a new one, or one of the model.
func (l *life) free(fresh bool) batchKey {
	for {
		l.batches++
		key := batchKey{fmt.Sprintf("d%d", l.rng.IntN(8)), fmt.Sprintf("b%d", l.batches)}
		if known := slices.SortedFunc(maps.Keys(l.model), func(a, b batchKey) int {
			return strings.Compare(a.dataset+a.batch, b.dataset+b.batch)
		}); !fresh && len(known) > 0 {
			key = known[l.rng.IntN(len(known))]
		}
		at := slices.IndexFunc(l.pending, func(r *running) bool { return r.key == key })
		if at < 0 {
			return key
		}
		l.settle(l.pending[at])
	}
}

func (l *life) ingestNew() string {
	key := l.free(true)
	lines := l.lines(120)
	l.ingest(key, lines)
	return fmt.Sprintf("%s/%s of %d lines", key.dataset, key.batch, len(lines))
}

func (l *life) ingestAgain() string {
	key := l.free(false)
	lines := l.lines(120)
	l.ingest(key, lines)
	return fmt.Sprintf("%s/%s of %d lines", key.dataset, key.batch, len(lines))
}

// ingestSplits ingests a folder of so many files that it has two splits.
func (l *life) ingestSplits() string {
	const files = 2100
	key := l.free(l.rng.IntN(2) == 0)
	dir := l.t.TempDir()
	var lines []line
	for i := range files {
		ln := l.lines(1)[0]
		lines = append(lines, ln)
		write(l.t, dir, fmt.Sprintf("%04d.txt", i), "https://"+ln.host+ln.path+"\n")
	}
	l.start(key, lines, dir)
	return fmt.Sprintf("%s/%s of %d files", key.dataset, key.batch, files)
}

// pause lets a random part of an ingest pass.
func (l *life) pause(most time.Duration) time.Duration {
	d := time.Duration(l.rng.Int64N(int64(most)))
	time.Sleep(d)
	return d.Round(time.Millisecond)
}

func (l *life) cancel() string {
	key := l.free(l.rng.IntN(2) == 0)
	r := l.ingest(key, l.lines(120))
	after := l.pause(1500 * time.Millisecond)
	r.cancelled = true
	outcome := "cancelled"
	if err := l.temporal.CancelWorkflow(l.t.Context(), r.id, ""); err != nil {
		outcome = err.Error()
	}
	return fmt.Sprintf("%s/%s after %v: %s", key.dataset, key.batch, after, outcome)
}

func (l *life) killWorkers() string {
	key := l.free(l.rng.IntN(2) == 0)
	l.ingest(key, l.lines(120))
	after := l.pause(time.Second)
	killed := 0
	both := l.rng.IntN(2) == 0
	for i, w := range l.workers {
		if i == 0 || both {
			w.Process.Signal(syscall.SIGKILL)
			w.Wait()
			l.workers[i] = l.worker()
			killed++
		}
	}
	return fmt.Sprintf("%d, %v after the start of %s/%s", killed, after, key.dataset, key.batch)
}

func (l *life) killTemporal() string {
	key := l.free(l.rng.IntN(2) == 0)
	l.ingest(key, l.lines(120))
	after := l.pause(time.Second)
	l.restartTemporal(l.t)
	return fmt.Sprintf("%v after the start of %s/%s", after, key.dataset, key.batch)
}

func (l *life) storeAway() string {
	key := l.free(l.rng.IntN(2) == 0)
	l.ingest(key, l.lines(120))
	after := l.pause(time.Second)
	before := l.gate.refused.Load()
	l.gate.state.Store(gateAway)
	away := l.pause(4 * time.Second)
	l.gate.state.Store(gateOpen)
	return fmt.Sprintf("for %v, %v after the start of %s/%s; %d requests were refused",
		away, after, key.dataset, key.batch, l.gate.refused.Load()-before)
}

// badNetwork lets requests to the store fail while an ingest runs: replies are lost, broken off and
// damaged, and uploads arrive damaged.
func (l *life) badNetwork() string {
	key := l.free(l.rng.IntN(2) == 0)
	before := l.faults.Happened()
	l.faults.Space(20)
	l.faults.Inject(0.2, nil, slices.DeleteFunc(testenv.S3FaultKinds(), func(k testenv.S3Fault) bool {
		return k == testenv.Hang // takes a minute
	})...)
	l.ingest(key, l.lines(120))
	took := l.pause(4 * time.Second)
	l.faults.Heal()
	happened := map[string]int{}
	for kind, n := range l.faults.Happened() {
		if n -= before[kind]; n > 0 {
			happened[kind.String()] = n
		}
	}
	return fmt.Sprintf("for %v during %s/%s: %v", took, key.dataset, key.batch, happened)
}

// deploy replaces all workers by another build, one after the other, while ingests run.
func (l *life) deploy() string {
	l.build = 1 - l.build
	for i, w := range l.workers {
		l.workers[i] = l.worker()
		w.Process.Signal(syscall.SIGTERM)
		w.Wait()
	}
	return fmt.Sprintf("build %d, with %d ingests under way", l.build, len(l.pending))
}

// rules moves the lake to another public suffix list.
func (l *life) rules() string {
	if !l.hasRules {
		return "this build of starter has no verb for it"
	}
	l.settleAll()
	next, list := []string{}, "example\n"
	if len(l.suffixes) == 0 {
		next, list = []string{"pages-host.example"}, list+"pages-host.example\n"
	}
	file := write(l.t, l.t.TempDir(), "list.dat", list)
	out, errs, code := l.starter(l.t, "rules", "update", "--lake", l.lake, "--psl", file)
	if code != 0 {
		l.t.Fatalf("rules update: exit %d\n%s%s", code, out, errs)
	}
	l.publish()
	l.suffixes, l.list = next, list
	l.check("after the move to another list", 20)
	return fmt.Sprintf("private suffixes are %v", next)
}

// collect collects garbage beside whatever is under way, mostly without any time of grace.
func (l *life) collect() string {
	l.t.Helper()
	grace := "0s"
	if l.rng.IntN(3) == 0 {
		grace = "1h"
	}
	keep := strconv.Itoa(1 + l.rng.IntN(3))
	out, errs, code := l.starter(l.t, "gc", "--lake", l.lake, "--keep", keep, "--grace", grace, "--deadline", "3m")
	said := strings.Join(strings.Split(strings.TrimSpace(out+errs), "\n"), "; ")
	if code != 0 && !strings.Contains(said, "no Temporal at") {
		l.t.Errorf("gc: %s", said)
	}
	return fmt.Sprintf("keep %s, grace %s: %s", keep, grace, said)
}

// compact compacts the lake beside whatever is under way.
func (l *life) compact() string {
	l.t.Helper()
	args := []string{"compact", "--lake", l.lake, "--deadline", "3m"}
	if l.rng.IntN(2) == 0 {
		args = append(args, "--full")
	}
	out, errs, code := l.starter(l.t, args...)
	said := strings.Join(strings.Split(strings.TrimSpace(out+errs), "\n"), "; ")
	if code != 0 && !strings.Contains(said, "no Temporal at") && !strings.Contains(said, "is under way") {
		l.t.Errorf("compact: %s", said)
	}
	return strings.Join(args[3:], " ") + ": " + said
}

// publish publishes, and returns what was printed.
func (l *life) publish(args ...string) string {
	l.t.Helper()
	out, errs, _ := l.starter(l.t, append([]string{"publish", "--lake", l.lake}, args...)...)
	return out + errs
}

// damage deletes, truncates or changes an object, and mends the lake as its messages say.
func (l *life) damage() string {
	l.settleAll()
	keys := l.objects(l.rng.IntN(4) > 0)
	// Each kind of object is as likely as any other, or most of what is damaged would be parts.
	kinds := map[string][]string{}
	for _, key := range keys {
		kind := regexp.MustCompile(`[0-9a-f]{16,}|=\d+|/b\d+|-b\d+`).ReplaceAllString(key, "")
		kinds[kind] = append(kinds[kind], key)
	}
	names := slices.Sorted(maps.Keys(kinds))
	kind := names[l.rng.IntN(len(names))]
	key := kinds[kind][l.rng.IntN(len(kinds[kind]))]
	data, _, err := l.store.Get(l.t.Context(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	var how string
	switch n := l.rng.IntN(3); {
	case n == 0 || len(data) == 0:
		how = "deleted"
		err = l.store.Delete(l.t.Context(), key)
	case n == 1:
		size := l.rng.IntN(len(data))
		how = fmt.Sprintf("truncated from %d to %d bytes", len(data), size)
		_, err = l.store.Put(l.t.Context(), key, data[:size], blob.Condition{})
	default:
		at, bit := l.rng.IntN(len(data)), l.rng.IntN(8)
		how = fmt.Sprintf("bit %d of byte %d of %d flipped", bit, at, len(data))
		data[at] ^= 1 << bit
		_, err = l.store.Put(l.t.Context(), key, data, blob.Condition{})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.say("    %s %s", key, how)
	done := l.heal()
	l.check("after the damage of "+key, 12)
	return fmt.Sprintf("%s %s: %s", key, how, done)
}

// hash is the digest of a content, in the name of an object.
var hash = regexp.MustCompile(`[0-9a-f]{32}`)

// objects returns the keys of the lake: all of them, or those that the current version needs.
func (l *life) objects(needed bool) []string {
	l.t.Helper()
	var all, keys []string
	for info, err := range l.store.List(l.t.Context(), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		// The server renews its lease, which is nothing to be mended. If it is not known whether a
		// sweep has ended, everybody waits for three quarters of an hour, longer than this test.
		if !strings.HasPrefix(info.Key, "staging/") && !strings.HasPrefix(info.Key, "index/leases/") && info.Key != lease.SweepKey {
			all = append(all, info.Key)
		}
	}
	if !needed {
		return all
	}
	text := func(key string) string {
		data, _, err := l.store.Get(l.t.Context(), key)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(data)
	}
	var m struct {
		CurrentVersion string `json:"current_version"`
	}
	if err := json.Unmarshal([]byte(text("index/manifest.json")), &m); err != nil {
		l.t.Fatal(err)
	}
	// The version names segments and batch records, and these name parts and postings.
	version := "index/versions/" + m.CurrentVersion + ".json"
	names := text(version)
	for _, key := range all {
		if found := hash.FindString(key); strings.HasPrefix(key, "batches/") && strings.HasSuffix(key, ".json") && strings.Contains(names, found) {
			names += text(key)
		}
	}
	for _, key := range all {
		found := hash.FindString(key)
		if found != "" && strings.Contains(names, found) ||
			found == "" && (key == version || !strings.HasPrefix(key, "index/versions/")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// again is the part of a message that names a batch that has to be ingested again.
var again = regexp.MustCompile(`ingest batch (\S+) of dataset (\d+) again`)

// heal verifies the lake and does what the messages say, until nothing is wrong.
func (l *life) heal() string {
	l.t.Helper()
	var did []string
	for range 5 {
		out, errs, code := l.starter(l.t, "verify", "--lake", l.lake, "--deep")
		if code == 0 {
			if len(did) == 0 {
				return "nothing that is needed"
			}
			return strings.Join(did, ", ")
		}
		named := 0
		if strings.Contains(out+errs, "starter rebuild") {
			named++
			printed, _, _ := l.starter(l.t, "rebuild", "--lake", l.lake)
			out += printed
			did = append(did, "rebuilt")
			for _, ln := range strings.Split(strings.TrimSpace(printed), "\n") {
				l.say("      rebuild: %s", ln)
			}
		}
		if strings.Contains(out, "Lost: rules/") && l.list != "" { // a list that the programs lack
			file := write(l.t, l.t.TempDir(), "list.dat", l.list)
			printed, errs, _ := l.starter(l.t, "rules", "update", "--lake", l.lake, "--psl", file)
			did = append(did, "wrote the list again")
			l.say("      rules update: %s%s", printed, errs)
		}
		lost := map[batchKey]bool{}
		for _, m := range again.FindAllStringSubmatch(out+errs, -1) {
			key := batchKey{l.ids[m[2]], m[1]}
			if _, ok := l.model[key]; !ok {
				l.say("      %s names %v, which the model does not have", m[0], key)
				continue
			}
			lost[key] = true
		}
		for key := range lost {
			named++
			l.settle(l.ingest(key, l.model[key]))
			did = append(did, fmt.Sprintf("ingested %s/%s again", key.dataset, key.batch))
		}
		if named == 0 {
			l.t.Fatalf("verify names nothing that can be done:\n%s%s", out, errs)
		}
	}
	out, errs, _ := l.starter(l.t, "verify", "--lake", l.lake, "--deep")
	l.t.Fatalf("the lake is not mended after %v:\n%s%s", did, out, errs)
	return ""
}

// check holds what the server answers about n random domains against the model. Datasets of
// ingests under way are left out. A new version may take a moment to be served.
func (l *life) check(when string, n int) {
	l.t.Helper()
	busy := map[string]bool{}
	for _, r := range l.pending {
		busy[r.key.dataset] = true
	}
	want := l.model.answers(l.suffixes)
	all := l.model.domains(l.suffixes)
	l.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for _, d := range all[:min(n, len(all))] {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
		defer cancel()
		for {
			err := l.compareDomain(ctx, d, want[d], busy)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				l.t.Errorf("%s: %s: %v", when, d, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-again.C:
			}
		}
	}
}

// compareDomain returns an error if the server answers something else about a domain.
func (l *life) compareDomain(ctx context.Context, domain string, want map[string][]string, busy map[string]bool) error {
	c, err := lakeclient.New(l.base, lakeclient.Options{Attempts: 1})
	if err != nil {
		return err
	}
	d, err := c.Domain(ctx, domain, lakeclient.Query{})
	if err != nil {
		return err
	}
	got := map[string]bool{}
	for _, set := range d.Datasets {
		if busy[set.Name] {
			continue
		}
		got[set.Name] = true
		var urls []string
		of := lakeclient.URLsOptions{Query: lakeclient.Query{Version: d.Version}, PageSize: 10_000}
		for row, err := range c.URLRows(ctx, domain, set.Name, of) {
			if err != nil {
				return err
			}
			urls = append(urls, row.URL)
		}
		slices.Sort(urls)
		if set.Rows != int64(len(urls)) || !slices.Equal(urls, want[set.Name]) {
			return fmt.Errorf("dataset %s: %d URLs, want %d; first difference: %s",
				set.Name, len(urls), len(want[set.Name]), difference(urls, want[set.Name]))
		}
	}
	for name := range want {
		if !got[name] && !busy[name] {
			return fmt.Errorf("dataset %s is missing, want %d URLs", name, len(want[name]))
		}
	}
	return nil
}

// difference describes the first difference of two sorted lists.
func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "missing " + want[i]
		case i >= len(want):
			return "too many: " + got[i]
		case got[i] != want[i]:
			return fmt.Sprintf("%s, want %s", got[i], want[i])
		}
	}
	return "the count"
}
