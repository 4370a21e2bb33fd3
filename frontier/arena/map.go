package arena

import (
	"encoding/binary"
	"iter"

	"github.com/urlake/urlake/frontier/numbers"
)

// mapChunk is how many bytes of a Map share an object.
const mapChunk = 2 * chunkSize

// Map has strings by number. They lie in chunks in the order in which they were added. A chunk is
// freed when all of its strings are removed. While chunks are mostly empty, the strings of the
// emptiest ones move, so that a few that stay long do not keep them.
type Map struct {
	places *numbers.Table[Place]
	chunks [][]byte // each string has its number and its length before it
	live   []int    // how many bytes of each chunk are of strings that are there
	free   []uint32 // which of the chunks are none
	last   uint32   // the chunk to which strings are appended
	// size and used are the sums of the chunks' capacities and of live.
	size, used int
}

// NewMap returns an empty Map.
func NewMap() *Map {
	return &Map{places: numbers.New[Place](), chunks: make([][]byte, 1), live: make([]int, 1)}
}

// Has says whether there is a string.
func (m *Map) Has(number uint64) bool {
	return m.places.At(number) != nil
}

// Touch loads what a search for a number looks at first. Loads of several numbers do not wait for
// each other. What it returns has no meaning.
func (m *Map) Touch(number uint64) uint64 { return m.places.Touch(number) }

// Get returns a string, which is no copy, and stays as it is when it is removed.
func (m *Map) Get(number uint64) (b []byte, ok bool) {
	p := m.places.At(number)
	if p == nil {
		return nil, false
	}
	_, b, _ = m.at(*p)
	return b, true
}

// All yields numbers and strings in no order, as numbers.Table.All does: strings may be added and
// removed meanwhile.
func (m *Map) All() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for number, p := range m.places.All() {
			if _, b, _ := m.at(p); !yield(number, b) {
				return
			}
		}
	}
}

// at returns what lies at a place, and how many bytes that takes.
func (m *Map) at(p Place) (number uint64, b []byte, size int) {
	b = m.chunks[p.chunk][p.at:]
	number, i := binary.Uvarint(b)
	n, j := binary.Uvarint(b[i:])
	end := i + j + int(n)
	return number, b[i+j : end : end], end
}

// room is how many bytes the last chunk has room for.
func (m *Map) room() int { return cap(m.chunks[m.last]) - len(m.chunks[m.last]) }

// Add adds a string whose number there is not.
func (m *Map) Add(number uint64, b []byte) {
	n := binary.MaxVarintLen64 + binary.MaxVarintLen32 + len(b)
	if m.room() < n {
		m.grow(n)
	}
	c := &m.chunks[m.last]
	p := Place{m.last, uint32(len(*c))}
	*c = binary.AppendUvarint(*c, number)
	*c = binary.AppendUvarint(*c, uint64(len(b)))
	*c = append(*c, b...)
	m.places.Set(number, p)
	m.count(p.chunk, len(*c)-int(p.at))
}

// Remove removes a string, if it is there.
func (m *Map) Remove(number uint64) {
	at := m.places.At(number)
	if at == nil {
		return
	}
	p := *at
	_, _, size := m.at(p)
	m.places.Delete(number)
	m.count(p.chunk, -size)
	if m.live[p.chunk] == 0 && p.chunk != m.last {
		m.drop(p.chunk)
	}
}

func (m *Map) count(chunk uint32, by int) {
	m.live[chunk] += by
	m.used += by
}

func (m *Map) drop(chunk uint32) {
	m.size -= cap(m.chunks[chunk])
	m.chunks[chunk] = nil
	m.free = append(m.free, chunk)
}

// grow begins a chunk with room for some bytes.
func (m *Map) grow(n int) {
	if m.live[m.last] == 0 {
		m.drop(m.last)
	}
	if last := len(m.free) - 1; last >= 0 {
		m.last, m.free = m.free[last], m.free[:last]
	} else {
		m.last = uint32(len(m.chunks))
		m.chunks, m.live = append(m.chunks, nil), append(m.live, 0)
	}
	m.chunks[m.last] = make([]byte, 0, max(n, mapChunk))
	m.size += cap(m.chunks[m.last])
	// Two go for the one that comes, so that chunks become fewer.
	for range 2 {
		from := m.emptiest()
		if 2*m.used >= m.size || from == m.last || m.room() < n+m.live[from] {
			return
		}
		m.move(from)
	}
}

// emptiest returns the chunk with the fewest bytes of strings but for the last one, which it
// returns if there is no other.
func (m *Map) emptiest() uint32 {
	least := m.last
	for i := range m.chunks {
		if m.chunks[i] != nil && uint32(i) != m.last && (least == m.last || m.live[i] < m.live[least]) {
			least = uint32(i)
		}
	}
	return least
}

// move moves the strings of a chunk to the last one, which has room for them.
func (m *Map) move(from uint32) {
	for p := (Place{chunk: from}); int(p.at) < len(m.chunks[from]); {
		number, b, size := m.at(p)
		if at := m.places.At(number); at != nil && *at == p {
			m.Add(number, b)
			m.count(from, -size)
		}
		p.at += uint32(size)
	}
	m.drop(from)
}
