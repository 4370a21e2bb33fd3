// Package many ingests many datasets at once: each file, or each folder, of the inputs is a dataset
// named after it. As package ingest does, it has plain functions that a scheduler orders:
//
//	Plan    lists the inputs, names the datasets, leaves out those that have not changed, registers
//	        the others, and divides them into groups of small lists, and large lists
//	Group   ingests the lists of one group; a list that fails is recorded and harms no other
//	Large   returns the ingest of a list that is too large for a group; Note records its outcome
//	Finish  leaves what is done to the next publish, remembers what was read, and writes a report
//
// Small lists share groups, so that ordering them costs little. A list of up to one split is a
// group by itself or with a few others. Groups are numbered from the largest lists to the smallest:
// what is left at the end is short. The large lists have the numbers after those of the groups.
//
// Every step may be repeated, run twice concurrently, and die at any point. A repetition of Group
// ingests the lists whose outcome is not recorded, one of Finish finishes the groups that no report
// has.
//
// # What has changed
//
// Finish remembers for each batch a fingerprint of the objects' names, sizes and ETags and of the
// options with which they were read, and the start of the ingest. Plan leaves out a list if its
// fingerprint is the same and the batch is still of that ingest.
//
// # Objects
//
//	staging/{run}/many.json             sealed plan
//	staging/{run}/many-{digest}.zst     frame file, one frame a group or large list: JSON array of lists
//	staging/{run}/groups/{number}.json  sealed: the outcomes of a group, or of a large list
//	staging/{run}/lists/{group}-{n}/…   rejects and rows of a list, between its steps
//	reports/{run}/{n}.ndjson.zst        one line a list: its Outcome
//	registry/taken.json                 sealed: what Finish remembers, in pieces (package pieces)
//	registry/taken/…                    the pieces
package many

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// What a dataset is made of: Spec.DatasetsFrom.
const (
	// FromFiles makes each file a dataset.
	FromFiles = "files"
	// FromFolders makes each folder directly below an input a dataset, with every file below it.
	FromFolders = "folders"
)

// DefaultBatch is the batch of every dataset unless the Spec names another: what the input holds
// now. An input that has changed replaces it.
const DefaultBatch = "current"

// Spec says what to ingest. Its JSON is what a person types into the Temporal UI.
type Spec struct {
	// Spec has the lake, the inputs, and the options for all lists. Its Dataset is empty. Batch is
	// the batch of each dataset, DefaultBatch if empty.
	ingest.Spec
	// DatasetsFrom is FromFiles or FromFolders.
	DatasetsFrom string `json:"datasets_from"`
	// Again takes up lists that have not changed, too. That repairs damaged objects.
	Again bool `json:"again,omitempty"`
}

// Check returns an *ingest.InputError for a Spec that is invalid whatever the inputs hold.
func (s *Spec) Check() error {
	if s.DatasetsFrom != FromFiles && s.DatasetsFrom != FromFolders {
		return inputError("datasets_from is %q; use %s or %s", s.DatasetsFrom, FromFiles, FromFolders)
	}
	if s.NewOnly {
		return inputError("new_only is for one dataset; of many, only what has changed is taken up anyway")
	}
	if s.Dataset != "" {
		return inputError("datasets are named after %s; leave dataset %q out", s.DatasetsFrom, s.Dataset)
	}
	one := s.Spec
	one.Dataset = "any"
	return one.Check()
}

// batch returns the batch of every dataset.
func (s *Spec) batch() string {
	if s.Batch == "" {
		return DefaultBatch
	}
	return s.Batch
}

func inputError(format string, args ...any) error {
	return &ingest.InputError{Reason: fmt.Sprintf(format, args...)}
}

// documentFormat is the version of the documents in staging.
const documentFormat = 1

// load reads a sealed document. ok is false if there is none.
func load(ctx context.Context, store blob.Store, key string, doc lake.Keyed) (ok bool, err error) {
	etag, err := lake.LoadKeyed(ctx, store, key, documentFormat, doc)
	return etag != "", err
}

// save writes a sealed document in the place of the one with that ETag, "" for none.
func save(ctx context.Context, store blob.Store, key string, doc lake.Keyed, etag string) error {
	_, err := lake.SaveKeyed(ctx, store, key, documentFormat, doc, replacing(etag))
	return err
}

// replacing is the condition that an object still has an ETag, "" for none.
func replacing(etag string) blob.Condition {
	if etag == "" {
		return blob.Condition{IfAbsent: true}
	}
	return blob.Condition{IfMatch: etag}
}

func planKey(run string) string { return lake.StagingPrefix(run) + "many.json" }

func listsKey(run, digest string) string {
	return fmt.Sprintf("%smany-%s.zst", lake.StagingPrefix(run), digest)
}

func groupKey(run string, number int) string {
	return fmt.Sprintf("%sgroups/%06d.json", lake.StagingPrefix(run), number)
}

// ReportPrefix is the folder of the reports of a run.
func ReportPrefix(run string) string { return ReportRoot + run + "/" }

func reportKey(run string, n int) string {
	return fmt.Sprintf("%s%06d.ndjson.zst", ReportPrefix(run), n)
}
