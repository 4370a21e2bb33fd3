package treebuild

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/inventory"
)

// maxManifest is the largest manifest.json in bytes. One of S3 has some 200 bytes for each file.
const maxManifest = 64 << 20

// sources finds inputs.
type sources struct {
	buckets map[string]blob.Store
}

// object is a file, or an object in a bucket.
type object struct {
	path  string // of a file
	store blob.Store
	key   string
	name  string // for errors
}

// find returns the object that the user names.
func (in *sources) find(ctx context.Context, name string) (object, error) {
	if rest, ok := strings.CutPrefix(name, "s3://"); ok {
		bucket, key, _ := strings.Cut(rest, "/")
		return in.inBucket(ctx, bucket, key)
	}
	if strings.HasPrefix(name, "file:") {
		u, err := url.Parse(name)
		if err != nil || u.Host != "" && u.Host != "localhost" {
			return object{}, errors.New("it is no URL of a file; want file:///path")
		}
		return object{path: filepath.FromSlash(u.Path), name: name}, nil
	}
	return object{path: name, name: name}, nil
}

func (in *sources) inBucket(ctx context.Context, bucket, key string) (object, error) {
	store := in.buckets[bucket]
	if store == nil {
		var err error
		if store, err = blob.Open(ctx, "s3://"+bucket); err != nil {
			return object{}, err
		}
		if in.buckets == nil {
			in.buckets = map[string]blob.Store{}
		}
		in.buckets[bucket] = store
	}
	return object{store: store, key: key, name: "s3://" + bucket + "/" + key}, nil
}

// opened is an open object that can be read in order and at offsets.
type opened struct {
	io.ReadCloser
	io.ReaderAt
	size int64
}

func (o *opened) Size() int64 { return o.size }

// ranges reads ranges of an object in a store.
type ranges func(off, n int64) ([]byte, error)

func (r ranges) ReadAt(p []byte, off int64) (int, error) {
	data, err := r(off, int64(len(p)))
	n := copy(p, data)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// open opens an object, which stays the same while it is read in order.
func (o object) open(ctx context.Context) (*opened, error) {
	if o.store == nil {
		f, err := os.Open(o.path)
		if err != nil {
			return nil, plain(err)
		}
		st, err := f.Stat()
		if err == nil && st.IsDir() {
			err = errors.New("it is a folder; name the files, or the report's manifest.json")
		}
		if err != nil {
			f.Close()
			return nil, plain(err)
		}
		return &opened{f, f, st.Size()}, nil
	}
	info, err := o.store.Stat(ctx, o.key)
	if err != nil {
		return nil, err
	}
	r, err := o.store.Open(ctx, o.key, 0, -1)
	if err != nil {
		return nil, err
	}
	at := func(off, n int64) ([]byte, error) {
		if off >= info.Size {
			return nil, io.EOF
		}
		return o.store.ReadRange(ctx, o.key, off, min(n, info.Size-off))
	}
	return &opened{r, ranges(at), info.Size}, nil
}

// plain removes the path from an error of a file, which the caller names.
func plain(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// task is a file that is read.
type task struct {
	object
	read func(yield func(inventory.Object) error) error
}

// tasks returns the files that an input stands for, and when its report was begun.
func (in *sources) tasks(ctx context.Context, name string, csv inventory.CSV) ([]task, time.Time, error) {
	o, err := in.find(ctx, name)
	if err != nil {
		return nil, time.Time{}, err
	}
	r, err := o.open(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer r.Close()
	whole := bufio.NewReader(r)
	head, err := whole.Peek(512)
	if err != nil && err != io.EOF {
		return nil, time.Time{}, err
	}
	parquet := bytes.HasPrefix(head, []byte("PAR1"))
	switch {
	case inventory.Is(head):
		return in.report(ctx, o, whole)
	case bytes.HasPrefix(head, []byte("ORC")):
		return nil, time.Time{}, errORC
	}
	read := func(yield func(inventory.Object) error) error {
		r, err := o.open(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		if parquet {
			return inventory.Parquet(r, o.name, yield)
		}
		return csv.Read(r, yield)
	}
	return []task{{o, read}}, time.Time{}, nil
}

var errORC = errors.New("it is ORC, which is not read; have the inventory written as CSV or Parquet")

// report returns the files of a report.
func (in *sources) report(ctx context.Context, o object, r io.Reader) ([]task, time.Time, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(data) > maxManifest {
		return nil, time.Time{}, fmt.Errorf("a manifest of more than %d MiB", maxManifest>>20)
	}
	m, err := inventory.Parse(data)
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(m.Files) == 0 {
		return nil, time.Time{}, errors.New("it lists no files")
	}
	var tasks []task
	for _, f := range m.Files {
		data, err := in.dataFile(ctx, o, m, f)
		if err != nil {
			return nil, time.Time{}, err
		}
		tasks = append(tasks, task{data, func(yield func(inventory.Object) error) error {
			return m.ReadVersions(f, func() (inventory.Source, error) {
				r, err := data.open(ctx)
				if err == nil && f.Size > 0 && r.size != f.Size {
					r.Close()
					err = fmt.Errorf("it has %d bytes, and %d in %s", r.size, f.Size, o.name)
				}
				return r, err
			}, yield)
		}})
	}
	return tasks, m.Created, nil
}

// dataFile finds a data file of a report: in the bucket that the manifest names, or for a local
// copy of the manifest beside it, in a folder data beside it, or in the folder data beside its own.
func (in *sources) dataFile(ctx context.Context, manifest object, m *inventory.Manifest, f inventory.File) (object, error) {
	if manifest.store != nil {
		return in.inBucket(ctx, m.Bucket, f.Key)
	}
	dir, base := filepath.Dir(manifest.path), path.Base(f.Key)
	places := []string{filepath.Join(dir, base), filepath.Join(dir, "data", base), filepath.Join(filepath.Dir(dir), "data", base)}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return object{path: p, name: p}, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return object{}, err
		}
	}
	return object{}, fmt.Errorf("its data file %s is not there; looked for %s", f.Key, strings.Join(places, ", "))
}
