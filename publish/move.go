package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/rewrite"
)

// A batch follows the public suffix list that its record names, or that of the current version if
// the version has the batch. When the registry names another list, each batch of the version and
// each finished batch has to be moved to it before the next version, which names that list. Plan
// then writes a list of these batches instead of a plan (rewrite.go). A batch with rows that get
// another domain is written again; others keep their records.

// MoveError says that a batch of the current version cannot be moved to the public suffix list that
// the registry names. The lake stays at the current version, which answers as before.
type MoveError struct {
	DatasetID     uint32
	Batch         string
	Version, List string
	Reason        string
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("the lake stays at version %s, since batch %s of dataset %d cannot be moved to the public suffix list %q: "+
		`%s; then publish again; or go back to the list of the version with "starter rules update"`,
		e.Version, e.Batch, e.DatasetID, e.List, e.Reason)
}

// toMove is a batch that may have to be moved. From is the list that it follows.
type toMove struct {
	segment.BatchRef
	From string `json:"from"`
	Rows int64  `json:"rows"`
}

// outcome is what became of a batch: the digest of its record under the new list, or why it cannot
// be moved.
type outcome struct {
	segment.BatchRef
	To      string         `json:"to_digest,omitempty"`
	Damaged string         `json:"damaged,omitempty"`
	Result  rewrite.Result `json:"result"`
}

// moveBatch writes a batch or a union again by the list to, if any of its rows get another domain.
// Damage is in the result.
func moveBatch(
	ctx context.Context, store blob.Store, run string, b toMove, to string, opt rewrite.Options,
) (*outcome, error) {
	o := &outcome{BatchRef: b.BatchRef, To: b.Digest}
	c, err := changeOf(ctx, store, b.From, to)
	if err != nil || c == nil {
		return o, err
	}
	err = func() error {
		moves, err := rewrite.Moves(ctx, store, b.BatchRef, c)
		if err != nil || !moves {
			return err
		}
		record, err := readRecord(ctx, store, b.BatchRef)
		if err != nil {
			return err
		}
		opt.Domain = c.Domain
		o.Result, err = rewrite.Do(ctx, store, run, rewrite.Again(b.BatchRef, record, to), opt)
		o.To = o.Result.Digest
		return err
	}()
	var d *postings.DamageError
	if errors.As(err, &d) {
		o.To, o.Damaged = "", lakecheck.Reason(ctx, store, b.BatchRef, err)
		return o, nil
	}
	return o, err
}

