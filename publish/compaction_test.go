package publish

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// A compaction after each publish writes a row again a number of times that grows with the
// logarithm of the lake, and keeps the number of segments small. docs/scale.md has the figures,
// which this test logs.
func TestWriteAmplification(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		size func() int64
	}{
		{"equal", func() int64 { return 1000 }},
		{"1 to 32768", func() int64 { return 1 << rng.IntN(16) }},
		{"one large, then equal", func() int64 { return 1000 }},
	} {
		for _, publishes := range []int{365, 10_000, 1_000_000 / testenv.Every(20)} {
			var segments []int64
			if c.name == "one large, then equal" {
				segments = append(segments, 1e12)
			}
			published, written, compactions, most, open, sum := int64(0), int64(0), 0, 0, 0, 0
			for range publishes {
				rows := c.size()
				published += rows
				segments = append(segments, rows)
				most, sum = max(most, len(segments)), sum+len(segments)
				n := 0
				for _, rows := range segments {
					if !full(rows) {
						n++
					}
				}
				open = max(open, n)
				chosen := ChooseSegments(segments)
				if len(chosen) == 0 {
					continue
				}
				merged := int64(0)
				for _, i := range chosen {
					merged += segments[i]
					segments[i] = -1
				}
				segments = append(slices.DeleteFunc(segments, func(rows int64) bool { return rows < 0 }), merged)
				if merged > MaxSegmentRows {
					t.Fatalf("%d rows were merged", merged)
				}
				written += merged
				compactions++
			}
			amplification := float64(written) / float64(published)
			t.Logf("%s: %d publishes: each row written %.1f times by %d compactions; segments: at most %d, mean %.1f",
				c.name, publishes, amplification, compactions, most, float64(sum)/float64(publishes))
			if limit := 0.6 * math.Log2(float64(publishes)); amplification > limit || open > mostSegments+1 {
				t.Errorf("%s: %d publishes: rows are written %.1f times, want at most %.1f; %d segments are not full",
					c.name, publishes, amplification, limit, open)
			}
		}
	}
}

// Publishes without compactions leave no more segments than a version may have.
func TestPublishesMakeRoom(t *testing.T) {
	store := blob.NewMemory()
	for publishes := 1; publishes < 3*catalog.MaxSegments; publishes++ {
		id := lake.Digest(fmt.Append(nil, publishes))
		commit := catalog.Commit{ID: id, Build: func(ctx context.Context, base *catalog.Version) (*catalog.Next, error) {
			p := &plan{CanonicalForm: "form", PublicSuffix: "list", loose: []planned{
				{DatasetID: 1, Batch: fmt.Sprintf("b%05d", publishes), Digest: id, Rows: 10, New: true},
			}, Datasets: []lake.Dataset{{ID: 1, Name: "d"}}}
			if base != nil {
				p.Base = base.ID
			}
			if err := p.makeRoom(ctx, base, nil); err != nil {
				return nil, err
			}
			built := int64(0)
			for _, b := range p.loose {
				built += b.Rows
			}
			p.Segments, p.loose = p.segments(), nil
			return p.after(ctx, base, &Built{Segments: []segment.Ref{{ID: id, XXH64: id[:16], Rows: built}}})
		}}
		if _, err := commit.Apply(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		state, err := catalog.Look(t.Context(), store)
		v := state.Current
		want := min(publishes, catalog.MaxSegments)
		if err != nil || len(v.Segments) != want || v.Counts.Batches != publishes {
			t.Fatalf("%+v after %d publishes, %v", v, publishes, err)
		}
	}
}
