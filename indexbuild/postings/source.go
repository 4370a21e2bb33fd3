package postings

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// readBytes is how much of each part's domain frames is read at once.
const readBytes = 32 << 10

// Source yields the domains of one part of a postings object, in blocks. It opens a stream for the
// first block and closes it after the last. It is for one goroutine.
type Source struct {
	r    *Reader
	part int

	stream     io.ReadCloser
	buf        *bufio.Reader
	data       []byte // the frame in use, decoded
	frame, end int    // the next domain frame to be read, and the end of the part's frames

	// The rest of each column of the frame in use.
	shared, rest, counts, measures, text []byte
	measured                             bool // domains of the frame in use have measures

	used     int   // frames in use so far, including those of parts before
	domains  int64 // in used frames
	rowsLeft int64 // of the part
	rows     RowCursor
	rec      Record                             // scratch memory
	name     [segment.MaxDomain + nameCopy]byte // the previous domain
	length   int                                // of it
}

// Source returns a Source of part n. The tuples of its records have this file number.
func (r *Reader) Source(n int, file uint32) *Source {
	p := &r.dir.parts[n]
	s := &Source{r: r, part: n, rows: NewRowCursor(file, p.Groups), rowsLeft: p.Rows}
	for i := range n {
		s.frame += r.dir.parts[i].domainFrames
	}
	s.used, s.end = s.frame, s.frame+p.domainFrames
	return s
}

// Close closes the stream and releases the memory of frames. Load closes at the end of the part.
func (s *Source) Close() {
	s.data, s.shared, s.rest, s.counts, s.measures, s.text = nil, nil, nil, nil, nil, nil
	if s.stream != nil {
		s.stream.Close()
		s.stream, s.buf = nil, nil
	}
}

// Load returns the next block, with at least one domain, in the memory of buf if that is large
// enough. It returns nil at the end of the part.
func (s *Source) Load(ctx context.Context, buf []byte) ([]byte, error) {
	block, err := s.load(ctx, slices.Grow(buf[:0], blockBytes+BlockSlack))
	if block == nil {
		s.Close()
	}
	return block, Damaged(s.r.batch, err)
}

func (s *Source) load(ctx context.Context, block []byte) ([]byte, error) {
	for len(block) < blockBytes {
		if len(s.shared) == 0 {
			if s.data != nil {
				if err := s.endFrame(); err != nil {
					return nil, err
				}
			}
			more, err := s.readFrame(ctx)
			if err != nil {
				return nil, err
			}
			if !more {
				break
			}
			if err := s.splitFrame(s.data); err != nil {
				return nil, err
			}
		}
		var err error
		if block, err = s.appendDomains(block); err != nil {
			return nil, err
		}
	}
	if len(block) == 0 {
		return nil, nil
	}
	return append(block, make([]byte, BlockSlack)...), nil
}

// corrupt returns an error about the frame in use.
func (s *Source) corrupt(want, got any) error {
	return codec.Corrupt(s.r.key, fmt.Sprintf("frame %d", s.used-1), -1, want, got)
}

// packedFrames keeps memory for compressed frames that are larger than a source's read buffer, as
// frames with sizes and times are. There are hundreds of sources, so they do not each have it.
var packedFrames = sync.Pool{New: func() any { return new([]byte) }}

// readFrame reads and decodes the next domain frame. It returns false after the last.
func (s *Source) readFrame(ctx context.Context) (more bool, err error) {
	r := s.r
	if s.frame == s.end {
		if p := &r.dir.parts[s.part]; p.domainFrames == 0 && (p.Domains > 0 || p.Rows > 0) {
			return false, codec.Corrupt(r.key, "directory", -1,
				fmt.Sprintf("frames of %d domains, %d rows", p.Domains, p.Rows), "none")
		}
		return false, nil
	}
	if s.stream == nil {
		off, n := r.frames.Range(s.frame, s.end)
		if s.stream, err = r.store.Open(ctx, r.key, off, n); err != nil {
			return false, err
		}
		s.buf = bufio.NewReaderSize(s.stream, int(min(n, readBytes)))
	}
	_, size := r.frames.Range(s.frame, s.frame+1)
	n := int(size)
	packed, err := s.buf.Peek(min(n, s.buf.Size()))
	if err == nil && len(packed) < n {
		whole := packedFrames.Get().(*[]byte)
		defer packedFrames.Put(whole)
		*whole = slices.Grow((*whole)[:0], n)[:n]
		packed = *whole
		_, err = io.ReadFull(s.buf, packed)
		n = 0
	}
	if err != nil {
		return false, fmt.Errorf("read frame %d of %s: %w", s.frame, r.key, err)
	}
	data, err := r.frames.DecodeInto(s.frame, packed, s.data)
	if err != nil {
		return false, err
	}
	if at := len(packed) - len(data); at >= 0 && &packed[at] == &data[0] {
		data = append(s.data[:0], data...) // a stored frame is a view of packed
	}
	if _, err := s.buf.Discard(n); err != nil {
		return false, err
	}
	s.data = data
	s.frame++
	return true, nil
}