// readRecord reads the record of a batch or a union. A damaged one is a *postings.DamageError.
func readRecord(ctx context.Context, store blob.Store, ref segment.BatchRef) (*lake.Batch, error) {
	data, _, err := store.Get(ctx, ref.Key())
	if err != nil {
		return nil, postings.Damaged(ref, err)
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	return record, postings.Damaged(ref, err)
}

// chooser chooses the batches of the next version.
type chooser struct {
	ctx   context.Context
	store blob.Store
	base  *catalog.Version // nil for none
	// live has the batches of base under the names of the finished ones.
	live  map[catalog.BatchName]catalog.Batch
	rules lake.Rules // of the next version
	known map[segment.BatchRef]string
	// tableless are segments that can have no deletion table, since something is damaged.
	tableless map[string]bool
	moved     map[segment.BatchRef]outcome
	skip      func(b planned, reason string, waits bool)
}

// flips reports whether base has batches and another public suffix list than the next version.
func (c *chooser) flips() bool {
	return c.base != nil && c.base.Counts.Batches > 0 && c.base.PublicSuffix != c.rules.PublicSuffix
}

// choose returns the finished batches that can be published, with the records of those that base
// lacks, and the batches of which it must first be known what moves of them. It calls skip for
// other finished batches. If a batch of base cannot be moved, the error is a *MoveError, once
// nothing else is left to move.
func (c *chooser) choose(finished []planned) (good []planned, records map[string]*lake.Batch, need []toMove, err error) {
	waiting := finished
	finished = c.withMoved(finished)
	all, records, err := publishable(c.ctx, c.store, c.base, finished, c.live, c.known, c.skip)
	if err != nil {
		return nil, nil, nil, err
	}
	chosen := map[catalog.BatchName]string{} // digests
	asked := map[segment.BatchRef]bool{}     // unions of batches that only these have
	for _, b := range all {
		if r := records[b.Digest]; r != nil && r.CanonicalForm != c.rules.CanonicalForm {
			e := &RulesError{DatasetID: b.DatasetID, Batch: b.Batch, Want: c.rules.CanonicalForm, Got: r.CanonicalForm}
			c.skip(b, e.Error()+": ingest the batch again", false)
			continue
		}
		if r := records[b.Digest]; r != nil && r.PublicSuffix != c.rules.PublicSuffix {
			source := b.ref()
			if lake.IsUnionName(b.from.Batch) {
				source = b.from
			}
			o, ok := c.moved[source]
			if !ok && !asked[source] {
				need = append(need, toMove{source, r.PublicSuffix, r.Rows})
				asked[source] = true
			}
			if o.Damaged != "" {
				c.skip(b, o.Damaged, false)
				continue
			}
			if ok && source == b.from {
				b.from.Digest = o.To // the rows of the batch follow the list there
			}
		}
		good = append(good, b)
	}
	good = c.together(waiting, good)
	for _, b := range good {
		chosen[b.name()] = b.Digest
	}
	if !c.flips() {
		return good, records, need, nil
	}
	blocked := func(b planned, reason string) error {
		return &MoveError{b.DatasetID, b.Batch, c.base.ID, c.rules.PublicSuffix, reason}
	}
	var stopped error
	var extra []planned                   // batches of base that no finished batch replaces
	var united []planned                  // those of them that are in unions
	unions := map[segment.BatchRef]bool{} // that were looked at
	for live, err := range c.base.Batches(c.ctx) {
		if err != nil {
			return nil, nil, nil, err
		}
		b := planned{DatasetID: live.DatasetID, Batch: live.Batch, Digest: live.Digest, Start: live.Start}
		digest, ok := chosen[b.name()]
		if ok && digest != live.Digest {
			continue
		}
		stored := lakecheck.StoredRef(live)
		switch o, known := c.moved[stored]; {
		case !known && live.Union != "":
			if !unions[stored] && !asked[stored] {
				need = append(need, toMove{stored, c.base.PublicSuffix, live.Rows})
			}
			unions[stored] = true
		case !known:
			need = append(need, toMove{stored, c.base.PublicSuffix, live.Rows})
		case o.Damaged != "":
			if stopped == nil {
				stopped = blocked(b, o.Damaged)
			}
		case o.To != stored.Digest && live.Union != "":
			b.Rows, b.Union, b.UnionDigest, b.Moved = live.Rows, live.Union, o.To, true
			c.live[b.name()] = live
			if !unions[stored] {
				if b.Parts, b.Bytes, err = partsOf(c.ctx, c.store, b.stored()); err != nil {
					return nil, nil, nil, err
				}
			}
			unions[stored] = true
			united = append(united, b)
		case o.To != stored.Digest:
			b.Digest = o.To
			c.live[b.name()] = live
			extra = append(extra, b)
		}
	}
	if len(need) > 0 {
		return nil, nil, need, nil
	}
	if stopped != nil {
		return nil, nil, nil, stopped
	}
	more, moreRecords, err := publishable(c.ctx, c.store, c.base, extra, c.live, c.known, func(b planned, reason string, _ bool) {
		if stopped == nil {
			stopped = blocked(b, reason)
		}
	})
	if err != nil || stopped != nil {
		return nil, nil, nil, errors.Join(err, stopped)
	}
	for digest, r := range moreRecords {
		records[digest] = r
	}
	return slices.Concat(good, more, united), records, nil, nil
}

// partsOf returns the number and the size of the parts that a record names.
func partsOf(ctx context.Context, store blob.Store, ref segment.BatchRef) (parts, bytes int64, err error) {
	record, err := readRecord(ctx, store, ref)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range record.Parts {
		bytes += p.Bytes
	}
	return int64(len(record.Parts)), bytes, nil
}

// together returns the good ones of the waiting batches without those that have to wait for others:
// a version that has a batch which replaces the others of its dataset lacks those, and no version
// lacks them before. It calls skip for those that wait.
func (c *chooser) together(waiting, good []planned) []planned {
	left := map[catalog.BatchName]bool{} // that stay out of the next version
	for _, b := range waiting {
		left[b.name()] = true
	}
	for _, b := range good {
		delete(left, b.name())
	}
	for {
		n := len(good)
		blocked := map[catalog.BatchName]string{} // the batches that cannot be removed yet, by what takes their place
		for _, b := range waiting {
			if b.retired && b.by != "" && left[b.name()] {
				blocked[catalog.BatchName{DatasetID: b.DatasetID, Batch: b.by}] = b.Batch
			}
		}
		good = slices.DeleteFunc(good, func(b planned) bool {
			reason := ""
			if other, ok := blocked[b.name()]; ok && !b.retired {
				reason = fmt.Sprintf("it takes the place of batch %s, which cannot be taken out of the version", other)
			}
			if b.retired && b.by != "" && left[catalog.BatchName{DatasetID: b.DatasetID, Batch: b.by}] {
				reason = fmt.Sprintf("batch %s, which takes its place, cannot be published", b.by)
			}
			if reason == "" {
				return false
			}
			left[b.name()] = true
			c.skip(b, reason, true)
			return true
		})
		if len(good) == n {
			return good
		}
	}
}

// withMoved returns the finished batches with the digests of their moved records.
func (c *chooser) withMoved(finished []planned) []planned {
	out := slices.Clone(finished)
	for i := range out {
		if o := c.moved[out[i].ref()]; o.To != "" {
			out[i].Digest = o.To
		}
	}
	return out
}

// changeOf returns what changes for batches that follow the list from and are to follow the list
// to. It is nil if the lists have the same rules. If the lake has lost the list from, all domains
// are looked at.
func changeOf(ctx context.Context, store blob.Store, from, to string) (*rewrite.Change, error) {
	list, err := lake.LoadSuffixList(ctx, store, to)
	if err != nil {
		return nil, err
	}
	c := &rewrite.Change{To: to, Domain: list.Domain}
	old, err := lake.LoadSuffixList(ctx, store, from)
	var missing *lake.MissingListError
	switch {
	case errors.As(err, &missing), errors.Is(err, codec.ErrCorrupt):
		return c, nil
	case err != nil:
		return nil, err
	case old.SameRules(list):
		return nil, nil
	}
	c.Affected = urlnorm.NewSuffixChange(old, list).Affects
	return c, nil
}
