package lookup

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
)

const (
	// walkLooks is how many names are passed between two looks at the clock.
	walkLooks = 4096
	// yields is how many names are passed between two chances for other work.
	yields = 128
)

// walkNames goes through a range of the domains of several segments, each once.
type walkNames struct {
	Range
	// Done tells that nothing is left.
	Done bool

	scans []*nameScan
	heads [][]byte // the next name of each scan, nil at its end; see Scan
	last  string   // the last name that was passed
	yield func(ctx context.Context) error
}

// newWalk begins a walk, which the caller has to close. Each calls a function for those segments
// that are chosen, at the same time.
func newWalk(
	ctx context.Context, segments []*segment.Segment, q nameQuery,
	each func(ctx context.Context, chosen func(i int) bool, f func(ctx context.Context, i int) error) error,
) (*walkNames, error) {
	n := len(segments)
	w := &walkNames{Range: q.Range, scans: make([]*nameScan, n), heads: make([][]byte, n), yield: q.Yield}
	for i, seg := range segments {
		w.scans[i] = newNameScan(ctx, seg, q)
	}
	if err := each(ctx, func(int) bool { return true }, w.advance); err != nil {
		w.Close()
		return nil, err
	}
	w.Done = w.least() < 0
	return w, nil
}

// Close ends the walk.
func (w *walkNames) Close() {
	for _, scan := range w.scans {
		scan.Close()
	}
}

// Place is where a page that is late ends: the beginning of the last name, which tells how far it
// came. The name itself may be one that is hidden.
func (w *walkNames) Place() string { return w.last[:min(len(w.last), len(w.Prefix)+3)] }

// advance takes the next domain of a scan.
func (w *walkNames) advance(ctx context.Context, i int) (err error) {
	w.heads[i], err = w.scans[i].Next(ctx)
	if !strings.HasPrefix(string(w.heads[i]), w.Prefix) {
		w.heads[i] = nil
	}
	return err
}

// least returns the scan with the first of the next domains, -1 if there is none.
func (w *walkNames) least() int {
	best := -1
	for i, head := range w.heads {
		if head != nil && (best < 0 || bytes.Compare(head, w.heads[best]) < 0) {
			best = i
		}
	}
	return best
}

// Next returns up to most domains of the range, fewer if the walk ends or the time is up.
func (w *walkNames) Next(ctx context.Context, most int, until time.Time) (names []string, err error) {
	for passed := 1; len(names) < most; passed++ {
		if passed%yields == 1 {
			if err := w.yield(ctx); err != nil {
				return nil, err
			}
		}
		first := w.least()
		if first < 0 {
			w.Done = true
			return names, nil
		}
		name := w.heads[first]
		w.last = string(name)
		if w.Has(w.last) {
			names = append(names, w.Text(w.last))
		}
		for i := len(w.heads) - 1; i >= 0; i-- { // name stays valid until its scan is advanced
			if i != first && w.heads[i] != nil && bytes.Equal(w.heads[i], name) {
				if err := w.advance(ctx, i); err != nil {
					return nil, err
				}
			}
		}
		if err := w.advance(ctx, first); err != nil {
			return nil, err
		}
		if passed%walkLooks == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if time.Now().After(until) {
				break
			}
		}
	}
	w.Done = w.least() < 0
	return names, nil
}
