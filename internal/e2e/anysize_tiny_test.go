//go:build soak

package e2e

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/activities"
	lakeclient "github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

const (
	// workflowsAtOnce is how many workflows are in flight. More of them would only wait longer.
	workflowsAtOnce = 32
	// stepsAtOnce is how many batches this process ingests at once. They mostly wait for the disk.
	stepsAtOnce = 8
	// sharedSites is the number of domains that several tiny datasets hold.
	sharedSites = 5003
)

func tinyName(i int) string { return fmt.Sprintf("tiny-%05d", i) }

// tinyURLs returns the lines of dataset i, between 1 and 20.
func tinyURLs(i int) []string {
	lines := []string{fmt.Sprintf("https://everywhere.example/%d", i)}
	for k := 1; k <= i%20; k++ {
		if k == 1 {
			lines = append(lines, fmt.Sprintf("https://only-%d.example/", i))
			continue
		}
		lines = append(lines, fmt.Sprintf("https://www.shared-%d.example/%d/%d", (i*7+k)%sharedSites, i, k))
	}
	return lines
}

// TestAnySizeTenThousandTinyDatasets ingests some datasets by workflows, which measures the cost of
// a batch of a few rows with Temporal, and the others by the same steps in this process. Then it
// publishes all and looks up domains.
func TestAnySizeTenThousandTinyDatasets(t *testing.T) {
	n := testenv.Scaled(t, 10_000, 60)
	ordered := testenv.Scaled(t, 100, 20)
	in := t.TempDir()
	rows := 0
	shared := map[string]map[string][]item{} // by domain and dataset, for compare
	for i := range n {
		lines := tinyURLs(i)
		rows += len(lines)
		writeList(t, in, tinyName(i)+".txt", len(lines), func(b []byte, k int) []byte { return append(b, lines[k]...) })
		for k, l := range lines {
			if k < 2 {
				continue
			}
			domain := fmt.Sprintf("shared-%d.example", (i*7+k)%sharedSites)
			if shared[domain] == nil {
				shared[domain] = map[string][]item{}
			}
			shared[domain][tinyName(i)] = append(shared[domain][tinyName(i)], item{URL: l})
		}
	}
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir), nil)
	worker := u.worker(t, "--temp-dir", t.TempDir())
	spec := func(i int) ingest.Spec {
		return ingest.Spec{Lake: u.lake, Dataset: tinyName(i), Batch: "b", Inputs: []string{filepath.Join(in, tinyName(i)+".txt")}}
	}

	c, err := client.Dial(client.Options{HostPort: u.temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	busy := [2]float64{cpu(u.temporalServer.Process.Pid), cpu(worker.Process.Pid)}
	started := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(workflowsAtOnce)
	for i := range ordered {
		g.Go(func() error {
			run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
				ID:        "ingest:" + tinyName(i) + ":b@" + u.lake,
				TaskQueue: activities.TaskQueue(u.lake, activities.PoolControl),
			}, workflows.IngestWorkflow, workflows.IngestInput{Spec: spec(i), NoPublish: true})
			if err != nil {
				return err
			}
			return run.Get(ctx, nil)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	each := func(seconds float64) float64 { return seconds * 1e3 / float64(ordered) }
	took := time.Since(started)
	objects, bytes := measure(t, dir)
	t.Logf("%d by workflows, %d at once: %.1f s, each %.0f ms, of CPU %.0f ms of Temporal and %.0f ms of the worker; "+
		"%.1f objects and %d bytes each",
		ordered, workflowsAtOnce, took.Seconds(),
		each(took.Seconds()), each(cpu(u.temporalServer.Process.Pid)-busy[0]), each(cpu(worker.Process.Pid)-busy[1]),
		float64(objects)/float64(ordered), bytes/int64(ordered))

	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	started = time.Now()
	g, ctx = errgroup.WithContext(t.Context())
	g.SetLimit(stepsAtOnce)
	last := min(1000, n/2) // their time is logged apart
	var lastStarted time.Time
	for i := ordered; i < n; i++ {
		if i == n-last {
			lastStarted = time.Now()
		}
		g.Go(func() error {
			_, err := testlake.Steps(ctx, store, spec(i), temp)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	took = time.Since(started)
	t.Logf("%d by their steps, %d at once: %.1f s, each %.1f ms, of the last %d %.1f ms",
		n-ordered, stepsAtOnce, took.Seconds(), took.Seconds()*1e3/float64(n-ordered),
		last, time.Since(lastStarted).Seconds()*1e3/float64(last))

	publish := func(want int) {
		t.Helper()
		_, before := measure(t, filepath.Join(dir, "index"))
		started := time.Now()
		var p struct{ Batches int }
		u.starterJSON(t, &p, "publish", "--lake", u.lake, "--json")
		if p.Batches != want {
			t.Fatalf("%d batches were published, want %d", p.Batches, want)
		}
		_, after := measure(t, filepath.Join(dir, "index"))
		t.Logf("publish of %d batches: %.1f s, %d bytes of index", want, time.Since(started).Seconds(), after-before)
	}
	publish(n)

	server := u.serve(t)
	// A page has up to a thousand datasets.
	names, counted, pages := map[string]int{}, 0, 0
	var slowest time.Duration
	began := time.Now()
	for d, err := range u.client(t).DomainPages(t.Context(), "everywhere.example", lakeclient.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		pages++
		if d.Total != int64(n) {
			t.Fatalf("everywhere.example is in %d datasets, want %d", d.Total, n)
		}
		for _, s := range d.Datasets {
			names[s.Name] += int(s.Rows)
			counted += int(s.Rows)
		}
		began = time.Now()
	}
	if len(names) != n || counted != n || pages != (n+999)/1000 {
		t.Errorf("everywhere.example is in %d datasets with %d URLs on %d pages, want %d of each on %d pages",
			len(names), counted, pages, n, (n+999)/1000)
	}
	t.Logf("a domain of %d datasets: %d pages, at most %.1f ms; serve resident %s, %s without mapped files",
		n, pages, slowest.Seconds()*1e3, mb(memory(t, server, "VmRSS")), mb(memory(t, server, "RssAnon")))

	rng := rand.New(rand.NewPCG(3, 5))
	began = time.Now()
	for range 100 {
		i := rng.IntN(n)
		var want map[string][]item
		if i%20 > 0 {
			want = map[string][]item{tinyName(i): {{URL: fmt.Sprintf("https://only-%d.example/", i)}}}
		}
		u.compare(t, fmt.Sprintf("only-%d.example", i), want)
		domain := fmt.Sprintf("shared-%d.example", rng.IntN(sharedSites))
		if want = shared[domain]; len(want) <= 1000 { // compare reads only one page of datasets
			u.compare(t, domain, want)
		}
	}
	t.Logf("200 domains of one dataset or of about %d, with their URLs: %.0f ms", n*9/sharedSites+1, time.Since(began).Seconds()*1e3)
	// The URLs that some datasets hold of the domain that all hold.
	d := u.domain(t, "everywhere.example", "")
	for _, s := range d.Datasets[:min(20, len(d.Datasets))] {
		items := u.urls(t, "everywhere.example", s.Name, lakeclient.URLsOptions{Query: lakeclient.Query{Version: d.Version}})
		var i int
		if _, err := fmt.Sscanf(s.Name, "tiny-%d", &i); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]item{{URL: tinyURLs(i)[0]}}, items); diff != "" {
			t.Errorf("everywhere.example in %s (-want +served):\n%s", s.Name, diff)
		}
	}
	began = time.Now()
	listed, listedRows, wantRows, listPages := 0, 0, 0, 0
	for list, err := range u.client(t).DatasetPages(t.Context(), lakeclient.DatasetsOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listPages++
		listed += len(list.Datasets)
		wantRows = int(list.Rows)
		for _, d := range list.Datasets {
			listedRows += int(d.Rows)
		}
	}
	if listed != n || listedRows != wantRows || listPages != (n+999)/1000 {
		t.Errorf("/v1/datasets lists %d datasets with %d rows on %d pages, want %d with %d on %d",
			listed, listedRows, listPages, n, wantRows, (n+999)/1000)
	}
	t.Logf("/v1/datasets: %d pages, %.1f ms", listPages, time.Since(began).Seconds()*1e3)

	// One more dataset costs about as much as writing the list of all live batches.
	extra, _ := writeList(t, in, "extra.txt", 3, func(b []byte, k int) []byte {
		return fmt.Appendf(b, "https://extra.example/%d", k)
	})
	s := spec(0)
	s.Dataset, s.Inputs = "extra", []string{extra}
	if _, err := testlake.Steps(t.Context(), store, s, temp); err != nil {
		t.Fatal(err)
	}
	publish(1)
	checkMemory(t, "serve", memory(t, server, "RssAnon"), maxServeMemory)
	checkMemory(t, "the worker", memory(t, worker, "VmHWM"), maxWorkerMemory)
	t.Logf("worker at most %s, %d rows in all", mb(memory(t, worker, "VmHWM")), rows)
}

// measure returns the number and the total size of the files below a folder.
func measure(t *testing.T, dir string) (files int, bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".tmp" { // locks and unfinished files
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		bytes += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, bytes
}
