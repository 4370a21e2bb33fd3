package rowsort

import "github.com/urlake/urlake/lake/row"

const (
	// maxSpread is the most bytes after its header that a row which spreadVectors takes has; longer
	// ones are rare. It may read spreadSlack bytes from the start of a row.
	maxSpread   = 512
	spreadSlack = 8 + maxSpread + 128
)

// spreadVectors copies rows, which start before n, to their partitions, as shuffleWriter.spread
// does. It returns where it stopped: at n, or before a row that is longer than maxSpread, that has
// a host without a number, or for which its partition's piece may have too little memory.
//
// There must be spreadSlack bytes after n; what it reads of them is not kept. A row is written only
// if the capacity of its piece has 128 more bytes. It needs the features of hasVectors. spread
// without spreadMany replaces it; FuzzShuffleVectors compares the two.
//
//go:noescape
func spreadVectors(rows *byte, n int, numbers *uint32, known int, open *[row.Partitions][]byte) (done int)

// scatterVectors copies rows of n bytes to their offsets in chunks, as shuffleLoad.scatter does. It
// returns where it stopped: at n, or before a row that scatter has to check. Rows are untrusted;
// the host, the chunk and the end of the row in it are checked before anything is written.
//
// Loads and stores are masked: it reads nothing outside of rows and writes nothing outside of the
// row's memory. Slash is 0xff if all paths must begin with a slash, else 0. It needs the features
// of hasVectors. scatter without scatterMany replaces it; FuzzScatter compares the two.
//
//go:noescape
func scatterVectors(rows *byte, n int, offsets *uint64, known int, chunks *[]byte, many int, slash uint32) (done int)

// The constants that shuffle_amd64.s relies on.
var (
	_ = [1]struct{}{}[row.OwnSuffix-2]
	_ = [1]struct{}{}[row.SuffixBits-2]
	_ = [1]struct{}{}[hostBits-24]
	_ = [1]struct{}{}[chunkBits-18]
)

// spreadMany copies some rows to their partitions and returns their size.
func (w *shuffleWriter) spreadMany(rows []byte) int {
	if !hasVectors || len(rows) <= spreadSlack || len(w.numbers) == 0 {
		return 0
	}
	return spreadVectors(&rows[0], len(rows)-spreadSlack, &w.numbers[0], len(w.numbers), &w.open)
}

// scatterMany copies some rows to their offsets and returns their size.
func scatterMany(rows []byte, offsets []uint64, chunks [][]byte, slash bool) int {
	if !hasVectors || len(offsets) == 0 || len(chunks) == 0 || startsWithOwnSuffix(rows) {
		return 0
	}
	first := uint32(0)
	if slash {
		first = 0xff
	}
	return scatterVectors(&rows[0], len(rows), &offsets[0], len(offsets), &chunks[0], len(chunks), first)
}

// startsWithOwnSuffix reports whether the first row has an OwnSuffix, which scatterVectors does not
// take. The row after it then mostly has one too.
func startsWithOwnSuffix(rows []byte) bool { return len(rows) > 4 && rows[4]&row.OwnSuffix != 0 }

// ownSuffix is row.OwnSuffix for the assembly.
//
//lint:ignore U1000 buffer_amd64.s uses it
const ownSuffix = row.OwnSuffix
