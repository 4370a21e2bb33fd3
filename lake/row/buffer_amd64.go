package row

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/urlake/urlake/lake/urlnorm"
)

// hasVectors is set if the processor has what the assembly of this package needs.
var hasVectors = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI2

// addVectors writes the rows of n URLs to dst, one after the other, as appendRow does, and counts
// them; the host of each is first + its Origin. It stops before a URL of an OtherOrigin, with a
// path longer than maxVectorPath or with a host that counts has no element for, and before the
// first row that would start after limit. It returns how many rows it wrote and where they end. N
// must be above 0.
//
// It writes up to vectorSlack bytes after limit. Loads of paths are masked: it reads nothing
// outside of them. Only hosts below hosts index counts. It needs the features of hasVectors.
// AddParsed without addMany replaces it; FuzzAddParsed compares the two.
//
//go:noescape
func addVectors(dst, limit *byte, urls *urlnorm.Parsed, n int, first uint32, counts *hostCount, hosts uint32) (added int, end *byte)

// The layout of urlnorm.Parsed and hostCount that buffer_amd64.s relies on, and that the kinds of
// an origin and of its suffix add up to 2.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.PathQuery)]
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.Origin)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(urlnorm.Parsed{}.Kind)-36]
	_ = [1]struct{}{}[unsafe.Sizeof(urlnorm.Parsed{})-40]
	_ = [1]struct{}{}[urlnorm.OtherOrigin]
	_ = [1]struct{}{}[urlnorm.HTTPOrigin+HTTPSuffix-2]
	_ = [1]struct{}{}[urlnorm.HTTPSOrigin+HTTPSSuffix-2]
	_ = [1]struct{}{}[SuffixBits-2]
	_ = [1]struct{}{}[unsafe.Sizeof(hostCount{})-8]
	_ = [1]struct{}{}[unsafe.Offsetof(hostCount{}.bytes)-4]
)

// addMany adds rows from the first URL on and returns how many. It leaves the rest to AddParsed:
// from the first URL that addVectors does not take, or if the slab or the budget may be used up.
func (b *Buffer) addMany(first uint32, urls []urlnorm.Parsed) (added int) {
	const most = maxVectorPath + rowOverhead + sortOverhead
	n := min(int64(len(urls)), (b.budget-b.used-1)/most) // rows that cannot make the buffer Full
	if free := cap(b.open) - len(b.open); !hasVectors || n <= 0 || free <= vectorSlack {
		return 0
	}
	from := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.open)), len(b.open))
	limit := unsafe.Add(from, cap(b.open)-len(b.open)-vectorSlack)
	added, end := addVectors((*byte)(from), (*byte)(limit), &urls[0], int(n), first,
		unsafe.SliceData(b.counts), uint32(len(b.counts)))
	size := int(uintptr(unsafe.Pointer(end)) - uintptr(from))
	b.open = b.open[:len(b.open)+size]
	b.used += int64(size + added*(rowOverhead-8+sortOverhead))
	b.len += added
	b.groupWidth = 0
	return added
}
