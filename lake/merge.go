package lake

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
)

const (
	// maxSections is the largest number of run sections merged at once. Each holds a decoded frame and up to
	// two reads of compressed ones, so that this many take some 200 MiB.
	maxSections = 2048

	// maxSectionRead is how much of a section one read fetches, in compressed bytes: beyond it a request's
	// latency is small beside its transfer.
	maxSectionRead = 1 << 20

	// sectionReads is the memory for compressed bytes over all sections of a merge, two reads each.
	sectionReads = 128 << 20

	// concurrentReads is how many reads of one merge are under way at once: enough to
	// hide an object store's latency.
	concurrentReads = 32
)

// MergeRuns merges the rows of partitions first to last, both included, of runs and passes them to yield in the order of
// their keys, one of each record: the one with the smallest raw URL. A key is valid until yield returns.
//
// Rows are in the order of their keys over all these partitions, so each (run, partition) is a sorted input
// of its own. Where there are more than can be merged at once, groups of runs are first merged into larger
// ones; spill names them in the store by pass and number. They are
// the same for the same runs, and the caller removes them with the rest of its staging area.
func MergeRuns(ctx context.Context, store blob.Store, runs []Run, first, last byte, spill func(pass, n int) string, yield func(key []byte) error) error {
	partitions := int(last) - int(first) + 1
	for pass := 0; ; pass++ {
		if len(runs) <= maxSections {
			opened, err := openRuns(ctx, store, runs)
			if err != nil {
				return err
			}
			if n := countSections(opened, first, last); n <= maxSections {
				return mergeSections(ctx, opened, first, last, n, yield)
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
		err := mergeSections(ctx, opened, part, part, n, func(key []byte) error { return w.append(part, key) })
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
func mergeSections(ctx context.Context, runs []*RunReader, first, last byte, n int, yield func(key []byte) error) error {
	// Reads under way end with the merge, also where yield gives up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readBytes := min(maxSectionRead, int64(sectionReads/2/max(n, 1)))
	slots := make(chan struct{}, concurrentReads)
	sections := make([]*runSection, 0, n)
	for _, r := range runs {
		for p := int(first); p <= int(last); p++ {
			if r.Rows(byte(p)) > 0 {
				sections = append(sections, r.section(ctx, byte(p), readBytes, slots))
			}
		}
	}
	t, err := newLoserTree(ctx, sections)
	if err != nil {
		return err
	}
	var record []byte
	for {
		key := t.first()
		if key == nil {
			return nil
		}
		if record == nil || !bytes.HasPrefix(key, record) {
			n := RecordPrefix(key)
			if n < 0 {
				s := t.sections[t.winner]
				return s.bad("a row", "another key")
			}
			record = append(record[:0], key[:n]...)
			if err := yield(key); err != nil {
				return err
			}
		}
		if err := t.pop(ctx); err != nil {
			return err
		}
	}
}

// loserTree finds the smallest key of many sections with one comparison a level (Knuth, The
// Art of Computer Programming 3, 5.4.1).
type loserTree struct {
	sections []*runSection
	// keys are the sections' keys, nil for one that has ended.
	keys [][]byte
	// losers[i] lost the match at node i, 1 ≤ i < len(sections); leaf j is node len(sections)+j.
	losers []int
	winner int
}

func newLoserTree(ctx context.Context, sections []*runSection) (*loserTree, error) {
	n := len(sections)
	t := &loserTree{sections: sections, keys: make([][]byte, n), losers: make([]int, n)}
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
		a, b := winners[2*i], winners[2*i+1]
		if t.less(b, a) {
			a, b = b, a
		}
		winners[i], t.losers[i] = a, b
	}
	t.winner = winners[1]
	return t, nil
}

// first is the smallest key, nil when all sections have ended.
func (t *loserTree) first() []byte {
	if len(t.keys) == 0 {
		return nil
	}
	return t.keys[t.winner]
}

// pop takes the smallest key away.
func (t *loserTree) pop(ctx context.Context) error {
	w := t.winner
	if err := t.advance(ctx, w); err != nil {
		return err
	}
	for i := (len(t.sections) + w) / 2; i > 0; i /= 2 {
		if t.less(t.losers[i], w) {
			w, t.losers[i] = t.losers[i], w
		}
	}
	t.winner = w
	return nil
}

func (t *loserTree) advance(ctx context.Context, i int) error {
	ok, err := t.sections[i].next(ctx)
	if err != nil {
		return fmt.Errorf("merge runs: %w", err)
	}
	t.keys[i] = nil
	if ok {
		t.keys[i] = t.sections[i].key
	}
	return nil
}

func (t *loserTree) less(a, b int) bool {
	if t.keys[a] == nil || t.keys[b] == nil {
		return t.keys[a] != nil
	}
	return bytes.Compare(t.keys[a], t.keys[b]) < 0
}
