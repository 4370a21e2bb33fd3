// Package allow limits the reach of a worker's steps: which raw objects an ingest may read
// ([Inputs]), and to which databases and frontiers the rows of the lake may be sent ([Targets]).
// Anyone who may start a workflow names these objects and hosts.
//
// A worker reads with its own rights; an operator says with prefixes what that may be:
//
//	file:///data/          the folder /data and all below it; file:/// is every local file
//	s3://bucket/prefix/    the keys below the prefix; s3://bucket is the whole bucket, s3:// all
//
// A path is judged by what it leads to: symbolic links are resolved first, and a file is opened
// relative to the allowed folder, by a walk that refuses to leave it. So a link that is changed
// between the check and the opening opens nothing. What a folder is mounted on, and hard links to
// files elsewhere, count as inside of it.
package allow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ErrRefused matches the error of an object that may not be read, and of a host that may not be
// connected to.
var ErrRefused = errors.New("not allowed")

// refusal is the error of one object.
type refusal struct {
	name    string
	allowed string
}

func (e *refusal) Error() string { return e.name + ": " + e.reason() }

func (e *refusal) reason() string {
	return "these workers may not read it; they read " + e.allowed + " (worker --allow-input)"
}

func (e *refusal) Is(target error) bool { return target == ErrRefused }

// Reason returns what a refusal says without the object's name, and "" for any other error.
func Reason(err error) string {
	var e *refusal
	if !errors.As(err, &e) {
		return ""
	}
	return e.reason()
}

// Inputs are the raw objects that may be read. A nil *Inputs allows everything. It is safe for
// concurrent use.
type Inputs struct {
	// folders are absolute paths. files is set if every file is allowed.
	folders []string
	files   bool
	// keys are prefixes of bucket/key. buckets is set if every object is allowed.
	keys    []string
	buckets bool
	text    string
}

// Buckets allows every object of every bucket and no local file.
func Buckets() *Inputs { return &Inputs{buckets: true, text: "s3:// and no local file"} }

// Parse returns what the prefixes allow together. A prefix is a file:// URL of a folder, a path of
// one, or s3://, s3://bucket or s3://bucket/prefix.
func Parse(prefixes []string) (*Inputs, error) {
	a := &Inputs{}
	var names []string
	for _, p := range prefixes {
		if err := a.add(p); err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
		names = append(names, p)
	}
	if len(prefixes) == 0 {
		return nil, errors.New("no prefix given")
	}
	a.text = strings.Join(names, ", ")
	return a, nil
}

// Also allows what a prefix names without naming it in errors: what workers write themselves, and
// an operator has not asked for.
func (a *Inputs) Also(prefix string) error {
	if err := a.add(prefix); err != nil {
		return fmt.Errorf("%q: %w", prefix, err)
	}
	return nil
}

func (a *Inputs) add(prefix string) error {
	scheme, rest, ok := strings.Cut(prefix, "://")
	switch {
	case strings.Contains(prefix, "*"):
		return errors.New("want a prefix and no glob")
	case !ok:
		if prefix == "" {
			return errors.New("want a path, file:// or s3://")
		}
		name, err := filepath.Abs(prefix)
		if err != nil {
			return err
		}
		return a.addFolder(name)
	case scheme == "file":
		u, err := url.Parse(prefix)
		if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") ||
			u.RawQuery != "" || u.Fragment != "" {
			return errors.New("want file:///absolute/path")
		}
		return a.addFolder(filepath.FromSlash(u.Path))
	case scheme != "s3":
		return errors.New("want a path, file:// or s3://")
	case rest == "":
		a.buckets = true
		return nil
	}
	bucket, key, _ := strings.Cut(rest, "/")
	if bucket == "" || strange(key) {
		return errors.New("want s3://bucket/prefix")
	}
	// A prefix ends at a slash, so that s3://bucket/logs does not allow s3://bucket/logs-secret.
	a.keys = append(a.keys, bucket+"/"+key)
	return nil
}

func (a *Inputs) addFolder(name string) error {
	name = filepath.Clean(name)
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		return errors.New("it is not a folder")
	}
	if name == string(filepath.Separator) {
		a.files = true
	}
	a.folders = append(a.folders, name)
	return nil
}

// String lists the prefixes.
func (a *Inputs) String() string {
	if a == nil {
		return "anything"
	}
	return a.text
}

func (a *Inputs) refuse(name string) error { return &refusal{name: name, allowed: a.text} }

// strange reports whether a key has elements that a server may resolve as a path.
func strange(key string) bool {
	for e := range strings.SplitSeq(key, "/") {
		if e == "." || e == ".." {
			return true
		}
	}
	return false
}

// Key returns an error that matches ErrRefused if an object must not be read.
func (a *Inputs) Key(bucket, key string) error {
	if a == nil || a.buckets {
		return nil
	}
	name := bucket + "/" + key
	if !strange(key) && slices.ContainsFunc(a.keys, func(p string) bool {
		return name == p || strings.HasPrefix(name, strings.TrimSuffix(p, "/")+"/")
	}) {
		return nil
	}
	return a.refuse("s3://" + name)
}

