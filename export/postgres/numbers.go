package postgres

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/lake/part"
)

// numberedAtOnce is how many hosts get numbers in one commit of the registry, which takes about
// 400 bytes for each.
const numberedAtOnce = 1 << 17

// numberHosts gives numbers to the hosts of the chunk.
func (s *source) numberHosts() error {
	type unnumbered struct {
		name  domain64.Name
		place int
	}
	var open []unnumbered
	flush := func() error {
		if len(open) == 0 {
			return nil
		}
		// The registry is fastest with names that are sorted by level.
		slices.SortFunc(open, func(a, b unnumbered) int { return a.name.Compare(b.name) })
		names := make([]domain64.Name, len(open))
		for i := range open {
			names[i] = open[i].name
		}
		codes, err := s.registry.Assign(s.ctx, names)
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
		}
	}
	return flush()
}

// namesAtOnce is how many numbers are looked up at a time.
const namesAtOnce = 50_000

// copyNames copies the names of the chunk's numbers, and of those above them, to load_hosts. They
// are the lake's: the table domain64 is a copy.
func (s *source) copyNames() error {
	layout := s.registry.Layout()
	for some := range slices.Chunk(s.codes, namesAtOnce) {
		var codes []domain64.Code
		for _, code := range some {
			for c := code; c != 0; c = layout.Parent(c) {
				codes = append(codes, c)
			}
		}
		slices.Sort(codes)
		codes = slices.Compact(codes)
		names, err := s.registry.Names(s.ctx, codes)
		if err != nil {
			return err
		}
		if _, err := s.tx.CopyFrom(s.ctx, pgx.Identifier{"load_hosts"}, []string{"number", "level", "host", "domain"},
			pgx.CopyFromSlice(len(codes), func(i int) ([]any, error) {
				level, _ := layout.Level(codes[i])
				site := names[i].With(domain64.Sub, "")
				return []any{codes[i].Signed(), int16(level) + 1, names[i].Host(), site.Host()}, nil
			})); err != nil {
			return err
		}
	}
	return nil
}

// next returns the number of the next host.
func (s *source) next() domain64.Code {
	s.used++
	return s.codes[s.used-1]
}
