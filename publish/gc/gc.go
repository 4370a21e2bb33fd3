// Package gc collects the garbage of a lake: versions that are no longer kept, and every object to
// which neither a kept version nor the registry, a publish that is under way or a server refers.
//
// A collection has three steps. It drops the versions beyond the newest ones from the manifest. It
// lists all objects and writes down those that nothing refers to (package lease). And it deletes
// what was written down at least the time of grace ago, by this or an earlier collection, and is
// still not referred to. Package trash says why no object is deleted that a writer has just begun
// to refer to.
//
// The staging of runs is not looked at: ingest.Sweep removes what dead runs have left, since only
// Temporal knows which those are.
//
// A collection may die at any point and may run twice at once. What it has not deleted, the next
// one finds.
package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
)

const (
	// DefaultKeep and DefaultGrace are the versions that are kept, and how long an object stays
	// after nothing refers to it any more, unless the caller says otherwise. The time of grace is
	// longer than the longest request to a server without a lease, and than a publish that reads
	// the version on which it is based.
	DefaultKeep  = 10
	DefaultGrace = 24 * time.Hour

	// reportLife is how long the report of an ingest of many datasets stays, at least, after a
	// collection has found that its run is over. Until then the starter prints it, and a publish
	// says whose batches it has.
	reportLife = 30 * 24 * time.Hour

	// treeLife is how long a file of path trees stays, at least, of which the document of a kept
	// segment names another: the document of a new one is written right after it.
	treeLife = time.Hour

	// sweepTime is about how long one sweep lasts: ingests that begin or end, and commits, wait for
	// its end. Another sweep deletes what is left.
	sweepTime = 20 * time.Second
	// deletedAtOnce is the most objects that one request deletes.
	deletedAtOnce = 1000
)

// Options say what a collection does.
type Options struct {
	// Keep is how many of the newest versions are kept, at least 1. Versions with a tag are kept
	// besides.
	Keep int
	// Grace is how long an object stays after it was found that nothing refers to it.
	Grace time.Duration
	// DryRun tells to change nothing, and to return what would be dropped, written down and
	// deleted.
	DryRun bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Timeout is that of sweeps, see lease.BeginSweep. 0 is for the default of 45 minutes.
	Timeout time.Duration
	// Progress is called now and then, nil for nobody.
	Progress func(Progress)
}

// Progress says how far a collection is.
type Progress struct {
	Step string `json:"step"` // what it does: drop, mark, sweep
	// Objects is how many objects were listed or deleted in this step so far.
	Objects int64 `json:"objects"`
}

// Amount is a number of objects with their size.
type Amount struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (a *Amount) add(bytes int64) { a.Objects, a.Bytes = a.Objects+1, a.Bytes+bytes }

// Amounts are amounts by the name of the kind.
type Amounts map[string]Amount

func (a Amounts) add(k Kind, bytes int64) {
	n := a[k.String()]
	n.add(bytes)
	a[k.String()] = n
}

// Total is the sum over all kinds.
func (a Amounts) Total() (sum Amount) {
	for _, n := range a {
		sum.Objects, sum.Bytes = sum.Objects+n.Objects, sum.Bytes+n.Bytes
	}
	return sum
}

// Result is what a collection did, or would do.
type Result struct {
	DryRun bool `json:"dry_run,omitempty"`
	// Nothing tells that nothing was ever published in the lake, so that nothing is collected.
	Nothing bool `json:"nothing_published,omitempty"`
	// Dropped are the versions that left the manifest, Kept is how many it has. Tagged of these are
	// kept for their tags alone.
	Dropped []string `json:"dropped_versions"`
	Kept    int      `json:"kept_versions"`
	Tagged  int      `json:"tagged_versions,omitempty"`
	// Held are versions that a server still reads, although the manifest lists them no longer.
	Held []Hold `json:"held_versions,omitempty"`
	// Objects is how many objects of the lake were looked at, besides staging.
	Objects Amount `json:"objects"`
	// Found is what nothing refers to and was not written down before.
	Found Amounts `json:"found"`
	// Deleted is what was deleted. Spared is what was written down before, but is referred to
	// again.
	Deleted Amounts `json:"deleted"`
	Spared  Amount  `json:"spared"`
	// Waiting is what was written down and waits for the end of its time of grace, the first of it
	// until Next.
	Waiting Amount     `json:"waiting"`
	Next    *time.Time `json:"next,omitempty"`
	// Uploads is nil for a store without uploads in parts.
	Uploads *Uploads `json:"uploads,omitempty"`
	// Unreadable says which batch records could not be read: all objects of these batches stay.
	Unreadable []string `json:"unreadable,omitempty"`
}

