// Package verify reads a published or a new segment back and finds everything in it that is wrong.
//
// Segment checks each file's hash, each frame, every order, and that the files agree with each
// other, with the batch records and with the page indexes of the parts. A deep check also reads all
// parts and counts their rows again. The report lists the problems, each with its object, what is
// wrong and what to do.
//
// The package knows the files of a segment through their readers only. It does not import package
// indexbuild, nor does indexbuild import it, so that it is independent of what builds segments.
//
// Callers are package publish, which verifies each new segment before its version is committed and
// looks for damaged ones in a rebuild, and package lakecheck.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// Report says what Segment has read, and what it has found wrong.
type Report struct {
	Segment string `json:"segment"`
	Deep    bool   `json:"deep"`

	Files   int   `json:"files"` // of the segment, with segment.json
	Bytes   int64 `json:"bytes"` // of these files
	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"` // pairs of domain and dataset
	Tuples  int64 `json:"tuples"`
	Rows    int64 `json:"rows"`
	Parts   int64 `json:"parts"`
	Pages   int64 `json:"page_index_blocks"`
	// PartRows and PartBytes were read from the parts; they are 0 unless Deep.
	PartRows  int64 `json:"part_rows"`
	PartBytes int64 `json:"part_bytes"`
	// Uncounted are the datasets whose postings could not be compared with their rows, because one
	// of their parts is damaged or missing.
	Uncounted []uint32 `json:"uncounted_datasets,omitempty"`

	// Problems are the first problems, Found is the number of all.
	Problems []Problem `json:"problems,omitempty"`
	Found    int64     `json:"problems_found"`
}

// Segment reads every byte of the segment of ref and checks
//
//   - the hash of each file, each frame, and the order of everything
//   - that files.tsv is what the batch records say, and that the page indexes cover all rows
//   - that the perfect hash maps each domain to its line
//   - that the sets of datasets are those of the postings
//   - that totals are the sums of tuples, and that tuples cover each row of each part exactly once.
//
// If deep, it also reads all parts: their hashes, every page of every column; and it counts all
// rows again.
//
// It uses all processors. After a problem it goes on as far as possible, and does not report what
// only follows from a problem that it has reported. The error is the first problem, a
// *codec.CorruptError, or says why the segment could not be checked. Temporary files are in
// tempDir; "" is the system's temporary folder.
func Segment(ctx context.Context, store blob.Store, ref segment.Ref, deep bool, tempDir string) (Report, error) {
	v := &verifier{ctx: ctx, store: store, ref: ref, tempDir: tempDir, report: Report{Segment: ref.ID, Deep: deep}}
	err := v.check()
	if err != nil {
		err = fmt.Errorf("verify segment %q: %w", ref.ID, err)
	}
	return v.report, err
}

type verifier struct {
	ctx     context.Context
	store   blob.Store
	ref     segment.Ref
	tempDir string
	report  Report
	found   findings
	// changed are files with another hash. They are reported unless another check has found out
	// what is wrong with them.
	changed []error
	// intact: all files have the size and the hash that they were built with.
	intact bool

	seg    *segment.Segment
	info   *segment.Info
	parts  []lake.Part  // of the files, from the batch records
	groups [][]rowGroup // of the files, from the page indexes
	keys   *keyReader   // of the pages, while parts are counted
	// unions are those of the segment, by dataset and name as in files.tsv.
	unions map[unionOf]*unionRows

	// partial says what could not be read completely, so that its sums are not compared.
	partial struct{ records, pages, domains, postings bool }
	// uncounted are the datasets of parts that could not be read completely.
	uncounted map[uint32]bool
	// sets is the sum of mixSet over all domains with their sets of datasets; valid if setsKnown.
	sets      uint64
	setsKnown bool
	// names is the sum of mixSet over all domains without their datasets.
	names uint64
}

// unionOf names a union.
type unionOf struct {
	dataset uint32
	name    string
}

// unionRows has the numbers of rows of the batches of a union, by their names, less those that were
// counted.
type unionRows struct {
	key  string // of the record
	left map[string]int64
}

