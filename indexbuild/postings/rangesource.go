package postings

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// Share is what a RangeSource has read of a part.
type Share struct {
	Domains int64
	Rows    int64
	// First is the number of the first of these rows, as the source has numbered them.
	First int64
}

// RangeSource yields the domains of one part that are in a range, in blocks. A search finds the
// first frame to read. The rows before are not known then, so the source numbers rows by itself, as
// if the part had one row group: row Share().First is the first row of the range. A Relocator finds
// out where rows are once all ranges are read. It is for one goroutine.
type RangeSource struct {
	src         *Source
	from, until []byte
	guess       float64 // fraction of the part's domains that may be below from
	first       int     // frame of the part
	start       int     // frame from which the source reads
	state       rangeState
	share       Share
}

// rangeState is how far a RangeSource has come.
type rangeState uint8

const (
	guessed rangeState = iota // reads from a frame that may be after the first of the range
	before                    // reads from a frame before the range, maybe far before
	near                      // reads from the last frame before the range
	inside
	ended
)

// maxSkipped is how many frames are skipped before a search for the range is faster.
const maxSkipped = 3

// RangeSource returns a RangeSource of part n, for the domains from the first one on and below the
// second. Empty bounds are those of the part. guess is the fraction of the part's domains that may
// be below the range; a good guess spares a search. The tuples of the records have this file
// number.
func (r *Reader) RangeSource(n int, file uint32, from, until []byte, guess float64) *RangeSource {
	s := r.Source(n, file)
	s.partial = true
	s.rows = NewRowCursor(file, []int64{math.MaxInt64})
	out := &RangeSource{src: s, from: from, until: until, guess: guess, first: s.frame, start: s.frame}
	if len(from) == 0 {
		out.state = near
	} else if at := s.frame + int(guess*float64(s.end-s.frame)) - 1; at > s.frame {
		out.move(at)
	}
	return out
}

// Share returns what was read of the part. It is complete after the last block.
func (s *RangeSource) Share() Share { return s.share }

// Close closes the stream and releases memory. Load closes at the end of the range.
func (s *RangeSource) Close() { s.src.Close() }

// Load returns the next block as Source.Load does.
func (s *RangeSource) Load(ctx context.Context, buf []byte) ([]byte, error) {
	block, err := s.load(ctx, buf)
	if block == nil {
		s.src.Close()
	}
	return block, Damaged(s.src.r.batch, err)
}

func (s *RangeSource) load(ctx context.Context, buf []byte) ([]byte, error) {
	for s.state != ended {
		decoded := s.src.decoded()
		block, err := s.src.load(ctx, slices.Grow(buf[:0], blockBytes+BlockSlack))
		if err != nil || block == nil {
			s.state = ended
			return nil, err
		}
		if s.state < inside {
			enters, err := s.enters(ctx, block)
			if err != nil {
				return nil, err
			}
			if !enters {
				buf = block
				continue
			}
		}
		rows, domains := s.src.rows.row, s.src.decoded()-decoded
		start := 0
		if s.state != inside {
			s.state = inside
			n, at := findDomain(block, s.from)
			if s.share.First, err = firstRow(block[at:]); err != nil {
				return nil, err
			}
			// The code of a list's first domain is relative to no domain.
			text, length := BlockDomain(block[at:]).Text()
			binary.LittleEndian.PutUint64(block[at:], OffsetCode(text, length, 0))
			start, domains = at, domains-n
		}
		end := len(block) - BlockSlack
		if len(s.until) > 0 && bytes.Compare(s.last(), s.until) >= 0 {
			s.state = ended
			n, at := findDomain(block[start:], s.until)
			end, domains = start+at, n
			if rows, err = firstRow(block[end:]); err != nil {
				return nil, err
			}
		}
		s.share.Domains += domains
		s.share.Rows = rows - s.share.First
		if end > start {
			return block[start : end+BlockSlack], nil
		}
	}
	return nil, nil
}

// last returns the last domain that was decoded.
func (s *RangeSource) last() []byte { return s.src.name[:s.src.length] }

// enters reports whether a block has domains of the range or behind it. If the source was to read
// from another frame, enters moves it there, and the block does not count.
func (s *RangeSource) enters(ctx context.Context, block []byte) (bool, error) {
	if s.state == guessed {
		text, n := BlockDomain(block).Text()
		if s.start > s.first && bytes.Compare(text[:n], s.from) > 0 {
			return false, s.search(ctx, s.first, s.start)
		}
		s.state = before
	}
	if bytes.Compare(s.last(), s.from) >= 0 {
		return true, nil
	}
	if s.state == before && s.src.frame-s.start > maxSkipped {
		return false, s.search(ctx, s.src.frame-1, s.src.end)
	}
	return false, nil
}

// search moves to the last of the frames [lo, hi) whose first domain is not above the range, or to
// lo.
func (s *RangeSource) search(ctx context.Context, lo, hi int) error {
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		first, err := s.src.r.domainOf(ctx, mid, 0)
		if err != nil {
			return err
		}
		if bytes.Compare(first, s.from) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	s.move(lo)
	s.state = near
	return nil
}

