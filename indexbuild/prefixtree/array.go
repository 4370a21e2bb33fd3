package prefixtree

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// mappedFile is a file of an open index. Its bytes are hashed before they are read, block by block,
// unless the index has no hashes of blocks.
type mappedFile struct {
	*mapped.File
	lazy bool // blocks are hashed
}

// slice returns n bytes at off.
func (f mappedFile) slice(off, n uint64) ([]byte, error) {
	size := uint64(f.Size())
	if off > size || n > size-off {
		return nil, codec.Corrupt(f.Name(), "file", int64(min(off, size)), fmt.Sprintf("%d bytes", n), fmt.Sprintf("the end at %d", size))
	}
	if f.lazy && n > 0 {
		if err := f.Check(int64(off), int64(n)); err != nil {
			return nil, err
		}
	}
	return f.Data()[off : off+n : off+n], nil
}

// array is an array of an open index.
type array struct {
	mappedFile
	data  []byte // the elements
	base  int64  // their offset in the file
	width uint64
	count uint64
}

// openArray returns the array of a file.
func openArray(f mappedFile, l *layout, width uint64) (a array, err error) {
	a = array{mappedFile: f, base: l.headerBytes(), width: width}
	rest := f.Size() - a.base
	if rest < 0 || uint64(rest)%width != 0 {
		return a, codec.Corrupt(f.Name(), "file", -1, fmt.Sprintf("elements of %d bytes", width), fmt.Sprintf("%d bytes", f.Size()))
	}
	a.count, a.data = uint64(rest)/width, f.Data()[a.base:]
	// Nothing of a header is used. If the file has hashes, Verify compares it by them; reading all
	// headers would take most of the time of Open.
	if !l.header || f.lazy {
		return a, nil
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, f.File)
	d := codec.NewDecoder(f.Data()[:headerSize], f.Name(), "header")
	for _, field := range []struct {
		name      string
		got, want uint64
	}{
		{"magic", uint64(d.U32()), headerMagic},
		{"version", uint64(d.U32()), headerVersion},
		{"count", d.U64(), a.count},
		{"width", uint64(d.U32()), width},
	} {
		if field.got != field.want {
			return a, codec.Corrupt(f.Name(), "header", 0, fmt.Sprintf("%s %d", field.name, field.want), field.got)
		}
	}
	return a, nil
}

// at returns an element.
func (a *array) at(i uint64) (uint64, error) {
	if i >= a.count {
		return 0, codec.Corrupt(a.Name(), "array", -1, fmt.Sprintf("element %d", i), fmt.Sprintf("%d elements", a.count))
	}
	off := i * a.width
	if a.lazy {
		if err := a.Check(a.base+int64(off), int64(a.width)); err != nil {
			return 0, err
		}
	}
	if a.width == 4 {
		return uint64(binary.LittleEndian.Uint32(a.data[off:])), nil
	}
	return binary.LittleEndian.Uint64(a.data[off:]), nil
}

// gather sets values[i] to the element at[i], unless that is NotFound. It does little else, so that
// the processor waits for many elements at once. The elements have 8 bytes.
func (a *array) gather(at, values []uint64) error {
	for i, n := range at {
		if n == NotFound {
			continue
		}
		if n >= a.count {
			_, err := a.at(n)
			return err
		}
		if a.lazy {
			if err := a.Check(a.base+int64(8*n), 8); err != nil {
				return err
			}
		}
		values[i] = binary.LittleEndian.Uint64(a.data[8*n:])
	}
	return nil
}

// bad says that an element is not what the other files require.
func (a *array) bad(i uint64, want string, got uint64) error {
	return codec.Corrupt(a.Name(), "array", a.base+int64(i*a.width), want, got)
}

// search returns the first index in [from, to) whose element is at least v, or to.
func (a *array) search(from, to, v uint64) (uint64, error) {
	for from < to {
		mid := from + (to-from)/2
		got, err := a.at(mid)
		if err != nil {
			return 0, err
		}
		if got < v {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from, nil
}
