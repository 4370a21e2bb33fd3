package ingest

import (
	"context"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// Whole is a batch that one call of IngestWhole takes from its objects to its record. Its dataset
// and its ingest are registered by the caller, who also finishes the ingest.
type Whole struct {
	// Folder is the folder below staging in which the list of rejects, and rows that do not fit
	// into memory, are kept between the parts of the work. It begins with the name of a run.
	Folder    string
	Spec      Spec
	DatasetID uint32
	Batch     string
	// Current is the digest of the batch's current record, "" if there is none.
	Current string
	Rules   lake.Rules
	Objects []Object
}

// FitsWhole reports whether IngestWhole can do a batch of these objects: they make one split, or,
// if large batches are allowed, their rows usually fit into memory. Those of compressed objects may
// not.
func FitsWhole(objects []Object, large bool) bool {
	most := defaultLimits.split
	if large {
		most = defaultLimits.whole
	}
	var bytes int64
	for _, o := range objects {
		if bytes += max(o.Bytes, defaultLimits.object); bytes > most {
			return false
		}
	}
	return true
}

// IngestWhole does all steps from MakePlan to Finish for a batch of one split, without a plan or
// results in staging: a repetition begins anew. The arguments are those of IngestSmall. Finish in
// the result lacks Current, which only the registry knows.
func IngestWhole(
	ctx context.Context, store blob.Store, w *Whole, tempDir string, inMemory, collect NewPostings,
	progress func(Progress),
) (SmallResult, error) {
	p := plan{Run: w.Folder, Spec: w.Spec, DatasetID: w.DatasetID, Batch: w.Batch, Rules: w.Rules,
		Objects: len(w.Objects), Count: 1}
	if err := lake.CheckForm(p.Rules); err != nil {
		return SmallResult{}, err
	}
	in := inputs{planning: true}
	plans, err := in.survey(ctx, w.Objects, &w.Spec)
	if err != nil {
		return SmallResult{}, err
	}
	p.Pieces = make([]piece, len(w.Objects))
	for i, o := range w.Objects {
		p.Bytes += o.Bytes
		p.Pieces[i] = piece{object: o, Plan: plans[i]}
	}
	var r smallRecord
	record, err := r.make(ctx, store, &p, tempDir, inMemory, collect, progress, defaultLimits)
	if err != nil {
		return SmallResult{}, err
	}
	r.Finish.Existed = w.Current == r.Finish.Digest
	_, err = store.Put(ctx, r.Finish.BatchKey, record, blob.Condition{})
	return r.SmallResult, err
}

// SortObjects sorts objects by name and removes duplicates, as MakePlan does.
func SortObjects(objects []Object) []Object {
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(objects, func(a, b Object) bool { return a.Name == b.Name })
}