// move makes a frame the next one to be read.
func (s *RangeSource) move(frame int) {
	s.src.Close()
	s.src.frame, s.src.used, s.src.length, s.start = frame, frame, 0, frame
	s.src.rowsLeft = s.src.r.dir.parts[s.src.part].Rows // rows of frames that were skipped may come again
}

// decoded returns how many domains of the frames in use have become blocks.
func (s *Source) decoded() int64 { return s.domains - int64(len(s.shared)) }

// findDomain returns the number and the offset of the first domain of a block that is not below
// bound. The last domain of the block is not below it.
func findDomain(block, bound []byte) (n int64, at int) {
	for {
		d := BlockDomain(block[at:])
		if text, length := d.Text(); bytes.Compare(text[:length], bound) >= 0 {
			return n, at
		}
		n++
		at += d.Len()
	}
}

// firstRow returns the number of the first row of the domain that block starts with.
func firstRow(block []byte) (int64, error) {
	var r Record
	records := BlockDomain(block).Records()
	if err := r.Decode(records[:RecordLen(records)]); err != nil {
		return 0, err
	}
	return r.Tuples[0].FirstRow, nil
}

// Sample returns a domain of part n that about i of the part's domains precede. It reads one frame.
func (r *Reader) Sample(ctx context.Context, n int, i int64) ([]byte, error) {
	p := &r.dir.parts[n]
	if i < 0 || i >= p.Domains || p.domainFrames == 0 {
		return nil, fmt.Errorf("sample domain %d of %d of %s", i, p.Domains, p.Key)
	}
	frame := 0
	for i := range n {
		frame += r.dir.parts[i].domainFrames
	}
	at := float64(i) / float64(p.Domains) * float64(p.domainFrames)
	whole := min(int(at), p.domainFrames-1)
	domain, err := r.domainOf(ctx, frame+whole, at-float64(whole))
	return domain, Damaged(r.batch, err)
}

// domainOf returns the domain of a frame before which there is this fraction of the frame's
// domains.
func (r *Reader) domainOf(ctx context.Context, frame int, fraction float64) ([]byte, error) {
	data, err := r.frames.Read(ctx, r.read, frame, frame+1)
	if err != nil {
		return nil, err
	}
	s := Source{r: r, used: frame}
	if err := s.splitFrame(data[0]); err != nil {
		return nil, err
	}
	var name []byte
	for i := range min(int(fraction*float64(len(s.shared))), len(s.shared)-1) + 1 {
		shared, n := int(s.shared[i]), int(s.rest[i])
		if shared > len(name) || n > len(s.text) {
			return nil, s.corrupt(fmt.Sprintf("%d bytes after %q", n, name), fmt.Sprintf("%d of its bytes and %q", shared, s.text))
		}
		name = append(name[:shared], s.text[:n]...)
		s.text = s.text[n:]
	}
	return name, nil
}

// Relocator rewrites the records of RangeSources. It is for one goroutine.
type Relocator struct {
	rec    Record
	tuples []segment.Tuple
}

// Append appends records to out as Sources of the whole parts would have made them. file returns
// what has to be added to the number of a row of a file, and where the row groups of the file end.
func (x *Relocator) Append(out, records []byte, file func(id uint32) (offset int64, ends []int64)) ([]byte, error) {
	for len(records) > 0 {
		if len(records) < PlainBytes || RecordLen(records) > len(records) {
			return nil, fmt.Errorf("a record of %d bytes is cut", len(records))
		}
		if id, _, first, rows, ok := DecodePlain(records); ok {
			offset, ends := file(id)
			row := int64(first) + offset
			if len(ends) > 0 && row >= 0 && row <= ends[0]-int64(rows) && row <= math.MaxUint32 {
				out = appendPlain(out, id, 0, uint32(row), rows)
				records = records[PlainBytes:]
				continue
			}
		}
		n := RecordLen(records)
		if err := x.rec.Decode(records[:n]); err != nil {
			return nil, err
		}
		records = records[n:]
		x.tuples = append(x.tuples[:0], x.rec.Tuples...)
		x.rec.Tuples = x.rec.Tuples[:0]
		for _, t := range x.tuples {
			offset, ends := file(t.FileID)
			if err := x.locate(t, offset, ends); err != nil {
				return nil, err
			}
		}
		out = x.rec.Append(out)
	}
	return out, nil
}

// locate appends the tuples of the rows of t to the record.
func (x *Relocator) locate(t segment.Tuple, offset int64, ends []int64) error {
	row, left := t.FirstRow+offset, t.Rows
	group, _ := slices.BinarySearch(ends, row+1)
	for ; left > 0; group++ {
		if row < 0 || group >= len(ends) {
			return codec.Corrupt("staged records", fmt.Sprintf("file %d", t.FileID), -1, "rows of the file",
				fmt.Sprintf("%d rows from row %d on", t.Rows, t.FirstRow+offset))
		}
		start := int64(0)
		if group > 0 {
			start = ends[group-1]
		}
		n := min(left, ends[group]-row)
		x.rec.Tuples = append(x.rec.Tuples, segment.Tuple{
			FileID: t.FileID, RowGroup: uint32(group), FirstRow: row - start, Rows: n,
		})
		row, left = row+n, left-n
	}
	return nil
}
