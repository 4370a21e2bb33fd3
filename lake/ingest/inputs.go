package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/lake/raw"
)

// object is one object to read.
type object struct {
	// Name is its URL: file:///… with percent-escapes, or s3://bucket/key taken literally.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// ETag changes when the object does.
	ETag string `json:"etag"`
}

// maxObjects is the largest number of objects in one batch. The batch record holds their names,
// some 200 bytes each, and is read as a whole.
const maxObjects = 1 << 20

// openStore opens the bucket of an input. Tests replace it.
var openStore = blob.Open

// inputs finds and opens raw objects. It is safe for concurrent use.
type inputs struct {
	// planning makes a lack of permissions final: nothing of the batch is done yet, and a person
	// waits for the answer. Later it is retried, since the permissions have been there.
	planning bool
	// lenient lists files below the inputs that cannot be found or whose folder cannot be read as
	// if they could, so that only those who read them fail.
	lenient bool

	mu      sync.Mutex
	buckets map[string]blob.Store

	large sync.Mutex // held while an object is inspected that may take much memory
}

// ofSpec lists the objects that the inputs and manifests of a spec stand for, as expand does.
func (in *inputs) ofSpec(ctx context.Context, spec *Spec, sel *selection, limit int) ([]object, error) {
	all := &found{limit: limit}
	for _, m := range spec.Manifests {
		err := in.list(ctx, m, sel, all)
		if errors.Is(err, errTooMany) {
			err = tooMany(m, limit)
		}
		if err != nil {
			return nil, err
		}
	}
	return in.expandTo(ctx, spec.Inputs, sel, all)
}

// expand lists the objects that patterns stand for and sel selects, sorted by name and without
// duplicates, so that the result does not depend on the order of the patterns or their overlap.
// Listing ends with an error at the first object beyond limit.
func (in *inputs) expand(ctx context.Context, patterns []string, sel *selection, limit int) ([]object, error) {
	return in.expandTo(ctx, patterns, sel, &found{limit: limit})
}

func (in *inputs) expandTo(ctx context.Context, patterns []string, sel *selection, all *found) ([]object, error) {
	for _, p := range patterns {
		err := in.findSome(ctx, p, sel, all)
		if errors.Is(err, errTooMany) {
			err = tooMany(p, all.limit)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(all.objects) == 0 {
		return nil, &InputError{Reason: fmt.Sprintf(
			"--include and --exclude leave nothing to read; they leave out %s", &sel.unwanted)}
	}
	slices.SortFunc(all.objects, func(a, b object) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all.objects, func(a, b object) bool { return a.Name == b.Name }), nil
}

func tooMany(pattern string, limit int) error {
	return &InputError{Object: pattern,
		Reason: fmt.Sprintf("more than %d objects in one batch; pack them, or make several batches", limit)}
}

// findSome is find of at least one object.
func (in *inputs) findSome(ctx context.Context, pattern string, sel *selection, all *found) error {
	hidden, unwanted, before := sel.hidden.n, sel.unwanted.n, len(all.objects)
	err := in.find(ctx, pattern, sel, all)
	switch {
	case err != nil:
		return err
	case len(all.objects) > before || sel.unwanted.n > unwanted:
		return nil
	case sel.hidden.n > hidden:
		return &InputError{Object: pattern,
			Reason: "there is nothing but names that begin with . or _; --include reads those it names"}
	}
	return &InputError{Object: pattern, Reason: "there is nothing there"}
}

// found collects up to limit objects.
type found struct {
	objects []object
	bytes   int64
	limit   int
}

var errTooMany = errors.New("too many objects")

// maxBytes is the largest stored size of a batch. A sparse file can claim more.
const maxBytes = 1 << 60

func (f *found) add(o object) error {
	if len(f.objects) >= f.limit {
		return errTooMany
	}
	if o.Bytes > maxBytes-f.bytes {
		return &InputError{Object: o.Name, Reason: fmt.Sprintf("with it the batch has more than %d bytes", int64(maxBytes))}
	}
	f.bytes += o.Bytes
	f.objects = append(f.objects, o)
	return nil
}

// find adds the objects that a pattern stands for and sel selects.
func (in *inputs) find(ctx context.Context, pattern string, sel *selection, all *found) error {
	scheme, rest, ok := strings.Cut(pattern, "://")
	switch {
	case !ok:
		return in.findFiles(ctx, pattern, sel, all)
	case scheme == "file":
		name, err := pathOf(pattern)
		if err != nil {
			return err
		}
		return in.findFiles(ctx, name, sel, all)
	case scheme == "s3":
		bucket, key, _ := strings.Cut(rest, "/")
		return in.findKeys(ctx, bucket, key, sel, all)
	}
	return &InputError{Object: pattern, Reason: "neither a path, file:// nor s3://"}
}

// pathOf returns the path of a file:// URL.
func pathOf(fileURL string) (string, error) {
	u, err := url.Parse(fileURL)
	if err != nil || (u.Host != "" && u.Host != "localhost") || !strings.HasPrefix(u.Path,
		"/") || u.RawQuery != "" || u.Fragment != "" {
		return "", &InputError{Object: fileURL, Reason: "want file:///absolute/path"}
	}
	return filepath.FromSlash(u.Path), nil
}

func fileURL(name string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(name)}).String()
}

