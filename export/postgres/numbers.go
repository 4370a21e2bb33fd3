package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
)

// numberedAtOnce is how many hosts get numbers in one commit of the registry, which takes about
// 400 bytes for each.
const numberedAtOnce = 1 << 17

// assign returns the codes of names, in their order, and gives numbers to those that have none. A
// table of numbers that is full is an *InputError.
func assign(ctx context.Context, r *numbers.Registry, names []domain64.Name) ([]domain64.Code, error) {
	codes, err := r.Assign(ctx, names)
	var full *numbers.FullError
	if errors.As(err, &full) {
		err = &InputError{full.Error()}
	}
	return codes, err
}

// hosts are the numbers of the hosts of a chunk, in the order of its rows. A host that many rows
// have in succession is there once, by its hash; a chunk with a million different ones takes 16 MB.
type hosts struct {
	list []numbered
	at   int // of the next one
}

type numbered struct {
	hash uint64
	code domain64.Code
}

// numberHosts gives numbers to the hosts of a chunk.
func (s *source) numberHosts(reads []read) error {
	type unnumbered struct {
		name  domain64.Name
		place int
	}
	var open []unnumbered
	list := &s.hosts.list
	flush := func() error {
		// The registry is fastest with names that are sorted by level.
		slices.SortFunc(open, func(a, b unnumbered) int { return a.name.Compare(b.name) })
		names := make([]domain64.Name, len(open))
		for i := range open {
			names[i] = open[i].name
		}
		codes, err := assign(s.ctx, s.registry, names)
		for i, code := range codes {
			(*list)[open[i].place].code = code
		}
		open = open[:0]
		return err
	}
	for i := range reads {
		var host, domain string
		var matcher *takedown.Matcher
		// Rules would need all columns to decide about rows. A host of which they hide all rows may
		// get a number, unless they hide the host.
		for rows, err := range s.read(&reads[i], nil, part.ColDomain, part.ColHost) {
			if err != nil {
				return err
			}
			for n := range rows.Len() {
				at := rows.At(n)
				if rows.Host[at] == host {
					continue
				}
				host = strings.Clone(rows.Host[at])
				if rows.Domain[at] != domain {
					domain = strings.Clone(rows.Domain[at])
					matcher = s.rules.For(domain)
				}
				if matcher != nil && matcher.Hides(&takedown.Row{Dataset: reads[i].Dataset, Host: host}) {
					continue
				}
				name, err := domain64.SplitHost(host, domain)
				if err != nil {
					return err
				}
				open = append(open, unnumbered{name, len(*list)})
				*list = append(*list, numbered{hash: xxh3.HashString(host)})
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

// next returns the number of a host, behind that of the last one. Hosts of which rules hide all
// rows are skipped.
func (h *hosts) next(host string) (domain64.Code, error) {
	hash := xxh3.HashString(host)
	for h.at < len(h.list) && h.list[h.at].hash != hash {
		h.at++
	}
	if h.at == len(h.list) {
		return 0, fmt.Errorf("the host %s has no number", host)
	}
	h.at++
	return h.list[h.at-1].code, nil
}
