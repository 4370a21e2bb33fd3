package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
)

// RestorePostings makes those postings objects of a batch anew, from its parts, that are missing or are not what was written, and
// returns their number. It needs the batch's record and the parts; their bytes are checked against the record, and what comes
// out against the names of the objects. Temporary files are in tempDir, "" is the system's folder.
func RestorePostings(ctx context.Context, store blob.Store, ref postings.BatchRef, tempDir string) (restored int, err error) {
	data, _, err := store.Get(ctx, ref.Key())
	if err != nil {
		return 0, postings.Damaged(ref, err)
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return 0, postings.Damaged(ref, err)
	}
	var lost []lake.FrameObject
	covered := map[string]bool{}
	for _, o := range record.Postings {
		sound, err := isSound(ctx, store, o.Object)
		if err != nil {
			return 0, err
		}
		if !sound {
			lost = append(lost, o)
			continue
		}
		r, err := postings.OpenBatch(ctx, store, o)
		if err != nil {
			return 0, postings.Damaged(ref, err)
		}
		for _, p := range r.Parts {
			covered[p.Key] = true
		}
	}
	parts := slices.DeleteFunc(slices.Clone(record.Parts), func(p lake.Part) bool { return covered[p.Key] })
	for i, o := range lost {
		n, err := restore(ctx, store, record, o, parts, i == len(lost)-1, tempDir)
		if err != nil {
			return restored, fmt.Errorf("restore %s: %w", o.Key, err)
		}
		parts = parts[n:]
		restored++
	}
	return restored, nil
}

// isSound tells whether an object is there with its size and hash.
func isSound(ctx context.Context, store blob.Store, o lake.Object) (bool, error) {
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

// errOther says that an extraction made another object than the one that is looked for.
var errOther = errors.New("another object")

// restore writes one postings object anew from the first of parts, and returns how many it is made of. An object covers the
// parts of one or more whole partitions, and its name, a digest of its content, tells when they are all: the last one that is lost
// covers what is left, of others it is tried with one partition more each time.
func restore(ctx context.Context, store blob.Store, record *lake.Batch, o lake.FrameObject, parts []lake.Part, last bool, tempDir string) (int, error) {
	task := &ingest.MergedTask{DatasetID: record.DatasetID, Batch: record.Batch}
	for n := 0; n < len(parts); {
		for more := true; more; more = n < len(parts) && (last || parts[n].DomainPrefix == parts[n-1].DomainPrefix) {
			p, err := writtenPart(ctx, store, parts[n], tempDir)
			if err != nil {
				return 0, err
			}
			task.Parts = append(task.Parts, p)
			task.Rows += p.Part.Rows
			n++
		}
		made, _, err := postings.ExtractIf(ctx, store, task, tempDir, func(key string) error {
			if key != o.Key {
				return errOther
			}
			return nil
		})
		if errors.Is(err, errOther) {
			continue
		}
		if err == nil && made != o {
			err = codec.Corrupt(o.Key, "record", -1, o, made)
		}
		return n, err
	}
	return 0, codec.Corrupt(o.Key, "object", -1, "what the batch's parts make", errOther)
}

// writtenPart checks a part against its batch's record and indexes its pages.
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
		return part.Written{}, codec.Corrupt(p.Key, "file", -1, fmt.Sprintf("%d bytes with xxh64 %s", p.Bytes, p.XXH64), fmt.Sprintf("%d with %s", n, sum))
	}
	blocks, err := part.BuildPageIndex(tmp, n, p.Key)
	return part.Written{Part: p, Blocks: blocks}, err
}
