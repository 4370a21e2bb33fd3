// Package files writes a slice of a lake as Parquet or CSV files with compact keys: the key of each
// URL (package urlkey) and, if wanted, the number of its host (package domain64).
//
// The files of a folder are complete when the document ManifestName is there, which lists them and
// is written last, by a conditional put. The same slice of the same version makes the same files,
// and an export that is there already is not written again. A folder has one export: a later one
// takes the place of the earlier.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

const (
	// ManifestName is the name of the document that lists the files of a folder.
	ManifestName = "_export.json"

	ManifestFormat = 1

	// DefaultFileRows is about how many rows a file has at most, unless the caller says otherwise.
	DefaultFileRows = 4_000_000

	// maxWorkers is the most files that are written at a time; each takes some 200 MB.
	maxWorkers = 4
	// assignNames is how many hosts get their numbers in one commit.
	assignNames = 1 << 20
)

// Options say what is written.
type Options struct {
	Format Format
	// Columns are names of ColumnNames, none for the default.
	Columns []string
	// Layout adds the column domain64 in this layout; the zero value adds none. Hosts that have no
	// number yet get one in the lake.
	Layout domain64.Layout
	// FileRows is about how many rows a file has at most; 0 is DefaultFileRows.
	FileRows int64
	// Workers is how many files are written at a time; 0 is one for each processor, at most four.
	Workers int
	// Progress is called with the number of rows that were written and all rows; it may be nil.
	Progress func(rows, all int64)
}

// File is a file of an export.
type File struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

// Manifest is the document ManifestName.
type Manifest struct {
	Format int `json:"format"`
	// ID is made of everything that decides the content of the files.
	ID            string    `json:"id"`
	Version       string    `json:"version"`
	TakedownEpoch uint64    `json:"takedown_epoch"`
	FileFormat    Format    `json:"file_format"`
	Columns       []string  `json:"columns"`
	Layout        string    `json:"domain64_layout,omitempty"`
	Domains       []string  `json:"domains,omitempty"`
	Datasets      []Dataset `json:"datasets"`
	Rows          int64     `json:"rows"`
	Bytes         int64     `json:"bytes"`
	Files         []File    `json:"files"`
}

