package row

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

const (
	// maxSections is the most runs that are merged at once. Each holds a decoded frame and a read
	// of one or more frames: together some 150 MiB, unless single keys are longer than runFrame.
	maxSections = 1024

	// maxSectionRead is how much of a run one read fetches, in bytes as stored. The transfer of so
	// much takes much longer than a request's latency.
	maxSectionRead = 1 << 20

	// sectionReads is the memory of a merge for bytes as stored: two reads for each section. With
	// maxSections it is enough for reads of one frame.
	sectionReads = 128 << 20

	// concurrentReads is how many reads of one merge are in flight at once: enough to hide an
	// object store's latency.
	concurrentReads = 32
)

// mergeRuns merges runs and passes their rows to sink in the order of their keys, one of each
// record: the one with the smallest raw URL.
//
// If there are more runs than it merges at once, it first merges groups of them into larger runs.
// Spill returns their keys in the store, by pass and number. They are the same for the same runs;
// the caller deletes them with the rest of its staging area.
func mergeRuns(ctx context.Context, store blob.Store, runs []Run, spill func(pass, n int) string, sink Sink) error {
	for pass := 0; len(runs) > maxSections; pass++ {
		var merged []Run
		for group := range slices.Chunk(runs, maxSections) {
			run, err := mergeIntoRun(ctx, store, group, spill(pass, len(merged)))
			if err != nil {
				return err
			}
			merged = append(merged, run)
		}
		runs = merged
	}
	return mergeSections(ctx, store, runs, records(sink))
}

// mergeIntoRun merges runs into one.
func mergeIntoRun(ctx context.Context, store blob.Store, runs []Run, key string) (Run, error) {
	w, err := newRunWriter(ctx, store, key)
	if err != nil {
		return Run{}, err
	}
	defer w.abort()
	if err := mergeSections(ctx, store, runs, w.append); err != nil {
		return Run{}, err
	}
	return w.finish()
}

// mergeSections merges at most maxSections runs.
func mergeSections(ctx context.Context, store blob.Store, runs []Run, yield func(key []byte, shared int) error) error {
	opened := make([]*seekable.Frames, len(runs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for i, run := range runs {
		g.Go(func() (err error) {
			opened[i], err = openRun(gctx, store, run)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Reads in flight end with the merge, even if yield returns an error.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readBytes := min(maxSectionRead, int64(sectionReads/2/max(len(runs), 1)))
	slots := make(chan struct{}, concurrentReads)
	sections := make([]section, len(runs))
	for i, run := range runs {
		sections[i] = newRunSection(ctx, store, run, opened[i], readBytes, slots)
	}
	return mergeKeys(ctx, sections, yield)
}

// section is a sorted input of a merge.
type section interface {
	// next returns the next key, nil at the end, and the length of its longest common prefix with
	// the previous key. The key is valid until the next call.
	next(ctx context.Context) (key []byte, shared int, err error)
}

// mergeKeys passes the keys of all sections to yield in ascending order, each with the length of
// its longest common prefix with the previous key.
func mergeKeys(ctx context.Context, sections []section, yield func(key []byte, shared int) error) error {
	t, err := newLoserTree(ctx, sections)
	if err != nil {
		return err
	}
	for {
		key, shared := t.first()
		if key == nil {
			return nil
		}
		if err := yield(key, shared); err != nil {
			return err
		}
		if err := t.pop(ctx); err != nil {
			return err
		}
	}
}

// records returns a function that takes ascending keys and passes the first row of each record,
// which has the smallest raw URL, to sink.
func records(sink Sink) func(key []byte, shared int) error {
	k := new(Key)
	return func(key []byte, shared int) error {
		if err := k.follow(key, shared); err != nil {
			return fmt.Errorf("merge rows: %w", err)
		}
		if k.sameRecord() {
			return nil
		}
		return k.Pass(sink)
	}
}

// loserTree finds the smallest key of many sections with one comparison a level (Knuth, The Art of
// Computer Programming 3, 5.4.1). It keeps the length of the prefix that each loser shares with the
// key that beat it. So a comparison is mostly one of two lengths: of two keys above a third, the
// smaller one shares more with it (Ng and Kakehi, "Merging string sequences by longest common
// prefixes", 2008).
type loserTree struct {
	sections []section
	// keys has the current key of each section, nil if the section has ended.
	keys [][]byte
	// shared has the length of the prefix that a key shares with the key that beat it, for the
	// winner with the previous winner; -1 for a section that has ended.
	shared []int
	// losers[i] is the section that lost at node i, 1 ≤ i < len(sections). Leaf j is node
	// len(sections)+j.
	losers []int
	winner int
}

func newLoserTree(ctx context.Context, sections []section) (*loserTree, error) {
	n := len(sections)
	t := &loserTree{sections: sections, keys: make([][]byte, n), shared: make([]int, n), losers: make([]int, n)}
	if n == 0 {
		return t, nil
	}
	for i := range sections {
		if err := t.advance(ctx, i); err != nil {
			return nil, err
		}
	}
	winners := make([]int, 2*n)
	for i := range n {
		winners[n+i] = i
	}
	for i := n - 1; i > 0; i-- {
		winners[i], t.losers[i] = t.play(winners[2*i], winners[2*i+1])
	}
	t.winner = winners[1]
	return t, nil
}

// first returns the smallest key and the length of its common prefix with the previous one; nil
// when all sections have ended.
func (t *loserTree) first() (key []byte, shared int) {
	if len(t.keys) == 0 {
		return nil, 0
	}
	return t.keys[t.winner], t.shared[t.winner]
}

// pop removes the smallest key.
func (t *loserTree) pop(ctx context.Context) error {
	w := t.winner
	if err := t.advance(ctx, w); err != nil {
		return err
	}
	for i := (len(t.sections) + w) / 2; i > 0; i /= 2 {
		l := t.losers[i]
		if t.shared[l] < t.shared[w] {
			continue
		}
		w, t.losers[i] = t.play(w, l)
	}
	t.winner = w
	return nil
}

// advance steps section i to its next key.
func (t *loserTree) advance(ctx context.Context, i int) error {
	key, shared, err := t.sections[i].next(ctx)
	if err != nil {
		return fmt.Errorf("merge runs: %w", err)
	}
	if key == nil {
		shared = -1
	}
	t.keys[i], t.shared[i] = key, shared
	return nil
}

// play compares the keys of two sections, whose shared are with the same third key below both, and
// sets the loser's shared to its common prefix with the winner.
func (t *loserTree) play(a, b int) (winner, loser int) {
	switch x, y := t.shared[a], t.shared[b]; {
	case x > y:
		return a, b
	case x < y:
		return b, a
	case x < 0:
		return a, b
	default:
		k, l := t.keys[a], t.keys[b]
		n := x + codec.CommonPrefix(k[x:], l[x:])
		if n == len(k) || n < len(l) && k[n] < l[n] {
			t.shared[b] = n
			return a, b
		}
		t.shared[a] = n
		return b, a
	}
}
