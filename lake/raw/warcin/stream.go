package warcin

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sort"

	"github.com/urlake/urlake/lake/raw/unpack"
)

const (
	// windowSize is how many decompressed bytes are held. Most records fit.
	windowSize = 256 << 10
	// firstWindow is what a file begins with.
	firstWindow = 64 << 10
	// maxWindow is how far the window grows for a record that holds what looks like a record.
	maxWindow = 8 << 20
	// readSize is how many bytes are decompressed at once.
	readSize = 64 << 10
	// maxHeader is how many bytes of a header decide whether it is one.
	maxHeader = 64 << 10
)

// stream is the decompressed file, across all its members, with a window of the bytes that were
// read last. Within the window its reader can go back to the beginning of a record.
type stream struct {
	src     *unpack.Source
	members members
	// judge judges a possible header of a record. The record may begin at an index of b: at.
	judge   func(b []byte) (at int, v verdict)
	anyLine bool // a header is a line like others; without, it begins with Magic

	buf  []byte
	r, w int   // buf[r:w] is unread
	base int64 // offset of buf[0] in the decompressed file
	kept int64 // offset from which bytes are kept in the window
	// searched is the offset from which the window is still to be searched for what looks like a
	// record; pinned is set when one was found, at kept. lost is set when it could not be kept.
	searched     int64
	pinned, lost bool

	parts []part // the members with bytes in the window, and the one that is being read
	open  bool   // the last of parts is not read to its end
	err   error  // final, until resume
	// failed is the offset of the stored member that could not be read, after an error.
	failed int64
}

// part is where a member is, in the decompressed file and as stored.
type part struct {
	begin, end             int64 // end is -1 until the member is read to its end
	storedBegin, storedEnd int64 // -1 if members have no place of their own
}

// verdict says whether bytes begin with a record.
type verdict int

const (
	no verdict = iota
	yes
	unclear // more bytes tell
)

func newStream(src *unpack.Source, m members) *stream {
	return &stream{src: src, members: m, buf: make([]byte, firstWindow)}
}

// offset returns the offset of the next byte in the decompressed file.
func (s *stream) offset() int64 { return s.base + int64(s.r) }

// unread returns the bytes that can be read without fill.
func (s *stream) unread() []byte { return s.buf[s.r:s.w] }

// mark keeps the bytes from the next one on, and no others.
func (s *stream) mark() {
	s.kept, s.pinned, s.lost = s.offset(), false, false
	s.searched = s.kept + 1
	s.parts = s.parts[max(s.partAt(s.kept), 0):]
}

// seek goes to an offset, or as near as the window reaches.
func (s *stream) seek(offset int64) {
	s.r = int(min(max(offset, s.kept)-s.base, int64(s.w)))
}

// fill reads more bytes of one member behind the unread ones. It may read none. The error is io.EOF
// at the end of the file.
func (s *stream) fill() error {
	if s.err != nil {
		return s.err
	}
	if !s.open {
		stored, err := s.members.next()
		if err != nil {
			s.failed, s.err = stored, err
			return err
		}
		begin := s.base + int64(s.w)
		if n := len(s.parts); n > 0 && s.parts[n-1].begin == begin {
			s.parts = s.parts[:n-1] // an empty member
		}
		s.parts = append(s.parts, part{begin, -1, stored, -1})
		s.open = true
	}
	if s.w == len(s.buf) {
		s.slide()
	}
	n, err := s.members.Read(s.buf[s.w:min(len(s.buf), s.w+readSize)])
	s.w += n
	switch {
	case err == io.EOF:
		s.endMember()
	case err != nil:
		s.failed, s.err = s.parts[len(s.parts)-1].storedBegin, err
		return err
	}
	return nil
}

// endMember notes the end of the member that is read.
func (s *stream) endMember() {
	m := &s.parts[len(s.parts)-1]
	m.end, m.storedEnd = s.base+int64(s.w), s.src.Used()
	s.open = false
}