// List returns an error that matches ErrRefused if the keys with a prefix must not be listed. The
// names of what must not be read are not told either.
func (a *Inputs) List(bucket, prefix string) error {
	if a == nil || a.buckets {
		return nil
	}
	name := bucket + "/" + prefix
	if !strange(prefix) && slices.ContainsFunc(a.keys, func(p string) bool {
		return strings.HasPrefix(name, strings.TrimSuffix(p, "/")+"/")
	}) {
		return nil
	}
	return a.refuse("s3://" + name)
}

// Stat is os.Stat of a file or folder that may be read.
func (a *Inputs) Stat(name string) (fs.FileInfo, error) {
	if a == nil || a.files {
		return os.Stat(name)
	}
	var info fs.FileInfo
	err := a.within(name, func(root *os.Root, rel string) (err error) {
		info, err = root.Stat(rel)
		return err
	})
	return info, err
}

// Open opens a file or folder that may be read. It does not wait for the writer of a pipe.
func (a *Inputs) Open(name string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if a == nil || a.files {
		return os.OpenFile(name, flags, 0)
	}
	var f *os.File
	err := a.within(name, func(root *os.Root, rel string) (err error) {
		f, err = root.OpenFile(rel, flags, 0)
		return err
	})
	return f, err
}

// ReadDir is os.ReadDir of a folder that may be read.
func (a *Inputs) ReadDir(name string) ([]fs.DirEntry, error) {
	if a == nil || a.files {
		return os.ReadDir(name)
	}
	f, err := a.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return entries, err
}

// Glob is filepath.Glob within what may be read. A folder that the glob leads to and that must not
// be read is an error.
func (a *Inputs) Glob(pattern string) ([]string, error) {
	if a == nil || a.files {
		return filepath.Glob(pattern)
	}
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	folder, last := filepath.Split(pattern)
	folders := []string{filepath.Clean(folder)}
	if strings.ContainsAny(folder, `*?[\`) {
		var err error
		if folders, err = a.Glob(filepath.Clean(folder)); err != nil {
			return nil, err
		}
	}
	var matches []string
	for _, f := range folders {
		entries, err := a.ReadDir(f)
		if errors.Is(err, ErrRefused) {
			return nil, err
		}
		if err != nil {
			continue // as filepath.Glob: what is no folder has no matches
		}
		for _, e := range entries {
			if ok, _ := filepath.Match(last, e.Name()); ok {
				matches = append(matches, filepath.Join(f, e.Name()))
			}
		}
	}
	return matches, nil
}

// within resolves name and calls do with the allowed folder that holds it, and its path in there.
// The path has no symbolic link; if it has got one since, root refuses what leads out.
func (a *Inputs) within(name string, do func(root *os.Root, rel string) error) error {
	name = filepath.Clean(name)
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		var of *fs.PathError
		if !errors.As(err, &of) { // it says so of too many links only
			err = &fs.PathError{Op: "stat", Path: name, Err: syscall.ELOOP}
		}
		return a.unresolved(name, err)
	}
	for _, folder := range a.folders {
		top, err := filepath.EvalSymlinks(folder)
		if err != nil {
			continue
		}
		rel, ok := below(top, resolved)
		if !ok {
			continue
		}
		return inRoot(top, func(root *os.Root) error { return do(root, rel) })
	}
	return a.refuse(fileURL(name))
}

// inRoot calls do with a folder as the root of all names.
func inRoot(folder string, do func(root *os.Root) error) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// unresolved returns the error of a name that leads nowhere. That it leads nowhere is told only of
// names in allowed folders.
func (a *Inputs) unresolved(name string, err error) error {
	above := name
	var resolved string
	for {
		var e error
		if resolved, e = filepath.EvalSymlinks(above); e == nil {
			break
		}
		parent := filepath.Dir(above)
		if parent == above {
			return a.refuse(fileURL(name))
		}
		above = parent
	}
	for _, folder := range a.folders {
		if _, ok := below(folder, name); ok {
			return err
		}
		if top, e := filepath.EvalSymlinks(folder); e == nil {
			if _, ok := below(top, resolved); ok {
				return err
			}
		}
	}
	return a.refuse(fileURL(name))
}

// below returns the path of name relative to folder, and whether it is the folder or in it. Both
// are clean and absolute.
func below(folder, name string) (rel string, ok bool) {
	rel, err := filepath.Rel(folder, name)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return rel, true
}

func fileURL(name string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(name)}).String()
}

type contextKey struct{}

// With returns a context in which ingests may read a alone.
func With(ctx context.Context, a *Inputs) context.Context {
	return context.WithValue(ctx, contextKey{}, a)
}

// Of returns what With gave to a context or one above it, nil if nothing.
func Of(ctx context.Context) *Inputs {
	a, _ := ctx.Value(contextKey{}).(*Inputs)
	return a
}