// splitFrame splits a frame into its columns.
func (s *Source) splitFrame(data []byte) error {
	s.used++
	if len(data) < domainFrameHeader {
		return s.corrupt(fmt.Sprintf("at least %d bytes", domainFrameHeader), len(data))
	}
	le := binary.LittleEndian
	domains, rows, totals := int64(le.Uint32(data)), int64(le.Uint32(data[4:])), int64(le.Uint32(data[8:]))
	data = data[domainFrameHeader:]
	if text := int64(len(data)) - 2*domains - rows - totals; domains < 1 || text < domains {
		return s.corrupt(fmt.Sprintf("columns of %d bytes", len(data)),
			fmt.Sprintf("%d domains, %d bytes of rows, %d of totals", domains, rows, totals))
	}
	s.shared, s.rest, data = data[:domains], data[domains:2*domains], data[2*domains:]
	s.counts, s.measures, s.text = data[:rows], data[rows:rows+totals], data[rows+totals:]
	s.measured = totals > 0
	s.domains += domains
	if s.shared[0] != 0 {
		return s.corrupt("a whole domain", fmt.Sprintf("one that shares %d bytes", s.shared[0]))
	}
	return nil
}

// appendDomains appends domains of the frame in use to a block until the block is full or the frame
// ends.
func (s *Source) appendDomains(block []byte) ([]byte, error) {
	for {
		block = s.appendPlainDomains(block)
		if len(block) >= blockBytes || len(s.shared) == 0 {
			return block, nil
		}
		var err error
		if block, err = s.appendDomain(block); err != nil {
			return nil, err
		}
	}
}

// nameCopy is how many bytes of a domain are copied at once.
const nameCopy = 32

// appendPlainDomains appends domains as long as they are like most: short, not among the last of
// the frame, with a plain record. It stops at any other domain, valid or not, for appendDomain.
func (s *Source) appendPlainDomains(block []byte) []byte {
	const (
		maxRest = nameCopy / 2 // bytes of a domain that are not shared
		entry   = blockHeader + nameCopy + PlainBytes
	)
	if s.measured || len(block) >= blockBytes {
		return block
	}
	block = slices.Grow(block, blockBytes+entry-len(block))
	le := binary.LittleEndian
	shared, rest, counts, text := s.shared, s.rest, s.counts, s.text
	length, left, cursor := s.length, s.rowsLeft, &s.rows
	row, end := cursor.row, int64(0)
	if cursor.group < len(cursor.groups) && cursor.group < otherRecord {
		end = min(cursor.groups[cursor.group], math.MaxUint32) // rows below have plain records
	}
	file := uint64(cursor.file) | uint64(uint32(cursor.group))<<32
	i := 0
	for ; i < len(shared) && i < len(rest) && i < len(counts) && len(text) >= maxRest && len(block) < blockBytes; i++ {
		have, n, count := int(shared[i]), int(rest[i]), int64(counts[i])
		name := (*[nameCopy]byte)(s.name[:])
		if uint(n-1) >= maxRest || have > length || have+n > nameCopy || have < length && text[0] <= name[have] ||
			uint64(count-1) >= 0x7f || row+count >= end {
			break
		}
		*(*[maxRest]byte)(s.name[have:]) = *(*[maxRest]byte)(text)
		text = text[n:]
		length = have + n

		from := len(block)
		p := (*[entry]byte)(block[from : from+entry])
		le.PutUint64(p[:], OffsetCode(s.name[:], length, have))
		le.PutUint32(p[8:], PlainBytes)
		p[12] = byte(length)
		*(*[maxRest]byte)(p[blockHeader:]) = *(*[maxRest]byte)(name[:])
		*(*[maxRest]byte)(p[blockHeader+maxRest:]) = *(*[maxRest]byte)(name[maxRest:])
		le.PutUint64(p[blockHeader+length:], file)
		le.PutUint64(p[blockHeader+length+8:], uint64(uint32(row))|uint64(count)<<32)
		block = block[:from+blockHeader+length+PlainBytes]
		row += count
		left -= count
	}
	s.shared, s.rest, s.counts, s.text = shared[i:], rest[i:], counts[i:], text
	s.length, s.rowsLeft, cursor.row = length, left, row
	return block
}

