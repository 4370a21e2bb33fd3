package partwriter

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"golang.org/x/sys/cpu"
)

// hasPathRows says that addPaths may be called.
var hasPathRows = hasAVX512 && cpu.X86.HasBMI1 && cpu.X86.HasAVX512VBMI

// pathRows is what addPaths is given and returns: rows of one host with the same tail, and where of the open page they go.
type pathRows struct {
	rows *row.SortedRow
	n    int // how many there are, and how many are left

	last    *byte // the path before
	lastLen int
	fresh   uint64 // all bits where the first row is the first of its host, so that it may be below the path before

	// What URLs have before the path, 64 bytes at most: a scheme with what is behind it, and zeros, and a host.
	tail                        *row.Suffix
	scheme                      *[64]byte
	host                        *byte
	schemeLen, hostLen, headLen int

	prefixes, suffixes *int32
	ids                *uint64
	out                *byte  // the page's suffixes
	row                int    // of the page
	size               int    // of the suffixes
	plain, limit       int    // of the paths as PLAIN, and from where on the page is full
	high               uint64 // not 0 if a suffix is not ASCII
	late               int    // 1 where the last row's url_id is not there
}

// addPaths adds rows to a page with as much room as it can need: the lengths of their prefixes and suffixes, the suffixes and the URL ids. A row that is the one before
// again, it passes over. It stops before a row that is below the one before, has another tail or is longer than maxPathRow, and behind one
// whose URL has not 17 to 128 bytes or that makes the page full. Up to 64 bytes are written behind the suffixes.
//
// Nothing is done with a branch that depends on lengths which nobody can foresee. Hashes are urlID's: the URL is put together in vectors only.
//
//go:noescape
func addPaths(p *pathRows)

// askEnds asks for where the paths of rows end: whoever has found them has been where they begin.
func askEnds(rows []row.SortedRow) {
	if hasPathRows && len(rows) > 0 {
		askRowEnds(&rows[0], len(rows))
	}
}

//go:noescape
func askRowEnds(rows *row.SortedRow, n int)

// The layout that addPaths knows.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(row.SortedRow{}.Path)]
	_ = [1]struct{}{}[unsafe.Offsetof(row.SortedRow{}.Suffix)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(row.SortedRow{})-32]
)

// usualSchemes are what the URLs of usualTails begin with.
var usualSchemes = [row.OwnSuffix]struct {
	text [64]byte
	size int
}{
	row.HTTPSSuffix: {text: [64]byte([]byte("https://" + strings.Repeat("\x00", 56))), size: len("https://")},
	row.HTTPSuffix:  {text: [64]byte([]byte("http://" + strings.Repeat("\x00", 57))), size: len("http://")},
}

// addUsual adds rows of the open host to the open page, from the first on, and returns how many it looked at and how many were added: none where the
// first needs a closer look.
func (w *Writer) addUsual(rows []row.SortedRow) (looked, added int, err error) {
	tail := rows[0].Suffix
	if !hasPathRows || w.rows == 0 || (tail != &row.UsualSuffixes[row.HTTPSSuffix] && tail != &row.UsualSuffixes[row.HTTPSuffix]) || tail != w.tail && w.hostRows > 0 {
		return 0, 0, nil
	}
	scheme := &usualSchemes[row.HTTPSSuffix]
	if tail != &row.UsualSuffixes[row.HTTPSSuffix] {
		scheme = &usualSchemes[row.HTTPSuffix]
	}
	host := w.texts[part.ColHost].last
	head := scheme.size + len(host)
	if head > len(scheme.text) {
		return 0, 0, nil
	}
	if tail != w.tail {
		w.setTail(tail)
	}
	w.addID()
	n := min(len(rows), w.lim.PageRows-w.rows)
	path, last := &w.path, w.last
	if !w.away {
		last = w.url[w.urlPath:]
	}
	from := w.rows
	w.reserve(n)
	k := &w.batch
	k.rows, k.n = &rows[0], n
	k.last, k.lastLen = unsafe.SliceData(last), len(last)
	k.fresh = 0
	if w.hostRows == 0 {
		k.fresh = ^uint64(0)
	}
	k.tail, k.scheme, k.schemeLen = tail, &scheme.text, scheme.size
	k.host, k.hostLen, k.headLen = unsafe.SliceData(host), len(host), head
	k.prefixes, k.suffixes = unsafe.SliceData(path.prefixes), unsafe.SliceData(path.suffixes)
	k.ids = (*uint64)(unsafe.Pointer(unsafe.SliceData(w.ids)))
	k.out, k.size, k.row = unsafe.SliceData(path.bytes), len(path.bytes), from
	k.plain, k.limit, k.high, k.late = path.plain, w.lim.PageBytes, 0, 0
	addPaths(k)
	looked, added = n-k.n, k.row-from
	if looked == 0 {
		return 0, 0, nil
	}
	w.rows = k.row
	path.prefixes, path.suffixes, path.bytes, path.plain = path.prefixes[:k.row], path.suffixes[:k.row], path.bytes[:k.size], k.plain
	path.high = path.high || k.high != 0
	w.ids = w.ids[:8*(k.row-k.late)]
	if w.hostRows == 0 {
		first := rows[0].Path
		if shared := int(path.prefixes[from]); shared < len(last) && (shared == len(first) || first[shared] < last[shared]) {
			path.descend(last, first)
		}
	}
	w.hostRows += int64(added)
	w.last, w.away = rows[looked-1].Path, true
	if k.late > 0 {
		w.settle()
		w.setHead()
		w.addID()
	}
	if w.rows >= w.lim.PageRows || path.plain >= w.lim.PageBytes {
		w.settle()
		return looked, added, w.endPage()
	}
	return looked, added, nil
}

