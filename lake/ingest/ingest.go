// Package ingest turns raw objects into one finished batch of a lake, in steps that any scheduler
// may order. The steps are plain functions; package activities calls them from Temporal.
//
//	MakePlan     lists the inputs, registers the dataset, cuts large objects into ranges,
//	             groups objects and ranges into splits
//	Normalize    reads one split: writes its rows by partition and a list of its rejects
//	PlanMerge    refuses a bad batch, chooses the partition width, groups partitions into tasks
//	Merge        does one task: sorts the rows of all splits, writes Parquet parts and, with a
//	             PostingsWriter of the caller, their postings object
//	Finish       writes the list of rejects and the batch record, and leaves the batch to the next
//	             publish (package catalog)
//	Cleanup      removes the run's staging area
//	Claim        chooses the run whose staging an ingest continues; Sweep removes the staging of runs
//	             that nobody will continue
//	IngestSmall  does all steps between MakePlan and Cleanup for a batch of one split;
//	IngestWhole  also MakePlan's, for a caller that has listed the objects
//
// Splits may be normalised in any order and concurrently, and so may tasks be merged. PlanMerge
// needs all splits, Finish all tasks.
//
// # Promises
//
// Every step may be repeated, run twice concurrently, and die at any point. A step that was done
// before returns its first result. The objects left in the lake (parts, postings, rejects, the
// batch record) depend on the content of the inputs and on the Spec alone: not on splits, workers,
// memory, crashes or time.
//
// A step uses at most WorkerMemory bytes, whatever the inputs are, and MakePlan at most PlanMemory.
// At most two parts are on local disk at a time.
//
// A run follows the rules that the lake had when it was planned, not those of the worker: domains
// are found by the public suffix list that the plan names. A worker that lacks it gets a
// *lake.MissingListError, one that makes another canonical form a *lake.FormError.
//
// Bad input is an *InputError, and repeating the step does not help. Errors, logs and lists of
// rejects never quote raw records: URLs can be secrets.
//
// # Staging
//
// Steps hand over their results below staging/{run}/, which nothing else uses:
//
//	owner.json                   sealed: the workflow that may continue the run
//	plan.json                    sealed plan
//	plan-{digest}.zst            with several splits: frame file, one frame a split: JSON array of
//	                             the objects and ranges to read
//	splits/{split}.json          sealed result of Normalize
//	shuffle/{split}/{n}-{arena}-2
//	                             shuffle files (package lake); arena is the size in hexadecimal of
//	                             the memory for rows and 2 the version of the way in which it is
//	                             counted, so that different workers do not mix files
//	rejects/{split}              frame file, JSON lines {"object","line","offset","reason","value"}
//	                             of the first rejects in input order; in a range, lines count from
//	                             its first until Finish knows how many lines are before it
//	merge.json                   sealed result of PlanMerge
//	merging/{task}/…             sorted runs (package lake) of a task larger than memory
//	merged/{task}.json           sealed result of Merge: counts, parts, postings object
//	small.json                   sealed result of IngestSmall, which stages only rejects and rows
//	                             that do not fit into memory
//	suspects/{step}…             written by package activities: the object that a step reads whose
//	                             workers died and how far it is, and the number of its panics
package ingest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/row"
)

const (
	// WorkerMemory is how many bytes of memory one step may use. About a third of it is Normalize's
	// arena for rows; the rest is for origins, reading and compressing.
	WorkerMemory = 1 << 30

	// PlanMemory is how many bytes MakePlan may use to inspect objects: a little for each of
	// several, and much for one of them at a time.
	PlanMemory = planReads*raw.LowMemory + raw.OpenMemory

	// PageMemory is how many bytes the pages of Parquet take at most in one step.
	PageMemory = raw.PageMemory

	// DefaultMaxRejectRate is the share of rejected records above which a batch fails, unless the
	// Spec names another. When most records are not URLs, the column or the file is wrong.
	DefaultMaxRejectRate = 0.5

	// NoRejects is the MaxRejectRate that fails a batch on its first rejected record.
	NoRejects = -1

	// stagingFormat is the version of all documents in staging. A step refuses documents of another
	// version, and the run has to start again.
	stagingFormat = 7

	// concurrentReads is how many small objects one step reads concurrently from a store.
	concurrentReads = 32
)

