package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// id32 makes a name of 32 hex digits.
func id32(n int) string { return fmt.Sprintf("%08x%024x", n, n) }

// addBatch returns a commit that adds a segment with one batch to any parent.
func addBatch(n int) Commit {
	return Commit{
		ID: id32(n + 1), BuiltBy: "urlake test",
		Now: func() time.Time { return time.Date(2026, 11, 20, 10, 11, 12, 123_000_000, time.UTC) },
		Build: func(ctx context.Context, parent *Version) (*Next, error) {
			next := &Next{CanonicalForm: "urlake-1", PublicSuffix: "20261101"}
			if parent != nil {
				next.Segments = slices.Clone(parent.Segments)
			}
			rows := int64(100 + n)
			next.Segments = append(next.Segments, NewSegment(id32(n), "00112233445566aa", 5000, 10, rows))
			dataset := uint32(1 + n%3)
			next.Batches = map[string]iter.Seq2[Batch, error]{id32(n): sequenceOf([]Batch{{
				BatchName: BatchName{DatasetID: dataset, Batch: fmt.Sprintf("b%d", n)}, Digest: id32(1000 + n),
				Rows: rows, Parts: 2, Bytes: 9000,
			}})}
			next.Datasets = []Dataset{{
				ID: dataset, Name: fmt.Sprintf("dataset-%d", n%3), Title: "A <test>", Licence: "CC0-1.0",
			}}
			return next, nil
		},
	}
}

