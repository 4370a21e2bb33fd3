package overlay

import (
	"iter"

	"github.com/urlake/urlake/indexbuild/segment"
)

// Merger is a Builder that also takes the entries of another overlay, but for those that are made
// anew.
type Merger struct {
	Builder

	next     func() (Entry, error, bool)
	replaced func(e *Entry) bool
	head     Entry
	more     bool
}

// Merge begins to take the entries of an overlay but those for which replaced is true. The result
// has to be called when the Merger is not needed any more.
func (m *Merger) Merge(entries iter.Seq2[Entry, error], replaced func(e *Entry) bool) (end func()) {
	next, stop := iter.Pull2(entries)
	m.next, m.replaced, m.more = next, replaced, true
	return stop
}

// advance adds the entries before e, or all if e is nil.
func (m *Merger) advance(e *Entry) error {
	for m.more {
		if m.head.Dead == 0 { // there is none
			head, err, ok := m.next()
			if err != nil {
				return err
			}
			if !ok {
				m.more = false
				return nil
			}
			m.head = head
		}
		again := m.replaced(&m.head)
		if e != nil && Compare(&m.head, e) >= 0 && !again {
			return nil
		}
		if !again {
			if err := m.Keep(m.head); err != nil {
				return err
			}
		}
		m.head = Entry{}
	}
	return nil
}

// Add adds an entry as Builder.Add does, after those of the other overlay that come before it.
func (m *Merger) Add(e Entry, tuples []segment.Tuple) error {
	if err := m.advance(&e); err != nil {
		return err
	}
	return m.Builder.Add(e, tuples)
}

// Drain adds the rest of the other overlay, which comes before Finish.
func (m *Merger) Drain() error { return m.advance(nil) }
