package move

import (
	"context"
	"fmt"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
)

// hostColumns are the columns that tell which rows move.
var hostColumns = []part.Column{part.ColDomain, part.ColHost}

// MovedHost is a host whose rows move from one domain to another.
type MovedHost struct {
	Host, From, To string
	Rows           int64
}

// Hosts calls each for the hosts of a batch that Batch would move, in the order of the batch's
// rows. A host comes several times if its rows are in several parts. Hosts reads the postings of
// the batch and the hosts of affected domains, and writes nothing. A damaged or missing object of
// the batch is a *postings.DamageError. An error of each ends the reading.
func Hosts(
	ctx context.Context, store blob.Store, ref segment.BatchRef, c *Change, each func(MovedHost) error,
) error {
	m := &mover{ctx: ctx, store: store, ref: ref, change: c}
	h := &hostScan{mover: m, each: each}
	if err := h.run(); err != nil {
		if h.failed != nil {
			return h.failed
		}
		return fmt.Errorf("look for hosts to move in batch %s of dataset %d: %w", ref.Batch, ref.DatasetID,
			postings.Damaged(ref, err))
	}
	return nil
}

// hostScan is the state of Hosts.
type hostScan struct {
	*mover
	each   func(MovedHost) error
	failed error     // of each
	host   MovedHost // whose rows are being counted; moved is set if they move
	moved  bool
}

func (h *hostScan) run() error {
	data, _, err := h.store.Get(h.ctx, h.ref.Key())
	if err != nil {
		return err
	}
	if h.record, err = lake.DecodeBatch(data, h.ref.Key()); err != nil {
		return err
	}
	if err := h.open(); err != nil {
		return err
	}
	for _, o := range h.objects {
		for n, p := range o.Parts() {
			pages := pageReader{mover: h.mover, key: p.Key, want: hostColumns, load: func() ([]*part.PageIndexBlock, error) {
				return o.Pages(h.ctx, n)
			}}
			for d, err := range o.PartDomains(h.ctx, n) {
				if err != nil {
					return err
				}
				if !h.change.affects(string(d.Name)) {
					continue
				}
				for _, t := range d.Tuples {
					if err := pages.each(string(d.Name), int(t.RowGroup), t.FirstRow, t.FirstRow+t.Rows, h.row); err != nil {
						return err
					}
				}
			}
			if err := h.flush(); err != nil {
				return err
			}
			if err := h.report(); err != nil {
				return err
			}
		}
	}
	return nil
}

// row counts a row of a domain.
func (h *hostScan) row(c *part.Columns, i int) error {
	if host := c.Host[i]; host != h.host.Host {
		if err := h.flush(); err != nil {
			return err
		}
		domain := strings.Clone(c.Domain[i])
		h.host = MovedHost{Host: strings.Clone(host), From: domain, To: strings.Clone(h.change.Domain(host))}
		h.moved = h.host.To != domain
	}
	h.host.Rows++
	return nil
}

// flush hands over the host whose rows have been counted.
func (h *hostScan) flush() error {
	if h.moved {
		h.failed = h.each(h.host)
	}
	h.host, h.moved = MovedHost{}, false
	return h.failed
}
