package ingest

import (
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
)

// object is one object to read.
type object struct {
	// Name is its URL: file:///… with percent-escapes, or s3://bucket/key taken literally.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// ETag changes when the object does.
	ETag string `json:"etag"`
}

// maxObjects bounds the objects of one batch: their names stand in its record, some 200 bytes each, and records are
// read whole.
const maxObjects = 1 << 20

// openStore opens the bucket of an input. Tests put other stores behind s3:// names.
var openStore = blob.Open

// inputs finds and opens raw objects. It is safe for concurrent use.
type inputs struct {
	mu      sync.Mutex
	buckets map[string]blob.Store
}

// expand lists the objects that patterns stand for, sorted by name, each once: neither
// the order of the patterns nor what they have in common shows in anything that follows.
func (in *inputs) expand(ctx context.Context, patterns []string) ([]object, error) {
	var all []object
	for _, p := range patterns {
		found, err := in.find(ctx, p)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, &InputError{Object: p, Reason: "there is nothing there"}
		}
		all = append(all, found...)
		if len(all) > maxObjects {
			return nil, &InputError{Object: p, Reason: fmt.Sprintf("more than %d objects in one batch; pack them, or make several batches", maxObjects)}
		}
	}
	slices.SortFunc(all, func(a, b object) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b object) bool { return a.Name == b.Name }), nil
}

func (in *inputs) find(ctx context.Context, pattern string) ([]object, error) {
	scheme, rest, ok := strings.Cut(pattern, "://")
	switch {
	case !ok:
		return findFiles(pattern)
	case scheme == "file":
		name, err := pathOf(pattern)
		if err != nil {
			return nil, err
		}
		return findFiles(name)
	case scheme == "s3":
		bucket, key, _ := strings.Cut(rest, "/")
		return in.findKeys(ctx, bucket, key)
	}
	return nil, &InputError{Object: pattern, Reason: "neither a path, file:// nor s3://"}
}

// pathOf is the path of a file:// URL.
func pathOf(fileURL string) (string, error) {
	u, err := url.Parse(fileURL)
	if err != nil || (u.Host != "" && u.Host != "localhost") || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
		return "", &InputError{Object: fileURL, Reason: "a file is file:///absolute/path"}
	}
	return filepath.FromSlash(u.Path), nil
}

func fileURL(name string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(name)}).String()
}

