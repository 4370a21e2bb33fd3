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

const (
	// numberedAtOnce is how many hosts get numbers in one commit of the registry, which takes about
	// 400 bytes for each.
	numberedAtOnce = 1 << 17
	// knownHosts bounds the hosts whose numbers are remembered, and those whose rows are known to
	// be written.
	knownHosts = 1 << 16
)

// Name is a host that gets a number, and the domain (eTLD+1) that it belongs to.
type Name struct{ Host, Domain string }

// assign returns the codes of hosts, in their order, and gives numbers to those that have none. A
// table of numbers that is full is an *InputError.
func assign(ctx context.Context, r *numbers.Registry, hosts []Name) ([]domain64.Code, error) {
	names := make([]domain64.Name, len(hosts))
	for i, h := range hosts {
		var err error
		if names[i], err = domain64.SplitHost(h.Host, h.Domain); err != nil {
			return nil, err
		}
	}
	return assignNames(ctx, r, names)
}

func assignNames(ctx context.Context, r *numbers.Registry, names []domain64.Name) ([]domain64.Code, error) {
	codes, err := r.Assign(ctx, names)
	var full *numbers.FullError
	if errors.As(err, &full) {
		err = &InputError{full.Error()}
	}
	return codes, err
}

// hosts are the numbers of the hosts of a chunk, in the order of its rows, and the rows of
// load_hosts that they become.
type hosts struct {
	registry *numbers.Registry
	// known are hosts that have got their numbers, some of many.
	known map[string]domain64.Code

	list []numbered
	at   int // of the next one

	rows    spool
	written map[domain64.Code]bool // what rows has, some of many
}

// numbered is a host, by its hash, with its number. A host that many rows have in succession is
// there once; a chunk with a million different ones takes 16 MB.
type numbered struct {
	hash uint64
	code domain64.Code
}

// unnumbered is an entry of the list whose host has no number yet.
type unnumbered struct {
	name  domain64.Name
	host  string
	place int
}

// numberHosts gives numbers to the hosts of a chunk.
func (s *source) numberHosts(c *chunk) error {
	h := &s.hosts
	var open []unnumbered
	assign := func() error {
		// The registry is fastest with names that are sorted by level.
		slices.SortFunc(open, func(a, b unnumbered) int { return a.name.Compare(b.name) })
		names := make([]domain64.Name, len(open))
		for i := range open {
			names[i] = open[i].name
		}
		codes, err := assignNames(s.ctx, h.registry, names)
		if err != nil {
			return err
		}
		for i, code := range codes {
			h.list[open[i].place].code = code
			if len(h.known) >= knownHosts {
				clear(h.known)
			}
			h.known[open[i].host] = code
		}
		open = open[:0]
		return nil
	}
	for i := range c.Reads {
		r := &c.Reads[i]
		var last Name
		var matcher *takedown.Matcher
		// Rules would need all columns to decide about rows. A host of which they hide all rows may
		// get a number, unless they hide the host.
		for rows, err := range s.read(r, nil, part.ColDomain, part.ColHost) {
			if err != nil {
				return err
			}
			for j := range rows.Len() {
				at := rows.At(j)
				n := Name{rows.Host[at], rows.Domain[at]}
				if n.Host == last.Host {
					continue
				}
				if n.Domain != last.Domain {
					matcher = s.rules.For(n.Domain)
				}
				last = n
				if matcher != nil && matcher.Hides(&takedown.Row{Dataset: r.Dataset, Host: n.Host}) {
					continue
				}
				code, ok := h.known[n.Host]
				if !ok {
					host := strings.Clone(n.Host)
					name, err := domain64.SplitHost(host, strings.Clone(n.Domain))
					if err != nil {
						return err
					}
					open = append(open, unnumbered{name, host, len(h.list)})
				}
				h.list = append(h.list, numbered{xxh3.HashString(n.Host), code})
				if len(open) == numberedAtOnce {
					if err := assign(); err != nil {
						return err
					}
				}
			}
			s.opt.report(0)
		}
	}
	return assign()
}

// next returns the number of a host, behind that of the last one. Hosts of which rules hide all
// rows are skipped.
func (h *hosts) next(n Name) (domain64.Code, error) {
	hash := xxh3.HashString(n.Host)
	for h.at < len(h.list) && h.list[h.at].hash != hash {
		h.at++
	}
	if h.at == len(h.list) {
		return 0, fmt.Errorf("the host %s has no number", n.Host)
	}
	code := h.list[h.at].code
	h.at++
	if !h.written[code] {
		if len(h.written) >= knownHosts {
			clear(h.written)
		}
		h.written[code] = true
		h.rows.buf = hostRow(h.rows.buf, code, n)
	}
	return code, nil
}
