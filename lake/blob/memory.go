package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
)

// Memory is a Store in memory, for tests. It is the strictest store: it rejects a key that is a
// folder of another, and an ETag depends on the content alone.
type Memory struct {
	mu      sync.Mutex
	objects map[string]memoryObject
	// folders is the number of objects below each folder.
	folders map[string]int
}

type memoryObject struct {
	data []byte // never changed
	etag string
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{objects: map[string]memoryObject{}, folders: map[string]int{}}
}

// URL is "mem:". Open does not know this scheme.
func (m *Memory) URL() string { return "mem:" }

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, key string) (Info, error) {
	o, err := m.find(ctx, "stat", key)
	if err != nil {
		return Info{}, err
	}
	return o.info(key), nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, Info, error) {
	o, err := m.find(ctx, "get", key)
	if err != nil {
		return nil, Info{}, err
	}
	if len(o.data) > MaxSmall {
		return nil, Info{}, OpError("get", m.URL(), key, ErrTooLarge)
	}
	return bytes.Clone(o.data), o.info(key), nil
}

// ReadRange implements Store.
func (m *Memory) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	o, err := m.find(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, OpError("read", m.URL(), key, fmt.Errorf("%w: %d bytes", ErrRange, n))
	}
	b, err := o.slice(off, n)
	if err != nil {
		return nil, OpError("read", m.URL(), key, err)
	}
	return bytes.Clone(b), nil
}

// Open implements Store. The stream reads the object as it was when it was opened.
func (m *Memory) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	o, err := m.find(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	b, err := o.slice(off, n)
	if err != nil {
		return nil, OpError("open", m.URL(), key, err)
	}
	return io.NopCloser(&contextReader{ctx: ctx, r: bytes.NewReader(b)}), nil
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error) {
	if err := CheckPut(ctx, key, data); err != nil {
		return Info{}, err
	}
	return m.put("put", key, bytes.Clone(data), cond)
}

func (m *Memory) put(op, key string, data []byte, cond Condition) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.objects[key]
	if !cond.Holds(old.etag, exists) {
		return Info{}, OpError(op, m.URL(), key, ErrPrecondition)
	}
	if m.folders[key] > 0 {
		return Info{}, OpError(op, m.URL(), key, fmt.Errorf("%w: it is a folder of other objects", ErrInvalidKey))
	}
	if !exists {
		for d := path.Dir(key); d != "."; d = path.Dir(d) {
			if _, ok := m.objects[d]; ok {
				return Info{}, OpError(op, m.URL(), key, fmt.Errorf("%w: its folder %q is an object", ErrInvalidKey, d))
			}
		}
		for d := path.Dir(key); d != "."; d = path.Dir(d) {
			m.folders[d]++
		}
	}
	h := xxh3.Hash128(data)
	o := memoryObject{data: data, etag: fmt.Sprintf("%016x%016x", h.Hi, h.Lo)}
	m.objects[key] = o
	return o.info(key), nil
}

// Create implements Store.
func (m *Memory) Create(ctx context.Context, key string) (Writer, error) {
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &memoryWriter{ctx: ctx, m: m, key: key}, nil
}

type memoryWriter struct {
	ctx  context.Context
	m    *Memory
	key  string
	buf  bytes.Buffer
	done bool
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	return w.buf.Write(p)
}

func (w *memoryWriter) usable() error {
	if w.done {
		return OpError("write", w.m.URL(), w.key, ErrWriterDone)
	}
	return w.ctx.Err()
}

func (w *memoryWriter) Finish() (Info, error) {
	err := w.usable()
	w.done = true
	if err != nil {
		return Info{}, err
	}
	return w.m.put("finish", w.key, w.buf.Bytes(), Condition{})
}

func (w *memoryWriter) Abort() { w.done = true }

// List implements Store. It yields the objects that exist when the loop begins.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := CheckPrefix(prefix); err != nil {
			yield(Info{}, fmt.Errorf("list: %w", err))
			return
		}
		var infos []Info
		m.mu.Lock()
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) {
				infos = append(infos, o.info(key))
			}
		}
		m.mu.Unlock()
		slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
		for _, info := range infos {
			if err := ctx.Err(); err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, keys ...string) error {
	if err := CheckKeys(ctx, keys); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if _, ok := m.objects[key]; !ok {
			continue
		}
		delete(m.objects, key)
		for d := path.Dir(key); d != "."; d = path.Dir(d) {
			if m.folders[d]--; m.folders[d] == 0 {
				delete(m.folders, d)
			}
		}
	}
	return nil
}

func (m *Memory) find(ctx context.Context, op, key string) (memoryObject, error) {
	if err := CheckKey(key); err != nil {
		return memoryObject{}, fmt.Errorf("%s: %w", op, err)
	}
	if err := ctx.Err(); err != nil {
		return memoryObject{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return memoryObject{}, OpError(op, m.URL(), key, ErrNotExist)
	}
	return o, nil
}

func (o memoryObject) info(key string) Info {
	return Info{Key: key, Size: int64(len(o.data)), ETag: o.etag}
}

// slice returns n bytes from off, or the rest if n is negative.
func (o memoryObject) slice(off, n int64) ([]byte, error) {
	if err := CheckRange(off, n); err != nil {
		return nil, err
	}
	size := int64(len(o.data))
	if off > size || off+max(n, 0) > size {
		return nil, RangeError(off, n, size)
	}
	if n < 0 {
		return o.data[off:], nil
	}
	return o.data[off : off+n], nil
}

// contextReader is a Reader that fails once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
