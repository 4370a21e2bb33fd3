package indexbuild

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
)

// narrowBytes is windowBytes for lists that are merged again: their windows become blocks, of which
// the next merge has several in memory for each list.
const narrowBytes = 32 << 10

// maxSources is how many sources this process merges at once. Each has a file open, or a connection
// to the store; the other half of the files that may be open is left for other uses.
func maxSources() int { return max(2, min(maxWidth, maxOpenFiles()/2)) }

// narrow merges neighbouring sources into lists in the spool until at most width are left. domains
// has the number of domains of each source. If one list is enough, narrow merges the neighbours
// with the fewest domains, otherwise all sources. The spool keeps all lists until it is closed.
func narrow(
	ctx context.Context, sources []domainSource, domains []int64, datasets []uint32, spool *keysort.Spool, width int,
) ([]domainSource, error) {
	for len(sources) > width {
		n, first, end := width, 0, len(sources)
		if over := len(sources) - width + 1; over <= width {
			n = over
			first = lightest(domains, n)
			end = first + n
		}
		merged, counts := slices.Clone(sources[:first]), slices.Clone(domains[:first])
		for from := first; from < end; from += n {
			out := &spooledList{spool: spool}
			count := int64(0)
			group := sources[from:min(from+n, end)]
			err := mergeWindows(ctx, group, datasets, nil, narrowBytes, func(w *window) error {
				count += int64(w.len())
				return out.append(w)
			})
			if err != nil {
				return nil, err
			}
			merged, counts = append(merged, out), append(counts, count)
		}
		sources, domains = append(merged, sources[end:]...), append(counts, domains[end:]...)
	}
	return sources, nil
}

// lightest returns the index of the first of the n neighbours with the smallest sum.
func lightest(weights []int64, n int) int {
	best, sum := 0, int64(0)
	least := int64(math.MaxInt64)
	for i, w := range weights {
		sum += w
		if i < n-1 {
			continue
		}
		if sum < least {
			best, least = i-n+1, sum
		}
		sum -= weights[i-n+1]
	}
	return best
}

// spooledList is a merged list in a spool. It is a domainSource: append all windows first, then
// load the blocks.
type spooledList struct {
	spool  *keysort.Spool
	writer postings.BlockWriter
	blocks []spooledBlock // that have not been loaded
	buf    []byte
}

// spooledBlock is a block in a spool.
type spooledBlock struct {
	keysort.Extent
	sum uint64 // xxh3
}

// append appends a window as a block.
func (l *spooledList) append(w *window) error {
	l.buf = l.buf[:0]
	for i := range w.ends {
		var err error
		if l.buf, err = l.writer.Append(l.buf, w.domain(i), w.recordsOf(i)); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	l.buf = l.writer.End(l.buf)
	extent, err := l.spool.Write(l.buf)
	l.blocks = append(l.blocks, spooledBlock{extent, xxh3.Hash(l.buf)})
	return err
}

// Load reads the next block. The hash detects bytes that the disk has changed.
func (l *spooledList) Load(_ context.Context, buf []byte) ([]byte, error) {
	if len(l.blocks) == 0 {
		return nil, nil
	}
	b := l.blocks[0]
	l.blocks, l.buf = l.blocks[1:], nil
	buf, err := l.spool.Read(b.Extent, buf)
	if err != nil {
		return nil, err
	}
	if xxh3.Hash(buf) != b.sum {
		return nil, fmt.Errorf("read %s: the %d bytes at %d are not what was written: "+
			"check the disk of the temporary folder", l.spool.Name(), b.Bytes, b.Offset)
	}
	return buf, nil
}