// findFiles adds a file, the matches of a glob, or the files below a folder.
func (in *inputs) findFiles(ctx context.Context, pattern string, sel *selection, all *found) error {
	if !filepath.IsAbs(pattern) {
		return &InputError{Object: pattern, Reason: "want an absolute path: workers run in other folders"}
	}
	pattern = filepath.Clean(pattern)
	matches := []string{pattern}
	allowed := allow.Of(ctx)
	if _, err := allowed.Stat(pattern); err != nil {
		if !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(pattern, `*?[`) {
			return fileError(pattern, err)
		}
		matches, err = allowed.Glob(pattern)
		switch {
		case errors.Is(err, allow.ErrRefused):
			return fileError(pattern, err)
		case err != nil:
			return &InputError{Object: pattern, Reason: "not a glob", Err: err}
		}
	}
	w := walker{sel: sel, all: all, allowed: allowed, lenient: in.lenient, met: tables{}}
	before, dir := len(all.objects), ""
	for _, m := range matches {
		w.root = m
		if err := w.walk(m, nil, nil); err != nil {
			return err
		}
		if d := filepath.Dir(m); d != dir {
			dir = d
			w.met.above(allowed, m)
		}
	}
	if added := all.objects[before:]; len(added) != 1 || added[0].Name != fileURL(pattern) {
		return w.met.check(added)
	}
	return nil // the file itself is named
}

// walker lists the files below a folder.
type walker struct {
	sel     *selection
	root    string
	all     *found
	allowed *allow.Inputs
	lenient bool // see inputs
	met     tables
}

// unreadable is the error of a file or folder that cannot be read, or none if it is added as one
// that will fail.
func (w *walker) unreadable(name string, names []string, err error) error {
	err = fileError(name, err)
	var final *InputError
	if !w.lenient || len(names) == 0 || !errors.As(err, &final) || !w.sel.below(fileURL(w.root)+"/", names, false) {
		return err
	}
	return w.all.add(object{Name: fileURL(name), Bytes: 1}) // empty objects are not opened
}

