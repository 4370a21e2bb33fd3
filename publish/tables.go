package publish

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish/lakecheck"
)

// A batch that is retired or replaced is taken out of its segment by a deletion table, so that it
// costs what the batch costs. The segment stays, and so do the batch's own objects, until a
// compaction has written the segment's other batches to another one. A segment that would keep few
// rows is built again at once.

// LeastLeft is the least number of rows that have to be left of a segment whose rows are taken
// out by a deletion table. To build a smaller one again takes milliseconds, and frees the rows at
// once. It is a variable for tests.
var LeastLeft int64 = 4 << 10

// tabled is a segment of the base version that stays and gets a deletion table.
type tabled struct {
	Segment catalog.Segment `json:"segment"`
	Batches []planned       `json:"batches"` // as base has them, by dataset and name
}

// table returns the segment without replaced, which are batches with other ingests or retired ones,
// or false if it is to be built again.
func (c *chooser) table(s catalog.Segment, replaced []planned) (tabled, bool) {
	b := tabled{Segment: s}
	rows := s.Rows - s.Live()
	for i := range replaced {
		was := c.live[replaced[i].name()]
		rows += was.Rows
		b.Batches = append(b.Batches, liveOf(&was))
	}
	sortPlanned(b.Batches)
	left := s.Rows - rows
	ok := rows > 0 && left >= max(rows, LeastLeft, 1) && !c.flips() && !c.tableless[s.ID] &&
		c.base.CountIn(s.ID) > int64(len(replaced))
	return b, ok
}

// tables writes the deletion tables of the plan, as Built.Dead has them.
func (p *plan) tables(ctx context.Context, store blob.Store, planKey string) (tables []catalog.Dead, damaged int, err error) {
	for i := range p.Tables {
		b := &p.Tables[i]
		d, err := codec.Confirm(func() (catalog.Dead, error) { return deletion.OfBatches(ctx, store, &b.Segment, dead(b.Batches)) })
		if err != nil && isDamage(err) {
			// The other batches of the segment may be sound.
			return nil, 1, noteTableless(ctx, store, planKey, b.Segment.ID)
		}
		if err != nil {
			return nil, 0, err
		}
		tables = append(tables, d)
	}
	return tables, 0, nil
}

// dead returns batches as package deletion names them.
func dead(batches []planned) []deletion.Batch {
	out := make([]deletion.Batch, len(batches))
	for i := range batches {
		b := &batches[i]
		if out[i] = (deletion.Batch{Stored: b.stored(), Rows: b.Rows}); b.Union != "" {
			out[i].Member = b.Batch
		}
	}
	return out
}

// noteTableless adds a segment to those that the next plan of the run builds again.
func noteTableless(ctx context.Context, store blob.Store, planKey, id string) error {
	key := damageKey(path.Dir(planKey) + "/")
	list, err := readDamageAt(ctx, store, key)
	if err != nil || slices.Contains(list.Tableless, id) {
		return err
	}
	list.Tableless = append(list.Tableless, id)
	return lake.WriteSealed(ctx, store, key, list)
}

// tableOf returns the segment of the plan with that id, or nil.
func (p *plan) tableOf(id string) *tabled {
	for i := range p.Tables {
		if p.Tables[i].Segment.ID == id {
			return &p.Tables[i]
		}
	}
	return nil
}

// tablesThere returns errStale unless the deletion tables that were built are there.
func tablesThere(ctx context.Context, store blob.Store, dead []catalog.Dead) error {
	for i := range dead {
		err := lakecheck.Object(ctx, store, dead[i].Table.Object, false)
		if errors.Is(err, codec.ErrCorrupt) {
			return errStale
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// partialUnions returns the unions that have dead batches, in the segments of base that the plan
// replaces. If the list of dead batches is damaged, it may be any union of the plan.
func (p *plan) partialUnions(ctx context.Context, base *catalog.Version) (map[unionName]bool, error) {
	partial := map[unionName]bool{}
	for id := range p.replaced() {
		for b, err := range base.DeadIn(ctx, id) {
			if isDamage(err) {
				eachPlanned(p, func(b *planned) {
					if b.Union != "" {
						partial[unionName{b.DatasetID, b.Union}] = true
					}
				})
				break
			}
			if err != nil {
				return nil, err
			}
			if b.Union != "" {
				partial[unionName{b.DatasetID, b.Union}] = true
			}
		}
	}
	return partial, nil
}
