package rewrite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Change is a change of the public suffix list, as far as one batch needs to know it.
type Change struct {
	// To is the identity of the new list, Domain returns the domain of a canonical host by it.
	To     string
	Domain func(host string) string
	// Affected reports whether hosts of a stored domain may have another domain by the new list. It
	// is never false if one has. Nil stands for all domains: the old list is not known.
	Affected func(domain string) bool
}

// MovedHost is a host whose rows have another domain by a new list.
type MovedHost struct {
	Host, From, To string
	Rows           int64
}

// Hosts calls each for the hosts of a batch or a union that have another domain by a new list, in
// the order of its rows. A host comes several times if its rows are in several parts. Hosts reads
// the postings and the hosts of affected domains, and writes nothing. A damaged or missing object
// is a *postings.DamageError. An error of each ends the reading.
func Hosts(
	ctx context.Context, store blob.Store, ref segment.BatchRef, c *Change, each func(MovedHost) error,
) error {
	h := &hostScan{ctx: ctx, store: store, change: c, each: each}
	if err := h.run(ref); err != nil {
		if h.failed != nil {
			return h.failed
		}
		return fmt.Errorf("look for hosts to move in batch %s of dataset %d: %w", ref.Batch, ref.DatasetID,
			postings.Damaged(ref, err))
	}
	return nil
}

var errMoves = errors.New("a host moves")

// Moves reports whether Hosts finds a host.
func Moves(ctx context.Context, store blob.Store, ref segment.BatchRef, c *Change) (bool, error) {
	err := Hosts(ctx, store, ref, c, func(MovedHost) error { return errMoves })
	if errors.Is(err, errMoves) {
		return true, nil
	}
	return false, err
}

// hostScan is the state of Hosts.
type hostScan struct {
	ctx    context.Context
	store  blob.Store
	change *Change
	each   func(MovedHost) error
	failed error     // of each
	host   MovedHost // whose rows are being counted; moved is set if they move
	moved  bool

	// The last page that was read: its rows begin with first in a row group.
	page  *part.Columns
	group int
	first int64
}

func (h *hostScan) run(ref segment.BatchRef) error {
	data, _, err := h.store.Get(h.ctx, ref.Key())
	if err != nil {
		return err
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return err
	}
	for _, o := range record.Postings {
		r, err := postings.Open(h.ctx, h.store, ref, o)
		if err != nil {
			return err
		}
		for n, p := range r.Parts() {
			if err := h.part(r, n, p.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// part looks for hosts in the affected domains of a part.
func (h *hostScan) part(r *postings.Reader, n int, key string) error {
	var blocks []*part.PageIndexBlock
	h.page = nil
	for d, err := range r.PartDomains(h.ctx, n) {
		if err != nil {
			return err
		}
		if h.change.Affected != nil && !h.change.Affected(string(d.Name)) {
			continue
		}
		if blocks == nil {
			if blocks, err = r.Pages(h.ctx, n); err != nil {
				return err
			}
		}
		for _, t := range d.Tuples {
			if err := h.rows(key, blocks, string(d.Name), t); err != nil {
				return err
			}
		}
	}
	return h.flush()
}

// rows counts the rows of a tuple, which are of a domain.
func (h *hostScan) rows(key string, blocks []*part.PageIndexBlock, domain string, t segment.Tuple) error {
	for row, end := t.FirstRow, t.FirstRow+t.Rows; row < end; {
		if err := h.read(key, blocks, int(t.RowGroup), row); err != nil {
			return err
		}
		last := min(end, h.first+int64(h.page.Rows))
		for ; row < last; row++ {
			i := int(row - h.first)
			if h.page.Domain[i] != domain {
				return codec.Corrupt(key, fmt.Sprintf("row %d of row group %d", row, t.RowGroup), -1,
					"a row of domain "+urlnorm.FormatID(urlnorm.DomainID(domain)), "one of another domain")
			}
			if err := h.row(domain, h.page.Host[i]); err != nil {
				return err
			}
		}
	}
	return h.ctx.Err()
}

// read reads the page of a row, unless it is the last one that was read.
func (h *hostScan) read(key string, blocks []*part.PageIndexBlock, group int, row int64) error {
	if h.page != nil && h.group == group && h.first <= row && row < h.first+int64(h.page.Rows) {
		return nil
	}
	for _, b := range blocks {
		if b.RowGroup != group || row < b.FirstRow || row >= b.FirstRow+b.Rows() {
			continue
		}
		first, end := b.Page(row)
		c, err := part.ReadColumns(h.ctx, h.store, key, b, first, end-first, part.ColDomain, part.ColHost)
		h.page, h.group, h.first = c, group, first
		return err
	}
	return codec.Corrupt(key, "page index", -1, fmt.Sprintf("row %d of row group %d", row, group), "none")
}

// row counts a row of a host.
func (h *hostScan) row(domain, host string) error {
	if host != h.host.Host {
		if err := h.flush(); err != nil {
			return err
		}
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
