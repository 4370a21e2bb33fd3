package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the Castagnoli CRC of b (RFC 3720, appendix B.4).
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC32C continues a CRC32C over b.
func UpdateCRC32C(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// AppendCRC32C appends the CRC-32C of b to b, little-endian. CheckCRC32C is its inverse.
func AppendCRC32C(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, CRC32C(b)) }

// CheckCRC32C checks the CRC-32C at the end of b and returns b without it. Errors are
// *CorruptErrors that name file and section.
func CheckCRC32C(b []byte, file, section string) ([]byte, error) {
	if len(b) < 4 {
		return nil, Corrupt(file, section, -1, "at least 4 bytes", len(b))
	}
	body := b[:len(b)-4]
	want := binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := CRC32C(body); got != want {
		return nil, Corrupt(file, section, -1, fmt.Sprintf("crc32c %08x", want), fmt.Sprintf("%08x", got))
	}
	return body, nil
}

// Decoder reads little-endian fields from a byte slice. After the first failure all reads return
// zero values; Err returns that failure, a *CorruptError. So a caller may read several fields and
// check once.
type Decoder struct {
	file, section string
	buf           []byte
	off           int
	err           error
}

// NewDecoder returns a Decoder that reads buf. Errors name file and section, and offsets in buf.
func NewDecoder(buf []byte, file, section string) *Decoder {
	return &Decoder{file: file, section: section, buf: buf}
}

// Err is the first failure, nil if there was none.
func (d *Decoder) Err() error { return d.err }

// Len is the number of bytes not yet read.
func (d *Decoder) Len() int { return len(d.buf) - d.off }

// Rest is the bytes not yet read, not copied.
func (d *Decoder) Rest() []byte { return d.buf[d.off:] }

// Offset is the number of bytes read.
func (d *Decoder) Offset() int { return d.off }

// Fail records a failure at the current offset unless there was one before.
func (d *Decoder) Fail(want, got any) {
	if d.err == nil {
		d.err = Corrupt(d.file, d.section, int64(d.off), want, got)
	}
}

// Close returns the first failure. Bytes that were not read are a failure.
func (d *Decoder) Close() error {
	if d.err == nil && d.Len() != 0 {
		d.Fail("end", fmt.Sprintf("%d more bytes", d.Len()))
	}
	return d.err
}

// Bytes returns the next n bytes as a view of the slice.
func (d *Decoder) Bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > d.Len() {
		d.Fail(fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d left", d.Len()))
		return nil
	}
	b := d.buf[d.off : d.off+n : d.off+n]
	d.off += n
	return b
}

// U8 reads one byte.
func (d *Decoder) U8() uint8 {
	if b := d.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// U32 reads a little-endian uint32.
func (d *Decoder) U32() uint32 {
	if b := d.Bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads a little-endian uint64.
func (d *Decoder) U64() uint64 {
	if b := d.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint reads an unsigned LEB128 number. A longer encoding than necessary is a failure, so that
// each value has one encoding.
func (d *Decoder) Uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.buf[d.off:])
	if n <= 0 || (n > 1 && d.buf[d.off+n-1] == 0) {
		d.Fail("a varint", fmt.Sprintf("%x", d.buf[d.off:min(len(d.buf), d.off+10)]))
		return 0
	}
	d.off += n
	return v
}

// Varint reads a signed number in zigzag encoding.
func (d *Decoder) Varint() int64 {
	u := d.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Uint reads a varint of at most limit. Use it for counts and lengths, before memory is allocated
// or indexed by them.
func (d *Decoder) Uint(limit uint64) uint64 {
	start := d.off
	v := d.Uvarint()
	if d.err == nil && v > limit {
		d.off = start
		d.Fail(fmt.Sprintf("at most %d", limit), v)
		return 0
	}
	return v
}

// String reads a string: its length as a varint, then its bytes.
func (d *Decoder) String() string {
	return string(d.Bytes(int(d.Uint(uint64(d.Len())))))
}

// Magic reads a four-byte magic and a u32 version. A newer version is a *FormatError: the caller
// has checked that the bytes are those that were written. Any other version is a *CorruptError.
func (d *Decoder) Magic(magic string, version uint32) {
	if got := d.Bytes(4); d.err == nil && string(got) != magic {
		d.off -= 4
		d.Fail(fmt.Sprintf("magic %q", magic), fmt.Sprintf("%q", got))
	}
	if v := d.U32(); d.err == nil && v != version {
		d.off -= 4
		if v > version {
			d.err = &FormatError{Key: d.file, Found: int(v), Known: int(version)}
			return
		}
		d.Fail(fmt.Sprintf("%s version %d", magic, version), v)
	}
}

// AppendU32 appends v little-endian.
func AppendU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

// AppendU64 appends v little-endian.
func AppendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// AppendUvarint appends v as an unsigned LEB128 number.
func AppendUvarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendVarint appends v in zigzag encoding.
func AppendVarint(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendString appends the length of s as a varint, then the bytes of s.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendMagic appends a four-byte magic and a u32 version.
func AppendMagic(b []byte, magic string, version uint32) []byte {
	return AppendU32(append(b, magic...), version)
}
