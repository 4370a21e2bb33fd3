package names

import (
	"bytes"
	"context"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
)

// sifted is how many names a sift keeps at least, some 50 bytes each.
const sifted = 16 << 10

// sift finds the first reversed names of a segment that lacks their list. It reads all domains and
// keeps some of the first. Once these are used up, it does so again from the last one on.
type sift struct {
	seg    *segment.Segment
	q      Query
	suffix []byte // of the names that are wanted
	most   int    // how many names are kept

	from string   // before which no reversed name is wanted any more
	kept []string // reversed names in order
	done bool     // none are after the kept ones
}

func newSift(seg *segment.Segment, q Query) *sift {
	return &sift{seg: seg, q: q, suffix: []byte(Reverse(q.Prefix)), most: max(q.Most, sifted), from: q.Start}
}

// next returns the next reversed name, or nil at the end.
func (s *sift) next(ctx context.Context) ([]byte, error) {
	if len(s.kept) == 0 && !s.done {
		if err := s.read(ctx); err != nil {
			return nil, err
		}
	}
	if len(s.kept) == 0 {
		return nil, nil
	}
	name := s.kept[0]
	s.kept, s.from = s.kept[1:], name+"\x00"
	return []byte(name), nil
}

// read reads all domains.
func (s *sift) read(ctx context.Context) error {
	var kept []string
	dropped := "" // the first of the names that were dropped, empty if there are none
	cut := func() {
		if slices.Sort(kept); len(kept) > s.most {
			dropped = kept[s.most]
			kept = kept[:s.most]
		}
	}
	var name []byte
	for f, err := range s.seg.Names().Frames(ctx, 0, s.seg.Info().Domains) {
		if err != nil {
			return err
		}
		if err := s.q.Yield(ctx); err != nil {
			return err
		}
		for i := range f.Ends {
			domain := f.Domain(i)
			if !bytes.HasSuffix(domain, s.suffix) {
				continue
			}
			name = append(name[:0], domain...)
			slices.Reverse(name)
			if string(name) < s.from || dropped != "" && string(name) > dropped {
				continue
			}
			if kept = append(kept, string(name)); len(kept) == 2*s.most {
				cut()
			}
		}
	}
	cut()
	s.kept, s.done = kept, dropped == ""
	return nil
}
