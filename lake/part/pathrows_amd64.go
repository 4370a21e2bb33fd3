package part

import (
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/urlake/urlake/lake/row"
)

// hasPathRows says that the processor can run addPaths. Tests clear it.
var hasPathRows = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI &&
	cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// maxPathRow is the longest path that addPaths takes. Longer ones are rare.
const maxPathRow = 4 << 10

// pathRows is the argument and result of addPaths: rows of one host, and where they go in the open
// page.
type pathRows struct {
	rows *row.SortedRow
	n    int // number of rows, and of those that are left

	last    *byte // the previous path
	lastLen int
	fresh   uint64 // all ones if rows starts the host; its path may then be less than the previous one

	// The origin of all rows: scheme has 64 bytes with the scheme, "://" and zeros, host follows
	// it. Together they have at most 64 bytes.
	suffix                        *row.Suffix
	scheme                        *[64]byte
	host                          *byte
	schemeLen, hostLen, originLen int

	prefixes, suffixes *int32
	ids                *uint64
	out                *byte  // the suffixes of the page's paths
	row                int    // the page's next row
	size               int    // bytes at out
	plain, limit       int    // size of the page's paths as PLAIN, and the size that ends the page
	high               uint64 // not 0 if a suffix has a byte that is not ASCII
	late               int    // 1 if the url_id of the last row is missing
}

// addPaths adds rows to the page: the lengths of prefixes and suffixes, the suffixes and the
// url_ids. It skips a row that repeats the previous one. It stops before a row that is less than
// the previous one, has another suffix, or has an empty path or one longer than maxPathRow. It
// stops behind a row whose URL does not have 17 to 128 bytes, whose url_id it leaves to the caller,
// and behind a row that ends the page.
//
// No branch depends on the length of a path, because the processor could not predict it. The URL of
// a row exists only in vectors, where XXH3-64 is computed as for 17 to 128 bytes.
//
// The caller reserves space for all rows in the page. addPaths writes up to 64 bytes behind the
// suffixes. It reads whole 64-byte lines that hold a byte of a path, so it never touches another
// page of memory.
//
//go:noescape
func addPaths(p *pathRows)

// The assembly has these offsets and sizes as numbers. A change of them does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(row.SortedRow{}.Path)]
	_ = [1]struct{}{}[unsafe.Offsetof(row.SortedRow{}.Suffix)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(row.SortedRow{})-32]
)

// usualSchemes are the scheme and "://" of the usual suffixes.
var usualSchemes = [row.OwnSuffix]struct {
	text [64]byte
	size int
}{
	row.HTTPSSuffix: {text: [64]byte([]byte("https://" + strings.Repeat("\x00", 56))), size: len("https://")},
	row.HTTPSuffix:  {text: [64]byte([]byte("http://" + strings.Repeat("\x00", 57))), size: len("http://")},
}

// addUsualRows adds rows of the open host with a usual suffix to the open page. It returns how many
// of rows it has processed and how many of these it has added. If it has processed none, the first
// row has to be added by addRow.
func (w *Writer) addUsualRows(rows []row.SortedRow) (done, added int, err error) {
	suffix := rows[0].Suffix
	if !hasPathRows || w.union || w.rows == 0 || !isUsual(suffix) || suffix != w.suffix && w.hostRows > 0 {
		return 0, 0, nil
	}
	scheme := &usualSchemes[row.HTTPSSuffix]
	if suffix != &row.UsualSuffixes[row.HTTPSSuffix] {
		scheme = &usualSchemes[row.HTTPSuffix]
	}
	host := w.texts[ColHost].last
	originLen := scheme.size + len(host)
	if originLen > len(scheme.text) {
		return 0, 0, nil
	}
	if suffix != w.suffix {
		w.setSuffix(suffix)
	}
	w.addLastID()
	n := min(len(rows), w.lim.PageRows-w.rows)
	path, last := &w.path, w.lastPath
	if !w.lastElsewhere {
		last = w.url[w.pathAt:]
	}
	from := w.rows
	w.reserve(n)
	k := &w.pathRows
	k.rows, k.n = &rows[0], n
	k.last, k.lastLen = unsafe.SliceData(last), len(last)
	k.fresh = 0
	if w.hostRows == 0 {
		k.fresh = ^uint64(0)
	}
	k.suffix, k.scheme, k.schemeLen = suffix, &scheme.text, scheme.size
	k.host, k.hostLen, k.originLen = unsafe.SliceData(host), len(host), originLen
	k.prefixes, k.suffixes = unsafe.SliceData(path.prefixes), unsafe.SliceData(path.suffixes)
	k.ids = (*uint64)(unsafe.Pointer(unsafe.SliceData(w.ids)))
	k.out, k.size, k.row = unsafe.SliceData(path.bytes), len(path.bytes), from
	k.plain, k.limit, k.high, k.late = path.plain, w.lim.PageBytes, 0, 0
	addPaths(k)
	done, added = n-k.n, k.row-from
	if done == 0 {
		return 0, 0, nil
	}
	w.rows = k.row
	path.prefixes, path.suffixes = path.prefixes[:k.row], path.suffixes[:k.row]
	path.bytes, path.plain = path.bytes[:k.size], k.plain
	path.high = path.high || k.high != 0
	w.ids = w.ids[:8*(k.row-k.late)]
	if w.hostRows == 0 {
		first := rows[0].Path
		shared := int(path.prefixes[from])
		if shared < len(last) && (shared == len(first) || first[shared] < last[shared]) {
			path.descend(last, first)
		}
	}
	w.hostRows += int64(added)
	w.lastPath, w.lastElsewhere = rows[done-1].Path, true
	if k.late > 0 {
		w.copyLastPath()
		w.setOrigin()
		w.addLastID()
	}
	if w.rows >= w.lim.PageRows || path.plain >= w.lim.PageBytes {
		w.copyLastPath()
		return done, added, w.endPage()
	}
	return done, added, nil
}

// reserve allocates the space in the page that addPaths needs for n rows.
func (w *Writer) reserve(n int) {
	p := &w.path
	if cap(p.prefixes)-len(p.prefixes) < n || cap(p.suffixes)-len(p.suffixes) < n || cap(w.ids)-len(w.ids) < 8*n {
		p.prefixes, p.suffixes, w.ids = slices.Grow(p.prefixes, n), slices.Grow(p.suffixes, n), slices.Grow(w.ids, 8*n)
	}
	// When the last row begins, the page is not full.
	if most := w.lim.PageBytes - p.plain + maxPathRow + 64; cap(p.bytes)-len(p.bytes) < most {
		p.bytes = slices.Grow(p.bytes, most)
	}
}