// Dataset is a dataset of an export, with its rows.
type Dataset struct {
	ID   uint32 `json:"id"`
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// CountError says that an export wrote other rows of a dataset than the lake has by its index.
// Nothing of it is visible.
type CountError struct {
	Version, Dataset string
	Wrote, Want      int64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("export of version %s: %d rows of dataset %s were read, the index has %d; check the lake with verify --deep",
		e.Version, e.Wrote, e.Dataset, e.Want)
}

// ErrTakedown means that takedowns have changed while an export read the lake. It has to begin
// again.
var ErrTakedown = errors.New("takedowns have changed while the lake was read; export again")

// job is one export.
type job struct {
	lake    blob.Store
	slice   *scan.Slice
	opt     Options
	columns []column
	id      string
	names   map[uint32]string
	groups  [][]int // tasks

	all      int64 // rows of the slice
	done     atomic.Int64
	mu       sync.Mutex // held by Assign, and for counts
	counts   map[uint32]int64
	files    [][]File // by group
	registry *numbers.Registry
}

func newJob(store blob.Store, s *scan.Slice, opt Options) (*job, error) {
	j := &job{lake: store, slice: s, opt: opt, names: map[uint32]string{}, counts: map[uint32]int64{}}
	var err error
	if j.columns, err = chooseColumns(opt.Columns, opt.Layout != domain64.Layout{}); err != nil {
		return nil, err
	}
	if j.opt.FileRows == 0 {
		j.opt.FileRows = DefaultFileRows
	}
	if j.opt.Workers == 0 {
		j.opt.Workers = min(maxWorkers, runtime.GOMAXPROCS(0))
	}
	if j.opt.Layout != (domain64.Layout{}) {
		j.registry = numbers.Open(store, opt.Layout)
	}
	for _, d := range s.Datasets {
		j.names[d.ID] = d.Name
		j.all += d.Rows
	}
	rows := int64(0)
	for i := range s.Tasks {
		if i == 0 || rows >= j.opt.FileRows {
			j.groups = append(j.groups, nil)
			rows = 0
		}
		last := len(j.groups) - 1
		j.groups[last] = append(j.groups[last], i)
		rows += s.Tasks[i].Rows
	}
	j.files = make([][]File, len(j.groups))
	j.id = j.digest()
	return j, nil
}

// digest is the id of the export. A build that encodes differently has to change its first line.
func (j *job) digest() string {
	m := j.manifest()
	text := fmt.Sprintf("1\n%s\n%d\n%s\n%q\n%s\n%q\n%v\n%d\n",
		m.Version, m.TakedownEpoch, m.FileFormat, m.Columns, m.Layout, m.Domains, m.Datasets, j.opt.FileRows)
	return lake.Digest([]byte(text))[:16]
}

// manifest is the document of the export without its files.
func (j *job) manifest() *Manifest {
	m := &Manifest{
		Format: ManifestFormat, ID: j.id, Version: j.slice.Version, TakedownEpoch: j.slice.Epoch, FileFormat: j.opt.Format,
		Domains: j.slice.Domains, Datasets: []Dataset{}, Files: []File{},
	}
	for _, c := range j.columns {
		m.Columns = append(m.Columns, c.name)
	}
	if j.registry != nil {
		m.Layout = j.opt.Layout.String()
	}
	for _, d := range j.slice.Datasets {
		m.Datasets = append(m.Datasets, Dataset{d.ID, d.Name, d.Rows})
	}
	return m
}

var fileName = regexp.MustCompile(`^urls-[0-9a-f]{16}-[0-9]{5,}-[0-9]{3,}\.(parquet|csv)$`)

// ToFolder writes a slice into a folder, which is empty or has an earlier export. Written is false
// if the folder had this export already.
func ToFolder(
	ctx context.Context, store blob.Store, s *scan.Slice, out blob.Store, opt Options,
) (m *Manifest, written bool, err error) {
	j, err := newJob(store, s, opt)
	if err != nil {
		return nil, false, err
	}
	before, etag, err := readManifest(ctx, out)
	if err != nil {
		return nil, false, err
	}
	old, err := list(ctx, out, before != nil)
	if err != nil {
		return nil, false, err
	}
	if before != nil && before.ID == j.id && complete(before, old) {
		return before, false, nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(j.opt.Workers)
	for i := range j.groups {
		group.Go(func() error { return j.group(groupCtx, out, i) })
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	if err := j.check(ctx); err != nil {
		return nil, false, err
	}
	m = j.manifest()
	keep := map[string]bool{}
	for _, some := range j.files {
		for _, f := range some {
			m.Files = append(m.Files, f)
			m.Rows += f.Rows
			m.Bytes += f.Bytes
			keep[f.Name] = true
		}
	}
	if err := publish(ctx, out, m, etag); err != nil {
		return nil, false, err
	}
	var superfluous []string
	for name := range old {
		if !keep[name] {
			superfluous = append(superfluous, name)
		}
	}
	return m, true, out.Delete(ctx, superfluous...)
}

// publish writes the document, on the condition that it is still the one that was read.
func publish(ctx context.Context, out blob.Store, m *Manifest, etag string) error {
	data, err := codec.Seal(m)
	if err != nil {
		return err
	}
	cond := blob.Condition{IfMatch: etag}
	if etag == "" {
		cond = blob.Condition{IfAbsent: true}
	}
	if _, err = out.Put(ctx, ManifestName, data, cond); err == nil {
		return nil
	}
	// The put may have taken effect although its reply was lost.
	if now, _, readErr := readManifest(ctx, out); readErr == nil && now != nil && now.ID == m.ID {
		return nil
	}
	if errors.Is(err, blob.ErrPrecondition) {
		return fmt.Errorf("%s: another export has written to %s meanwhile", ManifestName, out.URL())
	}
	return err
}

// readManifest returns the document of a folder, nil if there is none.
func readManifest(ctx context.Context, out blob.Store) (*Manifest, string, error) {
	data, info, err := out.Get(ctx, ManifestName)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var m Manifest
	if err := codec.Unseal(data, ManifestName, ManifestFormat, &m); err != nil {
		return nil, "", fmt.Errorf("%s has the document of an export that cannot be read: %w; delete it, or export elsewhere", out.URL(), err)
	}
	return &m, info.ETag, nil
}

// list returns the sizes of the files of a folder. A folder with anything else is refused, so that
// no export gets among the files of somebody.
func list(ctx context.Context, out blob.Store, exported bool) (map[string]int64, error) {
	files := map[string]int64{}
	for info, err := range out.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if fileName.MatchString(info.Key) {
			files[info.Key] = info.Size
		} else if info.Key != ManifestName && !exported {
			return nil, fmt.Errorf("%s is not empty: it has %s; export to a folder of its own", out.URL(), info.Key)
		}
	}
	return files, nil
}

// complete reports whether all files of an export are there.
func complete(m *Manifest, files map[string]int64) bool {
	for _, f := range m.Files {
		if size, ok := files[f.Name]; !ok || size != f.Bytes {
			return false
		}
	}
	return true
}

// ToFile writes a slice as one file, which appears when it is complete.
func ToFile(
	ctx context.Context, store blob.Store, s *scan.Slice, out blob.Store, name string, opt Options,
) (*Manifest, error) {
	j, err := newJob(store, s, opt)
	if err != nil {
		return nil, err
	}
	w, err := out.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	f := newFile(j, w)
	for i := range j.groups {
		if err := j.read(ctx, i, f.add); err != nil {
			return nil, err
		}
	}
	if err := cmp.Or(f.encoder.end(), j.check(ctx)); err != nil {
		return nil, err
	}
	info, err := w.Finish()
	if err != nil {
		return nil, err
	}
	m := j.manifest()
	m.Files, m.Rows, m.Bytes = []File{{name, f.rows, info.Size}}, f.rows, info.Size
	return m, nil
}

// check compares what was written with what the lake has.
func (j *job) check(ctx context.Context) error {
	for _, d := range j.slice.Datasets {
		if got := j.counts[d.ID]; got != d.Rows {
			return &CountError{j.slice.Version, d.Name, got, d.Rows}
		}
	}
	m, _, err := catalog.ReadManifest(ctx, j.lake)
	if err == nil && m.TakedownEpoch != j.slice.Epoch {
		err = ErrTakedown
	}
	return err
}

// file is a file that is being written.
type file struct {
	encoder encoder
	rows    int64
}

func newFile(j *job, w blob.Writer) *file {
	return &file{encoder: newEncoder(j.opt.Format, w, j.columns)}
}

func (f *file) add(r *rowView) error {
	f.rows++
	return f.encoder.add(r)
}

// group writes the files of a group of tasks.
func (j *job) group(ctx context.Context, out blob.Store, number int) error {
	var w blob.Writer
	var f *file
	defer func() {
		if w != nil {
			w.Abort()
		}
	}()
	finish := func() error {
		if f == nil {
			return nil
		}
		if err := f.encoder.end(); err != nil {
			return err
		}
		info, err := w.Finish()
		if err != nil {
			return err
		}
		j.files[number] = append(j.files[number], File{j.fileName(number), f.rows, info.Size})
		w, f = nil, nil
		return nil
	}
	err := j.read(ctx, number, func(r *rowView) (err error) {
		if f != nil && f.rows >= j.opt.FileRows {
			if err := finish(); err != nil {
				return err
			}
		}
		if f == nil {
			if w, err = out.Create(ctx, j.fileName(number)); err != nil {
				return err
			}
			f = newFile(j, w)
		}
		return f.add(r)
	})
	if err != nil {
		return err
	}
	return finish()
}

// fileName is the name of the next file of a group.
func (j *job) fileName(group int) string {
	return fmt.Sprintf("urls-%s-%05d-%03d.%s", j.id, group, len(j.files[group]), j.opt.Format)
}

// read calls each with the rows of a group.
func (j *job) read(ctx context.Context, group int, each func(r *rowView) error) error {
	var codes []domain64.Code
	if j.registry != nil {
		var err error
		if codes, err = j.number(ctx, j.groups[group]); err != nil {
			return err
		}
	}
	needs := partColumns(j.columns)
	withURL := slices.ContainsFunc(j.columns, func(c column) bool { return slices.Contains(c.needs, part.ColPathQuery) })
	counts := map[uint32]int64{}
	view := rowView{}
	hosts := hostRuns{}
	next := 0
	for _, task := range j.groups[group] {
		view.id = j.slice.Tasks[task].Dataset
		view.dataset = j.names[view.id]
		hosts.begin()
		for rows, err := range j.slice.Read(ctx, task, needs...) {
			if err != nil {
				return err
			}
			view.rows = rows.Columns
			for i := range rows.Len() {
				view.at = rows.At(i)
				view.batch = rows.BatchAt(view.at)
				if withURL {
					view.url = appendURL(view.url[:0], rows.Columns, view.at)
				}
				if codes != nil && hosts.next(rows.Columns, view.at) {
					if next == len(codes) {
						return fmt.Errorf("part %s: more hosts than when they were numbered", j.slice.Tasks[task].Key)
					}
					view.code = codes[next].Signed()
					next++
				}
				if err := each(&view); err != nil {
					return err
				}
			}
			counts[view.id] += int64(rows.Len())
			n := j.done.Add(int64(rows.Len()))
			if j.opt.Progress != nil {
				j.opt.Progress(n, j.all)
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, n := range counts {
		j.counts[id] += n
	}
	return nil
}

// hostRuns finds where the rows of a host begin.
type hostRuns struct {
	host  string
	begun bool
}

func (h *hostRuns) begin() { h.begun = false }

// next reports whether row i is the first of its host.
func (h *hostRuns) next(c *part.Columns, i int) bool {
	if h.begun && c.Host[i] == h.host {
		return false
	}
	h.host, h.begun = strings.Clone(c.Host[i]), true
	return true
}

// number returns the code of each run of rows of one host of some tasks, in their order. It reads
// the hosts beforehand, so that all hosts of a group get their numbers in few commits.
func (j *job) number(ctx context.Context, tasks []int) ([]domain64.Code, error) {
	codes := []domain64.Code{}
	var names []domain64.Name
	assign := func() error {
		j.mu.Lock() // commits of several workers would only lose races
		defer j.mu.Unlock()
		some, err := j.registry.Assign(ctx, names)
		codes, names = append(codes, some...), names[:0]
		return err
	}
	hosts := hostRuns{}
	for _, task := range tasks {
		hosts.begin()
		for rows, err := range j.slice.Read(ctx, task, part.ColDomain, part.ColHost) {
			if err != nil {
				return nil, err
			}
			for i := range rows.Len() {
				at := rows.At(i)
				if !hosts.next(rows.Columns, at) {
					continue
				}
				n, err := domain64.SplitHost(hosts.host, strings.Clone(rows.Domain[at]))
				if err != nil {
					return nil, fmt.Errorf("part %s: %w", j.slice.Tasks[task].Key, err)
				}
				if names = append(names, n); len(names) == assignNames {
					if err := assign(); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	if len(names) > 0 {
		if err := assign(); err != nil {
			return nil, err
		}
	}
	return codes, nil
}

// bytesText is b as a string, which is valid as long as b is not changed.
func bytesText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
