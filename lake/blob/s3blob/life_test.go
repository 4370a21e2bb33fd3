package s3blob_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/s3blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/starter/retire"
)

// life is a lake in a bucket and the steps that it goes through.
type life struct {
	t     *testing.T
	store blob.Store
	temp  string
	specs map[string]ingest.Spec

	// repeat is how often a step may be repeated that has failed, as Temporal does. Repeated has
	// the errors.
	repeat   int
	repeated []string
	model    map[string]map[string][]string // dataset → batch → URLs
}

func newLife(t *testing.T, store blob.Store) *life {
	return &life{t: t, store: store, temp: t.TempDir(), model: map[string]map[string][]string{}}
}

// lifeSpecs are the ingests of a life. Their inputs must be the same files for the same bytes.
func lifeSpecs(t *testing.T, store blob.Store) map[string]ingest.Spec {
	all := map[string]ingest.Spec{}
	for _, dataset := range []string{"alpha", "beta"} {
		for b := range 3 {
			for version := range 2 {
				var records []testlake.Record
				for i := range 300 {
					records = append(records, testlake.Record{
						URL: fmt.Sprintf("https://site%02d.test/%s/%d/%d/%d", i%17, dataset, b, version, i),
						TS:  int64(i) * 1e9, HasTS: i%3 == 0,
					})
				}
				batch := fmt.Sprintf("b%d", b)
				spec := testlake.Spec(t, store, dataset, batch, records)
				all[fmt.Sprintf("%s/%s/%d", dataset, batch, version)] = spec
			}
		}
	}
	return all
}

// step does one thing until it succeeds.
func (l *life) step(name string, do func(ctx context.Context) error) {
	l.t.Helper()
	for try := 0; ; try++ {
		err := do(l.t.Context())
		if err == nil {
			return
		}
		l.repeated = append(l.repeated, fmt.Sprintf("%s: %v", name, err))
		if try == l.repeat {
			l.t.Fatalf("%s failed %d times: %v", name, try+1, err)
		}
	}
}

func (l *life) ingest(name string) {
	l.t.Helper()
	spec := l.specs[name]
	spec.Lake = l.store.URL()
	l.step("ingest "+name, func(ctx context.Context) error {
		_, err := testlake.Steps(ctx, l.store, spec, l.temp)
		return err
	})
	dataset, rest, _ := strings.Cut(name, "/")
	batch, version, _ := strings.Cut(rest, "/")
	if l.model[dataset] == nil {
		l.model[dataset] = map[string][]string{}
	}
	var urls []string
	for i := range 300 {
		urls = append(urls, fmt.Sprintf("https://site%02d.test/%s/%s/%s/%d", i%17, dataset, batch[1:], version, i))
	}
	l.model[dataset][batch] = urls
}

func (l *life) publish() {
	l.t.Helper()
	run := testlake.Run()
	l.step("publish", func(ctx context.Context) error {
		done, err := publish.All(ctx, l.store, run, l.temp)
		if err == nil && len(done.Skipped) > 0 {
			l.t.Errorf("a publish leaves out what is sound: %+v", done.Skipped)
		}
		return err
	})
	l.query()
}

func (l *life) retire(dataset, batch string, restore bool) {
	l.t.Helper()
	l.step("retire", func(ctx context.Context) error {
		opt := retire.Options{Dataset: dataset, Batches: []string{batch}, Restore: restore}
		s, err := opt.Select(ctx, l.store)
		if err != nil {
			return err
		}
		return s.Apply(ctx, l.store)
	})
}

// query asks a new server, which has nothing in its caches, for everything, and compares the answer
// with the model.
func (l *life) query() {
	l.t.Helper()
	want := map[string][]string{}
	for dataset, batches := range l.model {
		for _, urls := range batches {
			want[dataset] = append(want[dataset], urls...)
		}
		slices.Sort(want[dataset])
	}
	l.step("query", func(ctx context.Context) error {
		server := lookup.NewServer(l.store, lookup.Options{
			CacheDir: l.t.TempDir(), Log: slog.New(slog.DiscardHandler), LeaseTTL: time.Minute, Deadline: time.Minute,
		})
		defer server.Close()
		if err := server.Refresh(ctx); err != nil {
			return err
		}
		snap, err := server.Acquire(ctx, "")
		if err != nil {
			return err
		}
		defer snap.Release()
		got := map[string][]string{}
		for i := range 17 {
			target := lookup.Target{Host: fmt.Sprintf("site%02d.test", i)}
			page, err := snap.Domain(ctx, target, "")
			if err != nil {
				return err
			}
			for _, d := range page.Datasets {
				q, rows := lookup.URLsQuery{Target: target, Dataset: d.ID, Limit: 40}, int64(0)
				for {
					page, err := snap.URLs(ctx, q)
					if err != nil {
						return err
					}
					for i := range page.Len() {
						got[d.Name] = append(got[d.Name], string(page.URL(i)))
						rows++
					}
					if q.Cursor = page.Cursor; q.Cursor == "" {
						break
					}
				}
				if rows != d.Rows {
					l.t.Errorf("dataset %s of site %d: %d rows, counted %d", d.Name, i, rows, d.Rows)
				}
			}
		}
		for name := range got {
			slices.Sort(got[name])
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			l.t.Fatalf("a server answers what was never published")
		}
		return nil
	})
}

func (l *life) collect() gc.Result {
	l.t.Helper()
	var out gc.Result
	l.step("gc", func(ctx context.Context) error {
		over := func(context.Context, string, ingest.Owner, bool) (ingest.RunState, error) { return ingest.RunOver, nil }
		_, err := ingest.Sweep(ctx, l.store, time.Now(), ingest.SweepOptions{}, over, ingest.Cleanup)
		if err != nil {
			return err
		}
		out, err = gc.Collect(ctx, l.store, gc.Options{Keep: 1, Timeout: time.Minute})
		return err
	})
	return out
}