func apply(t *testing.T, store blob.Store, c Commit) Committed {
	t.Helper()
	done, err := c.Apply(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// current reads the manifest and its current version.
func current(t *testing.T, store blob.Store) (*Manifest, *Version) {
	t.Helper()
	m, _, err := ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version("")
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVersion(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	return m, v
}

func get(t *testing.T, store blob.Store, key string) []byte {
	t.Helper()
	data, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func put(t *testing.T, store blob.Store, key string, data []byte) {
	t.Helper()
	if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func TestDocumentsMatchTheirPages(t *testing.T) {
	store := blob.NewMemory()
	for n := range 2 {
		apply(t, store, addBatch(n))
	}
	m, _ := current(t, store)
	for page, key := range map[string]string{"manifest.md": ManifestKey, "version.md": VersionKey(m.CurrentVersion)} {
		path := filepath.Join(testenv.Root(t), "docs", "formats", page)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(text), "```json\n")
		if !ok {
			t.Fatalf("%s has no example", page)
		}
		got := string(get(t, store, key))
		shown, _, _ := strings.Cut(rest, "```")
		if diff := cmp.Diff(shown, got); diff != "" {
			if os.Getenv("URLAKE_UPDATE_GOLDEN") == "1" {
				if err := os.WriteFile(path, []byte(before+"```json\n"+got+"```\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			t.Errorf("%s shows another document (URLAKE_UPDATE_GOLDEN=1 rewrites it, read the difference):\n%s", page, diff)
		}
	}
}

func TestEveryFlippedBitIsCorruption(t *testing.T) {
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	m, _ := current(t, store)
	for _, key := range []string{ManifestKey, VersionKey(m.CurrentVersion)} {
		good := get(t, store, key)
		read := func() error {
			m, _, err := ReadManifest(t.Context(), store)
			if err != nil {
				return err
			}
			ref, err := m.Version("")
			if err != nil {
				return err
			}
			_, err = ReadVersion(t.Context(), store, ref)
			return err
		}
		expect := func(what string, at int) {
			t.Helper()
			var corrupt *codec.CorruptError
			if err := read(); !errors.As(err, &corrupt) || corrupt.File != key {
				t.Fatalf("%s, %s at %d: got %v", key, what, at, err)
			}
		}
		for _, i := range testenv.Places(0, len(good), 3) {
			for bit := i % testenv.Every(4); bit < 8; bit += testenv.Every(4) {
				bad := bytes.Clone(good)
				bad[i] ^= 1 << bit
				put(t, store, key, bad)
				expect("bit flipped", i)
			}
			put(t, store, key, good[:i])
			expect("truncated", i)
		}
		put(t, store, key, append(bytes.Clone(good), '\n'))
		expect("byte added", len(good))
		put(t, store, key, good)
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
}

// A changed version with a right seal is rejected for its contents.
func TestInconsistentVersionIsRejected(t *testing.T) {
	store := blob.NewMemory()
	for n := range 4 {
		apply(t, store, addBatch(n))
	}
	m, _ := current(t, store)
	key := VersionKey(m.CurrentVersion)
	old := get(t, store, key)
	reject := func(name string, data []byte, key string, change func(d *versionDocument)) {
		t.Helper()
		var d versionDocument
		if err := codec.Unseal(data, key, versionFormat, &d); err != nil {
			t.Fatal(err)
		}
		change(&d)
		data, err := codec.Seal(&d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeVersion(store, data, key); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, change := range map[string]func(d *versionDocument){
		"no format":       func(d *versionDocument) { d.Format = 0 },
		"other id":        func(d *versionDocument) { d.ID = nextVersionID(d.ID, time.Time{}, d.Commit) },
		"no canonical":    func(d *versionDocument) { d.CanonicalForm = "" },
		"rows":            func(d *versionDocument) { d.Counts.Rows++ },
		"batches":         func(d *versionDocument) { d.Counts.Batches++ },
		"datasets":        func(d *versionDocument) { d.Counts.Datasets-- },
		"segment rows":    func(d *versionDocument) { d.Segments[0].Rows++ },
		"segment twice":   func(d *versionDocument) { d.Segments[1] = d.Segments[0] },
		"segment missing": func(d *versionDocument) { d.Segments = d.Segments[1:] },
		"foreign key":     func(d *versionDocument) { d.Segments[0].D2DRoar = "index/segments/x/domain_to_datasets.roar" },
		"no batches":      func(d *versionDocument) { d.Segments[0].BatchPieces = pieces.Ref{} },
		"bad piece":       func(d *versionDocument) { d.Segments[0].BatchPieces.Root = "../../x" },
		"more batches":    func(d *versionDocument) { d.Segments[0].BatchPieces.Entries++ },
		"no datasets":     func(d *versionDocument) { d.DatasetPieces = pieces.Ref{} },
		"bad datasets":    func(d *versionDocument) { d.DatasetPieces.Root = "" },
	} {
		reject(name, old, key, change)
	}
}

func TestVersionIDsAscendWhateverTheClock(t *testing.T) {
	commit := id32(77)
	clock := time.Date(2026, 11, 20, 10, 11, 12, 123_456_789, time.FixedZone("", 7200))
	last := ""
	for i, step := range []time.Duration{0, 0, time.Microsecond, -time.Hour, 90 * time.Minute, -24 * 365 * time.Hour} {
		clock = clock.Add(step)
		id := nextVersionID(last, clock, commit)
		if !ValidVersionID(id) || id <= last {
			t.Fatalf("step %d: %q after %q", i, id, last)
		}
		if i == 0 && id != "20261120T081112.123Z-0000004d" {
			t.Fatalf("got %s", id)
		}
		last = id
	}
}

func TestFollowerNeverGoesBack(t *testing.T) {
	store := blob.NewMemory()
	f := NewFollower(store)
	if _, _, err := f.Poll(t.Context()); !errors.Is(err, ErrNoVersion) {
		t.Fatalf("got %v", err)
	}
	var docs [][]byte
	for n := range 3 {
		apply(t, store, addBatch(n))
		docs = append(docs, get(t, store, ManifestKey))
	}
	put(t, store, ManifestKey, docs[1])
	poll := func(want uint64, wantChanged bool) {
		t.Helper()
		m, changed, err := f.Poll(t.Context())
		if err != nil || m.Generation != want || changed != wantChanged {
			t.Fatalf("got %+v %v %v, want generation %d", m, changed, err, want)
		}
	}
	rejects := func(want error) {
		t.Helper()
		if _, _, err := f.Poll(t.Context()); !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	poll(2, true)
	poll(2, false)
	put(t, store, ManifestKey, docs[0])
	rejects(ErrGeneration)
	put(t, store, ManifestKey, docs[2])
	poll(3, true)
	if err := store.Delete(t.Context(), ManifestKey); err != nil {
		t.Fatal(err)
	}
	rejects(ErrGeneration)
	put(t, store, ManifestKey, docs[2][:40])
	rejects(codec.ErrCorrupt)
	put(t, store, ManifestKey, docs[2])
	poll(3, false)

	// Another lake whose manifest has the same generation is rejected.
	other := blob.NewMemory()
	for n := range 3 {
		apply(t, other, addBatch(n+10))
	}
	put(t, store, ManifestKey, get(t, other, ManifestKey))
	rejects(ErrGeneration)
}

func FuzzManifest(f *testing.F) {
	store := blob.NewMemory()
	for n := range 2 {
		if _, err := addBatch(n).Apply(context.Background(), store); err != nil {
			f.Fatal(err)
		}
	}
	m, _, err := ReadManifest(context.Background(), store)
	if err != nil {
		f.Fatal(err)
	}
	for _, key := range []string{ManifestKey, VersionKey(m.CurrentVersion)} {
		data, _, err := store.Get(context.Background(), key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:bytes.LastIndex(data, []byte(sealMember))])
	}
	key := VersionKey(m.CurrentVersion)
	f.Fuzz(func(t *testing.T, body []byte) {
		// Sealed here, since a mutated seal would end every run.
		doc := fmt.Appendf(bytes.Clone(body), "%s\"%016x\"\n}\n", sealMember, xxhash.Sum64(body))
		if _, err := DecodeManifest(doc); err != nil && !errors.Is(err, codec.ErrCorrupt) && !codec.IsFormat(err) {
			t.Fatalf("manifest: got %v", err)
		}
		if _, err := DecodeVersion(store, doc, key); err != nil && !errors.Is(err, codec.ErrCorrupt) && !codec.IsFormat(err) {
			t.Fatalf("version: got %v", err)
		}
	})
}

const sealMember = ",\n  \"xxh64\": "
