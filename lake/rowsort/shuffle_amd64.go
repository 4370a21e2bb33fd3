package rowsort

import "github.com/urlake/urlake/lake/row"

const (
	// maxSpread is the most that a row which spreadVectors takes has behind its heads; longer ones are rare. SpreadRoom is what it may read behind the place where a row starts.
	maxSpread  = 512
	spreadRoom = 8 + maxSpread + 128
)

// spreadVectors copies rows, which start before n, to their partitions, as shuffleWriter.spread does, up to the first that is long or for which there may be no room. It returns where it ended. Behind n there
// are spreadRoom more bytes.
//
//go:noescape
func spreadVectors(rows *byte, n int, numbers *uint32, known int, open *[row.Partitions][]byte) (done int)

// scatterVectors copies rows of n bytes to their places, as shuffleLoad.scatter does, up to the first that needs a closer look. It returns where it ended.
//
//go:noescape
func scatterVectors(rows *byte, n int, places *uint64, known int, chunks *[]byte, many int, slash uint32) (done int)

// What shuffle_amd64.s knows of kinds and hosts.
var (
	_ = [1]struct{}{}[row.OwnSuffix-2]
	_ = [1]struct{}{}[row.SuffixBits-2]
	_ = [1]struct{}{}[hostBits-24]
	_ = [1]struct{}{}[chunkBits-18]
)

// spreadMany copies some rows to their partitions, and returns their size.
func (w *shuffleWriter) spreadMany(rows []byte) int {
	if !hasVectors || len(rows) <= spreadRoom || len(w.numbers) == 0 {
		return 0
	}
	return spreadVectors(&rows[0], len(rows)-spreadRoom, &w.numbers[0], len(w.numbers), &w.open)
}

// scatterMany copies some rows to their places, and returns their size.
func scatterMany(rows []byte, places []uint64, chunks [][]byte, slash bool) int {
	if !hasVectors || len(places) == 0 || len(chunks) == 0 || rowIsOwn(rows) {
		return 0
	}
	first := uint32(0)
	if slash {
		first = 0xff
	}
	return scatterVectors(&rows[0], len(rows), &places[0], len(places), &chunks[0], len(chunks), first)
}

// rowIsOwn reports whether a row with a host's number before it has a tail of its own: where one has, the next mostly has too.
func rowIsOwn(thisRow []byte) bool { return len(thisRow) > 4 && thisRow[4]&row.OwnSuffix != 0 }

// ownSuffix is ownTail, for the assembly.
const ownSuffix = row.OwnSuffix
