package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish/rewrite"
	"github.com/urlake/urlake/publish/suppress"
)

// Compaction says what a compaction is to do.
type Compaction struct {
	// Full asks for as few segments and as few unions of each dataset as their largest sizes allow:
	// one, unless a lake is large. Without it, a compaction merges small segments if there are more
	// than TargetSegments, and writes segments with many dead rows again. Either way it writes
	// those again that have rows which takedowns hide, without them.
	Full bool `json:"full,omitempty"`
}

// largeParts is the average size of the parts of a batch, in bytes, from which on a union would not
// be better: the parts of a partition end at part.PartBytes before compression.
var largeParts int64 = 64 << 20

// worthDead: a compaction writes a segment again if one in so many of its rows is dead.
const worthDead = 8

// manyDead reports whether so many rows of a segment are dead that a compaction writes it again.
func manyDead(s catalog.Segment) bool { return s.Dead != nil && s.Dead.Rows >= s.Rows/worthDead }

// mostSegments is the number of segments that a compaction leaves at most, besides full ones.
const mostSegments = 16

// full reports whether a segment of so many rows is not merged any more: two of them are more than
// one may have.
func full(rows int64) bool { return rows > MaxSegmentRows/2 }

// ChooseSegments returns which segments a compaction merges into one, of at most MaxSegmentRows:
// none if at most TargetSegments are not full. Of the k smallest ones, k at least 3, the largest
// has to have at most half the rows of the others together; the largest such k is chosen. So a row
// is written again only with two times as many others, and the number of times grows with the
// logarithm of the lake (see TestWriteAmplification). If there is no such k, the two smallest are
// merged if more than mostSegments are not full. rows are the sizes of the segments; the result has
// their indices, ascending by size.
func ChooseSegments(rows []int64) []int {
	order := slices.DeleteFunc(bySize(rows), func(i int) bool { return full(rows[i]) })
	if len(order) <= TargetSegments {
		return nil
	}
	sum, chosen := int64(0), 0
	for i, at := range order {
		half := sum / 2
		if sum += rows[at]; sum > MaxSegmentRows {
			break
		}
		if i >= 2 && rows[at] <= half {
			chosen = i + 1
		}
	}
	if chosen == 0 && len(order) > mostSegments {
		chosen = 2
	}
	return order[:chosen]
}

// liveRows returns the sizes of segments.
func liveRows(segments []catalog.Segment) []int64 {
	rows := make([]int64, len(segments))
	for i := range segments {
		rows[i] = segments[i].Live()
	}
	return rows
}

// bySize returns the indices of rows, ascending by size.
func bySize(rows []int64) []int {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rows[a], rows[b]) })
	return order
}

// PlanCompaction plans a version with the same batches in fewer segments and fewer parts, and
// writes the plan to the staging of run. The next steps are those of a publish: Rewrite, if the
// summary has tasks for it, and then PlanCompaction again; Build, Verify and Commit. A publish may
// come first at any time. If it has changed what the plan replaces, Commit says that the plan is
// stale.
func PlanCompaction(ctx context.Context, store blob.Store, run string, round int, c Compaction) (Summary, error) {
	for {
		var s Summary
		before, _, _ := catalog.ReadManifest(ctx, store)
		err := withPieces(ctx, store, func([]string) (err error) {
			s, err = planCompaction(ctx, store, run, round, c)
			return err
		})
		if errors.Is(err, codec.ErrCorrupt) && before != nil {
			// What a later manifest refers to no longer may be collected while it is read.
			if now, _, readErr := catalog.ReadManifestUnchecked(ctx, store); readErr == nil && now.Generation != before.Generation {
				continue
			}
		}
		if err != nil {
			return Summary{}, fmt.Errorf("plan compaction: %w", err)
		}
		return s, nil
	}
}

