package rowsort

import (
	"golang.org/x/sys/cpu"

	"unsafe"

	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// hasVectors says that the processor has what the assembly of this package needs.
var hasVectors = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI2

// addVectors writes the rows of n URLs with the hosts first + Origin to dst, as row does, one behind the other; up to the first one that AddParsed leaves to
// others or whose path is over maxVectorPath or whose host is not one of those in counts, and to the first that would start behind limit. It writes up to
// vectorRoom bytes behind limit. It returns how many rows it wrote and where they end.
//
//go:noescape
func addVectors(dst, limit *byte, urls *urlnorm.Parsed, n int, first uint32, counts *hostCount, hosts uint32) (added int, end *byte)

// What rowbuffer_amd64.s knows of urlnorm.Parsed, and of kinds: that of an origin and that of its tail are 2 together, and a tail's has 2 bits.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.PathQuery)]
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.Origin)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.Kind)-36]
	_ = [1]struct{}{}[unsafe.Sizeof(urlnorm.Parsed{})-40]
	_ = [1]struct{}{}[urlnorm.OtherOrigin]
	_ = [1]struct{}{}[urlnorm.HTTPOrigin+row.HTTPSuffix-2]
	_ = [1]struct{}{}[urlnorm.HTTPSOrigin+row.HTTPSSuffix-2]
	_ = [1]struct{}{}[row.SuffixBits-2]
	_ = [1]struct{}{}[unsafe.Sizeof(hostCount{})-8]
	_ = [1]struct{}{}[unsafe.Offsetof(hostCount{}.bytes)-4]
)

// addMany adds rows from the first on, and returns how many: not all where the next needs a closer look, or the slab or the budget
// may end.
func (b *Buffer) addMany(first uint32, urls []urlnorm.Parsed) (added int) {
	const most = 2*maxVectorPath + rowOverhead
	n := min(int64(len(urls)), (b.budget-b.used-1)/most) // after which it is not Full
	if room := cap(b.open) - len(b.open); !hasVectors || n <= 0 || room <= vectorRoom {
		return 0
	}
	from := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.open)), len(b.open))
	limit := unsafe.Add(from, cap(b.open)-len(b.open)-vectorRoom)
	added, end := addVectors((*byte)(from), (*byte)(limit), &urls[0], int(n), first, unsafe.SliceData(b.counts), uint32(len(b.counts)))
	size := int(uintptr(unsafe.Pointer(end)) - uintptr(from))
	b.open = b.open[:len(b.open)+size]
	b.used += int64(2*(size-8*added) + added*rowOverhead)
	b.len += added
	b.partsOf = 0
	return added
}

// placeRows writes down the places of rows, n bytes of which the first has the place given, as place does.
//
//go:noescape
func placeRows(rows *byte, n int, place uint32, next, places *uint32)

// placeMany writes down the places of the rows of a block, or reports that it did not.
func placeMany(rows []byte, place uint32, next, places []uint32) bool {
	if !hasVectors || len(rows) == 0 {
		return false
	}
	placeRows(&rows[0], len(rows), place, &next[0], &places[0])
	return true
}
