package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

// damaged is a store in which the object key has the bytes data.
type damaged struct {
	blob.Store
	key  string
	data []byte
}

func (d *damaged) Stat(ctx context.Context, key string) (blob.Info, error) {
	info, err := d.Store.Stat(ctx, key)
	if key == d.key && err == nil {
		info.Size, info.ETag = int64(len(d.data)), "damaged"
	}
	return info, err
}

func (d *damaged) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	data, info, err := d.Store.Get(ctx, key)
	if key == d.key && err == nil {
		data, info.Size, info.ETag = bytes.Clone(d.data), int64(len(d.data)), "damaged"
	}
	return data, info, err
}

func (d *damaged) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if key != d.key {
		return d.Store.ReadRange(ctx, key, off, n)
	}
	if off+n > int64(len(d.data)) {
		return nil, fmt.Errorf("read %s: %w", key, blob.ErrRange)
	}
	return bytes.Clone(d.data[off : off+n]), nil
}

func (d *damaged) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if key != d.key {
		return d.Store.Open(ctx, key, off, n)
	}
	if off > int64(len(d.data)) || n >= 0 && off+n > int64(len(d.data)) {
		return nil, fmt.Errorf("open %s: %w", key, blob.ErrRange)
	}
	rest := d.data[off:]
	if n >= 0 {
		rest = rest[:n]
	}
	return io.NopCloser(bytes.NewReader(rest)), nil
}

// readAll returns the answers of a new server to all queries for domains.
func readAll(t *testing.T, store blob.Store, cacheDir string, domains []string) (answers []string, err error) {
	s := NewServer(store, Options{CacheDir: cacheDir})
	defer s.Close()
	if err := s.Refresh(t.Context()); err != nil {
		return nil, err
	}
	snap, err := s.Acquire(t.Context(), "")
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	for _, q := range []DomainsQuery{{Prefix: "site", Limit: 5}, {Suffix: ".test", Limit: 5}} {
		for {
			page, err := snap.Domains(t.Context(), q)
			if err != nil {
				return nil, err
			}
			answers = append(answers, fmt.Sprintf("%+v", page.Domains))
			if q.Cursor = page.Cursor; q.Cursor == "" {
				break
			}
		}
	}
	for _, domain := range domains {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), spelling(domain)+"p1/")
		if err != nil {
			return nil, err
		}
		of, err := snap.URLDatasets(t.Context(), u.Clone(), "")
		if err != nil {
			return nil, err
		}
		answers = append(answers, fmt.Sprintf("%+v", of.Datasets))
		tg := target(t, spelling(domain))
		page, err := snap.Domain(t.Context(), tg, "")
		if err != nil {
			return nil, err
		}
		answers = append(answers, fmt.Sprintf("%s %+v", domain, page.Datasets))
		for _, d := range page.Datasets {
			for _, sel := range []Selection{{Host: tg.Host}, {Host: tg.Host, Prefix: "/p1"}, {Prefix: "/p"}, {From: new(int64)}, {}} {
				for _, unique := range []bool{false, true} {
					if sel.All() && !unique {
						continue // below
					}
					q := URLsQuery{Target: tg, Dataset: d.ID, Selection: sel, Unique: unique, Columns: With(part.ColSize, part.ColExtras)}
					err := pages(t.Context(), snap, q, false, func() int { return 7 }, func(p *URLsPage) error {
						answers = append(answers, fmt.Sprintf("%d %s %d %v", p.Total, p.text, p.Rows.ts, p.count))
						return nil
					})
					if err != nil {
						return nil, err
					}
				}
			}
			items, err := wholeList(t.Context(), snap, tg, d.ID, func() int { return 1000 })
			if err != nil {
				return nil, err
			}
			answers = append(answers, fmt.Sprintf("%s %d %+v", domain, d.ID, items))
		}
	}
	return answers, nil
}