func (l *life) verify() {
	l.t.Helper()
	l.step("verify", func(ctx context.Context) error {
		report, err := lakecheck.Lake(ctx, l.store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: l.temp})
		if err == nil && len(report.Problems) > 0 {
			// Each names the object and the place.
			err = fmt.Errorf("%d problems: %+v", len(report.Problems), report.Problems)
		}
		return err
	})
}

// live lets the lake live: batches come, are replaced, retired and restored, versions are published
// and collected.
func (l *life) live() {
	l.t.Helper()
	for _, name := range []string{"alpha/b0/0", "beta/b0/0"} {
		l.ingest(name)
	}
	l.publish()
	l.step("tag", func(ctx context.Context) error {
		_, _, err := catalog.SetTag(ctx, l.store, "first", "", false)
		return err
	})
	for _, name := range []string{"alpha/b1/0", "alpha/b0/1", "beta/b1/0"} {
		l.ingest(name)
	}
	l.publish()
	l.retire("alpha", "b1", false)
	gone := l.model["alpha"]["b1"]
	delete(l.model["alpha"], "b1")
	l.publish()
	l.verify()
	l.retire("alpha", "b1", true)
	l.model["alpha"]["b1"] = gone
	l.ingest("beta/b2/0")
	l.publish()
	l.collect()
	l.ingest("beta/b2/1")
	l.publish()
	l.collect()
	l.query()
	l.verify()
}

// contents returns the objects that depend on the content alone, and how many there are of those
// that have times, too.
func contents(t *testing.T, store blob.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range []string{"urls/", "batches/", "rejects/", "index/segments/"} {
		for info, err := range store.List(t.Context(), root) {
			if err != nil {
				t.Fatal(err)
			}
			r, err := store.Open(t.Context(), info.Key, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			r.Close()
			if err != nil {
				t.Fatal(err)
			}
			all[info.Key] = string(data)
		}
	}
	for _, root := range []string{"index/pieces/", "index/versions/", catalog.PendingRoot} {
		n := 0
		for _, err := range store.List(t.Context(), root) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		all[root] = fmt.Sprint(n, " objects")
	}
	return all
}

// badNetworks are kinds of networks: how many requests fail, how far apart, in which ways, and how
// often a step may be repeated then. What the store tries again never makes a step fail.
var badNetworks = map[string]struct {
	rate   float64
	apart  int
	kinds  []testenv.S3Fault
	repeat int
}{
	// A hang takes a second, so that there are fewer of them.
	"fails": {0.06, 0, append(slices.Repeat([]testenv.S3Fault{
		testenv.ServerError, testenv.SlowDown, testenv.ResetBefore, testenv.LostReply, testenv.ResetBody,
		testenv.FlipUp,
	}, 3), testenv.Hang), 0},
	// Ranges and streams have no checksum of S3's, so that the lake's own readers find the damage,
	// and look a second time before they believe it.
	"damages": {0.1, 40, []testenv.S3Fault{testenv.FlipDown, testenv.ShortBody}, 9},
}

// lives is with how many seeds TestLifeOverABadNetwork runs.
var lives = 1

// TestLifeOverABadNetwork lets a lake live over networks that fail at random. Steps succeed,
// servers answer nothing wrong, a publish leaves nothing out, and in the end the lake has the bytes
// of one that nothing disturbed, and no others.
func TestLifeOverABadNetwork(t *testing.T) {
	undisturbed := testenv.S3(t)
	server := testenv.NewS3Server(t)
	still := newLife(t, openS3Store(t, undisturbed))
	still.specs = lifeSpecs(t, still.store)
	still.live()
	want := contents(t, still.store)
	if len(want) < 30 {
		t.Fatalf("only %d objects", len(want))
	}
	for name, test := range badNetworks {
		for range lives {
			seed := rand.Uint64()
			t.Run(name, func(t *testing.T) {
				faults := testenv.NewS3Faults(t, server, seed)
				t.Setenv("AWS_ENDPOINT_URL_S3", faults.Endpoint)
				l := newLife(t, openS3Store(t, server.NewBucketURL(t)))
				l.specs, l.repeat = still.specs, test.repeat
				s3blob.HurryReplies(l.store, time.Second) // a slow machine is no hang
				s3blob.HurryRetries(l.store)
				began := time.Now()
				faults.Space(test.apart)
				faults.Inject(test.rate, nil, test.kinds...)
				defer func() {
					t.Logf("%d requests, %v, %d steps repeated, %v", faults.Requests(), faults.Happened(),
						len(l.repeated), time.Since(began).Round(time.Millisecond))
					if t.Failed() {
						t.Logf("seed %d", seed)
						for _, r := range l.repeated {
							t.Logf("repeated: %s", r)
						}
					}
				}()
				l.live()
				happened := 0
				for _, n := range faults.Happened() {
					happened += n
				}
				if happened < 5 {
					t.Errorf("only %d faults", happened)
				}
				faults.Heal()
				s3blob.HurryReplies(l.store, time.Minute)
				l.collect()
				l.query()
				l.verify()
				got := contents(t, l.store)
				for key := range want {
					if _, ok := got[key]; !ok {
						t.Errorf("lost: %s", key)
					} else if got[key] != want[key] {
						t.Errorf("other bytes: %s", key)
					}
				}
				for key := range got {
					if _, ok := want[key]; !ok {
						t.Errorf("nothing refers to %s", key)
					}
				}
				m, _, err := catalog.ReadManifest(t.Context(), l.store)
				if err != nil || len(m.Tags) != 1 {
					t.Errorf("tags %+v, %v", m.Tags, err)
				}
			})
		}
	}
}
