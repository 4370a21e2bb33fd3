package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/repair"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// damageFormat is the format version of the list of damaged batches, which lives as long as one
// publish.
const damageFormat = 1

// damage lists the batches that the builds of a run found damaged. The run's next plan leaves them
// out.
type damage struct {
	Format  int            `json:"format"`
	Batches []damagedBatch `json:"batches"`
}

type damagedBatch struct {
	segment.BatchRef
	Reason string `json:"reason"`
}

func damageKey(staging string) string { return staging + "publish-damaged.json" }

// readDamage reads why batches are damaged, from the list that the builds of a run have written.
func readDamage(ctx context.Context, store blob.Store, run string) (map[segment.BatchRef]string, error) {
	d, err := readDamageAt(ctx, store, damageKey(lake.StagingPrefix(run)))
	if err != nil {
		return nil, err
	}
	known := map[segment.BatchRef]string{}
	for _, b := range d.Batches {
		known[b.BatchRef] = b.Reason
	}
	return known, nil
}

func readDamageAt(ctx context.Context, store blob.Store, key string) (*damage, error) {
	d := &damage{Format: damageFormat}
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = codec.Unseal(data, key, d)
	}
	if err != nil {
		return nil, err
	}
	if d.Format != damageFormat {
		return nil, codec.Corrupt(key, "format", -1, damageFormat, d.Format)
	}
	return d, nil
}