// If a byte of an object that serving reads is damaged, the answer is correct or an error that
// names the object.
func TestDamageIsNeverAWrongAnswer(t *testing.T) {
	store := blob.NewMemory()
	rng := rand.New(rand.NewPCG(11, 12))
	for _, b := range [][2]string{{"alpha", "b1"}, {"alpha", "b2"}, {"beta", "b1"}} {
		testlake.Ingest(t, store, b[0], b[1], randomRecords(rng, 80))
	}
	testlake.Publish(t, store)
	domains := []string{
		"example.com", "site1.test", "site2.test", "site3.test", "[2001:db8::1]", "co.uk", "localhost",
		"no-such-domain.example",
	}
	cache := t.TempDir()
	want, err := readAll(t, store, cache, domains)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, prefix := range []string{"index/", "urls/"} {
		for info, err := range store.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(info.Key, "index/probe") || strings.Contains(info.Key, "/built-by/") {
				continue // serving does not read it
			}
			files++
			good, _, err := store.Get(t.Context(), info.Key)
			if err != nil {
				t.Fatal(err)
			}
			// The cache directory keeps copies of mapped files, so a damaged original needs an
			// empty one.
			mapped := strings.HasSuffix(info.Key, ".mphf") || strings.HasSuffix(info.Key, ".roar")
			reported := 0
			try := func(what string, data []byte) {
				t.Helper()
				if mapped {
					cache = t.TempDir()
				}
				got, err := readAll(t, &damaged{store, info.Key, data}, cache, domains)
				if err != nil {
					var corrupt *codec.CorruptError
					if !errors.As(err, &corrupt) || corrupt.File != info.Key {
						t.Fatalf("%s, %s: %v", info.Key, what, err)
					}
					reported++
					return
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("%s, %s: wrong answer (-want +got):\n%s", info.Key, what, diff)
				}
			}
			for _, at := range offsets(rng, len(good), 40/testenv.Every(5)) {
				bad := bytes.Clone(good)
				bad[at] ^= 1 << rng.IntN(8)
				try(fmt.Sprintf("bit flipped in byte %d of %d", at, len(good)), bad)
			}
			for _, at := range offsets(rng, len(good), 8/testenv.Every(4)) {
				try(fmt.Sprintf("truncated to %d of %d bytes", at, len(good)), good[:at])
			}
			// A server does not read the batches of a version or of a segment.
			batches := strings.HasSuffix(info.Key, segment.BatchesName) || strings.HasPrefix(info.Key, catalog.VersionPiecesRoot)
			if reported == 0 && !batches {
				t.Errorf("%s: no damage was reported", info.Key)
			}
		}
	}
	if files < 10 {
		t.Fatalf("only %d files", files)
	}
}

// offsets returns the first and the last four offsets of size bytes, and n random ones.
func offsets(rng *rand.Rand, size, n int) []int {
	var at []int
	for i := range min(4, size) {
		at = append(at, i, size-1-i)
	}
	for range n {
		at = append(at, rng.IntN(size))
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// In a folder lake the objects themselves are mapped, not copies.
func TestDamageInMappedFilesIsNeverAWrongAnswer(t *testing.T) {
	store := open(t, "file://"+t.TempDir())
	rng := rand.New(rand.NewPCG(13, 14))
	testlake.Ingest(t, store, "alpha", "b1", randomRecords(rng, 300))
	testlake.Publish(t, store)
	domains := []string{"example.com", "site1.test", "site2.test", "co.uk", "no-such-domain.example"}
	want, err := readAll(t, store, t.TempDir(), domains)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(info.Key, ".mphf") && !strings.HasSuffix(info.Key, ".roar") {
			continue
		}
		good, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		var trials [][]byte
		for _, at := range offsets(rng, len(good), 12/testenv.Every(4)) {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << rng.IntN(8)
			trials = append(trials, bad, good[:at])
		}
		for i, bad := range trials {
			tried++
			if _, err := store.Put(t.Context(), info.Key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t, store, t.TempDir(), domains)
			var corrupt *codec.CorruptError
			if err != nil && (!errors.As(err, &corrupt) || corrupt.File != info.Key) {
				t.Fatalf("%s, trial %d: %v", info.Key, i, err)
			}
			if diff := gocmp.Diff(want, got); err == nil && diff != "" {
				t.Fatalf("%s, trial %d: wrong answer (-want +got):\n%s", info.Key, i, diff)
			}
		}
		if _, err := store.Put(t.Context(), info.Key, good, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if tried == 0 {
		t.Fatal("no mapped files")
	}
}
