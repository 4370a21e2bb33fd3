package lake

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// maxSections is the largest number of run sections merged at once. Each holds a decoded frame and a read of one
	// frame or more: this many take some 150 MiB, and the directories of as many runs some 60, where keys are not longer than
	// frames are meant to be.
	maxSections = 1024

	// maxSectionRead is how much of a section one read fetches, in bytes as stored: beyond it a request's
	// latency is small beside its transfer.
	maxSectionRead = 1 << 20

	// sectionReads is the memory for bytes as stored over all sections of a merge, two reads each. It is enough for reads of
	// a frame in maxSections.
	sectionReads = 128 << 20

	// concurrentReads is how many reads of one merge are under way at once: enough to
	// hide an object store's latency.
	concurrentReads = 32
)

// MergeRuns merges the rows of partitions first to last, both included, of runs and passes them to yield in the order of
// their keys, one of each record: the one with the smallest raw URL.
//
// Rows are in the order of their keys over all these partitions, so each (run, partition) is a sorted input
// of its own. Where there are more than can be merged at once, groups of runs are first merged into larger
// ones; spill names them in the store by pass and number. They are
// the same for the same runs, and the caller removes them with the rest of its staging area.
func MergeRuns(ctx context.Context, store blob.Store, runs []Run, first, last byte, spill func(pass, n int) string, yield func(*Key) error) error {
	partitions := int(last) - int(first) + 1
	for pass := 0; ; pass++ {
		if len(runs) <= maxSections {
			opened, err := openRuns(ctx, store, runs)
			if err != nil {
				return err
			}
			if n := countSections(opened, first, last); n <= maxSections {
				return mergeSections(ctx, opened, first, last, n, records(yield))
			}
		}
		// After this pass each group has at most one section a partition.
		groups := max(1, maxSections/partitions)
		size := min(maxSections, max(2, (len(runs)+groups-1)/groups))
		var merged []Run
		for n := 0; len(runs) > 0; n++ {
			group := runs[:min(size, len(runs))]
			runs = runs[len(group):]
			run, err := mergeIntoRun(ctx, store, group, first, last, spill(pass, n))
			if err != nil {
				return err
			}
			merged = append(merged, run)
		}
		runs = merged
	}
}

// mergeIntoRun merges each partition of runs on its own and writes all of them as one run.
func mergeIntoRun(ctx context.Context, store blob.Store, runs []Run, first, last byte, key string) (Run, error) {
	opened, err := openRuns(ctx, store, runs)
	if err != nil {
		return Run{}, err
	}
	w, err := newRunWriter(ctx, store, key)
	if err != nil {
		return Run{}, err
	}
	defer w.abort()
	for p := int(first); p <= int(last); p++ {
		part := byte(p)
		n := countSections(opened, part, part)
		if n == 0 {
			continue
		}
		err := mergeSections(ctx, opened, part, part, n, func(key []byte, shared int) error { return w.append(part, key, shared) })
		if err != nil {
			return Run{}, err
		}
	}
	return w.finish()
}

// openRuns opens runs, several at a time.
func openRuns(ctx context.Context, store blob.Store, runs []Run) ([]*RunReader, error) {
	opened := make([]*RunReader, len(runs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReads)
	for i, run := range runs {
		g.Go(func() (err error) {
			opened[i], err = OpenRun(ctx, store, run)
			return err
		})
	}
	return opened, g.Wait()
}

func countSections(runs []*RunReader, first, last byte) int {
	n := 0
	for _, r := range runs {
		for p := int(first); p <= int(last); p++ {
			if r.Rows(byte(p)) > 0 {
				n++
			}
		}
	}
	return n
}

// mergeSections merges all n sections of the partitions.
func mergeSections(ctx context.Context, runs []*RunReader, first, last byte, n int, yield func(key []byte, shared int) error) error {
	// Reads under way end with the merge, also where yield gives up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readBytes := min(maxSectionRead, int64(sectionReads/2/max(n, 1)))
	slots := make(chan struct{}, concurrentReads)
	sections := make([]section, 0, n)
	for _, r := range runs {
		for p := int(first); p <= int(last); p++ {
			if r.Rows(byte(p)) > 0 {
				sections = append(sections, r.section(ctx, byte(p), readBytes, slots))
			}
		}
	}
	return mergeKeys(ctx, sections, yield)
}

// section is a sorted input of a merge.
type section interface {
	// next returns the next key, valid until the call after, and the length of the longest prefix that it has in common with
	// the one before; nil at the end.
	next(ctx context.Context) (key []byte, shared int, err error)
}

// mergeKeys passes the keys of all sections to yield, ascending, each with the length of the longest
// prefix that it has in common with the one before.
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

// records calls yield for one key of each record: the first, which has the smallest raw URL.
func records(yield func(*Key) error) func(key []byte, shared int) error {
	k := new(Key)
	return func(key []byte, shared int) error {
		if err := k.follow(key, shared); err != nil {
			return fmt.Errorf("merge rows: %w", err)
		}
		if k.SameRecord() {
			return nil
		}
		return yield(k)
	}
}

// loserTree finds the smallest key of many sections with one comparison a level (Knuth, The
// Art of Computer Programming 3, 5.4.1). Every key that lost remembers how much of its beginning it shares
// with the one that beat it, so that a comparison is mostly one of two lengths: of two keys above
// a third, the one that shares more with it is the smaller (Ng and Kakehi, "Merging string sequences by longest
// common prefixes", 2008).
type loserTree struct {
	sections []section
	// keys are the sections' keys, nil for one that has ended.
	keys [][]byte
	// shared is the length of the prefix a key shares with the one that beat it, of the winner's with
	// the winner before; -1 of a section that has ended.
	shared []int
	// losers[i] lost the match at node i, 1 ≤ i < len(sections); leaf j is node len(sections)+j.
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

// first is the smallest key and what it shares with the one before, nil when all sections have ended.
func (t *loserTree) first() (key []byte, shared int) {
	if len(t.keys) == 0 {
		return nil, 0
	}
	return t.keys[t.winner], t.shared[t.winner]
}

// pop takes the smallest key away.
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

// play lets two keys meet that know what they share with the same third key, which is below both.
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
		n := x + commonPrefix(k[x:], l[x:])
		if n == len(k) || n < len(l) && k[n] < l[n] {
			t.shared[b] = n
			return a, b
		}
		t.shared[a] = n
		return b, a
	}
}
