package rowsort

import "unsafe"

// askHosts asks the core for hosts, so that they are there when they are used: it does not wait for them.
func askHosts(order []hostRef, hosts []bufferHost) {
	if len(order) > 0 {
		askHostsPrefetch(&order[0], len(order), unsafe.SliceData(hosts))
	}
}

// askNames asks for where the names of hosts begin and end, and for the first rows of those that lie together.
func askNames(order []hostRef, hosts []bufferHost, names, chunks [][]byte) {
	if len(order) > 0 {
		askNamesPrefetch(&order[0], len(order), unsafe.SliceData(hosts), unsafe.SliceData(names), unsafe.SliceData(chunks))
	}
}

// askRows asks for the rows at places, or two lines of each.
func askRows(places []uint32, chunks [][]byte) {
	if len(places) > 0 {
		askRowsPrefetch(&places[0], len(places), unsafe.SliceData(chunks))
	}
}

// askRefs asks for rows.
func askRefs(refs []rowRef, chunks [][]byte) {
	if len(refs) > 0 {
		askRefsPrefetch(&refs[0], len(refs), unsafe.SliceData(chunks))
	}
}

//go:noescape
func askRefsPrefetch(refs *rowRef, n int, chunks *[]byte)

//go:noescape
func askHostsPrefetch(order *hostRef, n int, hosts *bufferHost)

//go:noescape
func askNamesPrefetch(order *hostRef, n int, hosts *bufferHost, names, chunks *[]byte)

//go:noescape
func askRowsPrefetch(places *uint32, n int, chunks *[]byte)

// What ask_amd64.s knows of hosts and chunks.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(hostRef{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(hostRef{}.host)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(bufferHost{})-32]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.name)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.length)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.data)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(bufferHost{}.bytes)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(rowRef{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(rowRef{}.data)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(rowRef{}.off)-12]
)
