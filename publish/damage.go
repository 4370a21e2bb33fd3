package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish/lakecheck"
)

// damageFormat is the format version of the list of damaged batches, which lives as long as one
// publish.
const damageFormat = 1

// damage lists the batches that the builds of a run found damaged. The run's next plan leaves them
// out.
type damage struct {
	Format  int            `json:"format"`
	Batches []damagedBatch `json:"batches"`
	// Tableless are segments that could get no deletion table, since something is damaged.
	// The next plan builds them again.
	Tableless []string `json:"tableless,omitempty"`
}

type damagedBatch struct {
	segment.BatchRef
	Reason string `json:"reason"`
}

func damageKey(staging string) string { return staging + "publish-damaged.json" }

// readDamage reads why batches are damaged, and out of which segments no batches can be taken, from
// the list that the builds of a run have written.
func readDamage(
	ctx context.Context, store blob.Store, run string,
) (known map[segment.BatchRef]string, tableless map[string]bool, err error) {
	d, err := readDamageAt(ctx, store, damageKey(lake.StagingPrefix(run)))
	if err != nil {
		return nil, nil, err
	}
	known, tableless = map[segment.BatchRef]string{}, map[string]bool{}
	for _, b := range d.Batches {
		known[b.BatchRef] = b.Reason
	}
	for _, id := range d.Tableless {
		tableless[id] = true
	}
	return known, tableless, nil
}

func readDamageAt(ctx context.Context, store blob.Store, key string) (*damage, error) {
	d := &damage{Format: damageFormat}
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = codec.Unseal(data, key, damageFormat, d)
	}
	if err != nil {
		return nil, err
	}
	if d.Format != damageFormat {
		return nil, codec.Corrupt(key, "format", -1, damageFormat, d.Format)
	}
	return d, nil
}