// rowGroup is a row group of a part.
type rowGroup struct {
	rows   int64 // from the page index
	number int   // among all row groups of the segment
}

// key returns the key of a file of the segment.
func (v *verifier) key(name string) string { return segment.Prefix(v.ref.ID) + name }

// check runs all checks and completes the report.
func (v *verifier) check() error {
	err := v.run()
	reported := map[string]bool{}
	for _, p := range v.found.list {
		reported[objectOf(p)] = true
	}
	for _, c := range v.changed {
		if !reported[objectOf(c)] {
			v.found.add(c)
		}
	}
	v.report.Found = v.found.n
	for _, p := range v.found.list {
		object := objectOf(p)
		v.report.Problems = append(v.report.Problems, Problem{object, p.Error() + "; " + v.remedy(object)})
	}
	if err == nil && len(v.found.list) > 0 {
		err = v.found.list[0]
	}
	return err
}

func (v *verifier) run() error {
	info, err := segment.ReadInfo(v.ctx, v.store, v.ref)
	if err != nil {
		return v.problem(v.key(segment.InfoName), err)
	}
	v.info = info
	if err := v.files(); err != nil {
		return err
	}
	v.intact = v.found.n == 0 && len(v.changed) == 0
	opt := segment.Options{WholeFiles: true}
	if _, local := blob.AsLocalFiler(v.store); !local {
		if opt.CacheDir, err = os.MkdirTemp(v.tempDir, "verify-"); err != nil {
			return err
		}
		defer os.RemoveAll(opt.CacheDir)
	}
	if v.seg, err = segment.Open(v.ctx, v.store, v.ref, opt); err != nil {
		if v.reportedByFiles(err) {
			return nil
		}
		return v.problem(v.key(segment.InfoName), err)
	}
	defer v.seg.Close()
	for _, step := range []func() error{v.records, v.pages, v.checkKeys, v.domains, v.reversed, v.postings, v.counts} {
		if err := step(); err != nil {
			return err
		}
	}
	if !v.report.Deep {
		return nil
	}
	return v.recount()
}

// reportedByFiles reports whether err says that a file of the segment is missing or truncated.
// files has reported that file already, or noted that it has changed.
func (v *verifier) reportedByFiles(err error) bool {
	return !v.intact && (errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange))
}

// counts compares the counts of segment.json with what was read.
func (v *verifier) counts() error {
	if v.partial.domains || v.partial.postings {
		return nil
	}
	describe := func(domains, entries, rows, parts int64) string {
		return fmt.Sprintf("%d domains, %d entries, %d rows, %d parts", domains, entries, rows, parts)
	}
	want := describe(v.report.Domains, v.report.Entries, v.report.Rows, v.report.Parts)
	if got := describe(v.info.Domains, v.info.Entries, v.info.Rows, v.info.Parts); got != want {
		v.wrong(v.key(segment.InfoName), "counts", want, got)
	}
	return nil
}

// inOrder runs n jobs, one at a time on each processor, and passes their results to done in the
// order of the jobs. worker is the number of the processor: jobs of one worker do not overlap.
func inOrder[T any](
	ctx context.Context, n int,
	job func(ctx context.Context, worker, i int) (T, error), done func(i int, result T) error,
) error {
	type slot struct {
		i      int
		result chan T
	}
	workers := runtime.GOMAXPROCS(0)
	g, ctx := errgroup.WithContext(ctx)
	jobs, order := make(chan slot), make(chan slot, 2*workers)
	g.Go(func() error {
		defer close(jobs)
		defer close(order)
		for i := range n {
			s := slot{i, make(chan T, 1)}
			for _, to := range []chan slot{order, jobs} {
				select {
				case to <- s:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for worker := range workers {
		g.Go(func() error {
			for s := range jobs {
				result, err := job(ctx, worker, s.i)
				if err != nil {
					return err
				}
				s.result <- result
			}
			return nil
		})
	}
	g.Go(func() error {
		for s := range order {
			select {
			case result := <-s.result:
				if err := done(s.i, result); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}
