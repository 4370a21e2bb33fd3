package lookup

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// keyless hides the page keys of parts, as if an earlier version had written them.
type keyless struct{ blob.Store }

func (s keyless) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := s.Store.ReadRange(ctx, key, off, n)
	return bytes.ReplaceAll(data, []byte("urlake.page_keys"), []byte("another.page_key")), err
}

func (s keyless) Unwrap() blob.Store { return s.Store }

// distant is a store that answers each read after a delay.
type distant struct {
	blob.Store
	delay time.Duration
}

func (s distant) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	time.Sleep(s.delay)
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s distant) Unwrap() blob.Store { return s.Store }

// BenchmarkSearch searches a domain of a million rows, with empty caches and a store that takes
// 20 ms a read, in a lake with page keys and in one without.
func BenchmarkSearch(b *testing.B) {
	const rows = 1_000_000
	records := make([]testlake.Record, rows)
	path := func(i int) string { return fmt.Sprintf("/catalogue/section-%03d/item-%07d.html", i/5000, i) }
	for i := range records {
		records[i] = testlake.Record{URL: fmt.Sprintf("https://%s.site.test", []string{"docs", "www"}[i*2/rows]) + path(i)}
	}
	for _, with := range []bool{false, true} {
		store := blob.Store(blob.NewMemory())
		testlake.Ingest(b, store, "d", "b", records)
		at := store
		if !with {
			at = keyless{store}
		}
		testlake.Publish(b, at)
		s := serve(b, distant{store, 20 * time.Millisecond}, Options{})
		snap := acquire(b, s, "")
		var keys int64
		for info, err := range store.List(b.Context(), "index/segments/") {
			if err != nil {
				b.Fatal(err)
			}
			if strings.HasSuffix(info.Key, "/"+segment.PageKeysName) {
				keys += info.Size
			}
		}
		if (keys > 100) != with { // a file without a key has its footer
			b.Fatalf("%d bytes of keys", keys)
		}
		tg := target(b, "site.test")
		page := func(sel Selection, want int) func(b *testing.B) error {
			return func(b *testing.B) error {
				p, err := snap.URLs(b.Context(), URLsQuery{Target: tg, Dataset: 1, Selection: sel, Limit: 100})
				if err == nil && p.Len() != want {
					err = fmt.Errorf("%d rows, want %d", p.Len(), want)
				}
				return err
			}
		}
		for _, c := range []struct {
			name string
			ask  func(b *testing.B) error
		}{
			{"url", func(b *testing.B) error {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), "https://www.site.test"+path(rows*2/3))
				if err != nil {
					return err
				}
				p, err := snap.URLDatasets(b.Context(), u, "")
				if err == nil && (len(p.Datasets) != 1 || p.Datasets[0].Rows != 1) {
					err = fmt.Errorf("%+v", p)
				}
				return err
			}},
			{"prefix", page(Selection{Prefix: "/catalogue/section-140/"}, 100)},
			{"host", page(Selection{Host: "www.site.test", Prefix: "/catalogue/section-140/item-07031"}, 100)},
		} {
			b.Run(fmt.Sprintf("keys=%v/%s", with, c.name), func(b *testing.B) {
				for b.Loop() {
					s.clearCaches(true, true)
					if err := c.ask(b); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