// peek returns the next n bytes, or all if the file ends before.
func (s *stream) peek(n int) ([]byte, error) {
	for s.w-s.r < n {
		if err := s.fill(); err != nil && err != io.EOF {
			return nil, err
		} else if err == io.EOF {
			break
		}
	}
	return s.buf[s.r:min(s.w, s.r+n)], nil
}

// skip passes n bytes. short is set if the file ends before, or, with alone, if a member does and
// the next one begins with a record.
func (s *stream) skip(n int64, alone bool) (short bool, err error) {
	for judged := int64(-1); n > 0; {
		some := min(n, int64(s.w-s.r))
		if alone {
			at := s.offset()
			m := s.part(at)
			if at != judged && (m.begin == at || m.end == at) {
				judged = at
				if v, err := s.judgeNext(); v == yes || err != nil {
					return v == yes, err
				}
				continue
			}
			if m.end > at {
				some = min(some, m.end-at)
			}
		}
		s.r += int(some)
		if n -= some; n == 0 || s.r < s.w {
			continue
		}
		if err := s.fill(); err == io.EOF {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
}

// judgeNext judges whether the next bytes begin with a record. It is unclear at the end of the file
// only.
func (s *stream) judgeNext() (verdict, error) {
	for {
		at, v := s.judge(s.unread())
		if at > 0 {
			return no, nil
		}
		if v != unclear {
			return v, nil
		}
		if err := s.fill(); err != nil {
			return v, unpack.NoErrorAtEnd(err)
		}
	}
}

// skipLineEnds passes line ends. It stops with atEnd set at the end of the member with the byte at
// offset from, or at the end of any later member.
func (s *stream) skipLineEnds(from int64) (atEnd bool, err error) {
	for m := s.part(from); ; {
		for s.r < s.w {
			if m.end == s.offset() {
				return true, nil
			}
			if c := s.buf[s.r]; c != '\r' && c != '\n' {
				return false, nil
			}
			s.r++
		}
		if !s.open {
			return true, nil
		}
		if err := s.fill(); err != nil {
			return false, err
		}
	}
}

// passMember passes the rest of the member, which ends at end, if possible without decompressing.
func (s *stream) passMember(end int64) error {
	m := &s.parts[len(s.parts)-1]
	if err := s.members.skip(); err != nil {
		s.failed, s.err = m.storedBegin, err
		return err
	}
	s.base, s.r, s.w = end, 0, 0
	s.endMember()
	s.mark()
	return nil
}

// partAt returns the index of the member of the byte at an offset, -1 if that is not known.
func (s *stream) partAt(offset int64) int {
	return sort.Search(len(s.parts), func(i int) bool { return s.parts[i].begin > offset }) - 1
}

// part returns the member of the byte at an offset that is kept.
func (s *stream) part(offset int64) (m part) {
	if len(s.parts) > 0 {
		m = s.parts[max(s.partAt(offset), 0)]
	}
	return m
}

// slide makes room in the window, which is full. It moves the kept bytes to its beginning. If they
// are more than half of the window, it keeps less: the bytes from a possible record on, or only the
// unread ones.
func (s *stream) slide() {
	k := int(s.kept - s.base)
	tooMuch := func() bool { return s.w-k > len(s.buf)/2 }
	if tooMuch() && len(s.buf) >= windowSize && !s.pinned && !s.lost {
		at, v := s.search(int(s.searched - s.base))
		k = min(at, s.r)
		s.searched, s.pinned = s.base+int64(at), v == yes
	}
	if tooMuch() && len(s.buf) < windowSize || tooMuch() && s.pinned && len(s.buf) < maxWindow {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	} else if tooMuch() {
		s.pinned, s.lost, k = false, s.lost || s.pinned, s.r
	}
	s.kept = s.base + int64(k)
	copy(s.buf, s.buf[k:s.w])
	s.base, s.r, s.w = s.kept, s.r-k, s.w-k
	if i := s.partAt(s.kept); i > 1 {
		s.parts = slices.Delete(s.parts, 1, i) // the first one has the beginning of the record
	}
	if s.w < windowSize/2 && len(s.buf) > windowSize {
		s.buf = s.buf[:windowSize]
	}
}

// search returns the first index in the window, not before from, at which a record begins or may
// begin. If there is none, it returns the first index that has to be searched again with more
// bytes.
func (s *stream) search(from int) (at int, v verdict) {
	for i := from; i <= s.w; i++ {
		if i = s.candidate(i); i < 0 {
			break
		}
		if at, v := s.judge(s.buf[i:s.w]); v != no {
			return i + at, v
		}
	}
	return max(from, s.w-len(Magic)), no
}

// candidate returns the first index in the window, not before i, at which a header may begin, -1
// for none. With anyLine, a header may begin wherever a line or member does.
func (s *stream) candidate(i int) int {
	if !s.anyLine {
		if n := bytes.Index(s.buf[i:s.w], []byte(Magic)); n >= 0 {
			return i + n
		}
		return -1
	}
	if i == 0 || s.buf[i-1] == '\n' || s.part(s.base+int64(i)).begin == s.base+int64(i) {
		return i
	}
	if n := bytes.IndexByte(s.buf[i:s.w], '\n'); n >= 0 {
		return i + n + 1
	}
	return -1
}

// find goes to the next record, from the next byte on. found is false at the end of the file.
func (s *stream) find() (found bool, err error) {
	for ended := false; ; {
		at, v := s.search(s.r)
		s.r = at
		switch {
		case v == yes:
			return true, nil
		case v == unclear && ended && at < s.w:
			s.r++
			continue
		case ended:
			s.r = s.w
			return false, nil
		}
		s.mark()
		if err := s.fill(); err == io.EOF {
			ended = true
		} else if err != nil {
			return false, err
		}
	}
}

// findWithin goes to the first record that begins between two offsets, as far as the window
// reaches. Without one it goes to the offset to.
func (s *stream) findWithin(from, to int64) (found bool, err error) {
	for s.seek(from); s.offset() < to; {
		at, v := s.search(s.r)
		if s.base+int64(at) >= to {
			break
		}
		switch s.r = at; v {
		case yes:
			return true, nil
		case no:
			s.seek(to)
			return false, nil
		}
		if err := s.fill(); err == io.EOF {
			s.r++
		} else if err != nil {
			return false, err
		}
	}
	s.seek(to)
	return false, nil
}

// resume goes to the first record behind a member that could not be read, if every record has a
// member of its own. Otherwise it returns the error of that member.
func (s *stream) resume() error {
	damage, offset := s.err, s.failed
	if damage == nil || s.src.Err != nil || errors.Is(damage, unpack.ErrBomb) || offset < 0 || s.members.magic() == "" {
		return damage
	}
	// It may have been read too far.
	if found, err := s.src.Resume(offset+1, s.members.magic()); !found || err != nil {
		return damage
	}
	for {
		s.base += int64(s.w)
		s.r, s.w, s.parts, s.open, s.err = 0, 0, nil, false, nil
		s.mark()
		offset = s.src.Used()
		_, err := s.peek(maxHeader)
		if b := bytes.TrimLeft(s.unread(), "\r\n"); err == nil || len(b) > len(Magic) {
			if _, v := s.judge(b); v != no {
				return nil
			}
			if s.err == nil || s.err == io.EOF || s.parts[0].end >= 0 {
				return s.fail(damage) // a sound member without a record
			}
		}
		if found, err := s.src.Resume(offset+1, s.members.magic()); !found || err != nil {
			return s.fail(damage)
		}
	}
}

// fail makes err final.
func (s *stream) fail(err error) error {
	s.err = err
	return err
}
