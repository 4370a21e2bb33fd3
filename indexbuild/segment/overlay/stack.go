package overlay

import (
	"context"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
)

// Stack is overlays of a segment, of which each is about what those before it leave. It is nil for
// a segment of which all rows are left.
type Stack []*Overlay

// NewStack returns the stack of overlays, of which those that are nil are none.
func NewStack(overlays ...*Overlay) Stack {
	var s Stack
	for _, o := range overlays {
		if o != nil {
			s = append(s, o)
		}
	}
	return s
}

// May reports whether the stack may have the domain, as Overlay.May does.
func (s Stack) May(k segment.Key) bool {
	for _, o := range s {
		if o.filter.has(k) {
			return true
		}
	}
	return false
}

// Entries returns the entries of a domain in the datasets from first to last, ascending. Each is
// what the whole stack leaves; Dead and DeadSize are what it takes away.
func (s Stack) Entries(ctx context.Context, k segment.Key, first, last uint32) ([]Entry, error) {
	var all []Entry
	for _, o := range s {
		more, err := o.Entries(ctx, k, first, last)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			all = more
			continue
		}
		for i := range more {
			e := &more[i]
			at, ok := slices.BinarySearchFunc(all, e, func(have Entry, e *Entry) int { return Compare(&have, e) })
			if !ok {
				all = slices.Insert(all, at, *e)
				continue
			}
			below := all[at]
			all[at] = *e
			all[at].Dead += below.Dead
			all[at].DeadSize = AddSize(e.DeadSize, below.DeadSize)
		}
	}
	return all, nil
}

// Entry returns the entry of a domain in a dataset, or false if the stack has none: the segment's
// own stands.
func (s Stack) Entry(ctx context.Context, k segment.Key, dataset uint32) (Entry, bool, error) {
	if !s.May(k) {
		return Entry{}, false, nil
	}
	found, err := s.Entries(ctx, k, dataset, dataset)
	if err != nil || len(found) == 0 {
		return Entry{}, false, err
	}
	return found[0], true, nil
}

// Object names the last overlay, for errors.
func (s Stack) Object() string { return s[len(s)-1].ref.Object }
