package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// fields writes one of everything; read reads it back and reports the first failure.
func fields() []byte {
	b := codec.AppendMagic(nil, "TEST", 3)
	b = append(b, 0xab)
	b = codec.AppendU32(b, 0xdeadbeef)
	b = codec.AppendU64(b, math.MaxUint64-1)
	for _, v := range uvarints {
		b = codec.AppendUvarint(b, v)
	}
	for _, v := range varints {
		b = codec.AppendVarint(b, v)
	}
	b = codec.AppendString(b, "")
	b = codec.AppendString(b, "domain")
	b = codec.AppendUvarint(b, 9)
	return append(b, "raw"...)
}

var (
	uvarints = []uint64{0, 1, 127, 128, 16383, 16384, 1<<63 - 1, math.MaxUint64}
	varints  = []int64{0, -1, 1, -64, 64, math.MinInt64, math.MaxInt64}
)

func readFields(b []byte) (ok bool, err error) {
	d := codec.NewDecoder(b, "f", "fields")
	d.Magic("TEST", 3)
	ok = d.U8() == 0xab
	ok = d.U32() == 0xdeadbeef && ok
	ok = d.U64() == math.MaxUint64-1 && ok
	for _, v := range uvarints {
		ok = d.Uvarint() == v && ok
	}
	for _, v := range varints {
		ok = d.Varint() == v && ok
	}
	ok = d.String() == "" && ok
	ok = d.String() == "domain" && ok
	ok = d.Uint(9) == 9 && ok
	ok = string(d.Bytes(3)) == "raw" && ok
	return ok && d.Offset() == len(b) && d.Len() == 0, d.Close()
}

func TestDecoderReadsWhatWasAppended(t *testing.T) {
	if ok, err := readFields(fields()); !ok || err != nil {
		t.Fatalf("ok %v, %v", ok, err)
	}
}

func TestDecoderNoticesEveryTruncation(t *testing.T) {
	b := fields()
	for n := range b {
		if _, err := readFields(b[:n]); !isCorrupt(err) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := readFields(append(b, 0)); !isCorrupt(err) {
		t.Fatalf("one byte more: %v", err)
	}
}

func TestDecoderKeepsItsFirstFailure(t *testing.T) {
	d := codec.NewDecoder([]byte{1, 2, 3, 4, 5}, "f", "head")
	d.U8()
	if got := d.U64(); got != 0 {
		t.Errorf("U64 of four bytes is %d", got)
	}
	first := d.Err()
	if d.U8() != 0 || d.U32() != 0 || d.Uvarint() != 0 || d.String() != "" || d.Bytes(1) != nil {
		t.Error("a read after a failure gave something")
	}
	d.Fail("x", "y")
	if !errors.Is(d.Err(), first) || !errors.Is(d.Close(), first) {
		t.Errorf("the first failure %v became %v", first, d.Err())
	}
	var c *codec.CorruptError
	if !errors.As(first, &c) || c.File != "f" || c.Section != "head" || c.Offset != 1 {
		t.Errorf("failure %+v", c)
	}
}

func TestDecoderRefusesSecondFormsAndLargeNumbers(t *testing.T) {
	for name, b := range map[string][]byte{
		"padded varint":     {0x81, 0x00},
		"varint of 65 bits": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
		"endless varint":    bytes.Repeat([]byte{0x80}, 11),
		"nothing":           {},
	} {
		d := codec.NewDecoder(b, "f", "s")
		if v := d.Uvarint(); v != 0 || !isCorrupt(d.Err()) {
			t.Errorf("%s: %d, %v", name, v, d.Err())
		}
	}
	d := codec.NewDecoder(codec.AppendUvarint(nil, 10), "f", "s")
	if v := d.Uint(9); v != 0 || !isCorrupt(d.Err()) {
		t.Errorf("10 of at most 9: %d, %v", v, d.Err())
	}
	// A length above what is left, and above what an int holds, is refused before it is used.
	for _, n := range []uint64{4, math.MaxInt64, math.MaxUint64} {
		d := codec.NewDecoder(append(binary.AppendUvarint(nil, n), "abc"...), "f", "s")
		if s := d.String(); s != "" || !isCorrupt(d.Err()) {
			t.Errorf("string of %d bytes: %q, %v", n, s, d.Err())
		}
	}
	if b := codec.NewDecoder([]byte("abc"), "f", "s"); b.Bytes(-1) != nil || !isCorrupt(b.Err()) {
		t.Error("negative length: no error")
	}
	for name, b := range map[string][]byte{
		"other magic":   codec.AppendMagic(nil, "ABCE", 2),
		"older version": codec.AppendMagic(nil, "ABCD", 1),
	} {
		d := codec.NewDecoder(b, "f", "s")
		if d.Magic("ABCD", 2); !isCorrupt(d.Err()) {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
	newer := codec.NewDecoder(codec.AppendMagic(nil, "ABCD", 3), "f", "s")
	newer.Magic("ABCD", 2)
	var format *codec.FormatError
	if !errors.As(newer.Close(), &format) || *format != (codec.FormatError{Key: "f", Found: 3, Known: 2}) || isCorrupt(newer.Err()) {
		t.Errorf("newer version: %v", newer.Err())
	}
}

func TestDecoderBytesCannotGrowIntoTheRest(t *testing.T) {
	buf := []byte("abcdef")
	d := codec.NewDecoder(buf, "f", "s")
	b := append(d.Bytes(3), 'X')
	if string(buf) != "abcdef" || string(b) != "abcX" {
		t.Errorf("append to a field changed the next one: %s", buf)
	}
}

func TestCRC32C(t *testing.T) {
	// RFC 3720, B.4: 32 bytes of zeros, of ones, ascending.
	ones, ascending := bytes.Repeat([]byte{0xff}, 32), make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for _, c := range []struct {
		data []byte
		want uint32
	}{{make([]byte, 32), 0x8a9136aa}, {ones, 0x62a8ab43}, {ascending, 0x46dd794e}} {
		if got := codec.CRC32C(c.data); got != c.want {
			t.Errorf("crc of %x: %08x, want %08x", c.data, got, c.want)
		}
		if got := codec.UpdateCRC32C(codec.CRC32C(c.data[:11]), c.data[11:]); got != c.want {
			t.Errorf("crc in two pieces: %08x, want %08x", got, c.want)
		}
	}
	sealed := codec.AppendCRC32C([]byte("payload"))
	if body, err := codec.CheckCRC32C(sealed, "f", "s"); err != nil || string(body) != "payload" {
		t.Errorf("%q, %v", body, err)
	}
	for n := range sealed {
		if _, err := codec.CheckCRC32C(sealed[:n], "f", "s"); !isCorrupt(err) {
			t.Errorf("cut to %d: %v", n, err)
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := codec.CheckCRC32C(bad, "f", "s"); !isCorrupt(err) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(fields())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := readFields(b); err != nil && !isCorrupt(err) {
			t.Fatalf("%v is not a corruption", err)
		}
	})
}

func isCorrupt(err error) bool {
	var c *codec.CorruptError
	return errors.As(err, &c) && errors.Is(err, codec.ErrCorrupt)
}