// findFiles lists a file, a glob's matches or what is below a folder.
func findFiles(pattern string) ([]object, error) {
	if !filepath.IsAbs(pattern) {
		return nil, &InputError{Object: pattern, Reason: "a path has to be absolute: workers run in other folders"}
	}
	pattern = filepath.Clean(pattern)
	info, err := os.Stat(pattern)
	if err == nil {
		return walk(nil, pattern, info, nil)
	}
	if !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(pattern, `*?[`) {
		return nil, fileError(pattern, err)
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, &InputError{Object: pattern, Reason: "not a glob", Err: err}
	}
	var found []object
	for _, m := range matches {
		info, err := os.Stat(m)
		if err != nil {
			return nil, fileError(m, err)
		}
		if found, err = walk(found, m, info, nil); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// hidden tells names that data tools keep beside data: markers, checksums, editors' files.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// walk appends a file, or all files below a folder. Symbolic links are followed; above are the folders that led here, so that a
// link to one of them ends.
func walk(found []object, name string, info fs.FileInfo, above []fs.FileInfo) ([]object, error) {
	if info.Mode().IsRegular() {
		return append(found, object{Name: fileURL(name), Bytes: info.Size(), ETag: fileTag(info)}), nil
	}
	if !info.IsDir() {
		return nil, &InputError{Object: fileURL(name), Reason: "neither a file nor a folder"}
	}
	for _, a := range above {
		if os.SameFile(a, info) {
			return found, nil
		}
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fileError(name, err)
	}
	above = append(above, info)
	for _, e := range entries {
		if hidden(e.Name()) {
			continue
		}
		child := filepath.Join(name, e.Name())
		info, err := os.Stat(child)
		if err != nil {
			return nil, fileError(child, err)
		}
		if found, err = walk(found, child, info, above); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// fileTag is a file's ETag.
func fileTag(info fs.FileInfo) string {
	return fmt.Sprintf("%x-%x", info.ModTime().UnixNano(), info.Size())
}

// fileError tells what no repetition mends from what the disk may mend.
func fileError(name string, err error) error {
	reason := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason = "no such file or folder"
	case errors.Is(err, fs.ErrPermission):
		reason = "permission denied"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		reason = "not a path"
	default:
		return err
	}
	return &InputError{Object: fileURL(name), Reason: reason, Err: err}
}

// bucket opens the store of a bucket once.
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

// findKeys lists an object, a glob's matches or what is below a prefix.
func (in *inputs) findKeys(ctx context.Context, bucket, key string) ([]object, error) {
	name := "s3://" + bucket + "/"
	store, err := in.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	if key != "" && !strings.HasSuffix(key, "/") {
		info, err := store.Stat(ctx, key)
		if err == nil {
			return []object{{Name: name + key, Bytes: info.Size, ETag: info.ETag}}, nil
		}
		if !errors.Is(err, blob.ErrNotExist) {
			return nil, keyError(name+key, err)
		}
	}
	prefix, glob := key, ""
	if i := strings.IndexAny(key, `*?[`); i >= 0 {
		prefix, glob = key[:i], key
		if _, err := path.Match(glob, ""); err != nil {
			return nil, &InputError{Object: name + key, Reason: "not a glob", Err: err}
		}
	} else if key != "" && !strings.HasSuffix(key, "/") {
		prefix = key + "/"
	}
	var found []object
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, keyError(name+key, err)
		}
		if glob != "" {
			if ok, _ := path.Match(glob, info.Key); !ok {
				continue
			}
		} else if slices.ContainsFunc(strings.Split(info.Key[len(prefix):], "/"), hidden) {
			continue
		}
		found = append(found, object{Name: name + info.Key, Bytes: info.Size, ETag: info.ETag})
	}
	return found, nil
}

// keyError tells what no repetition mends from what the store may mend.
func keyError(name string, err error) error {
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrInvalidKey) {
		return &InputError{Object: name, Reason: "no such object", Err: err}
	}
	return err
}

// errChanged is the error of an object that is not the one the plan saw.
func (o object) errChanged() error {
	return &InputError{Object: o.Name, Reason: "the object was changed since the run was planned"}
}

// member is the name of a member of an archive, in the form of the object's.
func (o object) member(name string) string {
	switch {
	case name == "":
		return o.Name
	case strings.HasPrefix(o.Name, "file:"):
		return o.Name + "/" + (&url.URL{Path: name}).EscapedPath()
	}
	return o.Name + "/" + name
}

// reader reads an object as the plan saw it. Formats that are not read in order take what they want of it by ReadAt,
// which counts from the object's first byte.
type reader struct {
	io.ReadCloser
	io.ReaderAt
	size int64
	// check says, after the last byte, whether the object is still the one the plan saw.
	check func() error
}

// Size returns the object's bytes as stored.
func (r *reader) Size() int64 { return r.size }

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

// open starts reading an object at an offset of its stored bytes.
func (in *inputs) open(ctx context.Context, o object, off int64) (*reader, error) {
	if strings.HasPrefix(o.Name, "file:") {
		return openFile(o, off)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(o.Name, "s3://"), "/")
	store, err := in.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	check := func() error {
		info, err := store.Stat(ctx, key)
		if err != nil {
			return keyError(o.Name, err)
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
			return nil, keyError(o.Name, err)
		}
		return r, nil
	}
	return &reader{ReadCloser: &readLater{open: open}, ReaderAt: storedObject{ctx, store, key, o.Bytes}, size: o.Bytes, check: check}, nil
}

// readLater opens what it reads when it is first read: of row groups nothing is read but by ReadAt.
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

func openFile(o object, off int64) (*reader, error) {
	name, err := pathOf(o.Name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
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
	return &reader{ReadCloser: f, ReaderAt: f, size: o.Bytes, check: check}, nil
}
