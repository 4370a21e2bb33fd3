package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// maxProblems is how many problems a report describes; the rest are counted.
const maxProblems = 20

// Problem is something VerifySegment found wrong.
type Problem struct {
	Place string `json:"place"`   // the object
	Text  string `json:"problem"` // one line: the object, the place in it, what is wrong
}

// Report is what VerifySegment looked at.
type Report struct {
	Segment string `json:"segment"`
	Deep    bool   `json:"deep"`

	Files   int   `json:"files"` // of the segment, segment.json included
	Bytes   int64 `json:"bytes"` // of those
	Domains int64 `json:"domains"`
	Entries int64 `json:"entries"` // pairs of domain and dataset
	Tuples  int64 `json:"tuples"`
	Rows    int64 `json:"rows"`
	Parts   int64 `json:"parts"`
	Pages   int64 `json:"page_index_blocks"`
	// PartRows and PartBytes were read from the parts themselves; 0 unless Deep.
	PartRows  int64 `json:"part_rows"`
	PartBytes int64 `json:"part_bytes"`
	// Uncounted are the datasets whose postings could not be held against their rows, because a part of theirs is damaged or missing.
	Uncounted []uint32 `json:"uncounted_datasets,omitempty"`

	// Problems are the first found, Found is their number in all.
	Problems []Problem `json:"problems,omitempty"`
	Found    int64     `json:"problems_found"`
}

// VerifySegment reads every byte of a segment and checks it: each file's hash, each frame, the
// order of everything, that the perfect hash takes each domain to its line, that sets of
// datasets are those of the postings, that totals are the sums of tuples, and that tuples tile the
// row groups of the parts exactly. Deep also reads all parts: their hashes, every page of every
// column, and it counts all rows again.
//
// It works on all processors. It goes on after a problem as far as that makes sense, and leaves out what only follows from one
// that it has reported. The report says what was looked at and
// what was found; the error is the first problem, a *codec.CorruptError as always, or that the
// check itself could not be done. Temporary files are in tempDir, "" is the system's folder.
func Segment(ctx context.Context, store blob.Store, ref postings.SegmentRef, deep bool, tempDir string) (Report, error) {
	v := &verifier{ctx: ctx, store: store, ref: ref, tempDir: tempDir, report: Report{Segment: ref.ID, Deep: deep}}
	err := v.check()
	if err != nil {
		err = fmt.Errorf("verify segment %q: %w", ref.ID, err)
	}
	return v.report, err
}

// findings are problems in the order in which they are to be reported.
type findings struct {
	list []error // the first maxProblems
	n    int64
}

func (f *findings) add(err error) {
	if f.n++; len(f.list) < maxProblems {
		f.list = append(f.list, err)
	}
}

func (f *findings) addAll(g *findings) {
	for _, err := range g.list {
		f.add(err)
	}
	f.n += g.n - int64(len(g.list))
}

// problem adds err if it says that data are wrong, and returns any other error. Object is what was read.
func (f *findings) problem(ctx context.Context, object string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, blob.ErrNotExist):
		err = codec.Corrupt(object, "object", -1, "one that exists", "none")
	case errors.Is(err, blob.ErrRange):
		err = codec.Corrupt(object, "object", -1, "the bytes that the index names", "fewer")
	case !errors.Is(err, codec.ErrCorrupt):
		return err
	}
	// What was being done says less than the place, and names the object again.
	var c *codec.CorruptError
	if errors.As(err, &c) {
		err = c
	}
	f.add(err)
	return nil
}

// wrong notes that something is not what it has to be.
func (f *findings) wrong(file, section string, want, got any) {
	f.add(codec.Corrupt(file, section, -1, want, got))
}

type verifier struct {
	ctx     context.Context
	store   blob.Store
	ref     postings.SegmentRef
	report  Report
	found   findings
	changed []error // files whose hash is another: reported where nothing else tells what is wrong with them
	tempDir string

	seg    *segment.Segment
	info   *segment.Info
	parts  []lake.Part // of the files, from the batch records
	groups [][]rowGroup
	// partial: something was not read to its end, so that its sums say nothing.
	partial struct{ records, pages, domains, postings bool }
	// uncounted are the datasets of parts that were not read to their end.
	uncounted map[uint32]bool
	// sets sums up all domains with their sets of datasets, if setsKnown.
	sets      uint64
	setsKnown bool
}

func (v *verifier) problem(object string, err error) error {
	return v.found.problem(v.ctx, object, err)
}

func (v *verifier) wrong(file, section string, want, got any) {
	v.found.wrong(file, section, want, got)
}

func (v *verifier) key(name string) string { return segment.Prefix(v.ref.ID) + name }

// check runs all checks and makes the report of what they found.
func (v *verifier) check() error {
	err := v.run()
	told := map[string]bool{}
	for _, p := range v.found.list {
		told[objectOf(p)] = true
	}
	for _, c := range v.changed {
		if !told[objectOf(c)] {
			v.found.add(c)
		}
	}
	v.report.Found = v.found.n
	for _, p := range v.found.list {
		v.report.Problems = append(v.report.Problems, Problem{objectOf(p), p.Error()})
	}
	if err == nil && len(v.found.list) > 0 {
		err = v.found.list[0]
	}
	return err
}

// objectOf is the object that a problem is about.
func objectOf(err error) string {
	var c *codec.CorruptError
	if errors.As(err, &c) {
		return c.File
	}
	return ""
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
	opt := segment.Options{}
	if _, local := blob.AsLocalFiler(v.store); !local {
		if opt.CacheDir, err = os.MkdirTemp(v.tempDir, "verify-"); err != nil {
			return err
		}
		defer os.RemoveAll(opt.CacheDir)
	}
	if v.seg, err = segment.Open(v.ctx, v.store, v.ref, opt); err != nil {
		if gone := errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange); gone && len(v.found.list)+len(v.changed) > 0 {
			return nil // the file was named
		}
		return v.problem(v.key(segment.InfoName), err)
	}
	defer v.seg.Close()
	for _, step := range []func() error{v.records, v.pages, v.domains, v.postings, v.counts} {
		if err := step(); err != nil {
			return err
		}
	}
	if !v.report.Deep {
		return nil
	}
	return v.recount()
}

// inOrder does n jobs, one on each processor, and hands the results to done in the order of the jobs. Job is told which
// processor's memory it may use.
func inOrder[T any](ctx context.Context, n int, job func(ctx context.Context, worker, i int) (T, error), done func(i int, result T) error) error {
	type slot struct {
		i   int
		out chan T
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
				s.out <- result
			}
			return nil
		})
	}
	g.Go(func() error {
		for s := range order {
			select {
			case result := <-s.out:
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

// again notes a problem that comes up while postings are read a second time, unless the first time told of it.
func (v *verifier) again(err error) error {
	if v.partial.postings && errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return v.problem(v.key("postings"), err)
}
