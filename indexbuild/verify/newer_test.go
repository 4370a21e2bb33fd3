package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// hintsFile is an optional file that only newer builds know.
const hintsFile = "hints.bin"

// newerSegment writes a segment again as a newer build does, which adds hintsFile.
func newerSegment(t *testing.T, store blob.Store, ref segment.Ref) segment.Ref {
	t.Helper()
	info, err := segment.ReadInfo(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	hints := []byte("hints")
	info.Files = append(info.Files, segment.File{
		Name: hintsFile, Format: 7, Optional: true,
		Bytes: int64(len(hints)), XXH64: fmt.Sprintf("%016x", xxhash.Sum64(hints)),
	})
	slices.SortFunc(info.Files, func(a, b segment.File) int { return strings.Compare(a.Name, b.Name) })
	// The id as docs/formats/segment.md has it. The segment has one shard.
	text := fmt.Sprintf("urlake segment %d\n", info.Format)
	for _, f := range info.Files {
		text += fmt.Sprintf("%s\t%d\n", strings.Replace(f.Name, "/0000/", "/{shard}/", 1), f.Format)
	}
	text += fmt.Sprintf("%d batches\t%s\n", info.BatchCount, info.BatchDigest)
	info.Segment = lake.Digest([]byte(text))
	for key, data := range indextest.SegmentObjects(t, store, ref.ID) {
		indextest.Put(t, store, segment.Prefix(info.Segment)+strings.TrimPrefix(key, segment.Prefix(ref.ID)), data)
	}
	indextest.Put(t, store, segment.Prefix(info.Segment)+hintsFile, hints)
	data, err := codec.Seal(info)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Put(t, store, segment.Prefix(info.Segment)+segment.InfoName, data)
	return segment.Ref{
		ID: info.Segment, XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)),
		Bytes: info.Bytes() + int64(len(data)), Domains: ref.Domains, Rows: ref.Rows,
	}
}

// An optional file that this build does not know is verified like the others.
func TestSegmentOfANewerBuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 33))
	l := &indextest.Lake{Store: blob.NewMemory()}
	o := indextest.Options{Rows: 200, Domains: 60}
	l.AddBatch(t, 1, "b", indextest.RandomRows(rng, o), o)
	ctx := context.Background()
	ref := newerSegment(t, l.Store, mustBuild(t, l.Store, l.Batches, indexbuild.Options{TempDir: t.TempDir()}))
	report, err := Segment(ctx, l.Store, ref, true, t.TempDir())
	if err != nil || report.Files != 15 {
		t.Errorf("verify: %v, %+v", err, report)
	}
	l.CompareSegment(t, ref)
	key := segment.Prefix(ref.ID) + hintsFile
	indextest.Put(t, l.Store, key, []byte("other"))
	report, err = Segment(ctx, l.Store, ref, false, t.TempDir())
	if !errors.Is(err, codec.ErrCorrupt) || len(report.Problems) != 1 || report.Problems[0].Object != key {
		t.Errorf("verify with damage to %s: %v, %+v", key, err, report)
	}
}