// noteDamage finds the plan's damaged batches, after a build met one, and adds them to the run's
// list. It reads all bytes from which the plan's segment is built. It returns how many batches it
// added.
func noteDamage(ctx context.Context, store blob.Store, planKey string, p *plan) (int, error) {
	refs := refs(p.all())
	reasons := make([]string, len(refs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i, ref := range refs {
		g.Go(func() error {
			_, err := indexbuild.CheckBatch(gctx, store, ref, true)
			var d *postings.DamageError
			if errors.As(err, &d) {
				reasons[i] = d.Err.Error()
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	key := damageKey(path.Dir(planKey) + "/")
	list, err := readDamageAt(ctx, store, key)
	if err != nil {
		return 0, err
	}
	found := 0
	for i, ref := range refs {
		if reasons[i] != "" && !slices.ContainsFunc(list.Batches, func(b damagedBatch) bool { return b.BatchRef == ref }) {
			list.Batches = append(list.Batches, damagedBatch{ref, reasons[i]})
			found++
		}
	}
	if found == 0 {
		return 0, nil
	}
	data, err := codec.Seal(list)
	if err != nil {
		return 0, err
	}
	_, err = store.Put(ctx, key, data, blob.Condition{})
	return found, err
}

// publishable returns the finished batches that can be published, and by digest the records of
// those that base lacks. It calls skip with each other batch and the reason. known has the damaged
// batches that builds of this run have found.
func publishable(
	ctx context.Context, store blob.Store, base *manifest.Version, finished []planned,
	known map[segment.BatchRef]string, skip func(b planned, reason string),
) (good []planned, records map[string]*lake.Batch, err error) {
	if base == nil {
		base = &manifest.Version{}
	}
	read := make([]*lake.Batch, len(finished))
	reasons := make([]string, len(finished))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i, b := range finished {
		if live, ok := base.FindBatch(b.DatasetID, b.Batch); ok && live.Digest == b.Digest {
			continue
		}
		ref := segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
		if reason, bad := known[ref]; bad {
			reasons[i] = reason
			continue
		}
		g.Go(func() (err error) {
			read[i], err = indexbuild.CheckBatch(gctx, store, ref, false)
			var d *postings.DamageError
			if errors.As(err, &d) {
				reasons[i] = d.Err.Error()
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	// A segment with an unreadable batch cannot be built again, unless that batch is replaced
	// itself.
	replaced := map[manifest.Batch]bool{}
	for i, b := range finished {
		if read[i] != nil {
			replaced[manifest.Batch{DatasetID: b.DatasetID, Batch: b.Batch}] = true
		}
	}
	blocked := map[string]string{} // reasons, by segment
	for _, b := range base.Batches {
		_, bad := known[segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}]
		if bad && !replaced[manifest.Batch{DatasetID: b.DatasetID, Batch: b.Batch}] {
			blocked[b.Segment] = fmt.Sprintf("the segment of the batch that it replaces cannot be built again: "+
				"that segment also has batch %s of dataset %d, which is damaged", b.Batch, b.DatasetID)
		}
	}
	records = map[string]*lake.Batch{}
	for i, b := range finished {
		if live, ok := base.FindBatch(b.DatasetID, b.Batch); ok && reasons[i] == "" && live.Digest != b.Digest {
			reasons[i] = blocked[live.Segment]
		}
		if reasons[i] != "" {
			skip(b, reasons[i])
			continue
		}
		good = append(good, b)
		if read[i] != nil {
			records[b.Digest] = read[i]
		}
	}
	return good, records, nil
}

// frozen returns the segments of base that have a damaged batch, with the reasons.
func frozen(base *manifest.Version, known map[segment.BatchRef]string) map[string]string {
	out := map[string]string{}
	if base != nil {
		for _, b := range base.Batches {
			if reason, bad := known[segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}]; bad {
				out[b.Segment] = reason
			}
		}
	}
	return out
}

// RebuildAll makes Rebuild check all segments, the registries and all postings.
const RebuildAll = "all"

// Rebuilt is the result of Rebuild.
type Rebuilt struct {
	// Checked is the number of segments that were read. Segments lists those with rewritten files.
	Checked  int      `json:"checked"`
	Segments []string `json:"segments,omitempty"`
	// Files is the number of rewritten files, Postings the number of postings objects restored from
	// Parquet.
	Files    int `json:"files"`
	Postings int `json:"postings"`
	// Registries lists the keys of the registry documents that were restored from the version.
	Registries []string `json:"registries,omitempty"`
	// Unmended lists what cannot be repaired, such as damaged parts and batch records, one line
	// each: the first maxSkipped.
	Unmended []string `json:"unmended,omitempty"`
}

// Add adds the result of another Rebuild.
func (r *Rebuilt) Add(o Rebuilt) {
	r.Checked += o.Checked
	r.Segments = append(r.Segments, o.Segments...)
	r.Files += o.Files
	r.Postings += o.Postings
	r.Registries = append(r.Registries, o.Registries...)
	r.Unmended = append(r.Unmended, o.Unmended...)
}

// Rebuild checks the segment with the id which, or with RebuildAll all segments of the current
// version, and rewrites their damaged and missing files. With RebuildAll it also restores the
// registries, as far as the version has their contents, and the postings of all finished batches,
// published or not.
//
// Versions and the manifest stay as they are: files get their earlier bytes and names back. The
// result lists what cannot be repaired; an error means that something could not be tried. Temporary
// files are in tempDir.
func Rebuild(ctx context.Context, store blob.Store, which, tempDir string) (Rebuilt, error) {
	out, err := rebuild(ctx, store, which, tempDir)
	if err != nil {
		return out, fmt.Errorf("rebuild: %w", err)
	}
	return out, nil
}

func rebuild(ctx context.Context, store blob.Store, which, tempDir string) (out Rebuilt, err error) {
	base, err := currentVersion(ctx, store)
	if err != nil {
		return out, err
	}
	if base == nil {
		base = &manifest.Version{}
	}
	// unmended lists an error that no retry repairs, and returns any other.
	unmended := func(err error) error {
		damaged := errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange)
		if ctx.Err() != nil || !damaged {
			return err
		}
		if len(out.Unmended) < maxSkipped {
			out.Unmended = append(out.Unmended, err.Error())
		}
		return nil
	}
	for _, s := range base.Segments {
		if which != RebuildAll && which != s.ID {
			continue
		}
		out.Checked++
		var batches []segment.BatchRef
		for _, b := range base.Batches {
			if b.Segment == s.ID {
				batches = append(batches, segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest})
			}
		}
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		done, err := repair.RebuildSegment(ctx, store, ref, batches, tempDir)
		if out.Postings += done.Postings; len(done.Files) > 0 {
			out.Segments = append(out.Segments, s.ID)
			out.Files += len(done.Files)
		}
		if err := unmended(err); err != nil {
			return out, err
		}
	}
	if which != RebuildAll {
		if out.Checked == 0 {
			out.Unmended = []string{fmt.Sprintf("segment %q: not in the current version %s", which, base.ID)}
		}
		return out, nil
	}
	if base.ID != "" {
		if err := unmended(out.restoreRegistries(ctx, store, base)); err != nil {
			return out, err
		}
	}
	_, finished, err := finishedBatches(ctx, store)
	if err := unmended(err); err != nil {
		return out, err
	}
	for _, b := range finished {
		ref := segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
		n, err := repair.RestorePostings(ctx, store, ref, tempDir)
		out.Postings += n
		if err := unmended(err); err != nil {
			return out, err
		}
	}
	return out, nil
}

// restoreRegistries writes lost registry documents again, from a version's contents.
func (r *Rebuilt) restoreRegistries(ctx context.Context, store blob.Store, v *manifest.Version) error {
	datasets := make([]lake.Dataset, 0, len(v.Datasets))
	for _, d := range v.Datasets {
		datasets = append(datasets, lake.Dataset{
			ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence,
		})
	}
	rules := lake.Rules{CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix}
	restored, nameless, err := lake.RestoreRegistry(ctx, store, rules, datasets)
	if restored {
		r.Registries = append(r.Registries, lake.RegistryKey)
	}
	for _, id := range nameless {
		if len(r.Unmended) < maxSkipped {
			r.Unmended = append(r.Unmended, fmt.Sprintf("dataset %d: its name is lost with the registry, "+
				"since nothing of it is published; ingest it again as a new dataset", id))
		}
	}
	if err != nil {
		return err
	}
	registered, err := lake.Registry(ctx, store)
	if err != nil {
		return err
	}
	for _, d := range registered {
		live := map[string]string{}
		for _, b := range v.Batches {
			if b.DatasetID == d.ID {
				live[b.Batch] = b.Digest
			}
		}
		restored, err := lake.RestoreBatchRegistry(ctx, store, d.ID, live)
		if err != nil {
			return err
		}
		if restored {
			r.Registries = append(r.Registries, lake.BatchRegistryKey(d.ID))
		}
	}
	return nil
}