func planCompaction(ctx context.Context, store blob.Store, run string, round int, c Compaction) (s Summary, err error) {
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return Summary{Nothing: true}, nil
	}
	if err != nil {
		return Summary{}, err
	}
	if err := lease.AwaitSweep(ctx, store, m.Swept); err != nil {
		return Summary{}, err
	}
	// The commit reads these. What keeps it from that is found before the work.
	if err := errors.Join(catalog.CheckFormats(ctx, store), checkTakedowns(ctx, store, m)); err != nil {
		return Summary{}, err
	}
	ref, err := m.Version("")
	if err != nil {
		return Summary{}, err
	}
	base, err := catalog.ReadVersion(ctx, store, ref)
	if err != nil {
		return Summary{}, err
	}
	s.Current = base.ID
	known, _, err := readDamage(ctx, store, run)
	if err != nil {
		return Summary{}, err
	}
	frozen, err := frozen(ctx, base, known)
	if err != nil {
		return Summary{}, err
	}
	drops, err := suppress.ReadDropping(ctx, store, m, base)
	if err != nil {
		return Summary{}, err
	}
	for i := range base.Segments {
		seg := &base.Segments[i]
		if _, ok := frozen[seg.ID]; ok {
			continue
		}
		err := drops.Add(ctx, seg)
		if errors.Is(err, codec.ErrCorrupt) {
			frozen[seg.ID] = err.Error() // its rows stay hidden
		} else if err != nil {
			return Summary{}, err
		}
	}
	p := &plan{
		Format: planFormat, Base: base.ID, Swept: m.Swept, CanonicalForm: base.CanonicalForm, PublicSuffix: base.PublicSuffix,
		Datasets: []lake.Dataset{},
	}
	dead := false
	for _, chosen := range c.choose(base, frozen, drops) {
		dead = dead || chosen.Dead != nil
		batches, err := carry(ctx, base, chosen.ID, nil)
		if err != nil {
			return Summary{}, err
		}
		p.Drops = append(p.Drops, chosen.ID)
		p.loose = append(p.loose, batches...)
	}
	sortPlanned(p.loose)
	if _, err := base.FindDatasets(ctx, idsOf(p.loose)); err != nil { // the commit reads these, too
		return Summary{}, err
	}
	written, _, err := readRewritten(ctx, store, run, round, p.PublicSuffix)
	if err != nil {
		return Summary{}, err
	}
	partial, err := p.partialUnions(ctx, base)
	if err != nil {
		return Summary{}, err
	}
	need, applied, err := p.unite(ctx, store, written, drops, partial, &s)
	if err != nil {
		return Summary{}, err
	}
	if len(need) > 0 {
		err = s.order(ctx, store, run, round, p.PublicSuffix, unionOrders(need))
		return s, err
	}
	if len(p.segments()) >= len(p.Drops) && applied == 0 && !dead {
		s.Nothing = true
		return s, nil
	}
	for i := range p.loose {
		s.Rows += p.loose[i].Rows
	}
	s.Covered, s.Segments, s.Unions = len(p.loose), len(p.Drops), applied
	err = p.write(ctx, store, run, round, &s)
	return s, err
}

