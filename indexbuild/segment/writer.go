package segment

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Writer writes the files of one segment. Several files may be written at once, each by one
// goroutine.
type Writer struct {
	ctx     context.Context
	store   blob.Store
	id      string
	batches []BatchRef
	formats []fileFormat
	builder Builder

	mu    sync.Mutex
	files []File
}

// NewWriter returns a Writer of the segment over batches, which must be sorted, under the id that
// builder gives it.
func NewWriter(ctx context.Context, store blob.Store, batches []BatchRef, builder Builder) *Writer {
	return newWriter(ctx, store, batches, fileFormats, builder)
}

func newWriter(
	ctx context.Context, store blob.Store, batches []BatchRef, formats []fileFormat, builder Builder,
) *Writer {
	id := builtID(formats, batches, builder)
	return &Writer{ctx: ctx, store: store, id: id, batches: batches, formats: formats, builder: builder}
}

// FileWriter writes one file. It ends in FinishFrames, FinishMapped or Abort.
type FileWriter struct {
	w      *Writer
	name   string
	format *fileFormat
	out    blob.Writer
	hash   *mapped.Hash // nil for frame files
}

var _ io.Writer = (*FileWriter)(nil)

// Create starts a file, whose kind must be in the table of formats.
func (w *Writer) Create(name string) (*FileWriter, error) {
	format := formatOf(w.formats, kindOf(name))
	if format == nil {
		return nil, fmt.Errorf("create %s: no such kind of file in a segment", name)
	}
	out, err := w.store.Create(w.ctx, Prefix(w.id)+name)
	if err != nil {
		return nil, err
	}
	f := &FileWriter{w: w, name: name, format: format, out: out}
	if format.form == mappedForm {
		f.hash = mapped.NewHash()
	}
	return f, nil
}

func (f *FileWriter) Write(p []byte) (int, error) {
	if f.hash != nil {
		_, _ = f.hash.Write(p) // a hash takes everything
	}
	return f.out.Write(p)
}

// FinishFrames ends a frame file.
func (f *FileWriter) FinishFrames(ff seekable.File) error { return f.finish(frameFile(f.name, ff)) }

// FinishMapped ends a file that readers map.
func (f *FileWriter) FinishMapped() error { return f.finish(mappedFile(f.name, f.hash.Sums())) }

func (f *FileWriter) finish(file File) error {
	got, err := f.out.Finish()
	if err != nil {
		return err
	}
	if got.Size != file.Bytes {
		return fmt.Errorf("write %s: %d bytes arrived of %d", got.Key, got.Size, file.Bytes)
	}
	file.Format, file.Optional = f.format.version, f.format.optional
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.files = append(f.w.files, file)
	return nil
}

// Abort drops the file unless it is finished.
func (f *FileWriter) Abort() { f.out.Abort() }

// Finish writes the list of batches and then segment.json, with which the segment exists. It sets
// the format, id, batches and files of info itself.
func (w *Writer) Finish(info Info) (Ref, error) {
	if w.builder != Unnamed {
		f, err := w.builder.write(w.ctx, w.store, w.id)
		if err != nil {
			return Ref{}, err
		}
		w.files = append(w.files, f)
	}
	if err := w.writeBatches(); err != nil {
		return Ref{}, err
	}
	info.Format, info.Segment, info.Files = Format, w.id, w.files
	info.BatchCount, info.BatchDigest = digestOf(w.batches)
	slices.SortFunc(info.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	key := Prefix(w.id) + InfoName
	if err := info.check(key, w.id, w.formats); err != nil {
		return Ref{}, fmt.Errorf("finish segment: %w", err)
	}
	data, err := codec.Seal(&info)
	if err != nil {
		return Ref{}, err
	}
	if _, err := w.store.Put(w.ctx, key, data, blob.Condition{}); err != nil {
		return Ref{}, err
	}
	return info.ref(data), nil
}
