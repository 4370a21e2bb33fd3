package postings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
)

// Restore writes the damaged and missing postings objects of a batch again, from its parts. It
// calls writing with the key of each before it writes the object. It needs the batch record and the
// parts. It checks the parts against the record, and what it makes of them against the names of the
// objects. Temporary files are in tempDir; "" is the system's temporary folder.
func Restore(
	ctx context.Context, store blob.Store, ref segment.BatchRef, tempDir string, writing func(key string) error,
) error {
	data, _, err := store.Get(ctx, ref.Key())
	if err != nil {
		return Damaged(ref, err)
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return Damaged(ref, err)
	}
	var lost []lake.FrameObject
	covered := map[string]bool{}
	for _, o := range record.Postings {
		whole, err := intact(ctx, store, o.Object)
		if err != nil {
			return err
		}
		if !whole {
			lost = append(lost, o)
			continue
		}
		r, err := Open(ctx, store, ref, o)
		if err != nil {
			return err
		}
		for _, p := range r.Parts() {
			covered[p.Key] = true
		}
	}
	parts := slices.DeleteFunc(slices.Clone(record.Parts), func(p lake.Part) bool { return covered[p.Key] })
	for i, o := range lost {
		bytes := int64(0)
		for _, rest := range lost[i:] {
			bytes += rest.Bytes
		}
		share := float64(o.Bytes) / float64(max(1, bytes))
		n, err := restore(ctx, store, record, o, parts, i == len(lost)-1, share, tempDir, writing)
		if err != nil {
			return fmt.Errorf("restore %s: %w", o.Key, err)
		}
		parts = parts[n:]
	}
	return nil
}

// intact reports whether an object exists with its size and hash.
func intact(ctx context.Context, store blob.Store, o lake.Object) (bool, error) {
	r, err := store.Open(ctx, o.Key, 0, -1)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h := xxhash.New()
	n, err := io.Copy(h, r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return false, err
	}
	return n == o.Bytes && fmt.Sprintf("%016x", h.Sum64()) == o.XXH64, nil
}

// errOtherKey says that an extraction made another object than the lost one.
var errOtherKey = errors.New("another object")

// restore writes one lost postings object from the first of parts, and returns the number of parts
// that it covers. An object covers one or more whole partitions, and how many is not known: those
// with which the object comes out with its name, which is a digest of its content. Share is about
// what part of the rows of parts the object has; restore tries the number of partitions first that
// comes closest to it. The last lost object covers all parts that are left.
func restore(
	ctx context.Context, store blob.Store, record *lake.Batch, o lake.FrameObject, parts []lake.Part, last bool,
	share float64, tempDir string, writing func(key string) error,
) (int, error) {
	var written []part.Written
	var unread error // what a part before which all are read has
	for _, n := range candidates(parts, last, share) {
		for len(written) < n && unread == nil {
			p, err := writtenPart(ctx, store, parts[len(written)], tempDir)
			if unread = err; err == nil {
				written = append(written, p)
			}
		}
		if len(written) < n {
			continue
		}
		task := &ingest.MergedTask{DatasetID: record.DatasetID, Batch: record.Batch, Parts: written[:n]}
		for i := range task.Parts {
			task.Rows += task.Parts[i].Part.Rows
		}
		made, _, err := ExtractTask(ctx, store, task, tempDir, func(key string) error {
			if key != o.Key {
				return errOtherKey
			}
			return writing(key)
		})
		if errors.Is(err, errOtherKey) {
			continue
		}
		if err == nil && made != o {
			err = codec.Corrupt(o.Key, "record", -1, o, made)
		}
		return n, err
	}
	if unread != nil {
		return 0, unread
	}
	return 0, codec.Corrupt(o.Key, "object", -1, "the postings of the batch's parts", errOtherKey)
}

// candidates returns how many of parts an object may cover: whole partitions, the most likely
// number first.
func candidates(parts []lake.Part, last bool, share float64) (ends []int) {
	if last {
		if len(parts) == 0 {
			return nil
		}
		return []int{len(parts)}
	}
	rows := make([]float64, len(parts)+1) // of the first parts
	for i, p := range parts {
		rows[i+1] = rows[i] + float64(p.Rows)
		if i+1 == len(parts) || parts[i+1].DomainPrefix != p.DomainPrefix {
			ends = append(ends, i+1)
		}
	}
	want := share * rows[len(parts)]
	slices.SortStableFunc(ends, func(a, b int) int { return cmp.Compare(math.Abs(rows[a]-want), math.Abs(rows[b]-want)) })
	return ends
}

// writtenPart checks a part against its batch record and reads its page index.
func writtenPart(ctx context.Context, store blob.Store, p lake.Part, tempDir string) (part.Written, error) {
	tmp, err := os.CreateTemp(tempDir, "part-*.parquet")
	if err != nil {
		return part.Written{}, err
	}
	defer func() {
		tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	r, err := store.Open(ctx, p.Key, 0, -1)
	if err != nil {
		return part.Written{}, err
	}
	h := xxhash.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return part.Written{}, err
	}
	if sum := fmt.Sprintf("%016x", h.Sum64()); n != p.Bytes || sum != p.XXH64 {
		return part.Written{}, codec.Corrupt(p.Key, "file", -1,
			fmt.Sprintf("%d bytes with xxh64 %s", p.Bytes, p.XXH64), fmt.Sprintf("%d with %s", n, sum))
	}
	blocks, err := part.BuildPageIndex(tmp, n, p.Key)
	return part.Written{Part: p, Blocks: blocks}, err
}
