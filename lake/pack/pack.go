// Package pack keeps the small objects of many batches in one object, a pack. A small batch has a
// record, postings and sometimes a list of rejects. As objects of their own, ten thousand small
// batches would be tens of thousands of requests for whoever builds an index from them.
//
// A pack holds whole objects under the keys that they would have by themselves. So nothing that
// names an object knows about packs: records name their postings by the same keys, and digests and
// the ids of segments are the same. Only who lists batches (the order of ingests, versions, plans)
// says in which pack the objects of a batch are, and a View reads them from there.
//
// # Write order
//
// A Collector keeps the objects of one batch, while an ingest writes its parts. Write then writes
// the packs of many batches. The pack is written after the parts and before anything names the
// batch, so the order of writes of the lake holds. Packs are named by a digest of their content:
// the same batches, collected in any order, give the same packs, and writing them again changes
// nothing.
//
// # Damage
//
// Each object in a pack has its own checksum, and so has the directory. Damage to one object of a
// pack is damage to one batch. An object that the pack has lost can be written again under its own
// key: a View looks there if the pack is damaged or missing. A *codec.CorruptError names the lost
// object as File, so that the object's own remedy applies, and the pack in Section.
//
// # Garbage
//
// A pack is garbage when no registered ingest and no version names it. Package gc deletes it then.
package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// Prefix is the folder of packs.
	Prefix = "batches/packs/"
	suffix = ".pack"

	magic = "PACK"
	// format is the version of the layout.
	format = 1

	// headerSize is the size of everything before the directory: magic, format, and the size of the
	// directory with its CRC.
	headerSize = 12

	// MaxBatch is the size in bytes of a batch's objects up to which they go into a pack.
	MaxBatch = 64 << 10
	// targetBytes is the size at which a pack is full. Readers read whole packs, since a request of
	// that size takes an object store hardly longer than a small one.
	targetBytes = 1 << 20
	// maxBytes is what a reader accepts.
	maxBytes = 8 << 20
)

var nameForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Key is the key of the pack with that name.
func Key(name string) string { return Prefix + name + suffix }

// ValidName reports whether name has the form of a pack's name: 32 hex digits.
func ValidName(name string) bool { return nameForm.MatchString(name) }

// NameOf returns the name of the pack at key, and whether key is that of a pack.
func NameOf(key string) (name string, ok bool) {
	name, ok = strings.CutPrefix(key, Prefix)
	if ok {
		name, ok = strings.CutSuffix(name, suffix)
	}
	return name, ok && ValidName(name)
}

// digest is the 128-bit xxh3 of a pack, its name.
func digest(data []byte) string {
	sum := xxh3.Hash128(data).Bytes()
	return hex.EncodeToString(sum[:])
}

// object is an object in a pack.
type object struct {
	key  string
	data []byte
}

// encode returns the pack of objects, which are sorted by key.
func encode(objects []object) []byte {
	dir := binary.AppendUvarint(nil, uint64(len(objects)))
	last, size := "", 0
	for _, o := range objects {
		shared := codec.CommonPrefix([]byte(last), []byte(o.key))
		dir = binary.AppendUvarint(dir, uint64(shared))
		dir = binary.AppendUvarint(dir, uint64(len(o.key)-shared))
		dir = append(dir, o.key[shared:]...)
		dir = binary.AppendUvarint(dir, uint64(len(o.data)))
		dir = binary.LittleEndian.AppendUint64(dir, xxhash.Sum64(o.data))
		last = o.key
		size += len(o.data)
	}
	dir = codec.AppendCRC32C(dir)
	out := make([]byte, 0, headerSize+len(dir)+size)
	out = append(out, magic...)
	out = binary.LittleEndian.AppendUint32(out, format)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(dir)))
	out = append(out, dir...)
	for _, o := range objects {
		out = append(out, o.data...)
	}
	return out
}

// Entry is an object in a pack.
type Entry struct {
	Key  string
	Size int64

	sum uint64
	off int64
}

// Pack is a pack that was read. It may be used by several goroutines.
type Pack struct {
	key     string
	data    []byte
	entries []Entry // by key
}