// walk adds a file, or all files below a folder. names is the path to it from the root. Symbolic
// links are followed, except to the folders in above, which are those on the way here.
func (w *walker) walk(name string, names []string, above []fs.FileInfo) error {
	info, err := w.allowed.Stat(name)
	if err != nil {
		return w.unreadable(name, names, err)
	}
	switch {
	case info.Mode().IsRegular():
		var selected bool
		if len(names) > 0 {
			selected = w.sel.below(fileURL(w.root)+"/", names, false)
		} else {
			selected = w.sel.wants(fileURL(filepath.Dir(name))+"/", []string{filepath.Base(name)}, false)
		}
		if !selected {
			return nil
		}
		return w.all.add(object{Name: fileURL(name), Bytes: info.Size(), ETag: fileTag(info)})
	case !info.IsDir() && len(names) > 0:
		w.sel.addSpecial(fileURL(name))
		return nil
	case !info.IsDir():
		return &InputError{Object: fileURL(name), Reason: "neither a file nor a folder"}
	}
	if slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
		return nil
	}
	entries, err := w.allowed.ReadDir(name)
	if err != nil {
		return w.unreadable(name, names, err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isLog(e.Name()) }) {
		w.met.folder(w.allowed, name)
	}
	above = append(above, info)
	for _, e := range entries {
		names := append(slices.Clip(names), e.Name())
		if !w.sel.below(fileURL(w.root)+"/", names, true) {
			continue
		}
		if err := w.walk(filepath.Join(name, e.Name()), names, above); err != nil {
			return err
		}
	}
	return nil
}

// fileTag returns a file's ETag.
func fileTag(info fs.FileInfo) string {
	return fmt.Sprintf("%x-%x", info.ModTime().UnixNano(), info.Size())
}

// fileError makes an *InputError of an error that does not go away when the step is repeated.
func fileError(name string, err error) error {
	reason := allow.Reason(err)
	switch {
	case reason != "":
	case errors.Is(err, fs.ErrNotExist):
		reason = "no such file or folder"
	case errors.Is(err, fs.ErrPermission):
		reason = "permission denied"
	case errors.Is(err, syscall.ELOOP):
		reason = "its symbolic links lead back to themselves"
	case errors.Is(err, syscall.EISDIR):
		reason = "it has become a folder"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		reason = "not a path"
	default:
		return err
	}
	return &InputError{Object: fileURL(name), Reason: reason, Err: err}
}

// bucket returns the store of a bucket, which is opened once.
func (in *inputs) bucket(ctx context.Context, name string) (blob.Store, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s, ok := in.buckets[name]; ok {
		return s, nil
	}
	s, err := openStore(ctx, "s3://"+name)
	if err != nil {
		return nil, &InputError{Object: "s3://" + name, Reason: "not a bucket", Err: err}
	}
	if in.buckets == nil {
		in.buckets = map[string]blob.Store{}
	}
	in.buckets[name] = s
	return s, nil
}

// findKeys adds an object, the matches of a glob, or the objects below a prefix.
func (in *inputs) findKeys(ctx context.Context, bucket, key string, sel *selection, all *found) error {
	name := "s3://" + bucket + "/"
	store, err := in.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	allowed := allow.Of(ctx)
	if key != "" && !strings.HasSuffix(key, "/") && allowed.Key(bucket, key) == nil {
		info, err := store.Stat(ctx, key)
		if err == nil {
			if dir, base := path.Split(key); !sel.wants(name+dir, []string{base}, false) {
				return nil
			}
			return all.add(object{Name: name + key, Bytes: info.Size, ETag: info.ETag})
		}
		if !errors.Is(err, blob.ErrNotExist) {
			return in.keyError(name+key, err)
		}
	}
	prefix, glob := key, ""
	if i := strings.IndexAny(key, `*?[`); i >= 0 {
		prefix, glob = key[:i], key
		if _, err := path.Match(glob, ""); err != nil {
			return &InputError{Object: name + key, Reason: "not a glob", Err: err}
		}
	} else if key != "" && !strings.HasSuffix(key, "/") {
		prefix = key + "/"
	}
	if err := allowed.List(bucket, prefix); err != nil {
		return in.keyError(name+key, err)
	}
	met, before := tables{}, len(all.objects)
	for info, err := range store.List(ctx, prefix) {
		badKey := err
		if err != nil && info.Key == "" {
			return in.keyError(name+key, err)
		}
		met.file(name, strings.Split(info.Key, "/"))
		if glob != "" {
			dir, base := path.Split(info.Key)
			if ok, _ := path.Match(glob, info.Key); !ok || !sel.wants(name+dir, []string{base}, false) {
				continue
			}
		} else if !sel.below(name+prefix, strings.Split(info.Key[len(prefix):], "/"), false) {
			continue
		}
		if badKey != nil {
			return &InputError{Object: name + prefix, Err: badKey,
				Reason: fmt.Sprintf("it has an object that cannot be read, %q; copy it to another key, or leave it out (--exclude)", info.Key)}
		}
		if err := all.add(object{Name: name + info.Key, Bytes: info.Size, ETag: info.ETag}); err != nil {
			return err
		}
	}
	if len(all.objects) > before {
		if err := met.aboveKeys(ctx, store, bucket, prefix); err != nil {
			return in.keyError(name+key, err)
		}
	}
	return met.check(all.objects[before:])
}

