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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
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

func TestTags(t *testing.T) {
	ctx := t.Context()
	store := blob.NewMemory()
	if _, _, err := SetTag(ctx, store, "release", "", false); !errors.Is(err, ErrNoVersion) {
		t.Fatalf("an empty lake: %v", err)
	}
	first := apply(t, store, addBatch(0)).Version.ID
	second := apply(t, store, addBatch(1)).Version.ID
	set := func(name, version string, move bool, want string) {
		t.Helper()
		if got, _, err := SetTag(ctx, store, name, version, move); got != want || err != nil {
			t.Fatalf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	set("release", first, false, first)
	m, _ := current(t, store)
	if m.Generation != 3 {
		t.Errorf("generation %d", m.Generation)
	}
	set("release", first, false, first) // again
	set("Nightly-2026.11_23", "", false, second)
	set("stable", "release", false, first) // by another tag
	if _, _, err := SetTag(ctx, store, "release", second, false); !errors.Is(err, ErrTagged) || !strings.Contains(err.Error(), first) {
		t.Errorf("of another version: %v", err)
	}
	third := apply(t, store, addBatch(2)).Version.ID // a commit keeps tags
	if id, before, err := SetTag(ctx, store, "release", Current, true); id != third || before != first || err != nil {
		t.Errorf("moved to %s from %s, %v", id, before, err)
	}
	m, _ = current(t, store)
	want := []Tag{{"Nightly-2026.11_23", second}, {"release", third}, {"stable", first}}
	if diff := cmp.Diff(want, m.Tags); diff != "" || m.Generation != 7 {
		t.Errorf("generation %d (-want +got):\n%s", m.Generation, diff)
	}
	if diff := cmp.Diff([]string{"release"}, m.TagsOf(third)); diff != "" {
		t.Error(diff)
	}
	for name, id := range map[string]string{"": third, "release": third, "stable": first, second: second} {
		if ref, err := m.Version(name); err != nil || ref.ID != id {
			t.Errorf("%s is %s, %v, want %s", name, ref.ID, err, id)
		}
	}
	if _, err := m.Version("relaese"); !errors.Is(err, ErrUnknownVersion) || !strings.Contains(err.Error(), "release") {
		t.Errorf("a misspelt tag: %v", err)
	}
	if _, _, err := SetTag(ctx, store, "x", "20200101T000000.000Z-00000000", false); !errors.Is(err, ErrUnknownVersion) {
		t.Errorf("a version that is not kept: %v", err)
	}
	for _, name := range []string{"", "1", "a b", "current", "Current", first, "-a", ".", "ä", strings.Repeat("a", 65), "a\n"} {
		if _, _, err := SetTag(ctx, store, name, "", false); !errors.Is(err, ErrBadTag) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, tag := range want {
		if id, err := RemoveTag(ctx, store, tag.Name); id != tag.Version || err != nil {
			t.Fatal(id, err)
		}
	}
	if _, err := RemoveTag(ctx, store, "release"); !errors.Is(err, ErrUnknownTag) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestManifestWithInconsistentTagsIsRejected(t *testing.T) {
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	id := apply(t, store, addBatch(1)).Version.ID
	if _, _, err := SetTag(t.Context(), store, "a", "", false); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *Manifest){
		"bad name":        func(m *Manifest) { m.Tags[0].Name = "1" },
		"unknown version": func(m *Manifest) { m.Tags[0].Version = "20200101T000000.000Z-00000000" },
		"twice":           func(m *Manifest) { m.Tags = append(m.Tags, m.Tags[0]) },
		"not ascending":   func(m *Manifest) { m.Tags = append(m.Tags, Tag{"A", id}) },
		"too many": func(m *Manifest) {
			for i := range maxTags {
				m.Tags = append(m.Tags, Tag{fmt.Sprintf("b%04d", i), id})
			}
		},
	} {
		m, _ := current(t, store)
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		if change(m); m.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Taggers and committers at once lose nothing, and none of them fails because another was first.
func TestTagsBesideCommits(t *testing.T) {
	store := blob.NewMemory()
	apply(t, store, addBatch(0))
	var wait sync.WaitGroup
	const taggers, committers = 4 * maxRejections, 6
	for i := range taggers {
		wait.Go(func() {
			if _, _, err := SetTag(t.Context(), store, fmt.Sprintf("tag%d", i), "", false); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range committers {
		wait.Go(func() {
			if _, err := addBatch(i+1).Apply(t.Context(), store); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	m, _ := current(t, store)
	if len(m.Tags) != taggers || len(m.Versions) != committers+1 || m.Generation != taggers+committers+1 {
		t.Errorf("%d tags, %d versions, generation %d", len(m.Tags), len(m.Versions), m.Generation)
	}
}

// A store that rejects puts of a manifest that nobody changes is not asked forever.
func TestTagsOnABusyStore(t *testing.T) {
	inner := blob.NewMemory()
	apply(t, inner, addBatch(0))
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == ManifestKey }, Err: blob.ErrPrecondition})
	if _, _, err := SetTag(t.Context(), store, "a", "", false); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
}

// If the current version is lost, so are its tags, and no others.
func TestTagsOfALostVersion(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	first := apply(t, store, addBatch(0)).Version.ID
	second := apply(t, store, addBatch(1)).Version
	for _, tag := range []Tag{{"a", first}, {"b", second.ID}} {
		if _, _, err := SetTag(ctx, store, tag.Name, tag.Version, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(ctx, second.Object); err != nil {
		t.Fatal(err)
	}
	s, err := Look(ctx, store)
	if err != nil || !slices.ContainsFunc(s.Lost, func(line string) bool { return strings.Contains(line, "the name b of version "+second.ID) }) {
		t.Errorf("%v, %v", s, err)
	}
	apply(t, store, addBatch(2))
	m, _ := current(t, store)
	if diff := cmp.Diff([]Tag{{"a", first}}, m.Tags); diff != "" || len(m.Versions) != 2 {
		t.Errorf("%d versions, tags (-want +got):\n%s", len(m.Versions), diff)
	}
}

// A version that is no longer listed because it is lost has no tags either.
func TestTagsOfADroppedVersion(t *testing.T) {
	ctx := t.Context()
	store := blob.NewMemory()
	first := apply(t, store, addBatch(0)).Version
	second := apply(t, store, addBatch(1)).Version.ID
	for _, tag := range []Tag{{"a", first.ID}, {"b", second}, {"c", first.ID}} {
		if _, _, err := SetTag(ctx, store, tag.Name, tag.Version, false); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := current(t, store)
	if err := store.Delete(ctx, first.Object); err != nil {
		t.Fatal(err)
	}
	dropped, err := DropLost(ctx, store)
	if err != nil || len(dropped) != 1 {
		t.Fatal(dropped, err)
	}
	if lines := before.LostTags(dropped); len(lines) != 2 || !strings.Contains(lines[1], "the name c of version "+first.ID) {
		t.Errorf("%q", lines)
	}
	m, _ := current(t, store)
	if diff := cmp.Diff([]Tag{{"b", second}}, m.Tags); diff != "" {
		t.Error(diff)
	}
}

// replaceBatch returns a commit that puts one batch of other rows and parts in the place of the one
// that addBatch(n) adds.
func replaceBatch(n int) Commit {
	c := addBatch(n)
	c.ID = id32(5000 + n)
	c.BuiltBy = "urlake another"
	add := c.Build
	c.Build = func(ctx context.Context, parent *Version) (*Next, error) {
		next, err := add(ctx, nil)
		if err != nil {
			return nil, err
		}
		const rows = 40
		added := NewSegment(id32(3000+n), "00112233445566aa", 4000, 10, rows)
		next.Segments = append([]Segment{added}, parent.Segments...)
		for i := range next.Segments {
			if next.Segments[i].ID == id32(n) {
				next.Segments = append(next.Segments[:i:i], next.Segments[i+1:]...)
				break
			}
		}
		next.Batches = map[string]iter.Seq2[Batch, error]{added.ID: sequenceOf([]Batch{{
			BatchName: BatchName{DatasetID: uint32(1 + n%3), Batch: fmt.Sprintf("b%d", n)}, Digest: id32(2000 + n),
			Rows: rows, Parts: 1, Bytes: 700,
		}})}
		return next, nil
	}
	return c
}

// history commits five versions. The fourth replaces the batch of the second.
func history(t *testing.T) (*blob.Memory, *Manifest) {
	t.Helper()
	store := blob.NewMemory()
	for _, c := range []Commit{addBatch(0), addBatch(1), addBatch(3), replaceBatch(1), addBatch(2)} {
		apply(t, store, c)
	}
	m, _ := current(t, store)
	return store, m
}

func TestSummariesSayWhatChanged(t *testing.T) {
	store, m := history(t)
	var want []Summary
	// Segments, datasets, batches, parts, rows, bytes of parts and of the index.
	for i, change := range []Counts{
		{1, 1, 1, 2, 100, 9000, 5000}, {1, 1, 1, 2, 101, 9000, 5000}, {1, 0, 1, 2, 103, 9000, 5000},
		{0, 0, 0, -1, -61, -8300, -1000}, {1, 1, 1, 2, 102, 9000, 5000},
	} {
		s := Summary{
			VersionRef: m.Versions[i], Created: "2026-11-20T10:11:12.123Z", BuiltBy: "urlake test",
			CanonicalForm: "urlake-1", PublicSuffix: "20261101", Counts: change, Change: &change,
		}
		if i == 3 {
			s.BuiltBy = "urlake another"
		}
		if i > 0 {
			before := want[i-1].Counts
			s.Parent = want[i-1].ID
			s.Counts = Counts{
				before.Segments + change.Segments, before.Datasets + change.Datasets, before.Batches + change.Batches,
				before.Parts + change.Parts, before.Rows + change.Rows,
				before.PartBytes + change.PartBytes, before.IndexBytes + change.IndexBytes,
			}
		}
		v, err := ReadVersion(t.Context(), store, s.VersionRef)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Segments {
			s.Views = append(s.Views, v.Segments[i].View())
		}
		want = append(want, s)
	}
	want[4].Current = true
	want[1].Tags = []string{"production", "release-1"}
	for _, tag := range want[1].Tags {
		if _, _, err := SetTag(t.Context(), store, tag, want[1].ID, false); err != nil {
			t.Fatal(err)
		}
	}
	m, _ = current(t, store)
	for from := range len(want) + 1 {
		for to := from; to <= len(want); to++ {
			var reads atomic.Int64
			got, err := m.Summaries(t.Context(), from, to, func(ctx context.Context, ref VersionRef) (Summary, error) {
				reads.Add(1)
				return ReadSummary(ctx, store, ref)
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]Summary{}, want[from:to]...), got); diff != "" {
				t.Fatalf("[%d:%d] (-want +got):\n%s", from, to, diff)
			}
			most := to - from
			if from > 0 && to > from {
				most++
			}
			if reads.Load() != int64(most) {
				t.Errorf("[%d:%d]: %d reads, want %d", from, to, reads.Load(), most)
			}
		}
	}
}

// A version whose parent is not listed has no change; one whose parent is listed anywhere has.
func TestChangeIsOfTheParent(t *testing.T) {
	store, m := history(t)
	if err := store.Delete(t.Context(), m.Versions[1].Object); err != nil {
		t.Fatal(err)
	}
	if _, err := DropLost(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	m, _ = current(t, store)
	read := func(ctx context.Context, ref VersionRef) (Summary, error) { return ReadSummary(ctx, store, ref) }
	list, err := m.Summaries(t.Context(), 0, len(m.Versions), read)
	if err != nil || len(list) != 4 {
		t.Fatal(list, err)
	}
	for i, s := range list {
		if (s.Change == nil) != (i == 1) {
			t.Errorf("version %d of parent %s: %+v", i, s.Parent, s.Change)
		}
	}
	list, err = m.Summaries(t.Context(), 3, 4, func(ctx context.Context, ref VersionRef) (Summary, error) {
		s, err := read(ctx, ref)
		if ref == m.Versions[3] {
			s.Parent = m.Versions[0].ID
		}
		return s, err
	})
	if err != nil || list[0].Change == nil || list[0].Change.Rows != 103+40+102 {
		t.Errorf("a version that follows the first: %+v, %v", list, err)
	}
}

func TestSummaryOfALostVersionNamesIt(t *testing.T) {
	for _, damage := range []string{"missing", "flipped", "truncated"} {
		store, m := history(t)
		key := m.Versions[2].Object
		data := get(t, store, key)
		switch damage {
		case "missing":
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		case "flipped":
			data[len(data)/2] ^= 4
			put(t, store, key, data)
		case "truncated":
			put(t, store, key, data[:len(data)-1])
		}
		read := func(ctx context.Context, ref VersionRef) (Summary, error) { return ReadSummary(ctx, store, ref) }
		for from, fails := range []bool{true, true, true, true, false} { // version 3 needs its parent
			_, err := m.Summaries(t.Context(), from, len(m.Versions), read)
			var corrupt *codec.CorruptError
			if named := errors.As(err, &corrupt) && corrupt.File == key; named != fails || !fails && err != nil {
				t.Errorf("%s, from %d: %v", damage, from, err)
			}
		}
	}
}

// Summaries reads summaryReads versions at once, and never more.
func TestSummariesAreReadConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manifest{Versions: make([]VersionRef, 2*summaryReads+1)}
		for i := range m.Versions {
			m.Versions[i].ID = fmt.Sprintf("%03d", i)
		}
		var waiting atomic.Int64
		resume := make(chan struct{})
		done := make(chan []Summary)
		go func() {
			list, err := m.Summaries(t.Context(), 0, len(m.Versions), func(_ context.Context, ref VersionRef) (Summary, error) {
				waiting.Add(1)
				<-resume
				return Summary{VersionRef: ref}, nil
			})
			if err != nil {
				t.Error(err)
			}
			done <- list
		}()
		for _, want := range []int64{summaryReads, summaryReads, 1} {
			synctest.Wait() // for all reads that start
			if got := waiting.Swap(0); got != want {
				t.Errorf("%d reads at once, want %d", got, want)
			}
			for range want {
				resume <- struct{}{}
			}
		}
		for i, s := range <-done {
			if s.ID != m.Versions[i].ID {
				t.Errorf("summary %d is of %s", i, s.ID)
			}
		}
	})
}
