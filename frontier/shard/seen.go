package shard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"

	"github.com/edsrzf/mmap-go"

	"github.com/urlake/urlake/lake/codec"
)

// State is what the frontier knows of a URL.
type State struct {
	// Seq is the number of the URL's entry. Entries of it with other numbers do not count any more.
	Seq uint64
	// Time is when the URL was fetched last, in seconds since 1970, 0 if never, and Created when it
	// was added.
	Time, Created uint32
	// Status is the HTTP status of that fetch, or 0.
	Status uint16
	// Settled says that the URL is not waiting any more, Later that it is due later.
	Settled, Later bool
}

// packed is a state in 16 bytes: number, status and flags; time and created.
type packed [2]uint64

// maxSeq is the highest number of an entry.
const maxSeq = 1<<46 - 1

func (s State) pack() packed {
	v := s.Seq<<18 | uint64(s.Status)<<2
	if s.Settled {
		v |= 1
	}
	if s.Later {
		v |= 2
	}
	return packed{v, uint64(s.Time)<<32 | uint64(s.Created)}
}

func (p packed) unpack() State {
	return State{
		Seq: p[0] >> 18, Status: uint16(p[0] >> 2), Settled: p[0]&1 != 0, Later: p[0]&2 != 0,
		Time: uint32(p[1] >> 32), Created: uint32(p[1]),
	}
}

// The states of all URLs are in memory, in a batch, or in files sorted by id, of which the newest
// that has a URL has its state. A file is merged with the newer ones as soon as these are as large
// together, so there are about log2(n) of them.

const (
	seenMagic   = "UFSN"
	seenVersion = 2
	seenElement = elementSize
	seenHeader  = len(seenMagic) + 4
	seenTrailer = 8 + 4 + 4
	// checkAtOnce is how many bytes of a file are checked at once.
	checkAtOnce = 1 << 20
	// filterBits are the bits of the filter for each URL of a file: of a hundred URLs that a file
	// has not, one is looked up in it.
	filterBits = 10
)

// seenFile is an open file of ids and states.
type seenFile struct {
	number uint64
	name   string
	data   mmap.MMap
	ids    []byte
	filter []uint64
	synced bool // it is on the disk
}

// elementState returns the state of an element of a file.
func elementState(e []byte) packed {
	return packed{binary.LittleEndian.Uint64(e[16:]), binary.LittleEndian.Uint64(e[24:])}
}

// filterMask maps an id to one of n words of a filter, and to four bits of it. The word depends on
// the upper bits of the URL's hash and the bits on its lowest.
func filterMask(id []byte, n int) (word int, mask uint64) {
	hi, _ := bits.Mul64(binary.BigEndian.Uint64(id), uint64(n))
	lo := binary.BigEndian.Uint64(id[1:])
	return int(hi), 1<<(lo&63) | 1<<(lo>>6&63) | 1<<(lo>>12&63) | 1<<(lo>>18&63)
}

func (f *seenFile) len() int { return len(f.ids) / seenElement }

// mayHave says that the file has an id, or one in a hundred that it has not.
func (f *seenFile) mayHave(id *URLID) bool {
	word, mask := filterMask(id[:], len(f.filter))
	return f.filter[word]&mask == mask
}

// get returns the state of an id that the file may have.
func (f *seenFile) get(id URLID) (p packed, ok bool) {
	i, ok := findID(f.ids, seenElement, id)
	if !ok {
		return p, false
	}
	return elementState(f.ids[i*seenElement:]), true
}

// writeSeen writes a file of the elements that each yields in order.
func writeSeen(name string, pacer *pacer, each func(yield func([]byte) error) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(pacer.Writer(f), writeAtOnce)
	n, crc := uint64(0), uint32(0)
	_, err = w.Write(codec.AppendMagic(nil, seenMagic, seenVersion))
	if err == nil {
		err = each(func(e []byte) error {
			n += uint64(len(e) / seenElement)
			crc = codec.UpdateCRC32C(crc, e)
			_, err := w.Write(e)
			return err
		})
	}
	if err == nil {
		_, err = w.Write(codec.AppendCRC32C(codec.AppendU32(codec.AppendU64(nil, n), crc)))
	}
	if err == nil {
		err = w.Flush()
	}
	return errors.Join(err, f.Close())
}

