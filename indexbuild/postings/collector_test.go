package postings_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// A Collector rejects pages that are not in the order of their part.
func TestCollectorRejectsDomainsOutOfOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	for _, o := range []indextest.Options{{Rows: 200, Domains: 100}, {Rows: 200, Domains: 100, Sizes: true}} {
		o.Limits = part.Limits{PageRows: 20}
		l.WriteBatch(t, 1, "b", indextest.RandomRows(rng, o), o, func(task *indextest.Task) lake.FrameObject {
			pages := indextest.DomainPages(t, l.Store, &task.Parts[0])
			c := postings.NewCollector(1, "b", "")
			defer c.Close()
			for i, p := range pages {
				if i == 3 {
					if err := c.Domains(pages[0]); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("the first page again: %v", err)
					}
				}
				if err := c.Domains(p); err != nil && i <= 3 {
					t.Error(err)
				}
			}
			return lake.FrameObject{}
		})
	}
}

// An object depends on the rows alone, not on the number of processors that compress it. Its
// domains are counted once.
func TestExtractIsDeterministic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	o := indextest.Options{
		Rows: 2000, Domains: 150, Width: 1, Tasks: 2, Sizes: true, Times: true, Limits: indextest.TinyParts,
	}
	l := &indextest.Lake{Store: blob.NewMemory()}
	ctx := context.Background()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	counted := int64(0)
	l.WriteBatch(t, 1, "b", indextest.RandomRows(rng, o), o, func(task *indextest.Task) lake.FrameObject {
		var first lake.FrameObject
		for i, processors := range []int{1, 3, 7} {
			runtime.GOMAXPROCS(processors)
			object, domains, err := postings.ExtractTask(ctx, l.Store, &task.MergedTask, t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = object
				counted += domains
			}
			if object != first {
				t.Errorf("%d processors: %+v, want %+v", processors, object, first)
			}
		}
		return first
	})
	names := map[string]bool{}
	for _, r := range l.Rows[1] {
		names[r.Domain] = true
	}
	if counted != int64(len(names)) {
		t.Errorf("%d domains counted, want %d", counted, len(names))
	}
}

// BenchmarkExtract extracts the postings of a merge task of a million rows.
func BenchmarkExtract(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 1_000_000, Domains: 120_000, Width: 1}
	var task *indextest.Task
	l.WriteBatch(b, 1, "b", indextest.RandomRows(rng, o), o, func(t *indextest.Task) lake.FrameObject {
		task = t
		return lake.FrameObject{}
	})
	l.Rows = nil
	started := indextest.ProcessorTime(b)
	for b.Loop() {
		if _, _, err := postings.ExtractTask(ctx, l.Store, &task.MergedTask, b.TempDir(), nil); err != nil {
			b.Fatal(err)
		}
	}
	indextest.ReportPerEntry(b, started, task.Rows)
}

// BenchmarkCollector collects the postings of a part of a million rows from its pages.
func BenchmarkCollector(b *testing.B) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 1_000_000, Domains: 400_000}
	var written *part.Written
	l.WriteBatch(b, 1, "b", indextest.RandomRows(rng, o), o, func(t *indextest.Task) lake.FrameObject {
		written = &t.Parts[0]
		return lake.FrameObject{}
	})
	l.Rows = nil
	pages, domains := indextest.DomainPages(b, l.Store, written), int64(0)
	started := indextest.ProcessorTime(b)
	for b.Loop() {
		c := postings.NewCollector(1, "b", b.TempDir())
		for _, p := range pages {
			if err := c.Domains(p); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.EndPart(written); err != nil {
			b.Fatal(err)
		}
		var err error
		if _, domains, err = c.Finish(ctx, l.Store); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	indextest.ReportPerEntry(b, started, domains)
}
