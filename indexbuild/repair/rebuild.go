package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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

// Rebuilt is what RebuildSegment did.
type Rebuilt struct {
	// Files of the segment were written anew, by name; none if all were sound.
	Files []string `json:"files,omitempty"`
	// Postings is the number of postings objects of batches that were restored first.
	Postings int `json:"postings,omitempty"`
}

// RebuildSegment makes a segment whole again whose files are damaged or missing: it builds it over its batches in a temporary
// folder, where a lost postings object is restored from the batch's parts, and writes those files over that are not what ref vouches
// for. Objects stay immutable in that whatever is written is what had been written there before: a segment follows from its batches,
// and what does not come out with ref's hash is not written at all. Files that are sound are left alone, and readers that have them open.
// A segment that is sound is only read.
func RebuildSegment(ctx context.Context, store blob.Store, ref postings.SegmentRef, batches []postings.BatchRef, tempDir string) (Rebuilt, error) {
	out, err := rebuild(ctx, store, ref, batches, tempDir)
	if err != nil {
		return out, fmt.Errorf("rebuild segment %s: %w", ref.ID, err)
	}
	return out, nil
}

func rebuild(ctx context.Context, store blob.Store, ref postings.SegmentRef, batches []postings.BatchRef, tempDir string) (out Rebuilt, err error) {
	if _, err := verify.Segment(ctx, store, ref, false, tempDir); !errors.Is(err, codec.ErrCorrupt) {
		return out, err
	}
	batches = slices.Clone(batches)
	if err := segment.SortBatches(batches); err != nil {
		return out, err
	}
	if segment.ID(batches) != ref.ID {
		return out, errors.New("another build of urlake made it, in other formats; rebuild it with that build")
	}
	for _, b := range batches {
		n, err := restoreDamaged(ctx, store, b, tempDir)
		if out.Postings += n; err != nil {
			return out, err
		}
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
	aside := &overlay{Store: store, prefix: segment.Prefix(ref.ID), own: local}
	got, err := indexbuild.BuildSegment(ctx, aside, batches, indexbuild.Options{TempDir: tempDir})
	if err != nil {
		return out, err
	}
	if got != ref {
		return out, fmt.Errorf("it has now segment.json with xxh64 %s where the version names %s: another build of urlake made it", got.XXH64, ref.XXH64)
	}
	info, err := segment.ReadInfo(ctx, aside, ref)
	if err != nil {
		return out, err
	}
	// segment.json last, as in any build.
	for _, f := range info.Files {
		wrote, err := mend(ctx, store, local, lake.Object{Key: aside.prefix + f.Name, Bytes: f.Bytes, XXH64: f.XXH64})
		if err != nil {
			return out, err
		}
		if wrote {
			out.Files = append(out.Files, f.Name)
		}
	}
	wrote, err := mend(ctx, store, local, lake.Object{Key: aside.prefix + segment.InfoName, Bytes: ref.Bytes - info.Bytes(), XXH64: ref.XXH64})
	if err != nil {
		return out, err
	}
	if wrote {
		out.Files = append(out.Files, segment.InfoName)
	}
	_, err = verify.Segment(ctx, store, ref, false, tempDir)
	return out, err
}

// restoreDamaged restores the postings of a batch if they are not sound.
func restoreDamaged(ctx context.Context, store blob.Store, ref postings.BatchRef, tempDir string) (int, error) {
	_, err := indexbuild.CheckBatch(ctx, store, ref, true)
	var d *postings.DamageError
	if !errors.As(err, &d) {
		return 0, err
	}
	return RestorePostings(ctx, store, ref, tempDir)
}

// mend copies an object from one store to the other, unless it is there as it has to be.
func mend(ctx context.Context, to, from blob.Store, o lake.Object) (wrote bool, err error) {
	if sound, err := isSound(ctx, to, o); sound || err != nil {
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

// overlay is a store whose objects below a prefix are in another.
type overlay struct {
	blob.Store
	prefix string
	own    blob.Store
}

// of is the store of a key.
func (o *overlay) of(key string) blob.Store {
	if strings.HasPrefix(key, o.prefix) {
		return o.own
	}
	return o.Store
}

func (o *overlay) Stat(ctx context.Context, key string) (blob.Info, error) {
	return o.of(key).Stat(ctx, key)
}

func (o *overlay) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	return o.of(key).Get(ctx, key)
}

func (o *overlay) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return o.of(key).ReadRange(ctx, key, off, n)
}

func (o *overlay) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return o.of(key).Open(ctx, key, off, n)
}

func (o *overlay) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	return o.of(key).Put(ctx, key, data, cond)
}

func (o *overlay) Create(ctx context.Context, key string) (blob.Writer, error) {
	return o.of(key).Create(ctx, key)
}

func (o *overlay) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return o.of(prefix).List(ctx, prefix)
}

func (o *overlay) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := o.of(key).Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
