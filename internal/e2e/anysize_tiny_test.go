//go:build soak

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

const (
	// workflowsAtOnce are under way at a time: more of them only wait longer.
	workflowsAtOnce = 32
	// stepsAtOnce are batches taken through their steps in this process, which mostly wait for the disk.
	stepsAtOnce = 8
	// sharedSites is the number of domains that several tiny datasets hold.
	sharedSites = 5003
)

func tinyName(i int) string { return fmt.Sprintf("tiny-%05d", i) }

// tinyURLs are the lines of dataset i: 1 to 20.
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

// TestAnySizeTenThousandTinyDatasets ingests some of them by workflows, which says what a batch of a few rows costs with
// everything that orders it, and the others by the same steps in this process; then all are published and asked for.
func TestAnySizeTenThousandTinyDatasets(t *testing.T) {
	n := scaled(t, 10_000, 60)
	ordered := scaled(t, 100, 20)
	in := t.TempDir()
	rows := 0
	shared := map[string]map[string][]item{} // as the oracle of compare wants it
	for i := range n {
		lines := tinyURLs(i)
		rows += len(lines)
		list(t, in, tinyName(i)+".txt", len(lines), func(b []byte, k int) []byte { return append(b, lines[k]...) })
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
	u := start(t, "file://"+filepath.ToSlash(dir), nil)
	worker := u.worker(t, nil, "--temp-dir", t.TempDir())
	spec := func(i int) ingest.Spec {
		return ingest.Spec{Lake: u.lake, Dataset: tinyName(i), Batch: "b", Inputs: []string{filepath.Join(in, tinyName(i)+".txt")}}
	}

	c, err := client.Dial(client.Options{HostPort: u.temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	busy := [2]float64{cpu(u.server.Process.Pid), cpu(worker.Process.Pid)}
	started := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(workflowsAtOnce)
	for i := range ordered {
		g.Go(func() error {
			run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "ingest:" + tinyName(i) + ":b@" + u.lake, TaskQueue: activities.TaskQueue(u.lake, activities.PoolControl)},
				workflows.IngestWorkflow, workflows.IngestInput{Spec: spec(i), NoPublish: true})
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
	t.Logf("%d by workflows, %d at once: %.1f s, each %.0f ms, of CPU %.0f ms of Temporal and %.0f ms of the worker; %.1f objects and %d bytes stay", ordered, workflowsAtOnce, took.Seconds(),
		each(took.Seconds()), each(cpu(u.server.Process.Pid)-busy[0]), each(cpu(worker.Process.Pid)-busy[1]), float64(objects)/float64(ordered), bytes/int64(ordered))

	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	started = time.Now()
	g, ctx = errgroup.WithContext(t.Context())
	g.SetLimit(stepsAtOnce)
	var thousand time.Time
	for i := ordered; i < n; i++ {
		if i == n-min(1000, n/2) {
			thousand = time.Now()
		}
		g.Go(func() error { return steps(ctx, store, spec(i), "run-"+tinyName(i), temp) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	took = time.Since(started)
	t.Logf("%d by their steps, %d at once: %.1f s, each %.1f ms, of the last %d %.1f ms", n-ordered, stepsAtOnce, took.Seconds(), took.Seconds()*1e3/float64(n-ordered), min(1000, n/2), time.Since(thousand).Seconds()*1e3/float64(min(1000, n/2)))

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
	// A page lists a thousand datasets.
	names, counted, pages := map[string]int{}, 0, 0
	var slowest time.Duration
	for path := "/v1/domain/everywhere.example"; path != ""; pages++ {
		var d struct {
			domainAnswer
			Total int     `json:"total_datasets"`
			Next  *string `json:"next"`
		}
		began := time.Now()
		u.get(t, &d, path)
		slowest = max(slowest, time.Since(began))
		if d.Total != n {
			t.Fatalf("%s is in %d datasets, want %d", d.Domain, d.Total, n)
		}
		for _, s := range d.Datasets {
			names[s.Name] += s.Count
			counted += s.Count
		}
		if path = ""; d.Next != nil {
			path = *d.Next
		}
	}
	if len(names) != n || counted != n || pages != (n+999)/1000 {
		t.Errorf("everywhere.example is in %d datasets with %d URLs on %d pages, want %d of each on %d pages", len(names), counted, pages, n, (n+999)/1000)
	}
	t.Logf("a domain of %d datasets: %d pages, at most %.1f ms; serve resident %s, %s of them no mapped files", n, pages, slowest.Seconds()*1e3, mb(memory(t, server, "VmRSS")), mb(memory(t, server, "RssAnon")))

	rng := rand.New(rand.NewPCG(3, 5))
	began := time.Now()
	for range 100 {
		i := rng.IntN(n)
		var want map[string][]item
		if i%20 > 0 {
			want = map[string][]item{tinyName(i): {{URL: fmt.Sprintf("https://only-%d.example/", i)}}}
		}
		u.compare(t, fmt.Sprintf("only-%d.example", i), want)
		domain := fmt.Sprintf("shared-%d.example", rng.IntN(sharedSites))
		if want = shared[domain]; len(want) <= 1000 { // compare asks for one page of datasets
			u.compare(t, domain, want)
		}
	}
	t.Logf("200 domains of one and of some %d datasets, with their URLs: %.0f ms", n*9/sharedSites+1, time.Since(began).Seconds()*1e3)
	// What a dataset has of the domain that all have.
	var d domainAnswer
	u.get(t, &d, "/v1/domain/everywhere.example")
	for _, s := range d.Datasets[:min(20, len(d.Datasets))] {
		var p urlsAnswer
		u.get(t, &p, fmt.Sprintf("/v1/domain/everywhere.example/datasets/%d/urls?version=%s", s.DatasetID, url.QueryEscape(d.Version)))
		var i int
		if _, err := fmt.Sscanf(s.Name, "tiny-%d", &i); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]item{{URL: tinyURLs(i)[0]}}, p.Items); diff != "" {
			t.Errorf("everywhere.example in %s (-want +served):\n%s", s.Name, diff)
		}
	}
	began = time.Now()
	listed, listedRows, wantRows, listPages := 0, 0, 0, 0
	for path := "/v1/datasets"; path != ""; listPages++ {
		var list struct {
			Rows     int
			Datasets []struct{ Rows int }
			Next     *string
		}
		u.get(t, &list, path)
		listed += len(list.Datasets)
		wantRows = list.Rows
		for _, d := range list.Datasets {
			listedRows += d.Rows
		}
		if path = ""; list.Next != nil {
			path = *list.Next
		}
	}
	if listed != n || listedRows != wantRows || listPages != (n+999)/1000 {
		t.Errorf("/v1/datasets lists %d datasets with %d rows on %d pages, want %d with %d on %d",
			listed, listedRows, listPages, n, wantRows, (n+999)/1000)
	}
	t.Logf("/v1/datasets: %d pages, %.1f ms", listPages, time.Since(began).Seconds()*1e3)

	// One more dataset costs what it costs to write the list of all live batches again.
	extra, _ := list(t, in, "extra.txt", 3, func(b []byte, k int) []byte { return fmt.Appendf(b, "https://extra.example/%d", k) })
	s := spec(0)
	s.Dataset, s.Inputs = "extra", []string{extra}
	if err := steps(t.Context(), store, s, "run-extra", temp); err != nil {
		t.Fatal(err)
	}
	publish(1)
	within(t, "serve", memory(t, server, "RssAnon"), serveMost)
	within(t, "the worker", memory(t, worker, "VmHWM"), workerMost)
	t.Logf("worker at most %s, %d rows in all", mb(memory(t, worker, "VmHWM")), rows)
}

// steps does what IngestWorkflow orders, up to the batch record.
func steps(ctx context.Context, store blob.Store, spec ingest.Spec, run, temp string) error {
	plan, err := ingest.MakePlan(ctx, store, run, spec)
	if err != nil {
		return err
	}
	for split := range plan.Splits {
		if _, err := ingest.Normalize(ctx, store, run, split, postings.CollectInMemory, nil); err != nil {
			return err
		}
	}
	merge, err := ingest.PlanMerge(ctx, store, run)
	if err != nil {
		return err
	}
	var lists []lake.FrameObject
	domains := int64(0)
	for task := range merge.Tasks {
		m, err := ingest.Merge(ctx, store, run, task, temp, postings.Collect(temp), nil)
		if err != nil {
			return err
		}
		lists = append(lists, m.Postings)
		domains += m.Domains
	}
	if _, err := ingest.Finish(ctx, store, run, lists, domains); err != nil {
		return err
	}
	return ingest.Cleanup(ctx, store, run)
}

// measure counts the files below a folder and their bytes.
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
			if d.Name() == ".tmp" { // locks, and what is not yet written
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
