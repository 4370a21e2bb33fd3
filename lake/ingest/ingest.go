// Package ingest takes raw objects to one finished batch of a lake, in steps that any
// scheduler may order: plain calls that need no Temporal.
//
//	MakePlan     expands the inputs, registers dataset and ingest, cuts large objects into ranges, groups
//	             objects and ranges into splits
//	Normalize    one split: raw records to rows by partition, and a list of rejects; where the only split is
//	             small, straight to what Merge leaves
//	PlanMerge    refuses a bad batch, chooses the partition width, groups partitions into tasks
//	Merge        one task: rows of all splits, sorted, to Parquet parts and, by a PostingsWriter of the
//	             caller, their postings object; without one, package indexbuild extracts it afterwards
//	Finish       writes the list of rejects and the batch record, finishes the ingest in the registry
//	Cleanup      removes the run's staging area
//	IngestSmall  all between MakePlan and Cleanup, for a batch of one split
//
// Splits may be normalised in any order and at once, and so may tasks be merged; PlanMerge
// needs all splits, Finish all tasks.
//
// # Promises
//
// Every step may be repeated, run twice at once, and die at any point. A step that has been done
// returns what it returned then. What is left in the lake (parts, postings, rejects, the batch record) depends on the content of
// the inputs and on the Spec alone: not on splits, workers, memory, crashes or time.
//
// Memory is bounded by WorkerMemory whatever the inputs; one part at a time is on local disk.
//
// Bad input is an *InputError, which no repetition mends; a worker whose rules differ from the lake's gets
// a *RulesError. What raw records held is never in an error, a log or a list of rejects: URLs can be
// secrets.
//
// # Staging
//
// Steps hand their work on below staging/{run}/, where nothing else lives:
//
//	plan.json                     sealed Plan
//	plan-{digest}.zst             where there are several splits: frame file, one frame a split: JSON array of the objects and ranges to read
//	splits/{split}.json           sealed outcome of Normalize
//	shuffle/{split}/{n}-{arena}   shuffle files (package lake); arena is the memory they were cut by, in
//	                              hexadecimal, so that workers of different sizes do not mix their files
//	rejects/{split}               frame file, JSON lines {"object","line","offset","reason"} in input order; in a
//	                              range lines count from its first, until Finish knows the lines of those before
//	merge.json                    sealed outcome of PlanMerge
//	merging/{task}/…              sorted runs (package lake), where a task has more rows than fit into memory
//	merged/{task}.json            sealed outcome of Merge: counts, parts, postings object
//	merged/{task}.pages           where it has made no postings object, their page indexes: frame file, one frame a part:
//	                              uvarint n | n × {uvarint length, page index block}
//	finish.json                   sealed: whether the batch had this content before
//	small.json                    sealed outcome of IngestSmall, which leaves of the others what does not fit into memory, and rejects
package ingest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
)

const (
	// WorkerMemory is what one step may use, in bytes. A third of it, about, is Normalize's arena for rows, the rest
	// is for origins, reading and compressing.
	WorkerMemory = 1 << 30

	// PlanMemory is what MakePlan may use to look at objects, in bytes: little for several at once, much for one.
	PlanMemory = planReads*raw.LittleMemory + raw.MuchMemory

	// DefaultMaxRejectRate is the share of rejected records above which a batch fails where the Spec does
	// not say: most of the records being no URLs means the wrong column or the wrong file.
	DefaultMaxRejectRate = 0.5

	// NoRejects is the MaxRejectRate that fails a batch on its first rejected record.
	NoRejects = -1

	// stagingFormat is the version of everything in staging. A run that was begun by another version is begun again.
	stagingFormat = 7

	// concurrentReads is how many small objects of a store one step reads at once.
	concurrentReads = 32
)

// limits are the sizes by which work is cut up. Only tests use others than these.
type limits struct {
	// arena is the memory for rows of one Normalize, mergeArena of one Merge. What does not fit into that is sorted in pieces.
	arena, mergeArena int64
	// split is the size of a split as stored: some seconds of work, so that a lost worker costs little. Larger
	// objects are cut into ranges of it where their format allows.
	split int64
	// splits bounds the number of splits. Beyond it they grow instead, since every merge opens the runs of all.
	splits int
	// object is what an object counts at least: the latency of opening it is worth reading this much.
	object int64
	// anyPrefix and oneDigit are the sizes in key bytes from which a batch is partitioned by one digit
	// and by two.
	anyPrefix, oneDigit int64
	// task is the size of a merge task in key bytes.
	task int64
	// objects is how many objects a batch may have.
	objects int
}