// keyError makes an *InputError of an error that does not go away when the step is repeated.
func (in *inputs) keyError(name string, err error) error {
	switch {
	case errors.Is(err, allow.ErrRefused):
		return &InputError{Object: name, Reason: allow.Reason(err), Err: err}
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, blob.ErrInvalidKey):
		return &InputError{Object: name, Reason: "no such object", Err: err}
	case in.planning && errors.Is(err, blob.ErrDenied) && !errors.Is(err, blob.ErrCredentials):
		return &InputError{Object: name, Reason: err.Error() +
			"; check the name, and allow the workers to list the bucket and to read the object", Err: err}
	}
	return err
}

// errChanged returns the error of an object that has changed since it was planned.
func (o object) errChanged() error {
	return &InputError{Object: o.Name, Reason: "the object was changed since it was listed for this run"}
}

// member returns the full name of a member of an archive, in the form of the object's name.
func (o object) member(name string) string {
	switch {
	case name == "":
		return o.Name
	case strings.HasPrefix(o.Name, "file:"):
		return o.Name + "/" + (&url.URL{Path: name}).EscapedPath()
	}
	return o.Name + "/" + name
}

// rawObject reads an object as it was planned. Formats that are not read in order use ReadAt, whose
// offsets count from the object's first byte.
type rawObject struct {
	io.ReadCloser
	io.ReaderAt
	size int64
	// pages is the memory for pages of Parquet, 0 for no limit.
	pages int64
	// check returns an error if the object has changed since it was planned. It is called after the
	// last byte was read.
	check func() error
}

// Size returns the object's stored size.
func (r *rawObject) Size() int64 { return r.size }

// PageMemory implements reader.PageMemory.
func (r *rawObject) PageMemory() int64 { return r.pages }

// storedObject reads ranges of an object in a store.
type storedObject struct {
	ctx   context.Context
	store blob.Store
	key   string
	size  int64
}

func (s storedObject) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), s.size-off)
	if n <= 0 {
		return 0, io.EOF
	}
	b, err := s.store.ReadRange(s.ctx, s.key, off, n)
	if err != nil {
		return 0, err
	}
	if copy(p, b) < len(p) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Opening tells a caller which raw object a step is about to read.
type Opening struct {
	// Object is called with the URL of each object before it is opened. Its error is the step's.
	Object func(ctx context.Context, url string) error
	// Read, unless nil, is called with the number of bytes of each read of the objects, before the
	// bytes are used. The read returns its error.
	Read func(ctx context.Context, n int) error
	// Single tells the step to read one object at a time, so that the object opened last is the one
	// that is being read.
	Single bool
}

type openingKey struct{}

type pageMemoryKey struct{}

// WithPageMemory returns a context with which the pages of Parquet take at most so many bytes of
// memory. A step that needs more ends with ErrPageMemory.
func WithPageMemory(ctx context.Context, bytes int64) context.Context {
	return context.WithValue(ctx, pageMemoryKey{}, bytes)
}