// Decode reads the directory of a pack, which was read from key. The error is a *codec.CorruptError
// if the directory is damaged. Damage to an object is found by Object. The pack keeps data.
func Decode(data []byte, key string) (*Pack, error) {
	d := codec.NewDecoder(data, key, "header")
	if got := string(d.Bytes(len(magic))); d.Err() == nil && got != magic {
		return nil, codec.Corrupt(key, "header", 0, fmt.Sprintf("magic %q", magic), fmt.Sprintf("%q", got))
	}
	if got := d.U32(); d.Err() == nil && got != format {
		// The checksum does not cover the format, but the name does.
		if got > format && key == Key(digest(data)) {
			return nil, &codec.FormatError{Key: key, Found: int(got), Known: format}
		}
		return nil, codec.Corrupt(key, "header", 4, fmt.Sprintf("format %d", format), got)
	}
	size := d.U32()
	if d.Err() == nil && int64(size) > int64(d.Len()) {
		d.Fail(fmt.Sprintf("a directory of at most %d bytes", d.Len()), size)
	}
	sealed := d.Bytes(int(size))
	if err := d.Err(); err != nil {
		return nil, err
	}
	dir, err := codec.CheckCRC32C(sealed, key, "directory")
	if err != nil {
		return nil, err
	}
	p := &Pack{key: key, data: data}
	if err := p.decodeDirectory(dir, int64(headerSize+len(sealed))); err != nil {
		return nil, err
	}
	return p, nil
}

// decodeDirectory decodes the directory. The first object is at off.
func (p *Pack) decodeDirectory(dir []byte, off int64) error {
	d := codec.NewDecoder(dir, p.key, "directory")
	n := d.Uvarint()
	last := ""
	for range n {
		shared, length := d.Uvarint(), d.Uvarint()
		if d.Err() == nil && (shared > uint64(len(last)) || length > blob.MaxKey) {
			d.Fail("a key", fmt.Sprintf("%d bytes of %q and %d more", shared, last, length))
		}
		rest := d.Bytes(int(length))
		size := d.Uvarint()
		if d.Err() == nil && size > maxBytes {
			d.Fail(fmt.Sprintf("at most %d bytes", maxBytes), size)
		}
		sum := d.U64()
		if d.Err() != nil {
			return d.Err()
		}
		key := last[:shared] + string(rest)
		if key <= last || blob.CheckKey(key) != nil {
			return codec.Corrupt(p.key, "directory", -1, fmt.Sprintf("a key after %q", last), fmt.Sprintf("%q", key))
		}
		p.entries = append(p.entries, Entry{Key: key, Size: int64(size), sum: sum, off: off})
		off += int64(size)
		last = key
	}
	return d.Close()
}

// Entries returns the objects in the pack, by key.
func (p *Pack) Entries() []Entry { return p.entries }

// find returns the entry of an object.
func (p *Pack) find(key string) (*Entry, bool) {
	i, ok := slices.BinarySearchFunc(p.entries, key, func(e Entry, key string) int { return strings.Compare(e.Key, key) })
	if !ok {
		return nil, false
	}
	return &p.entries[i], true
}

// Object returns the bytes of an object, which are part of the pack's and must not be changed. If
// the pack does not have the key, ok is false. Bytes that are not what was written are a
// *codec.CorruptError about the object.
func (p *Pack) Object(key string) (data []byte, ok bool, err error) {
	e, ok := p.find(key)
	if !ok {
		return nil, false, nil
	}
	data, err = p.read(e)
	return data, true, err
}

func (p *Pack) read(e *Entry) ([]byte, error) {
	section := "bytes in " + p.key
	if size := int64(len(p.data)); e.off+e.Size > size {
		return nil, codec.Corrupt(e.Key, section, e.off, fmt.Sprintf("%d bytes", e.Size), max(0, size-e.off))
	}
	data := p.data[e.off : e.off+e.Size : e.off+e.Size]
	if got := xxhash.Sum64(data); got != e.sum {
		return nil, codec.Corrupt(e.Key, section, e.off, fmt.Sprintf("xxh64 %016x", e.sum), fmt.Sprintf("%016x", got))
	}
	return data, nil
}

// All reads the packs of a lake, in the order of their keys, and yields what is intact in them: the
// keys of objects and their bytes. Damaged packs and objects are yielded as *codec.CorruptErrors,
// after which it goes on; any other error is the last thing that it yields.
func All(ctx context.Context, store blob.Store) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for info, err := range store.List(ctx, Prefix) {
			name, ok := NameOf(info.Key)
			if err == nil && !ok {
				continue
			}
			var data []byte
			if err == nil {
				data, _, err = store.Get(ctx, info.Key)
			}
			if err != nil {
				yield(Object{}, err)
				return
			}
			if !yieldObjects(data, name, yield) {
				return
			}
		}
	}
}

// Object is an object in a pack, with the pack's name.
type Object struct {
	Pack, Key string
	Data      []byte
}

func yieldObjects(data []byte, name string, yield func(Object, error) bool) bool {
	p, err := Decode(data, Key(name))
	if err != nil {
		return yield(Object{Pack: name}, err)
	}
	for i := range p.entries {
		e := &p.entries[i]
		data, err := p.read(e)
		if !yield(Object{Pack: name, Key: e.Key, Data: bytes.Clone(data)}, err) {
			return false
		}
	}
	return true
}
