package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake/part"
)

// numberedAtOnce is how many hosts get numbers in one commit of the registry, which takes about
// 400 bytes for each.
const numberedAtOnce = 1 << 17

// assign returns the codes of names, in their order, and gives numbers to those that have none. A
// table of numbers that is full is an *InputError.
func assign(ctx context.Context, r *numbers.Registry, names []domain64.Name) ([]domain64.Code, error) {
	if len(names) == 0 {
		return nil, nil
	}
	codes, err := r.Assign(ctx, names)
	var full *numbers.FullError
	if errors.As(err, &full) {
		err = &InputError{full.Error()}
	}
	return codes, err
}

// numberHosts gives numbers to the hosts of the chunk.
func (s *source) numberHosts() error {
	type unnumbered struct {
		name  domain64.Name
		place int
	}
	var open []unnumbered
	flush := func() error {
		// The registry is fastest with names that are sorted by level.
		slices.SortFunc(open, func(a, b unnumbered) int { return a.name.Compare(b.name) })
		names := make([]domain64.Name, len(open))
		for i := range open {
			names[i] = open[i].name
		}
		codes, err := assign(s.ctx, s.registry, names)
		for i, code := range codes {
			s.codes[open[i].place] = code
		}
		open = open[:0]
		return err
	}
	for task := s.first; task < s.end; task++ {
		host := ""
		for rows, err := range s.slice.Read(s.ctx, task, part.ColDomain, part.ColHost) {
			if err != nil {
				return err
			}
			for n := range rows.Len() {
				at := rows.At(n)
				if rows.Host[at] == host {
					continue
				}
				host = strings.Clone(rows.Host[at])
				name, err := domain64.SplitHost(host, strings.Clone(rows.Domain[at]))
				if err != nil {
					return err
				}
				open = append(open, unnumbered{name, len(s.codes)})
				s.codes = append(s.codes, 0)
				if len(open) == numberedAtOnce {
					if err := flush(); err != nil {
						return err
					}
				}
			}
			s.opt.report(0)
		}
	}
	return flush()
}

// next returns the number of the next host.
func (s *source) next() domain64.Code {
	code := s.codes[0]
	s.codes = s.codes[1:]
	return code
}