// limits are the sizes by which work is divided. Only tests use other values than defaultLimits.
type limits struct {
	// arena is the memory for rows of one Normalize, mergeArena that of one Merge. Rows beyond it
	// are sorted in pieces.
	arena, mergeArena int64
	// split is the stored size of a split: some seconds of work, so that little is lost with a
	// worker. Larger objects are cut into ranges of this size if their format allows it.
	split int64
	// whole is the stored size of objects without compression up to which they may be one split
	// where other work occupies the other workers. Lines take a little more room than their rows in
	// the arena, so nothing is staged, which saves a tenth of the time.
	whole int64
	// splits is the largest number of splits. Larger batches have larger splits, because every
	// merge opens the files of all of them.
	splits int
	// object is the least that an object counts towards a split: opening one takes as long as
	// reading this many bytes.
	object int64
	merge  row.MergeLimits
	// objects is the largest number of objects in a batch.
	objects int
	// rejects bounds the lists of rejects.
	rejects rejectLimits
	// hopeless is the number of rejects from which a split may be taken for a decompression bomb;
	// see tooManyRejects.
	hopeless int64
}

var defaultLimits = limits{
	arena:      WorkerMemory * 5 / 16,
	mergeArena: row.MergeArena,
	split:      128 << 20,
	whole:      384 << 20,
	splits:     4096,
	object:     64 << 10,
	merge:      row.DefaultMergeLimits,
	objects:    maxObjects,
	rejects:    rejectLimits{lines: 1_000_000, bytes: 128 << 20},
	hopeless:   50_000_000,
}

