package publish

import (
	"context"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish/rewrite"
)

// A union (package rewrite) holds the rows of several batches of a dataset. A compaction makes
// unions. A publish that replaces or retires a batch of a union makes a union of the others, unless
// a deletion table takes the batch out.

// unionName names a union of a dataset.
type unionName struct {
	dataset uint32
	name    string
}

// newJob returns the union of batches of a dataset, by name, whose rows follow the rules of the
// version.
func newJob(batches []planned, form, suffix string) *rewrite.Job {
	t := &rewrite.Job{DatasetID: batches[0].DatasetID, CanonicalForm: form, PublicSuffix: suffix}
	at := map[segment.BatchRef]int{}
	for i := range batches {
		b := &batches[i]
		t.Members = append(t.Members, lake.Member{Batch: b.Batch, Digest: b.Digest, Rows: b.Rows})
		ref := b.stored()
		n, ok := at[ref]
		if !ok {
			n = len(t.Sources)
			at[ref] = n
			t.Sources = append(t.Sources, rewrite.Source{Batch: ref.Batch, Digest: ref.Digest})
		}
		t.Sources[n].Bytes += b.Bytes
		if b.Union != "" {
			t.Sources[n].Take = append(t.Sources[n].Take, b.Batch)
		}
	}
	return t
}

// apply gives batches, which are those of a job, the union that was written for it.
func (u *unionWritten) apply(batches []*planned) {
	for i, b := range batches {
		if len(u.Members) == len(batches) {
			b.Rows = u.Members[i].Rows
		}
		b.Union, b.UnionDigest, b.Parts, b.Bytes = u.Name, u.Digest, 0, 0
		if i == 0 {
			b.Parts, b.Bytes = u.Parts, u.Bytes
		}
	}
}

// brokenUnions returns the unions of the base version of which batches are replaced or retired.
func (p *plan) brokenUnions(c *chooser) map[unionName]bool {
	broken := map[unionName]bool{}
	note := func(b *planned) {
		if was, ok := c.live[b.name()]; ok && b.Replaces != "" && was.Union != "" && b.Union == "" {
			broken[unionName{b.DatasetID, was.Union}] = true
		}
	}
	eachPlanned(p, note)
	for i := range p.Removes {
		note(&p.Removes[i])
	}
	return broken
}

// inUnions returns the new batches whose rows only a union still has.
func (p *plan) inUnions() (all []*planned) {
	eachPlanned(p, func(b *planned) {
		if b.New && lake.IsUnionName(b.from.Batch) {
			all = append(all, b)
		}
	})
	return all
}

// trim gives the batches that are left of broken unions a union of their own, and each batch of
// single too. It returns the unions that have to be written before. written are those that the run
// has written.
func (p *plan) trim(
	ctx context.Context, store blob.Store, broken map[unionName]bool, single []*planned, rules lake.Rules,
	written map[unionName]unionWritten,
) (need []*rewrite.Job, err error) {
	var unions []*toUnite
	for _, b := range single {
		from := *b
		from.Union, from.UnionDigest = b.from.Batch, b.from.Digest
		u := newUnion([]*planned{&from}, rules.CanonicalForm, rules.PublicSuffix)
		u.batches = []*planned{b}
		unions = append(unions, u)
	}
	left := map[unionName][]*planned{}
	eachPlanned(p, func(b *planned) {
		if name := (unionName{b.DatasetID, b.Union}); broken[name] {
			left[name] = append(left[name], b)
		}
	})
	for _, batches := range left {
		slices.SortFunc(batches, func(a, b *planned) int { return strings.Compare(a.Batch, b.Batch) })
		unions = append(unions, newUnion(batches, rules.CanonicalForm, rules.PublicSuffix))
	}
	jobs := make([]*rewrite.Job, len(unions))
	for i := range unions {
		jobs[i] = unions[i].Job
	}
	if err := nameTakedowns(ctx, store, jobs); err != nil {
		return nil, err
	}
	for _, t := range unions {
		if u, ok := written[unionName{t.DatasetID, t.Name()}]; ok && u.Damaged == "" {
			u.apply(t.batches)
		} else {
			need = append(need, t.Job)
		}
	}
	slices.SortFunc(need, compareJobs)
	return need, nil
}

// compareJobs orders unions by dataset and name.
func compareJobs(a, b *rewrite.Job) int {
	return catalog.CompareNames(catalog.BatchName{DatasetID: a.DatasetID, Batch: a.Name()},
		catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Name()})
}

// eachPlanned calls do with each batch of the new segments.
func eachPlanned(p *plan, do func(b *planned)) {
	for i := range p.loose {
		do(&p.loose[i])
	}
	for i := range p.Segments {
		for j := range p.Segments[i].Batches {
			do(&p.Segments[i].Batches[j])
		}
	}
}