// reserve makes room on the page for what addPaths adds of n rows.
func (w *Writer) reserve(n int) {
	p := &w.path
	if cap(p.prefixes)-len(p.prefixes) < n || cap(p.suffixes)-len(p.suffixes) < n || cap(w.ids)-len(w.ids) < 8*n {
		p.prefixes, p.suffixes, w.ids = slices.Grow(p.prefixes, n), slices.Grow(p.suffixes, n), slices.Grow(w.ids, 8*n)
	}
	// The last row begins before the page is full.
	if most := w.lim.PageBytes - p.plain + maxPathRow + 64; cap(p.bytes)-len(p.bytes) < most {
		p.bytes = slices.Grow(p.bytes, most)
	}
}

// namePairs are a domain and a host and what followNames makes of them.
type namePairs [2]namePair

type namePair struct {
	last    *byte // the name before
	lastLen int
	name    *byte // of 1 to 64 bytes
	nameLen int
	to      *[64]byte // where the name is copied to
	out     *byte     // where its suffix is, with room for 64 bytes
	prefix  int       // what both names share
	above   uint8     // whether the name is above the last, which it is not
}

// followNames copies two names and what they have behind the prefix that they share with the ones before.
//
//go:noescape
func followNames(p *namePairs)

// followHost is openHost of a host with a usual name behind another in the open page. It reports whether it did it: not, where the host may not follow.
func (w *Writer) followHost(h *row.SortedHost) bool {
	domains, hosts := &w.texts[part.ColDomain], &w.texts[part.ColHost]
	if !hasPathRows || w.rows == 0 || uint(len(h.Domain)-1) >= 64 || uint(len(h.Host)-1) >= 64 || uint(len(domains.last)) > 64 || uint(len(hosts.last)) > 64 ||
		h.DomainID>>w.shift != w.want {
		return false
	}
	if cap(domains.bytes)-len(domains.bytes) < 64 || cap(hosts.bytes)-len(hosts.bytes) < 64 {
		domains.bytes, hosts.bytes = slices.Grow(domains.bytes, 64), slices.Grow(hosts.bytes, 64)
	}
	p := &w.pairs
	d, n := &p[0], &p[1]
	d.last, d.lastLen, d.name, d.nameLen = unsafe.SliceData(domains.last), len(domains.last), unsafe.StringData(h.Domain), len(h.Domain)
	n.last, n.lastLen, n.name, n.nameLen = unsafe.SliceData(hosts.last), len(hosts.last), unsafe.StringData(h.Host), len(h.Host)
	// Not where the last is: it stays where this host is refused.
	d.to, n.to = &w.names[0][w.nameTurn[0]&1^1], &w.names[1][w.nameTurn[1]&1^1]
	d.out = unsafe.SliceData(domains.bytes[len(domains.bytes):cap(domains.bytes)])
	n.out = unsafe.SliceData(hosts.bytes[len(hosts.bytes):cap(hosts.bytes)])
	followNames(p)
	newDomain, newHost := d.prefix < max(d.nameLen, d.lastLen), n.prefix < max(n.nameLen, n.lastLen)
	if newDomain && d.above == 0 || !newDomain && (n.above == 0 || h.DomainID != w.domainID) {
		return false // as far as can be seen: a zero byte is like an end
	}
	w.domainID, w.hostRows, w.headed = h.DomainID, 0, false
	if newDomain {
		w.startDomain(rawBytes(h.Domain))
		domains.append(w.rows, d.prefix, d.nameLen)
		domains.last = d.to[:d.nameLen]
		w.nameTurn[0] ^= 1
	}
	if newHost {
		if n.above == 0 {
			hosts.descend(hosts.last, n.to[:n.nameLen])
		}
		hosts.append(w.rows, n.prefix, n.nameLen)
		hosts.last = n.to[:n.nameLen]
		w.nameTurn[1] ^= 1
	}
	return true
}

// append is follow of a value of so many bytes, whose suffix is there.
func (t *textRuns) append(row, prefix, size int) {
	t.texts++
	t.most = max(t.most, size)
	t.runs = append(t.runs, textRun{row: int32(row), prefix: int32(prefix), suffix: int32(size - prefix)})
	t.bytes = t.bytes[:len(t.bytes)+size-prefix]
}

// byteDiffs is byteDiffsPlain of deltaBlock values at most, for which out has room, in whole vectors.
func byteDiffs(out []byte, last int32, values []int32) (equal, fit bool) {
	if !hasAVX512 || len(values) == 0 {
		return byteDiffsPlain(out, last, values)
	}
	any, all := byteDiffsAVX512(&out[:len(values)][0], last, &values[0], len(values))
	return any == 0, all <= 0xff
}

// byteDiffsAVX512 sets any and all to the differences, and to these less byteBase, ORed.
//
//go:noescape
func byteDiffsAVX512(out *byte, last int32, values *int32, n int) (any, all uint32)

// maxPathRow is the longest path that addPaths takes; longer ones are rare.
const maxPathRow = 4 << 10
