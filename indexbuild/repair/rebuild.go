// Package repair restores what is damaged or missing of an index: the files of a segment
// (RebuildSegment) and the postings objects of a batch (RestorePostings).
//
// Both follow from what they are made of, so an object is written only if it comes out with the
// name or the hash that it had: repair either writes back the same bytes or returns an error.
// Intact objects are left alone, and readers may have them open meanwhile.
//
// The callers are package publish, for publish --rebuild, and package rebuild.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Rebuilt says what RebuildSegment has written.
type Rebuilt struct {
	// Files are the names of the segment's files that were written; none if all were intact.
	Files []string `json:"files,omitempty"`
	// Postings is the number of postings objects that were restored first.
	Postings int `json:"postings,omitempty"`
}

// ErrOtherBytes says that this build of urlake cannot give a segment's files the bytes that they
// had, since another build made it. The segment can be replaced by a new one over the same
// batches.
var ErrOtherBytes = errors.New("another build of urlake made the segment")

// RebuildSegment replaces the damaged and missing files of a segment. It builds the segment over
// its batches in a temporary folder in tempDir, after restoring postings objects that are lost,
// and writes those files that are not what ref vouches for. If the rebuilt segment has another
// hash than ref, nothing of it is written, and the error is ErrOtherBytes. An intact segment is
// only read.
func RebuildSegment(
	ctx context.Context, store blob.Store, ref segment.Ref, batches []segment.BatchRef, tempDir string,
) (Rebuilt, error) {
	out, err := rebuild(ctx, store, ref, batches, tempDir)
	if err != nil {
		return out, fmt.Errorf("rebuild segment %s: %w", ref.ID, err)
	}
	return out, nil
}

func rebuild(
	ctx context.Context, store blob.Store, ref segment.Ref, batches []segment.BatchRef, tempDir string,
) (out Rebuilt, err error) {
	if _, err := verify.Segment(ctx, store, ref, false, tempDir); !errors.Is(err, codec.ErrCorrupt) {
		return out, err
	}
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return out, err
	}
	builder, ok, err := segment.FindBuilder(ctx, store, ref.ID, batches)
	if err != nil {
		return out, err
	}
	if !ok {
		return out, fmt.Errorf("%w: its files have other formats", ErrOtherBytes)
	}
	if out.Postings, err = RestoreDamaged(ctx, store, batches, tempDir); err != nil {
		return out, err
	}
	dir, err := os.MkdirTemp(tempDir, "rebuild-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	local, err := blob.NewLocal(dir)
	if err != nil {
		return out, err
	}
	prefix := segment.Prefix(ref.ID)
	overlaid := &blob.Routed{Store: store, From: func(key string) blob.Store {
		if strings.HasPrefix(key, prefix) {
			return local
		}
		return store
	}}
	got, err := indexbuild.BuildSegment(ctx, overlaid, batches, indexbuild.Options{TempDir: tempDir, Builder: builder})
	if err != nil {
		return out, err
	}
	if got != ref {
		return out, fmt.Errorf("%w: the rebuilt segment.json has xxh64 %s, the version has %s", ErrOtherBytes, got.XXH64, ref.XXH64)
	}
	info, err := segment.ReadInfo(ctx, overlaid, ref)
	if err != nil {
		return out, err
	}
	// As in any build, segment.json is written last.
	for _, f := range info.Files {
		wrote, err := ReplaceDamaged(ctx, store, local, lake.Object{
			Key: prefix + f.Name, Bytes: f.Bytes, XXH64: f.XXH64,
		})
		if err != nil {
			return out, err
		}
		if wrote {
			out.Files = append(out.Files, f.Name)
		}
	}
	wrote, err := ReplaceDamaged(ctx, store, local, lake.Object{
		Key: prefix + segment.InfoName, Bytes: ref.Bytes - info.Bytes(), XXH64: ref.XXH64,
	})
	if err != nil {
		return out, err
	}
	if wrote {
		out.Files = append(out.Files, segment.InfoName)
	}
	_, err = verify.Segment(ctx, store, ref, false, tempDir)
	return out, err
}

// RestoreDamaged reads all postings of batches and restores those that are damaged. It returns
// their number.
func RestoreDamaged(
	ctx context.Context, store blob.Store, batches []segment.BatchRef, tempDir string,
) (restored int, err error) {
	for _, ref := range batches {
		_, err := indexbuild.CheckBatch(ctx, store, ref, true)
		var d *postings.DamageError
		if errors.As(err, &d) {
			var n int
			n, err = RestorePostings(ctx, store, ref, tempDir)
			restored += n
		}
		if err != nil {
			return restored, err
		}
	}
	return restored, nil
}

// ReplaceDamaged copies an object from one store to the other, unless it is intact there, and
// reports whether it did.
func ReplaceDamaged(ctx context.Context, to, from blob.Store, o lake.Object) (wrote bool, err error) {
	if intact, err := Intact(ctx, to, o); intact || err != nil {
		return false, err
	}
	in, err := from.Open(ctx, o.Key, 0, -1)
	if err != nil {
		return false, err
	}
	defer in.Close()
	w, err := to.Create(ctx, o.Key)
	if err != nil {
		return false, err
	}
	defer w.Abort()
	if _, err := io.Copy(w, in); err != nil {
		return false, err
	}
	_, err = w.Finish()
	return err == nil, err
}
