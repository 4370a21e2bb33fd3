// Package rejectlist reads the lists of rejected records that ingests have left.
package rejectlist

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/seekable"
)

// Read calls each for every reject in the list of a batch, in input order, and checks the
// object. A batch without rejects has no list. The list may be shorter than the batch's rejects,
// see lake.Batch.ListedRejects.
func Read(ctx context.Context, store blob.Store, b *lake.Batch, each func(ingest.Reject) error) error {
	if b.Rejects == nil {
		return nil
	}
	key := b.Rejects.Key
	r, err := store.Open(ctx, key, 0, -1)
	if errors.Is(err, blob.ErrNotExist) {
		return codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	if err != nil {
		return err
	}
	defer r.Close()
	sum := xxhash.New()
	z, err := zstd.NewReader(io.TeeReader(r, sum), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(seekable.MaxFrame))
	if err != nil {
		return err
	}
	defer z.Close()
	lines := json.NewDecoder(z)
	for {
		var rej ingest.Reject
		err := lines.Decode(&rej)
		if err == io.EOF {
			break
		}
		if err != nil && (ctx.Err() != nil || errors.Is(err, blob.ErrDenied)) {
			return err
		}
		if err != nil {
			return codec.Corrupt(key, "rejects", -1, "JSON lines", err)
		}
		if err := each(rej); err != nil {
			return err
		}
	}
	if got := fmt.Sprintf("%016x", sum.Sum64()); got != b.Rejects.XXH64 {
		return codec.Corrupt(key, "object", -1, "xxh64 "+b.Rejects.XXH64, got)
	}
	return nil
}

// Group are the listed rejects of one file, or member of an archive, for one reason.
type Group struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	// Places are the first of them.
	Places []Place `json:"places"`
}

// Place is where a reject is, and its Value, as in ingest.Reject.
type Place struct {
	Line   int64  `json:"line"`
	Offset int64  `json:"offset"`
	Value  string `json:"value,omitempty"`
}

func (p Place) String() string {
	text := ingest.Location(p.Line, p.Offset)
	if p.Value != "" {
		text += fmt.Sprintf(" %q", p.Value)
	}
	return text
}

// Groups groups the listed rejects of a batch by file and reason, the largest group first.
// Each group has the first places of its rejects. It holds all groups in memory.
func Groups(ctx context.Context, store blob.Store, b *lake.Batch, places int) ([]Group, error) {
	type key struct{ object, reason string }
	groups := map[key]*Group{}
	if err := Read(ctx, store, b, func(r ingest.Reject) error {
		k := key{r.Object, r.Reason}
		g := groups[k]
		if g == nil {
			g = &Group{Object: r.Object, Reason: r.Reason}
			groups[k] = g
		}
		if g.Count++; len(g.Places) < places {
			g.Places = append(g.Places, Place{r.Line, r.Offset, r.Value})
		}
		return nil
	}); err != nil {
		return nil, err
	}
	out := make([]Group, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
	})
	return out, nil
}