// Spec says what to ingest. Its JSON is what a person types into the Temporal UI.
type Spec struct {
	// Lake is the lake's URL, by which a scheduler routes the work. The steps use the store they
	// are given.
	Lake string `json:"lake"`
	// Dataset is the dataset's name. A new dataset is registered.
	Dataset string `json:"dataset"`
	// Batch names the batch; ingesting it again replaces it. If empty, the name is a hash of the
	// inputs' names, sizes and ETags.
	Batch string `json:"batch,omitempty"`
	// Inputs are absolute paths or file:// URLs of files, globs and folders (with everything
	// below), and s3://bucket/key, s3://bucket/glob and s3://bucket/prefix/. Below folders and
	// prefixes, names that start with . or _ are skipped, as other data tools do, unless Include
	// names them.
	Inputs []string `json:"inputs"`
	// Manifests list further inputs, spelt as one of Inputs: each is a manifest.json of S3
	// Inventory, whose objects must still have the size and the ETag of the report when they are
	// read, or text with an input a line.
	Manifests []string `json:"manifests,omitempty"`

	// Date makes {date}, {yyyy}, {mm}, {dd} and {hh} in Batch, Inputs, Manifests, Include and
	// Exclude stand for parts of a date: 2026-11-20, 2026-11-20T03, or ScheduledDate, for which a
	// scheduler puts the time at which its schedule was due, in RFC 3339. Without a Batch the date
	// names it. DateZone is the time zone of that time, UTC if empty, and DateOffset is added to
	// it, as -1d for the data of the day before; a date that is given as such is taken as it is. If
	// Date is empty, braces are themselves.
	Date       string `json:"date,omitempty"`
	DateZone   string `json:"date_zone,omitempty"`
	DateOffset string `json:"date_offset,omitempty"`

	// Start is when the ingest began: nanoseconds since 1970 by Temporal's clock, 0 for now. Of two
	// ingests of a batch the one that began later wins, whichever finishes first.
	Start int64 `json:"-"`

	// Deadline is how long the ingest may take in all, waiting for the store, for workers and for
	// the publisher included: a duration such as "36h" or "7d". It is seven days if empty.
	Deadline string `json:"deadline,omitempty"`

	// Include and Exclude are globs (of package path, and ** for any number of folders). Files that
	// Exclude matches are not read. With an Include, only files that it matches are read. A glob
	// with a slash is matched against the path below the input, any other against each name on that
	// path. A glob that matches a folder covers all files below it. For inputs that are files or
	// globs the path is the file's name. An Include with a name that begins with . or _ also reads
	// names spelt so.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`

	// Format, URLColumn, TSColumn, TSFormat, SizeField, Extras and MaxLine are those of
	// raw.Options.
	Format    string   `json:"format,omitempty"`
	URLColumn string   `json:"url_column,omitempty"`
	TSColumn  string   `json:"ts_column,omitempty"`
	TSFormat  string   `json:"ts_format,omitempty"`
	SizeField string   `json:"size_field,omitempty"`
	Extras    []string `json:"extras,omitempty"`
	MaxLine   int      `json:"max_line,omitempty"`

	// SkipUnreadable leaves out objects, and members of archives, that are in no known format or
	// hold no records, and the rest of those that are damaged. The batch record names them. Without
	// it the first of them fails the ingest.
	SkipUnreadable bool `json:"skip_unreadable,omitempty"`
	// Unwrap takes the page's URL from the URL of an archive's copy (see unwrap.go), and the time
	// of the copy if the record has no other.
	Unwrap bool `json:"unwrap,omitempty"`

	// Replace makes the batch the dataset's only one: when it finishes, all other batches whose
	// ingests began before are retired, and one version has the one and lacks the others.
	Replace bool `json:"replace,omitempty"`
	// NewOnly leaves out objects that other finished batches of the dataset have read, retired ones
	// left aside: objects of the same names and sizes. If nothing is left, nothing is ingested.
	NewOnly bool `json:"new_only,omitempty"`

	// KeepRaw also stores a record's original URL, without user info, if the canonical form
	// differs.
	KeepRaw bool `json:"keep_raw,omitempty"`
	// StripParams drops query parameters, see urlnorm.Options.
	StripParams []string `json:"strip_params,omitempty"`

	// MaxRejectRate is the share of records, up to 1, that may be rejected before the batch fails.
	// 0 means DefaultMaxRejectRate; NoRejects, or any negative number, means that no record may be
	// rejected.
	MaxRejectRate float64 `json:"max_reject_rate,omitempty"`

	// Title, Source and Licence describe the dataset, each in at most 16 KiB. Empty ones keep what
	// is registered.
	Title   string `json:"title,omitempty"`
	Source  string `json:"source,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// maxRejectRate returns the rate that MaxRejectRate stands for.
func (s *Spec) maxRejectRate() float64 {
	if s.MaxRejectRate == 0 {
		return DefaultMaxRejectRate
	}
	return max(s.MaxRejectRate, 0)
}

// Progress says how far a step is.
type Progress struct {
	// Records is the number of records read, Kept how many of them are rows, Rejected how many are
	// not. In Merge, Records is the number of records that the task has to read, and Kept the rows
	// written.
	Records  int64 `json:"records"`
	Kept     int64 `json:"kept"`
	Rejected int64 `json:"rejected"`
	// BytesRead of BytesTotal stored bytes were read.
	BytesRead  int64 `json:"bytes_read"`
	BytesTotal int64 `json:"bytes_total"`
}

// progressEvery is the number of records, some milliseconds of work, after which a step reports its
// progress and checks its context.
const progressEvery = 4096

// Reject is a record that was left out: its location and the reason, never its URL.
type Reject struct {
	// Object is the URL of the object without credentials, followed by the member's name in an
	// archive.
	Object string `json:"object"`
	// Line (from 1) and Offset are where the record begins in the decompressed object or member. In
	// Parquet, Line is the row and Offset is -1.
	Line   int64 `json:"line"`
	Offset int64 `json:"offset"`
	// Reason is one of raw.Reasons, a urlnorm.Reason, or RowTooLarge.
	Reason string `json:"reason"`
	// Value is what stands in the column of the time, for raw.BadTS: the beginning of it, and
	// nothing if it may be a URL.
	Value string `json:"value,omitempty"`
}

// shortened bounds a name, a note or a reason. The list of rejects has the whole names.
var shortened = raw.Shortened

func (r Reject) String() string {
	reason := r.Reason
	if r.Value != "" {
		reason += fmt.Sprintf(" %q", r.Value)
	}
	return fmt.Sprintf("%s%s: %s", r.Object, location(r.Line, r.Offset), reason)
}

// location says where in an object something is, as far as that is known.
func location(line, offset int64) string {
	switch {
	case offset < 0:
		return fmt.Sprintf(" row %d", line)
	case line > 0:
		return fmt.Sprintf(" line %d (byte %d)", line, offset)
	case offset > 0:
		return fmt.Sprintf(" byte %d", offset)
	}
	return ""
}

// RowTooLarge is the reason of a record whose row is larger than row.MaxKey.
const RowTooLarge = "row_too_large"

// InputError says that the raw data or the request is at fault. Repeating the step fails again.
type InputError struct {
	// Object, Line and Offset locate the first reject, or the point from which an object cannot be
	// read, if there is one. Line is 0 if it is not known, as in all ranges of an object but the
	// first.
	Object       string
	Line, Offset int64
	// Reason says what is wrong, without naming Object.
	Reason string
	// Rejects are the first rejected records, if there were too many.
	Rejects []Reject
	// Err is the cause in package raw, urlnorm or the operating system, if any.
	Err error
}

func (e *InputError) Error() string {
	var s strings.Builder
	if e.Object != "" && len(e.Rejects) == 0 {
		s.WriteString(e.Object)
		s.WriteString(location(e.Line, e.Offset) + ": ")
	}
	s.WriteString(e.Reason)
	for i, r := range e.Rejects {
		if i == 0 {
			s.WriteString("; the first: ")
		} else {
			s.WriteString(", ")
		}
		s.WriteString(r.String())
	}
	return s.String()
}

func (e *InputError) Unwrap() error { return e.Err }

var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkRun(run string) error {
	if !runName.MatchString(run) {
		return &InputError{Reason: fmt.Sprintf(
			"run name %q: want 1 to 128 of A-Z a-z 0-9 . _ -, the first a letter or digit", run)}
	}
	return nil
}

// Keys in the staging area of a run.

func planKey(run string) string  { return lake.StagingPrefix(run) + "plan.json" }
func mergeKey(run string) string { return lake.StagingPrefix(run) + "merge.json" }
func smallKey(run string) string { return lake.StagingPrefix(run) + "small.json" }

func splitsKey(run, digest string) string {
	return fmt.Sprintf("%splan-%s.zst", lake.StagingPrefix(run), digest)
}

func splitKey(run string, split int) string {
	return fmt.Sprintf("%ssplits/%06d.json", lake.StagingPrefix(run), split)
}

func shuffleKey(run string, split, n int, arena int64) string {
	return fmt.Sprintf("%sshuffle/%06d/%06d-%x-2", lake.StagingPrefix(run), split, n, arena)
}

func rejectsKey(run string, split int) string {
	return fmt.Sprintf("%srejects/%06d", lake.StagingPrefix(run), split)
}

func spillKey(run string, task int, prefix string, pass, n int) string {
	return fmt.Sprintf("%smerging/%06d/%s-%d-%06d", lake.StagingPrefix(run), task, prefix, pass, n)
}

func mergedKey(run string, task int) string {
	return fmt.Sprintf("%smerged/%06d.json", lake.StagingPrefix(run), task)
}

// load reads a sealed document. ok is false if there is none.
func load(ctx context.Context, store blob.Store, key string, doc lake.Keyed) (ok bool, err error) {
	etag, err := lake.LoadKeyed(ctx, store, key, stagingFormat, doc)
	return etag != "", err
}

// loadRequired reads a sealed document that an earlier step has written.
func loadRequired(ctx context.Context, store blob.Store, key string, doc lake.Keyed) error {
	return lake.RequireKeyed(ctx, store, key, stagingFormat, doc)
}

// loadResult loads the result of a step. ok is also false if one of the objects that the step has
// written is missing. The step then writes the same again.
func loadResult[D lake.Keyed](
	ctx context.Context, store blob.Store, key string, doc D, written func(D) []string,
) (ok bool, err error) {
	if ok, err = load(ctx, store, key, doc); err != nil || !ok {
		return ok, err
	}
	for _, key := range written(doc) {
		_, err := store.Stat(ctx, key)
		if errors.Is(err, blob.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// save writes a sealed document.
func save(ctx context.Context, store blob.Store, key string, doc lake.Keyed) error {
	_, err := lake.SaveKeyed(ctx, store, key, stagingFormat, doc, blob.Condition{})
	return err
}

// saveFirst writes a document that all repetitions of a step must share. The first one written
// stays, and doc is set to it.
func saveFirst[T any, D interface {
	*T
	lake.Keyed
}](ctx context.Context, store blob.Store, key string, doc D) error {
	_, err := lake.SaveKeyed(ctx, store, key, stagingFormat, doc, blob.Condition{IfAbsent: true})
	if err == nil {
		return nil
	}
	// The stored document counts, also if the put failed because its reply was lost.
	var have T
	if ok, readErr := load(ctx, store, key, D(&have)); readErr != nil || !ok {
		return err
	}
	*doc = have
	return nil
}
