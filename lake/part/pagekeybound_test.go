package part

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// A footer that says that the page keys take most of a large part is damaged: nothing like that is
// read to memory.
func TestPageKeysAreBounded(t *testing.T) {
	for _, bytes := range []int64{maxIndexBytes, maxIndexBytes + 1, 3 << 30} {
		const off = 1 << 20
		value := fmt.Sprintf("%d %d %08x", off, bytes, 0x01020304)
		text := func(s string) []byte { return append([]byte{0x18, byte(len(s))}, s...) }
		// In Thrift's compact encoding: field 5, a list of one struct of two texts.
		footer := append([]byte{0x59, 0x1c}, text(pageKeysName)...)
		footer = append(append(footer, text(value)...), 0, 0)
		tail := binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
		tail = append(tail, parquetMagic...)
		size := off + bytes + int64(len(tail))
		most := int64(0)
		read := func(at, n int64) ([]byte, error) {
			if most = max(most, n); n > maxIndexBytes {
				return nil, errors.New("a read of too much")
			}
			data := make([]byte, n)
			for i := range data {
				if behind := at + int64(i) - (size - int64(len(tail))); behind >= 0 {
					data[i] = tail[behind]
				}
			}
			return data, nil
		}
		_, err := ReadPageKeys(read, size, 1, "a part")
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
		if bytes > maxIndexBytes && most > 1<<20 {
			t.Errorf("%d bytes: a read of %d", bytes, most)
		}
	}
}