// noteDamage finds the damaged batches of a segment, after its build met one, and adds them to the
// run's list; of a damaged union, all its batches. It reads all bytes from which the segment is
// built. It returns how many batches it added.
func noteDamage(ctx context.Context, store blob.Store, planKey string, all []planned) (int, error) {
	refs := refs(all)
	var found []damagedBatch
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, ref := range refs {
		g.Go(func() error {
			_, err := indexbuild.CheckBatch(gctx, store, ref, true)
			var d *postings.DamageError
			if !errors.As(err, &d) {
				return err
			}
			reason := lakecheck.Reason(gctx, store, ref, err)
			mu.Lock()
			defer mu.Unlock()
			for i := range all {
				if all[i].stored() == ref {
					found = append(found, damagedBatch{all[i].ref(), reason})
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return addDamage(ctx, store, planKey, found)
}

// noteCollision adds one of the batches that cannot be in one segment to the run's list: a new one
// if there is one, else one of an older segment, which then stays as it is.
func noteCollision(
	ctx context.Context, store blob.Store, planKey string, all []planned, c *indexbuild.CollisionError,
) (int, error) {
	has := func(ref segment.BatchRef) bool {
		return slices.Contains(c.Batches[0], ref) || slices.Contains(c.Batches[1], ref)
	}
	var blamed *planned
	for i := range all {
		if b := &all[i]; has(b.stored()) && (blamed == nil || b.New || !blamed.New) {
			blamed = b
		}
	}
	if blamed == nil {
		return 0, nil
	}
	reason := c.Error() + ", so no index can tell them apart: ingest the batch again without one of them"
	return addDamage(ctx, store, planKey, []damagedBatch{{blamed.ref(), reason}})
}

// addDamage adds batches to the list of the plan's run. It returns how many the list lacked.
func addDamage(ctx context.Context, store blob.Store, planKey string, found []damagedBatch) (int, error) {
	key := damageKey(path.Dir(planKey) + "/")
	list, err := readDamageAt(ctx, store, key)
	if err != nil {
		return 0, err
	}
	added := 0
	for _, f := range found {
		if !slices.ContainsFunc(list.Batches, func(b damagedBatch) bool { return b.BatchRef == f.BatchRef }) {
			list.Batches = append(list.Batches, f)
			added++
		}
	}
	if added == 0 {
		return 0, nil
	}
	data, err := codec.Seal(list)
	if err != nil {
		return 0, err
	}
	_, err = store.Put(ctx, key, data, blob.Condition{})
	return added, err
}

// publishable returns the finished batches that can be published, or removed if they are retired,
// and by digest the records of those that base lacks. It calls skip with each other batch and the
// reason; waits tells that the batch is sound, but cannot be published before another is mended.
// known has the damaged batches that builds of this run have found.
func publishable(
	ctx context.Context, store blob.Store, base *catalog.Version, finished []planned,
	live map[catalog.BatchName]catalog.Batch, known map[segment.BatchRef]string, skip func(b planned, reason string, waits bool),
) (good []planned, records map[string]*lake.Batch, err error) {
	read := make([]*lake.Batch, len(finished))
	reasons := make([]string, len(finished))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i, b := range finished {
		if live[b.name()].Digest == b.Digest || b.retired {
			continue
		}
		ref := b.ref()
		if reason, bad := known[ref]; bad {
			reasons[i] = reason
			continue
		}
		g.Go(func() (err error) {
			finished[i].from, read[i], err = lakecheck.Source(gctx, store, ref)
			if read[i] != nil {
				finished[i].Rows = read[i].Rows
			}
			var d *postings.DamageError
			if errors.As(err, &d) {
				reasons[i] = lakecheck.Reason(gctx, store, ref, err)
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	// A segment with an unreadable batch cannot be built again, unless that batch is replaced, or
	// retired, itself.
	replaced := map[catalog.BatchName]bool{}
	for i, b := range finished {
		if read[i] != nil || b.retired {
			replaced[b.name()] = true
		}
	}
	damaged, err := liveDamage(ctx, base, known)
	if err != nil {
		return nil, nil, err
	}
	blocked := map[string]string{} // reasons, by segment
	for _, b := range damaged {
		if !replaced[b.BatchName] {
			blocked[b.Segment] = fmt.Sprintf("the segment of the batch of the version cannot be built again: "+
				"that segment also has batch %s of dataset %d, which is damaged", b.Batch, b.DatasetID)
		}
	}
	again, covered := map[string]bool{}, int64(0) // segments with a replaced batch; batches of the plan
	for i, b := range finished {
		if was, ok := live[b.name()]; (read[i] != nil || b.retired) && ok {
			again[was.Segment] = true
		} else if read[i] != nil {
			covered++
		}
	}
	var older []catalog.Segment
	if base != nil {
		older = base.Segments
	}
	for i := range older {
		id := older[i].ID
		if n := base.CountIn(id); again[id] && covered+n <= maxPlanned {
			covered += n
		} else if again[id] && blocked[id] == "" {
			blocked[id] = fmt.Sprintf("the segment of the batch of the version has %d batches, and one publish covers at most %d",
				n, maxPlanned)
		}
	}
	records = map[string]*lake.Batch{}
	for i, b := range finished {
		if reasons[i] != "" {
			skip(b, reasons[i], false)
			continue
		}
		if was, ok := live[b.name()]; ok && was.Digest != b.Digest && blocked[was.Segment] != "" {
			skip(b, blocked[was.Segment], true)
			continue
		}
		good = append(good, b)
		if read[i] != nil {
			records[b.Digest] = read[i]
		}
	}
	return good, records, nil
}

// liveDamage returns the batches of base that are known to be damaged, by dataset and name.
func liveDamage(
	ctx context.Context, base *catalog.Version, known map[segment.BatchRef]string,
) (damaged []catalog.Batch, err error) {
	var names []catalog.BatchName
	for ref := range known {
		names = append(names, catalog.BatchName{DatasetID: ref.DatasetID, Batch: ref.Batch})
	}
	found, err := base.FindBatches(ctx, names)
	for _, b := range found {
		if _, bad := known[lakecheck.BatchRef(b)]; bad {
			damaged = append(damaged, b)
		}
	}
	slices.SortFunc(damaged, func(a, b catalog.Batch) int { return catalog.CompareNames(a.BatchName, b.BatchName) })
	return damaged, err
}

// frozen returns the segments of base that have a damaged batch, with the reasons.
func frozen(
	ctx context.Context, base *catalog.Version, known map[segment.BatchRef]string,
) (map[string]string, error) {
	damaged, err := liveDamage(ctx, base, known)
	out := map[string]string{}
	for _, b := range damaged {
		out[b.Segment] = known[lakecheck.BatchRef(b)]
	}
	return out, err
}

// isDamage reports whether an error says that an object is damaged, cut or missing, or that a batch
// cannot be indexed.
func isDamage(err error) bool {
	return errors.As(err, new(*postings.DamageError)) || lake.IsDamage(err)
}