var defaultLimits = limits{
	arena:      WorkerMemory * 5 / 16,
	mergeArena: 192 << 20,
	split:      128 << 20,
	splits:     4096,
	object:     64 << 10,
	anyPrefix:  64 << 20,
	oneDigit:   1 << 30,
	task:       64 << 20,
	objects:    maxObjects,
}

// Spec says what to ingest. Its JSON is what a person types into the Temporal UI.
type Spec struct {
	// Lake is the lake's URL. It is for whoever routes the work; the steps use the store they are given.
	Lake string `json:"lake"`
	// Dataset is registered under this name if it is new.
	Dataset string `json:"dataset"`
	// Batch names the batch; ingesting it again replaces it. "" is a hash of the inputs' names, sizes and ETags.
	Batch string `json:"batch,omitempty"`
	// Inputs are absolute paths and file:// URLs of files, globs and folders (everything below), and s3://bucket/key, s3://bucket/glob
	// and s3://bucket/prefix/. Below folders and prefixes names that start with . or _ are left out, as data tools do, unless
	// Include has them.
	Inputs []string `json:"inputs"`

	// Include and Exclude are globs (of package path, and ** for any number of folders). What Exclude matches is not read, and where
	// there is an Include nothing that it does not match. A glob with a slash is matched against the path below the input,
	// others against any name on it; what matches a folder stands for all below it. Of inputs that are files or globs the path is
	// the file's name. An Include that begins with . or _, or has a name that does, also reads the names so spelt.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`

	// Format, URLColumn, TSColumn, TSFormat, SizeField, Extras and MaxLine are those of raw.Options.
	Format    string   `json:"format,omitempty"`
	URLColumn string   `json:"url_column,omitempty"`
	TSColumn  string   `json:"ts_column,omitempty"`
	TSFormat  string   `json:"ts_format,omitempty"`
	SizeField string   `json:"size_field,omitempty"`
	Extras    []string `json:"extras,omitempty"`
	MaxLine   int      `json:"max_line,omitempty"`

	// KeepRaw keeps a record's URL as it stood, less user info, where the canonical form differs.
	KeepRaw bool `json:"keep_raw,omitempty"`
	// StripParams drops query parameters, see urlnorm.Options.
	StripParams []string `json:"strip_params,omitempty"`

	// MaxRejectRate is the share of records, 0 to 1, that may be rejected; more fail the batch. 0 is
	// DefaultMaxRejectRate, NoRejects (or any negative number) is none at all.
	MaxRejectRate float64 `json:"max_reject_rate,omitempty"`

	// Title, Source and Licence describe the dataset; empty ones leave what is registered.
	Title   string `json:"title,omitempty"`
	Source  string `json:"source,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// maxRejectRate is the rate that s means.
func (s *Spec) maxRejectRate() float64 {
	if s.MaxRejectRate == 0 {
		return DefaultMaxRejectRate
	}
	return max(s.MaxRejectRate, 0)
}

// Progress is how far a step is.
type Progress struct {
	// Records were read, Kept of them are rows so far, Rejected are not. In Merge, Records is what the task has to
	// read at most and Kept the rows written.
	Records  int64 `json:"records"`
	Kept     int64 `json:"kept"`
	Rejected int64 `json:"rejected"`
	// BytesRead of BytesTotal were read, of the objects as stored.
	BytesRead  int64 `json:"bytes_read"`
	BytesTotal int64 `json:"bytes_total"`
}

// progressEvery is after how many records Progress is reported and the context looked at: some milliseconds.
const progressEvery = 4096

// Reject is a record that was left out: its place and why, never its text.
type Reject struct {
	// Object is the URL of the object without credentials; of an archive's member its name stands behind it.
	Object string `json:"object"`
	// Line, from 1, and Offset count in the decompressed object or member, to where the record begins. In Parquet Line
	// is the row and Offset is -1.
	Line   int64 `json:"line"`
	Offset int64 `json:"offset"`
	// Reason is one of raw.Reasons, a urlnorm.Reason, or RowTooLarge.
	Reason string `json:"reason"`
}

func (r Reject) String() string {
	return fmt.Sprintf("%s%s: %s", r.Object, place(r.Line, r.Offset), r.Reason)
}

// place words where in an object something is, as far as it is known.
func place(line, offset int64) string {
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

// RowTooLarge is the reason of a record whose row is over lake.MaxKey.
const RowTooLarge = "row_too_large"

// InputError says that the raw data or the request is at fault: doing the same again fails again.
type InputError struct {
	// Object, Line and Offset are the place, as far as there is one: of the first reject, or of where an
	// object stops being readable. Line is 0 where it is not known, behind the first range of an object.
	Object       string
	Line, Offset int64
	// Reason is what is wrong, in words, without Object.
	Reason string
	// Rejects are the first records that were left out, where there are too many of them.
	Rejects []Reject
	// Err is the cause in package raw, urlnorm or the operating system, if any.
	Err error
}

func (e *InputError) Error() string {
	var s strings.Builder
	if e.Object != "" && len(e.Rejects) == 0 {
		s.WriteString(e.Object)
		s.WriteString(place(e.Line, e.Offset) + ": ")
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

// RulesError refuses a worker whose canonical form or public suffix list is not the plan's or the lake's.
type RulesError = lake.RulesError

var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkRun(run string) error {
	if !runName.MatchString(run) {
		return &InputError{Reason: fmt.Sprintf("run name %q: want 1 to 128 of A-Z a-z 0-9 . _ -, the first a letter or digit", run)}
	}
	return nil
}

// Keys below the run's staging area.

func planKey(run string) string   { return lake.StagingPrefix(run) + "plan.json" }
func mergeKey(run string) string  { return lake.StagingPrefix(run) + "merge.json" }
func finishKey(run string) string { return lake.StagingPrefix(run) + "finish.json" }
func smallKey(run string) string  { return lake.StagingPrefix(run) + "small.json" }

func splitsKey(run, digest string) string {
	return fmt.Sprintf("%splan-%s.zst", lake.StagingPrefix(run), digest)
}

func splitKey(run string, split int) string {
	return fmt.Sprintf("%ssplits/%06d.json", lake.StagingPrefix(run), split)
}

func shuffleKey(run string, split, n int, arena int64) string {
	return fmt.Sprintf("%sshuffle/%06d/%06d-%x", lake.StagingPrefix(run), split, n, arena)
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

func pagesKey(run string, task int) string {
	return fmt.Sprintf("%smerged/%06d.pages", lake.StagingPrefix(run), task)
}

// document is a sealed object in staging.
type document interface{ head() *header }

// header is how a document begins. It names the object that it is, so that one that stands in another's place is not taken for it.
type header struct {
	Format int    `json:"format"`
	Object string `json:"object"`
}

func (h *header) head() *header { return h }

// load reads a sealed document. Ok is false where there is none.
func load(ctx context.Context, store blob.Store, key string, doc document) (ok bool, err error) {
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := codec.Unseal(data, key, doc); err != nil {
		return false, err
	}
	if h := doc.head(); h.Format != stagingFormat {
		return false, codec.Corrupt(key, "format", -1, stagingFormat, h.Format)
	} else if h.Object != key {
		return false, codec.Corrupt(key, "object", -1, key, h.Object)
	}
	return true, nil
}

// need reads a sealed document that an earlier step wrote.
func need(ctx context.Context, store blob.Store, key string, doc document) error {
	ok, err := load(ctx, store, key, doc)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w; the step before has not been done, or the run was cleaned up", key, blob.ErrNotExist)
	}
	return err
}

// save writes a sealed document.
func save(ctx context.Context, store blob.Store, key string, doc document) error {
	*doc.head() = header{stagingFormat, key}
	data, err := codec.Seal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = store.Put(ctx, key, data, blob.Condition{})
	return err
}

// settle writes a document that everyone who comes later has to agree with: the first one stays, and
// doc becomes what is there.
func settle[T any, D interface {
	*T
	document
}](ctx context.Context, store blob.Store, key string, doc D) error {
	*doc.head() = header{stagingFormat, key}
	data, err := codec.Seal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = store.Put(ctx, key, data, blob.Condition{IfAbsent: true})
	if err == nil {
		return nil
	}
	// Also where the reply was lost, what is there now is what counts.
	var have T
	if ok, readErr := load(ctx, store, key, D(&have)); readErr != nil || !ok {
		return err
	}
	*doc = have
	return nil
}

// partitionsOf is the range of partitions that a prefix stands for.
func partitionsOf(prefix string) (first, last byte, err error) {
	if prefix == lake.AnyPrefix {
		return 0, 255, nil
	}
	v, err := strconv.ParseUint(prefix, 16, 8)
	switch {
	case err == nil && len(prefix) == 1:
		return byte(v << 4), byte(v<<4 | 15), nil
	case err == nil && len(prefix) == 2:
		return byte(v), byte(v), nil
	}
	return 0, 0, fmt.Errorf("domain prefix %q", prefix)
}

// prefixOf is the prefix of a partition for a width in hex digits.
func prefixOf(partition, width int) string {
	switch width {
	case 0:
		return lake.AnyPrefix
	case 1:
		return fmt.Sprintf("%x", partition>>4)
	}
	return fmt.Sprintf("%02x", partition)
}