// Hold says which server holds a version until when, at the latest, unless it renews its lease.
type Hold struct {
	Version string    `json:"version"`
	Holder  string    `json:"holder"`
	Until   time.Time `json:"until"`
}

// collection is one run of Collect.
type collection struct {
	ctx   context.Context
	store blob.Store
	opt   Options
	out   Result
	now   time.Time
	dead  []blob.Info // leases that no server renews
}

// Collect collects the garbage of a lake.
func Collect(ctx context.Context, store blob.Store, opt Options) (Result, error) {
	if opt.Keep < 1 {
		return Result{}, fmt.Errorf("keep %d versions: want at least 1", opt.Keep)
	}
	if opt.Grace < 0 {
		return Result{}, fmt.Errorf("grace of %v: want at least 0s", opt.Grace)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Progress == nil {
		opt.Progress = func(Progress) {}
	}
	c := &collection{ctx: ctx, store: store, opt: opt, now: opt.Now()}
	c.out = Result{DryRun: opt.DryRun, Dropped: []string{}, Found: Amounts{}, Deleted: Amounts{}}
	err := c.run()
	if errors.Is(err, catalog.ErrNoVersion) {
		if err = catalog.CheckManifestPresent(ctx, store); err == nil {
			c.out.Nothing = true
		}
	}
	if err == nil {
		err = c.abortUploads()
	}
	if err != nil {
		return c.out, fmt.Errorf("collect garbage: %w", err)
	}
	return c.out, nil
}

func (c *collection) run() error {
	if err := lease.CheckSweepFormat(c.ctx, c.store); err != nil {
		return err
	}
	c.opt.Progress(Progress{Step: "drop"})
	m, refs, err := c.drop()
	if err != nil {
		return err
	}
	if refs == nil {
		if refs, err = c.references(m); err != nil {
			return err
		}
	}
	if err := c.mark(refs); err != nil {
		return err
	}
	if err := c.sweep(refs); err != nil {
		return err
	}
	return c.removeDead()
}

// drop drops expired versions, and returns the manifest without them. If it has dropped any, it
// returns what the others refer to, too: that is read before, so that an object that this program
// does not understand ends the collection before it has changed anything.
func (c *collection) drop() (m *catalog.Manifest, refs *references, err error) {
	if m, _, err = catalog.ReadManifest(c.ctx, c.store); err != nil {
		return nil, nil, err
	}
	expired := m.Expired(c.opt.Keep)
	left := *m
	left.Versions = slices.DeleteFunc(slices.Clone(m.Versions), func(v catalog.VersionRef) bool { return slices.Contains(expired, v) })
	if c.opt.DryRun {
		m = &left
	} else if len(expired) > 0 {
		if refs, err = c.references(&left); err != nil {
			return nil, nil, err
		}
		if err := refs.readUnpublished(c.ctx); err != nil {
			return nil, nil, err
		}
		if _, err := c.known(); err != nil {
			return nil, nil, err
		}
		// What they refer to is in use up to now, so its time of grace begins now, even if an
		// earlier collection has written it down.
		if err := c.renewGrace(expired); err != nil {
			return nil, nil, err
		}
		if expired, m, err = catalog.DropExpired(c.ctx, c.store, c.opt.Keep); err != nil {
			return nil, nil, err
		}
		if !slices.Equal(m.Versions, left.Versions) {
			refs = nil // somebody has published or dropped versions meanwhile
		}
	}
	for _, v := range expired {
		c.out.Dropped = append(c.out.Dropped, v.ID)
	}
	c.out.Kept = len(m.Versions)
	for _, v := range m.Versions[:max(0, len(m.Versions)-c.opt.Keep)] {
		if len(m.TagsOf(v.ID)) > 0 {
			c.out.Tagged++
		}
	}
	return m, refs, nil
}

// renewGrace removes from all lists what versions refer to that are about to be dropped.
func (c *collection) renewGrace(expired []catalog.VersionRef) error {
	lists, err := lease.TrashLists(c.ctx, c.store)
	if err != nil || len(lists) == 0 {
		return err
	}
	r := newReader(c.ctx, c.store)
	for _, v := range expired {
		if err := r.version(v); err != nil {
			return err
		}
	}
	refs := r.done()
	for _, ref := range lists {
		l, err := c.read(ref)
		if err != nil {
			return err
		}
		var left []lease.TrashObject
		for _, o := range l.Objects {
			p, ok := parse(o.Key)
			has := false
			if ok {
				if has, err = refs.has(c.ctx, o.Key, p); err != nil {
					return err
				}
			}
			if !has {
				left = append(left, o)
			}
		}
		if len(left) == len(l.Objects) {
			continue
		}
		if _, err := lease.WriteTrash(c.ctx, c.store, l.Created, each(left)); err != nil {
			return err
		}
		if err := c.store.Delete(c.ctx, ref.Key); err != nil {
			return err
		}
	}
	return nil
}

// references reads what must not be deleted.
func (c *collection) references(m *catalog.Manifest) (*references, error) {
	held, err := c.held(m)
	if err != nil {
		return nil, err
	}
	return readReferences(c.ctx, c.store, m, held)
}

// held returns the versions that servers hold although the manifest lists them no longer. A lease
// that cannot be read may hold any version, so it is an error.
func (c *collection) held(m *catalog.Manifest) (held []string, err error) {
	leases, err := lease.All(c.ctx, c.store)
	if err != nil {
		return nil, err
	}
	c.out.Held = nil
	for i := range leases {
		l := &leases[i]
		if l.Err != nil {
			return nil, fmt.Errorf("%w; it may hold any version", l.Err)
		}
		if !l.Live(c.opt.Now(), lease.MaxSkew) {
			c.dead = append(c.dead, l.Object)
			continue
		}
		for _, id := range l.Versions {
			if slices.ContainsFunc(m.Versions, func(v catalog.VersionRef) bool { return v.ID == id }) {
				continue
			}
			held = append(held, id)
			c.out.Held = append(c.out.Held, Hold{Version: id, Holder: l.Holder, Until: l.Expires.Add(lease.MaxSkew)})
		}
	}
	return held, nil
}

// removeDead removes the leases of servers that have died. They do not renew them any more.
func (c *collection) removeDead() error {
	var keys []string
	for _, o := range c.dead {
		if !slices.Contains(keys, o.Key) {
			keys = append(keys, o.Key)
			n := c.out.Deleted["leases"]
			n.add(o.Size)
			c.out.Deleted["leases"] = n
		}
	}
	if len(keys) == 0 || c.opt.DryRun {
		return nil
	}
	return c.store.Delete(c.ctx, keys...)
}

// mark lists all objects and writes down those that nothing refers to.
func (c *collection) mark(refs *references) error {
	known, err := c.known()
	if err != nil {
		return err
	}
	l := lister{c: c, refs: refs, known: known, count: map[uint64]counts{}}
	if err := l.list(); err != nil {
		return err
	}
	for b, err := range refs.unreadable {
		c.out.Unreadable = append(c.out.Unreadable, fmt.Sprintf("batch %s of dataset %d: %v", b.Batch, b.DatasetID, err))
	}
	slices.Sort(c.out.Unreadable)
	for i := range l.found {
		c.out.Found.add(l.found[i].kind, l.found[i].Bytes)
	}
	if c.opt.DryRun {
		for i := range l.found {
			if o, _ := parse(l.found[i].Key); c.grace(refs, o) == 0 {
				c.out.Deleted.add(o.kind, l.found[i].Bytes)
			}
		}
		return nil
	}
	slices.SortStableFunc(l.found, func(a, b garbage) int { return cmp.Compare(a.kind, b.kind) })
	objects := make([]lease.TrashObject, len(l.found))
	for i := range l.found {
		objects[i] = l.found[i].TrashObject
	}
	_, err = lease.WriteTrash(c.ctx, c.store, c.now, each(objects))
	return err
}

func each(all []lease.TrashObject) func(yield func(lease.TrashObject, error) bool) {
	return func(yield func(lease.TrashObject, error) bool) {
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// read reads a list. It is empty if another collection is done with it, and if it is damaged: what
// it named is found again.
func (c *collection) read(ref lease.TrashRef) (*lease.TrashList, error) {
	l, err := ref.Read(c.ctx, c.store)
	if errors.Is(err, blob.ErrNotExist) {
		return &lease.TrashList{}, nil
	}
	if errors.Is(err, codec.ErrCorrupt) {
		if err = nil; !c.opt.DryRun {
			err = c.store.Delete(c.ctx, ref.Key)
		}
		return &lease.TrashList{}, err
	}
	return l, err
}

// known returns hashes of the keys that are written down.
func (c *collection) known() (map[uint64]bool, error) {
	known := map[uint64]bool{}
	lists, err := lease.TrashLists(c.ctx, c.store)
	if err != nil {
		return nil, err
	}
	for _, ref := range lists {
		l, err := c.read(ref)
		if err != nil {
			return nil, err
		}
		for _, o := range l.Objects {
			known[xxh3.HashString(o.Key)] = true
		}
	}
	return known, nil
}

// grace returns how long an object that nothing refers to stays after it was written down.
func (c *collection) grace(refs *references, o object) time.Duration {
	switch {
	case o.kind == Reports:
		return max(c.opt.Grace, reportLife)
	case o.kind == SegmentFiles && refs.segments[o.name]:
		return max(c.opt.Grace, treeLife)
	}
	return c.opt.Grace
}

// due reports whether the time of grace of an object of a list has passed. By a clock that was set
// back it has not.
func (c *collection) due(refs *references, l lease.TrashRef, o object) bool {
	return c.now.Sub(l.Created) >= c.grace(refs, o)
}

// wait counts an object that stays until then.
func (c *collection) wait(o lease.TrashObject, until time.Time) {
	c.out.Waiting.add(o.Bytes)
	if c.out.Next == nil || until.Before(*c.out.Next) {
		c.out.Next = &until
	}
}

// sweep deletes what was written down long enough ago. Refs are for a dry run; else they are read
// again.
func (c *collection) sweep(refs *references) error {
	lists, err := lease.TrashLists(c.ctx, c.store)
	if err != nil {
		return err
	}
	var due []lease.TrashRef
	for _, ref := range lists {
		l, err := c.read(ref)
		if err != nil {
			return err
		}
		some := len(l.Objects) == 0
		for _, o := range l.Objects {
			if p, _ := parse(o.Key); c.due(refs, ref, p) {
				some = true
			} else {
				c.wait(o, ref.Created.Add(c.grace(refs, p)))
			}
		}
		if some {
			due = append(due, ref)
		}
	}
	for len(due) > 0 {
		left, err := c.sweepOnce(due, refs)
		if err != nil {
			return err
		}
		due = left
	}
	return nil
}

// sweepOnce deletes for about sweepTime, and returns the lists that are left.
func (c *collection) sweepOnce(due []lease.TrashRef, refs *references) (left []lease.TrashRef, err error) {
	var s *lease.Sweep
	if !c.opt.DryRun {
		if err := c.awaitLast(); err != nil {
			return nil, err
		}
		if s, err = lease.BeginSweep(c.ctx, c.store, c.opt.Timeout); err != nil {
			return nil, err
		}
		defer func() {
			if endErr := s.End(context.WithoutCancel(c.ctx)); err == nil {
				err = endErr
			}
		}()
		if refs, err = c.announced(s.Epoch()); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	for i, ref := range due {
		if i > 0 && time.Since(began) > sweepTime && !c.opt.DryRun {
			return due[i:], nil
		}
		if err := c.sweepList(s, refs, ref); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// awaitLast waits until the last sweep has ended, also if its document is lost.
func (c *collection) awaitLast() error {
	m, _, err := catalog.ReadManifest(c.ctx, c.store)
	if err != nil {
		return err
	}
	return lease.AwaitSweep(c.ctx, c.store, m.Swept)
}

// announced announces a sweep to all writers, and returns the references that they have written
// before. All that comes later waits.
func (c *collection) announced(epoch uint64) (*references, error) {
	if err := catalog.Announce(c.ctx, c.store, epoch); err != nil {
		return nil, err
	}
	if err := numbers.Announce(c.ctx, c.store, epoch); err != nil {
		return nil, err
	}
	m, _, err := catalog.ReadManifest(c.ctx, c.store)
	if err != nil {
		return nil, err
	}
	return c.references(m)
}

// sweepList deletes what a list names, and then the list. S is nil in a dry run.
func (c *collection) sweepList(s *lease.Sweep, refs *references, ref lease.TrashRef) error {
	l, err := c.read(ref)
	if err != nil {
		return err
	}
	var keys []string
	var sizes []lease.TrashObject
	flush := func() error {
		if s != nil && len(keys) > 0 {
			if err := s.Delete(c.ctx, keys...); err != nil {
				return err
			}
		}
		for _, o := range sizes {
			p, _ := parse(o.Key)
			c.out.Deleted.add(p.kind, o.Bytes)
		}
		keys, sizes = keys[:0], sizes[:0]
		c.opt.Progress(Progress{Step: "sweep", Objects: c.out.Deleted.Total().Objects})
		return nil
	}
	var early []lease.TrashObject
	for _, o := range l.Objects {
		p, ok := parse(o.Key)
		if !ok {
			continue // a later build wrote the list
		}
		if !c.due(refs, ref, p) {
			early = append(early, o)
			continue
		}
		has, err := refs.has(c.ctx, o.Key, p)
		if err != nil {
			return err
		}
		if has {
			c.out.Spared.add(o.Bytes)
			continue
		}
		// What names other objects is gone before they are.
		if len(sizes) > 0 && kindOf(sizes[0]) != p.kind || len(keys) == deletedAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
		keys, sizes = append(keys, o.Key), append(sizes, o)
	}
	if err := flush(); err != nil || s == nil {
		return err
	}
	if len(early) > 0 {
		if _, err := lease.WriteTrash(c.ctx, c.store, ref.Created, each(early)); err != nil {
			return err
		}
	}
	return c.store.Delete(c.ctx, ref.Key)
}

func kindOf(o lease.TrashObject) Kind {
	p, _ := parse(o.Key)
	return p.kind
}
