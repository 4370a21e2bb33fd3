package rowsort

import "unsafe"

// These loops prefetch through this package's structs: they read hosts and chunk headers to find
// the next address. So they are not in internal/prefetch, whose functions take one address a call:
// a call for each host or row would cost as much as the loop saves.
//
// Prefetches never fault and have no effect on results. The loops themselves read order, offsets
// and refs, and the elements of hosts, names and chunks that these refer to, which must exist.

// prefetchNames prefetches the first and the last line of the names of hosts, and the first rows of
// hosts that Load filled. It reads the hosts.
func prefetchNames(order []hostRef, hosts []bufferHost, names, chunks [][]byte) {
	if len(order) > 0 {
		nameLines(&order[0], len(order), unsafe.SliceData(hosts), unsafe.SliceData(names), unsafe.SliceData(chunks))
	}
}

// prefetchRows prefetches two lines of each of the rows at offsets.
func prefetchRows(offsets []uint32, chunks [][]byte) {
	if len(offsets) > 0 {
		offsetLines(&offsets[0], len(offsets), unsafe.SliceData(chunks))
	}
}

// prefetchRefs prefetches two lines of each of the rows of refs.
func prefetchRefs(refs []rowRef, chunks [][]byte) {
	if len(refs) > 0 {
		refLines(&refs[0], len(refs), unsafe.SliceData(chunks))
	}
}

//go:noescape
func nameLines(order *hostRef, n int, hosts *bufferHost, names, chunks *[]byte)

//go:noescape
func offsetLines(offsets *uint32, n int, chunks *[]byte)

//go:noescape
func refLines(refs *rowRef, n int, chunks *[]byte)

// The layout that prefetch_amd64.s relies on.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(hostRef{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(hostRef{}.host)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(bufferHost{})-32]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.name)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.length)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.data)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.bytes)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(rowRef{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(rowRef{}.chunk)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(rowRef{}.path)-12]
)
