package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/indexbuild/repair"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/indexbuild/unite"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/remedy"
	"github.com/urlake/urlake/lake/takedown"
)

// unions mends the damaged unions of all versions, and returns the version that is current then.
func (r *rebuilder) unions(base *manifest.Version, older []*manifest.Version) (*manifest.Version, error) {
	defer func() { r.earlier = false }()
	done := map[segment.BatchRef]bool{}
	for i, v := range append([]*manifest.Version{base}, older...) {
		r.earlier = i > 0
		for _, s := range v.Segments {
			unions := map[segment.BatchRef][]manifest.Batch{}
			var order []segment.BatchRef
			for b, err := range v.BatchesIn(r.ctx, s.ID) {
				if err != nil {
					if err := r.unmended(err); err != nil {
						return nil, err
					}
					break
				}
				ref := lakecheck.StoredRef(b)
				if b.Union == "" || done[ref] {
					continue
				}
				if unions[ref] == nil {
					order = append(order, ref)
				}
				unions[ref] = append(unions[ref], b)
			}
			changed := map[unionName]unionWritten{}
			for _, ref := range order {
				done[ref] = true
				u, err := r.union(v, ref, unions[ref])
				if err != nil {
					return nil, err
				}
				if u.Digest != "" && u.Digest != ref.Digest {
					changed[unionName{ref.DatasetID, ref.Batch}] = u
				}
			}
			if len(changed) > 0 && !r.earlier {
				if err := r.replaceUnions(v, s.ID, changed); err != nil {
					return nil, err
				}
				return published.Current(r.ctx, r.store)
			}
		}
	}
	return base, nil
}

// union checks all bytes of a union of a version, and writes it again from its batches if it is
// damaged. Usually it gets its bytes back. One that was moved to another public suffix list, or
// that another build made, has another digest then. The result is zero if nothing was written.
func (r *rebuilder) union(v *manifest.Version, ref segment.BatchRef, batches []manifest.Batch) (u unionWritten, err error) {
	// Postings come back from the parts. If parts are damaged too, what follows finds that.
	if n, err := repair.RestorePostings(r.ctx, r.store, ref, r.tempDir); err == nil {
		r.out.Postings += n
	}
	form, suffix := v.CanonicalForm, v.PublicSuffix
	known := r.record(ref)
	if known != nil {
		form, suffix = known.CanonicalForm, known.PublicSuffix
	}
	record, err := lakecheck.Batch(r.ctx, r.store, ref)
	if err == nil {
		for _, p := range record.Parts {
			if err = lakecheck.Object(r.ctx, r.store, p.Object, true); err != nil {
				break
			}
		}
	}
	var d *postings.DamageError
	if err == nil || !errors.As(err, &d) && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return u, err
	}
	var from []planned
	for _, b := range batches {
		own := lakecheck.BatchRef(b)
		source, has, sourceErr := lakecheck.Source(r.ctx, r.store, own, ref)
		if errors.As(sourceErr, &d) {
			lost := fmt.Errorf("batch %s of dataset %d: its union %s is damaged, and its own parts are not all left", b.Batch, b.DatasetID, ref.Batch)
			r.addUnmended(lost, lost.Error()+"; "+remedy.Of(r.store.URL(), own.Key())+"; then mend the union with publish --rebuild")
			continue
		}
		if sourceErr != nil {
			return u, sourceErr
		}
		p := planned{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest, Rows: has.Rows, Bytes: 1}
		if lake.IsUnionName(source.Batch) {
			p.Union, p.UnionDigest = source.Batch, source.Digest
		}
		from = append(from, p)
	}
	if len(from) < len(batches) {
		return u, nil
	}
	job := newJob(from, form, suffix)
	hide, err := r.dropAgain(&job, known, batches)
	if err != nil {
		return u, r.unmended(err)
	}
	run := "rebuild-" + ref.Digest
	defer func() { _ = lake.DeleteStaging(r.ctx, r.store, run) }()
	u = unionWritten{DatasetID: ref.DatasetID}
	if u.Result, err = unite.Do(r.ctx, r.store, run, &job.Job, unite.Options{TempDir: r.tempDir, Hide: hide}); err != nil {
		return unionWritten{}, r.unmended(err)
	}
	if u.Digest == ref.Digest {
		addLines(&r.out.Unions, ref.Key())
	}
	if u.Members == nil {
		u.Members = job.Members
	}
	u.rules = job.Rules
	return u, nil
}

// record returns the record of a union, nil if it is damaged.
func (r *rebuilder) record(ref segment.BatchRef) *lake.Batch {
	data, _, err := r.store.Get(r.ctx, ref.Key())
	if err != nil {
		return nil
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return nil
	}
	return record
}

// dropAgain makes the job of a damaged union drop what the union lacked because of takedowns, as
// far as these are in force, and returns them. Known is the union's record, nil if it is lost;
// batches are those of the union as the version has them.
func (r *rebuilder) dropAgain(
	job *uniteTask, known *lake.Batch, batches []manifest.Batch,
) (hide *takedown.Rules, err error) {
	lacks := false
	for i, m := range job.Members {
		lacks = lacks || m.Rows != batches[i].Rows
	}
	if known != nil {
		job.Takedowns = known.Takedowns
	} else if err := job.NameTakedowns(r.ctx, r.store); err != nil {
		return nil, err
	}
	if !lacks {
		return nil, nil
	}
	rules, err := suppress.Rules(r.ctx, r.store)
	if err != nil {
		return nil, err
	}
	if known != nil {
		rules, _ = rules.Pick(known.Takedowns)
	}
	if err := job.Hides(r.ctx, r.store, rules); err != nil {
		return nil, err
	}
	hide, _ = rules.Pick(job.Rules)
	job.Takedowns = slices.Concat(job.Takedowns, job.Rules)
	slices.Sort(job.Takedowns)
	job.Takedowns = slices.Compact(job.Takedowns)
	return hide, nil
}

// replaceUnions commits a version that has other unions of the same batches in one of its segments.
func (r *rebuilder) replaceUnions(v *manifest.Version, id string, unions map[unionName]unionWritten) error {
	batches, err := carry(r.ctx, v, id, nil)
	if err != nil {
		return err
	}
	p := &plan{
		Format: planFormat, Base: v.ID, CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix,
		Replaces: []string{id}, Datasets: []lake.Dataset{}, Batches: sortPlanned(batches),
	}
	members := map[unionName][]*planned{}
	eachPlanned(p, func(b *planned) {
		name := unionName{b.DatasetID, b.Union}
		if _, ok := unions[name]; ok {
			members[name] = append(members[name], b)
		}
	})
	for name, u := range unions {
		u.apply(members[name])
		p.Drops = append(p.Drops, u.rules...)
	}
	m, _, err := manifest.Read(r.ctx, r.store)
	if err != nil {
		return err
	}
	p.Swept = m.Swept
	run := "rebuild-" + lake.Digest(fmt.Appendf(nil, "unions of segment %s of version %s", id, v.ID))
	defer func() { _ = lake.DeleteStaging(context.WithoutCancel(r.ctx), r.store, run) }()
	key, err := p.write(r.ctx, r.store, run, 0)
	if err != nil {
		return err
	}
	made, _, err := buildAndCommit(r.ctx, r.store, key, p.builds(), maxVerifications, r.tempDir)
	if err != nil || made.Version == "" {
		return r.unmended(err) // or another publish came first
	}
	var names []string
	for name := range unions {
		names = append(names, name.name)
	}
	slices.Sort(names)
	addLines(&r.out.Replaced, fmt.Sprintf("unions %v: others of the same batches take their places in version %s", names, made.Version))
	return nil
}