// appendDomain appends the next domain to a block.
func (s *Source) appendDomain(block []byte) ([]byte, error) {
	shared, n := int(s.shared[0]), int(s.rest[0])
	text := s.text[:min(n, len(s.text))]
	before := s.name[:s.length]
	same := shared // the longest common prefix
	for same < s.length && same-shared < len(text) && text[same-shared] == before[same] {
		same++
	}
	if shared > s.length || n > len(text) || shared+n > segment.MaxDomain ||
		same-shared == n || same < s.length && text[same-shared] < before[same] {
		return nil, s.corrupt(fmt.Sprintf("a domain of at most %d bytes after %q", segment.MaxDomain, before),
			fmt.Sprintf("%d of its bytes and %q", shared, text))
	}
	s.length = shared + copy(s.name[shared:], text)
	s.shared, s.rest, s.text = s.shared[1:], s.rest[1:], s.text[n:]

	le := binary.LittleEndian
	domain := s.name[:s.length]
	block = le.AppendUint64(block, OffsetCode(s.name[:], len(domain), same))
	start := len(block)
	block = append(append(le.AppendUint32(block, 0), byte(len(domain))), domain...)
	records := len(block)
	block, err := s.appendRecord(block)
	if err != nil {
		return nil, err
	}
	if uint64(len(block)-records) > math.MaxUint32 {
		return nil, fmt.Errorf("domain %q has 4 GiB of records in %s: at most 4 GiB less one byte are supported",
			domain, s.r.key)
	}
	le.PutUint32(block[start:], uint32(len(block)-records))
	return block, nil
}

// appendRecord appends the record of the next domain.
func (s *Source) appendRecord(out []byte) ([]byte, error) {
	v, n := uvarint(s.counts, 0)
	if n <= 0 {
		return nil, s.corrupt("rows", fmt.Sprintf("%x", s.counts[:min(len(s.counts), 10)]))
	}
	s.counts = s.counts[n:]
	if v < 1 || v > uint64(s.rowsLeft) {
		return nil, s.corrupt(fmt.Sprintf("1 to %d rows", s.rowsLeft), v)
	}
	s.rowsLeft -= int64(v)
	t := segment.Totals{Rows: int64(v)}
	if s.measured {
		if t, n = readMeasuresFast(s.measures, t.Rows); n == 0 {
			d := codec.NewDecoder(s.measures, s.r.key, fmt.Sprintf("totals in frame %d", s.used-1))
			t = readMeasures(d, int64(v))
			if err := d.Err(); err != nil {
				return nil, err
			}
			n = d.Offset()
		}
		s.measures = s.measures[n:]
	}
	s.rec.Totals, s.rec.Tuples = t, s.rows.AppendTuples(s.rec.Tuples[:0], t.Rows)
	return s.rec.Append(out), nil
}

// endFrame checks that all columns have ended, and after the last frame that it has seen the
// domains and rows of the directory.
func (s *Source) endFrame() error {
	if len(s.text)+len(s.counts)+len(s.measures) > 0 {
		return s.corrupt("columns of as many domains", fmt.Sprintf("%d bytes of text, %d of rows, %d of totals more",
			len(s.text), len(s.counts), len(s.measures)))
	}
	if p := &s.r.dir.parts[s.part]; s.used == s.end && (s.domains != p.Domains || s.rowsLeft != 0) {
		return codec.Corrupt(s.r.key, "directory", -1,
			fmt.Sprintf("%d domains, %d rows of %s", p.Domains, p.Rows, p.Key),
			fmt.Sprintf("%d, %d", s.domains, p.Rows-s.rowsLeft))
	}
	return nil
}