// choose returns the segments of base that are to be merged, among them all with hidden rows.
// Segments in frozen cannot be built again and stay. A plan covers at most maxPlanned batches.
func (c *Compaction) choose(
	base *catalog.Version, frozen map[string]string, drops *suppress.Dropping,
) (chosen []catalog.Segment) {
	var sound []catalog.Segment
	for _, s := range base.Segments {
		if _, ok := frozen[s.ID]; !ok {
			sound = append(sound, s)
		}
	}
	rows := liveRows(sound)
	var order []int
	for i := range sound {
		if drops.Hides(&sound[i]) {
			order = append(order, i)
		}
	}
	bySizes := ChooseSegments(rows)
	if c.Full {
		bySizes = bySize(rows)
	}
	for _, i := range bySizes {
		if !drops.Hides(&sound[i]) {
			order = append(order, i)
		}
	}
	for i, s := range sound {
		if manyDead(s) && !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	batches := int64(0)
	for _, i := range order {
		if batches += base.CountIn(sound[i].ID); batches > maxPlanned {
			break
		}
		chosen = append(chosen, sound[i])
	}
	return chosen
}

// toUnite is a union that a plan asks for, and the batches that are to be in it.
type toUnite struct {
	*rewrite.Job
	batches []*planned
}

// newUnion returns the union of batches of a dataset, by name.
func newUnion(batches []*planned, form, suffix string) *toUnite {
	values := make([]planned, len(batches))
	for i := range batches {
		values[i] = *batches[i]
	}
	return &toUnite{newJob(values, form, suffix), batches}
}

// unite gives the batches of a dataset that has several sources, hidden rows or a partial union, a
// union, if it is written, and returns the unions that are not. applied is the number of unions
// that were given. It sets what the summary says of dropped rows.
func (p *plan) unite(
	ctx context.Context, store blob.Store, written map[unionName]unionWritten, drops *suppress.Dropping,
	partial map[unionName]bool, s *Summary,
) (need []*rewrite.Job, applied int, err error) {
	var unions []*toUnite
	var jobs []*rewrite.Job
	for from := 0; from < len(p.loose); {
		to := from
		for to < len(p.loose) && p.loose[to].DatasetID == p.loose[from].DatasetID {
			to++
		}
		for _, batches := range together(p.loose[from:to], drops, partial) {
			u := newUnion(batches, p.CanonicalForm, p.PublicSuffix)
			dropHidden(u.Job, drops)
			if len(u.Sources) > 1 || len(u.Rules) > 0 || partial[unionName{u.DatasetID, u.Sources[0].Batch}] {
				unions, jobs = append(unions, u), append(jobs, u.Job)
			}
		}
		from = to
	}
	if drops != nil {
		if err := nameTakedowns(ctx, store, jobs); err != nil {
			return nil, 0, err
		}
	}
	for _, t := range unions {
		u, ok := written[unionName{t.DatasetID, t.Name()}]
		switch {
		case !ok:
			need = append(need, t.Job)
		case u.Damaged == "":
			u.apply(t.batches)
			applied++
			s.Dropped += u.Dropped
			if len(t.Rules) > 0 {
				p.Rules = append(p.Rules, t.Rules...)
			}
		}
	}
	slices.Sort(p.Rules)
	p.Rules = slices.Compact(p.Rules)
	return need, applied, nil
}

// maxUnionRows is the number of rows from which on a union is not made larger. Its parts have their
// full size long before.
func maxUnionRows() int64 { return MaxSegmentRows / 8 }

// together groups the batches of a dataset that are worth to be united: those without large parts.
// What has large parts is written again by itself if it has hidden rows, or is a partial union.
func together(batches []planned, drops *suppress.Dropping, partial map[unionName]bool) (groups [][]*planned) {
	type size struct{ parts, bytes, rows int64 }
	sizes := map[segment.BatchRef]size{}
	for i := range batches {
		ref := batches[i].stored()
		s := sizes[ref]
		sizes[ref] = size{s.parts + batches[i].Parts, s.bytes + batches[i].Bytes, s.rows + batches[i].Rows}
	}
	group := map[segment.BatchRef]int{}
	open, rows := -1, int64(0) // the group of small parts that is filled, and its rows
	for i := range batches {
		ref := batches[i].stored()
		s := sizes[ref]
		at, ok := group[ref]
		switch small := s.parts == 0 || s.bytes/s.parts < largeParts; {
		case ok:
		case small && open >= 0 && rows+s.rows <= maxUnionRows():
			at, rows = open, rows+s.rows
		case small:
			at, open, rows = len(groups), len(groups), s.rows
		case drops.In(ref.DatasetID, ref.Batch) != nil || partial[unionName{ref.DatasetID, ref.Batch}]:
			at = len(groups)
		default:
			continue
		}
		if group[ref] = at; at == len(groups) {
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], &batches[i])
	}
	return groups
}

// CompactAll compacts a lake in this process, with the steps that CompactWorkflow runs on workers,
// and returns the version. run names its staging, which CompactAll removes.
func CompactAll(ctx context.Context, store blob.Store, run string, c Compaction, tempDir string) (Committed, error) {
	defer func() { _ = lake.DeleteStaging(ctx, store, run) }()
	for round := 0; ; round++ {
		plan, err := PlanCompaction(ctx, store, run, round, c)
		if err != nil {
			return Committed{}, err
		}
		if plan.Nothing {
			return Committed{Version: plan.Current, Existed: true}, nil
		}
		if plan.RewriteTasks > 0 {
			if err := rewriteTasks(ctx, store, &plan, tempDir); err != nil {
				return Committed{}, err
			}
			continue
		}
		done, again, err := buildAndCommit(ctx, store, plan.PlanKey, plan.Builds, round, tempDir)
		if err != nil || !again {
			return done, err
		}
	}
}