// openSeen opens a file, checks it, and makes its filter.
func openSeen(name string, number uint64, pacer *pacer) (*seenFile, error) {
	data, err := mapFile(name)
	if err != nil {
		return nil, err
	}
	f := &seenFile{number: number, name: name, data: data}
	if err := f.parse(pacer); err != nil {
		return nil, errors.Join(err, data.Unmap())
	}
	return f, nil
}

func (f *seenFile) parse(pacer *pacer) error {
	if len(f.data) < seenHeader+seenTrailer {
		return codec.Corrupt(f.name, "file", 0, "a header and a trailer", fmt.Sprintf("%d bytes", len(f.data)))
	}
	d := codec.NewDecoder(f.data[:seenHeader], f.name, "header")
	d.Magic(seenMagic, seenVersion)
	if err := d.Err(); err != nil {
		return err
	}
	tail, err := codec.CheckCRC32C(f.data[len(f.data)-seenTrailer:], f.name, "trailer")
	if err != nil {
		return err
	}
	d = codec.NewDecoder(tail, f.name, "trailer")
	n, sum := d.U64(), d.U32()
	f.ids = f.data[seenHeader : len(f.data)-seenTrailer]
	if uint64(len(f.ids)) != n*seenElement {
		return codec.Corrupt(f.name, "trailer", int64(len(f.data)-seenTrailer), fmt.Sprintf("%d URLs", n), fmt.Sprintf("%d bytes", len(f.ids)))
	}
	got := uint32(0)
	for piece := range slices.Chunk(f.ids, checkAtOnce) {
		got = codec.UpdateCRC32C(got, piece)
		pacer.Look()
	}
	if got != sum {
		return codec.Corrupt(f.name, "ids", int64(seenHeader), fmt.Sprintf("checksum %08x", sum), fmt.Sprintf("%08x", got))
	}
	f.filter = make([]uint64, max(1, (int(n)*filterBits+63)/64))
	for e := range slices.Chunk(f.ids, seenElement) {
		pacer.Step()
		word, mask := filterMask(e, len(f.filter))
		f.filter[word] |= mask
	}
	return nil
}

func (f *seenFile) close() error { return f.data.Unmap() }

// mergeSeen yields the elements of files, the oldest first, in order. Of several with one id it
// yields that of the newest file.
func mergeSeen(files []*seenFile, yield func([]byte) error) error {
	at := make([]int, len(files))
	for {
		var least []byte
		for i, f := range files {
			if at[i] < f.len() {
				// The last of equal ones is the newest.
				if e := f.ids[at[i]*seenElement:]; least == nil || bytes.Compare(e[:16], least[:16]) <= 0 {
					least = e[:seenElement]
				}
			}
		}
		if least == nil {
			return nil
		}
		if err := yield(least); err != nil {
			return err
		}
		for i, f := range files {
			if at[i] < f.len() && bytes.Equal(f.ids[at[i]*seenElement:at[i]*seenElement+16], least[:16]) {
				at[i]++
			}
		}
	}
}

// unitedSeen is a file made of the newest files.
type unitedSeen struct {
	from []*seenFile
	into *seenFile
}

func (s *Shard) mergeSeen(all bool) (*unitedSeen, error) {
	s.mu.Lock()
	files := s.seen
	first, size := len(files), s.batch.seen.Len()
	for first > 0 && files[first-1].len() <= seenFactor*size {
		first--
		size += files[first].len()
	}
	if all {
		first = 0
	}
	u := &unitedSeen{from: slices.Clone(files[first:])}
	marks := marksByTag(s.marks)
	s.files++ // with the lock: what is deleted from now on may be in the file
	number := s.files
	s.mu.Unlock()
	if !all && len(u.from) < 2 || len(u.from) == 0 {
		return nil, nil
	}
	name := s.file(number, seenSuffix)
	err := writeSeen(name, s.pacer, func(yield func([]byte) error) error {
		return mergeSeen(u.from, func(e []byte) error {
			// Deleted URLs are dropped. What an older file has of them was deleted as well.
			if st := elementState(e).unpack(); len(marks) > 0 && marks[tagOf(e[:16])].deletes(&st) {
				return nil
			}
			return yield(e)
		})
	})
	if err != nil {
		return nil, err
	}
	u.into, err = openSeen(name, number, s.pacer)
	return u, err
}