// ErrPageMemory is the error of a step whose input needs more than WithPageMemory allows.
var ErrPageMemory = raw.ErrPageMemory

// OpeningOf returns what WithOpening gave to a context or one above it.
func OpeningOf(ctx context.Context) Opening {
	o, _ := ctx.Value(openingKey{}).(Opening)
	return o
}

// WithOpening returns a context with which steps call o.
func WithOpening(ctx context.Context, o Opening) context.Context {
	return context.WithValue(ctx, openingKey{}, o)
}

// objectsAtOnce returns how many objects a step may read concurrently, which is usually n.
func objectsAtOnce(ctx context.Context, n int) int {
	if OpeningOf(ctx).Single {
		return 1
	}
	return n
}

// open starts reading an object at an offset in its stored bytes.
func (in *inputs) open(ctx context.Context, o object, off int64) (*rawObject, error) {
	opening := OpeningOf(ctx)
	if opening.Object != nil {
		if err := opening.Object(ctx, o.Name); err != nil {
			return nil, err
		}
	}
	r, err := in.openObject(ctx, o, off)
	if err == nil && opening.Read != nil {
		told := func(n int) error { return opening.Read(ctx, n) }
		r.ReadCloser, r.ReaderAt = toldReader{r.ReadCloser, told}, toldReaderAt{r.ReaderAt, told}
	}
	return r, err
}

// toldReader and toldReaderAt report each read.
type toldReader struct {
	io.ReadCloser
	told func(n int) error
}

func (t toldReader) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	return n, cmp.Or(t.told(n), err)
}

type toldReaderAt struct {
	io.ReaderAt
	told func(n int) error
}

func (t toldReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.ReaderAt.ReadAt(p, off)
	return n, cmp.Or(t.told(n), err)
}

func (in *inputs) openObject(ctx context.Context, o object, off int64) (*rawObject, error) {
	allowed := allow.Of(ctx)
	if strings.HasPrefix(o.Name, "file:") {
		return openFile(allowed, o, off)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(o.Name, "s3://"), "/")
	if err := allowed.Key(bucket, key); err != nil {
		return nil, in.keyError(o.Name, err)
	}
	store, err := in.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	check := func() error {
		info, err := store.Stat(ctx, key)
		if err != nil {
			return in.keyError(o.Name, err)
		}
		if info.Size != o.Bytes || info.ETag != o.ETag {
			return o.errChanged()
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) {
		r, err := store.Open(ctx, key, off, -1)
		if errors.Is(err, blob.ErrRange) {
			return nil, o.errChanged()
		}
		if err != nil {
			return nil, in.keyError(o.Name, err)
		}
		return r, nil
	}
	return &rawObject{ReadCloser: &readLater{open: open}, ReaderAt: storedObject{ctx, store, key, o.Bytes},
		size: o.Bytes, check: check}, nil
}

// readLater opens its stream at the first Read. Row groups are read by ReadAt only, without a
// stream.
type readLater struct {
	open func() (io.ReadCloser, error)
	r    io.ReadCloser
}

func (l *readLater) Read(p []byte) (int, error) {
	if l.r == nil {
		r, err := l.open()
		if err != nil {
			return 0, err
		}
		l.r = r
	}
	return l.r.Read(p)
}

func (l *readLater) Close() error {
	if l.r == nil {
		return nil
	}
	return l.r.Close()
}

func openFile(allowed *allow.Inputs, o object, off int64) (*rawObject, error) {
	name, err := pathOf(o.Name)
	if err != nil {
		return nil, err
	}
	f, err := allowed.Open(name)
	if err != nil {
		return nil, fileError(name, err)
	}
	check := func() error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.Size() != o.Bytes || fileTag(info) != o.ETag {
			return o.errChanged()
		}
		return nil
	}
	if err := check(); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return &rawObject{ReadCloser: f, ReaderAt: f, size: o.Bytes, check: check}, nil
}
