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
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/pack"
	"github.com/urlake/urlake/lake/registry"
	"github.com/urlake/urlake/lake/trash"
)

// Compaction says what a compaction is to do.
type Compaction struct {
	// Full asks for one segment, with one union of all batches of each dataset. Without it, a
	// compaction merges small segments, and does nothing if there are at most TargetSegments.
	Full bool `json:"full,omitempty"`
}

// largeParts is the average size of the parts of a batch, in bytes, from which on a union would not
// be better: the parts of a partition end at part.PartBytes before compression.
const largeParts = 64 << 20

// mostSegments is the number of segments that a compaction leaves at most, whatever their sizes.
const mostSegments = 16

// ChooseSegments returns which segments a compaction merges into one: none if there are at most
// TargetSegments. Of the k smallest ones, k at least 3, the largest has to have at most half the
// rows of the others together; the largest such k is chosen. So a row is written again only with
// two times as many others, and the number of times grows with the logarithm of the lake (see
// TestWriteAmplification). If there is no such k, the two smallest are merged if there are more
// than mostSegments. rows are the sizes of the segments; the result has their indices, ascending by
// size.
func ChooseSegments(rows []int64) []int {
	if len(rows) <= TargetSegments {
		return nil
	}
	order := bySize(rows)
	sum, chosen := int64(0), 0
	for i, at := range order {
		if i >= 2 && rows[at] <= sum/2 {
			chosen = i + 1
		}
		sum += rows[at]
	}
	if chosen == 0 && len(rows) > mostSegments {
		chosen = 2
	}
	return order[:chosen]
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
// writes the plan to the staging of run. The next steps are those of a publish: Unite, if the
// summary has tasks for it, and then PlanCompaction again; Build, Verify and Commit. A publish may
// come first at any time. If it has changed what the plan replaces, Commit says that the plan is
// stale.
func PlanCompaction(ctx context.Context, store blob.Store, run string, round int, c Compaction) (Summary, error) {
	var s Summary
	err := withPieces(ctx, store, func() (err error) {
		s, err = planCompaction(ctx, store, run, round, c)
		return err
	})
	if err != nil {
		return Summary{}, fmt.Errorf("plan compaction: %w", err)
	}
	return s, nil
}

func planCompaction(ctx context.Context, store blob.Store, run string, round int, c Compaction) (s Summary, err error) {
	m, _, err := manifest.Read(ctx, store)
	if errors.Is(err, manifest.ErrNoVersion) {
		return Summary{Nothing: true}, nil
	}
	if err != nil {
		return Summary{}, err
	}
	if err := trash.Await(ctx, store, m.Swept); err != nil {
		return Summary{}, err
	}
	// The commit reads these. What keeps it from that is found before the work.
	if err := errors.Join(registry.CheckFormats(ctx, store), checkTakedowns(ctx, store, m)); err != nil {
		return Summary{}, err
	}
	base, err := readVersion(ctx, store, m)
	if err != nil {
		return Summary{}, err
	}
	s.Current = base.ID
	known, err := readDamage(ctx, store, run)
	if err != nil {
		return Summary{}, err
	}
	frozen, err := frozen(ctx, base, known)
	if err != nil {
		return Summary{}, err
	}
	p := &plan{
		Format: planFormat, Base: base.ID, Swept: m.Swept, CanonicalForm: base.CanonicalForm, PublicSuffix: base.PublicSuffix,
		Replaces: []string{}, Datasets: []lake.Dataset{}, Batches: []planned{},
	}
	for _, chosen := range c.choose(base, frozen) {
		batches, err := carry(ctx, base, chosen.ID, nil)
		if err != nil {
			return Summary{}, err
		}
		p.Replaces = append(p.Replaces, chosen.ID)
		p.Batches = append(p.Batches, batches...)
	}
	slices.Sort(p.Replaces)
	sortPlanned(p.Batches)
	written, err := readUnited(ctx, store, run)
	if err != nil {
		return Summary{}, err
	}
	need, applied := p.unite(written)
	if len(need) > 0 {
		s.UniteKey, s.UniteSplits, err = writeUnitePlan(ctx, store, run, round, need)
		return s, err
	}
	if len(p.Replaces) < 2 && applied == 0 {
		s.Nothing = true
		return s, nil
	}
	view := pack.NewView(store)
	addPlanned(view, p.Batches)
	if err := p.repack(ctx, view); err != nil {
		return Summary{}, err
	}
	for i := range p.Batches {
		s.Rows += p.Batches[i].Rows
	}
	s.Covered, s.Segments, s.Unions = len(p.Batches), len(p.Replaces), applied
	s.PlanKey, err = p.write(ctx, store, run, round)
	return s, err
}

// choose returns the segments of base that are to become one. Segments in frozen cannot be built
// again and stay. A plan covers at most maxPlanned batches.
func (c *Compaction) choose(base *manifest.Version, frozen map[string]string) (chosen []manifest.Segment) {
	var sound []manifest.Segment
	var rows []int64
	for _, s := range base.Segments {
		if _, ok := frozen[s.ID]; !ok {
			sound = append(sound, s)
			rows = append(rows, s.Rows)
		}
	}
	order := ChooseSegments(rows)
	if c.Full {
		order = bySize(rows)
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

// unite gives the batches of a dataset that has several sources a union, if it is written, and
// returns the unions that are not. applied is the number of unions that were given.
func (p *plan) unite(written map[unionName]unionWritten) (need []uniteTask, applied int) {
	for from := 0; from < len(p.Batches); {
		to := from
		for to < len(p.Batches) && p.Batches[to].DatasetID == p.Batches[from].DatasetID {
			to++
		}
		batches := small(p.Batches[from:to])
		from = to
		values := make([]planned, len(batches))
		for i := range batches {
			values[i] = *batches[i]
		}
		if len(refs(values)) < 2 {
			continue
		}
		job := newJob(values, p.CanonicalForm, p.PublicSuffix)
		u, ok := written[unionName{job.DatasetID, job.Name()}]
		switch {
		case !ok:
			need = append(need, job)
		case u.Damaged == "":
			u.apply(batches)
			applied++
		}
	}
	return need, applied
}

// small returns the batches, of one dataset, that are worth to be united: those without large
// parts.
func small(batches []planned) (out []*planned) {
	type size struct{ parts, bytes int64 }
	sizes := map[segment.BatchRef]size{}
	for i := range batches {
		ref := batches[i].stored()
		s := sizes[ref]
		sizes[ref] = size{s.parts + batches[i].Parts, s.bytes + batches[i].Bytes}
	}
	for i := range batches {
		if s := sizes[batches[i].stored()]; s.parts == 0 || s.bytes/s.parts < largeParts {
			out = append(out, &batches[i])
		}
	}
	return out
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
		if len(plan.UniteSplits) > 0 {
			if err := uniteTasks(ctx, store, &plan, tempDir); err != nil {
				return Committed{}, err
			}
			continue
		}
		done, again, err := buildAndCommit(ctx, store, plan.PlanKey, round, tempDir)
		if err != nil || !again {
			return done, err
		}
	}
}
