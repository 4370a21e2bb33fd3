package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// cacheBytes is how many bytes of packs a View keeps. With fewer, a build over batches of many
// packs would read packs again that another of its lists has just read.
const cacheBytes = 32 << 20

// batchID names a batch.
type batchID struct {
	dataset uint32
	name    string
}

var rejectsForm = regexp.MustCompile(`^rejects/dataset_id=(\d+)/(.+)-[0-9a-f]{32}\.ndjson\.zst$`)

// batchOf returns the batch of an object that a pack may have: a record, postings or a list of
// rejects.
func batchOf(key string) (b batchID, ok bool) {
	var id string
	if rest, found := strings.CutPrefix(key, "batches/dataset_id="); found {
		if !strings.HasSuffix(key, ".json") && !strings.HasSuffix(key, ".zst") {
			return b, false // the mark of a withdrawn record
		}
		if id, rest, ok = strings.Cut(rest, "/"); ok {
			b.name, _, ok = strings.Cut(rest, "/")
		}
	} else if m := rejectsForm.FindStringSubmatch(key); m != nil {
		id, b.name, ok = m[1], m[2], true
	}
	if !ok {
		return b, false
	}
	n, err := strconv.ParseUint(id, 10, 32)
	b.dataset = uint32(n)
	return b, err == nil
}

// BatchOf returns the dataset and the name of the batch of an object that a pack may have.
func BatchOf(key string) (dataset uint32, batch string, ok bool) {
	b, ok := batchOf(key)
	return b.dataset, b.name, ok
}

// View is a store in which objects that packs hold can be read under their own keys. Add says which
// packs it knows. Everything else is the store's, also writes: what is written through a View is an
// object of its own.
//
// A read of a batch's object looks into the batch's packs first, then into the store. If a pack is
// damaged or missing, and the store does not have the object either, the error is a
// *codec.CorruptError about the object. List lists objects of the store alone.
//
// A View keeps up to 32 MiB of packs, so readers of many batches read each pack once or a few
// times. It may be used by several goroutines.
type View struct {
	blob.Store
	*cache

	first string // the pack that is looked into before those of a batch, if any
}

// cache is what the views of a store share.
type cache struct {
	mu     sync.Mutex
	packs  map[batchID][]string
	loaded map[string]*loading
	recent []string // names of loaded, the least recently used first
	bytes  int64
	lost   map[string]bool // packs from which objects were lost
}

// loading is a pack that is read, or was.
type loading struct {
	done chan struct{}
	pack *Pack
	size int64
	err  error
}

// NewView returns a View of a store that knows no pack yet.
func NewView(store blob.Store) *View {
	return &View{Store: store, cache: &cache{
		packs: map[batchID][]string{}, loaded: map[string]*loading{}, lost: map[string]bool{},
	}}
}

// In returns the store in which a version or an ingest that names that pack reads the objects of
// its batch: in the pack, or wherever else they are if that is damaged. If the name is empty, they
// are objects of the store, and packs that the batch had before do not count.
func (v *View) In(name string) blob.Store {
	if name == "" {
		return v.Store
	}
	return &View{Store: v.Store, cache: v.cache, first: name}
}

// Add says that the pack holds objects of a batch. A batch may have several packs: one batch that
// was ingested twice with the same content has one record. An empty name, for a batch whose objects
// are objects of the store, does nothing. So does a name that is in use already.
func (v *View) Add(dataset uint32, batch, name string) {
	if name == "" {
		return
	}
	id := batchID{dataset, batch}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.packs[id], name) {
		v.packs[id] = append(v.packs[id], name)
	}
}

// Unwrap returns the store inside.
func (v *View) Unwrap() blob.Store { return v.Store }

// Lost returns the names of the packs from which readers of this View have lost objects, sorted.
func (v *View) Lost() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.lost))
}

// damage is a pack that may have held an object, and its *codec.CorruptError about that.
type damage struct {
	pack string
	err  error
}

// object returns an object from the batch's packs. If none has it, data is nil; bad is a pack that
// may have held it. The bytes must not be changed.
func (v *View) object(ctx context.Context, key string) (data []byte, info blob.Info, bad damage, err error) {
	id, ok := batchOf(key)
	if !ok {
		return nil, blob.Info{}, bad, nil
	}
	v.mu.Lock()
	names := v.packs[id]
	v.mu.Unlock()
	if v.first != "" {
		names = append([]string{v.first}, names...)
	}
	for _, name := range names {
		p, err := v.load(ctx, name)
		if err == nil {
			data, ok, err = p.Object(key)
		}
		switch {
		case errors.Is(err, codec.ErrCorrupt):
			bad = damage{name, lost(key, err)}
		case err != nil:
			return nil, blob.Info{}, bad, err
		case ok:
			return data, blob.Info{Key: key, Size: int64(len(data)), ETag: "pack:" + name}, damage{}, nil
		}
	}
	return nil, blob.Info{}, bad, nil
}

// lost makes an error about a pack one about an object that it held.
func lost(key string, err error) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) || c.File == key {
		return err
	}
	return codec.Corrupt(key, "object", -1, "one in "+c.File, fmt.Sprintf("a damaged pack: %s: want %s, got %s",
		c.Section, c.Want, c.Got))
}

// orDamage returns the error of the damaged pack instead of that of the store, if the store does
// not have the object either.
func (v *View) orDamage(err error, bad damage) error {
	if bad.err == nil || !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost[bad.pack] = true
	return bad.err
}

// load returns a pack, which it reads unless it is kept.
func (v *View) load(ctx context.Context, name string) (*Pack, error) {
	for {
		v.mu.Lock()
		l, ok := v.loaded[name]
		if !ok {
			l = &loading{done: make(chan struct{})}
			v.loaded[name] = l
		} else {
			v.touch(name)
		}
		v.mu.Unlock()
		if !ok {
			v.read(ctx, name, l)
			return l.pack, l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// The reader that this one waited for may have been cancelled.
		if l.err == nil || errors.Is(l.err, codec.ErrCorrupt) || ctx.Err() != nil {
			return l.pack, l.err
		}
	}
}

// touch makes a pack the most recently used one.
func (v *View) touch(name string) {
	if i := slices.Index(v.recent, name); i >= 0 {
		copy(v.recent[i:], v.recent[i+1:])
		v.recent[len(v.recent)-1] = name
	}
}

// read reads a pack for all that wait for it.
func (v *View) read(ctx context.Context, name string, l *loading) {
	l.pack, l.size, l.err = readPack(ctx, v.Store, name)
	v.mu.Lock()
	defer v.mu.Unlock()
	defer close(l.done)
	if l.err != nil && !errors.Is(l.err, codec.ErrCorrupt) {
		delete(v.loaded, name) // the next reader tries again
		return
	}
	v.bytes += l.size
	for v.bytes > cacheBytes && len(v.recent) > 0 {
		v.bytes -= v.loaded[v.recent[0]].size
		delete(v.loaded, v.recent[0])
		v.recent = v.recent[1:]
	}
	v.recent = append(v.recent, name)
}

// readPack reads a pack whose objects are checked when they are used. A missing pack is a
// *codec.CorruptError.
func readPack(ctx context.Context, store blob.Store, name string) (*Pack, int64, error) {
	key := Key(name)
	info, err := store.Stat(ctx, key)
	if err == nil && info.Size > maxBytes {
		err = codec.Corrupt(key, "size", -1, fmt.Sprintf("at most %d", maxBytes), info.Size)
	}
	var data []byte
	if err == nil {
		data, _, err = store.Get(ctx, key)
	}
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	if err != nil {
		return nil, 0, err
	}
	p, err := Decode(data, key)
	return p, int64(len(data)), err
}

// Stat implements blob.Store.
func (v *View) Stat(ctx context.Context, key string) (blob.Info, error) {
	data, info, bad, err := v.object(ctx, key)
	if data != nil || err != nil {
		return info, err
	}
	info, err = v.Store.Stat(ctx, key)
	return info, v.orDamage(err, bad)
}

// Get implements blob.Store.
func (v *View) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	data, info, bad, err := v.object(ctx, key)
	if data != nil || err != nil {
		return bytes.Clone(data), info, err
	}
	data, info, err = v.Store.Get(ctx, key)
	return data, info, v.orDamage(err, bad)
}

// ReadRange implements blob.Store.
func (v *View) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, _, bad, err := v.object(ctx, key)
	if err != nil {
		return nil, err
	}
	if data == nil {
		data, err = v.Store.ReadRange(ctx, key, off, n)
		return data, v.orDamage(err, bad)
	}
	if err := checkRange(off, n, int64(len(data))); n < 0 || err != nil {
		return nil, blob.OpError("read", v.URL(), key, blob.RangeError(off, n, int64(len(data))))
	}
	return bytes.Clone(data[off : off+n]), nil
}

// Open implements blob.Store.
func (v *View) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	data, _, bad, err := v.object(ctx, key)
	if err != nil {
		return nil, err
	}
	if data == nil {
		r, err := v.Store.Open(ctx, key, off, n)
		return r, v.orDamage(err, bad)
	}
	size := int64(len(data))
	if err := checkRange(off, n, size); err != nil {
		return nil, blob.OpError("open", v.URL(), key, err)
	}
	if n < 0 {
		n = size - off
	}
	return io.NopCloser(bytes.NewReader(data[off : off+n])), nil
}

// checkRange checks a range of an object of size bytes. A negative n is the rest.
func checkRange(off, n, size int64) error {
	if err := blob.CheckRange(off, n); err != nil {
		return err
	}
	if off > size || n > size-off {
		return blob.RangeError(off, n, size)
	}
	return nil
}
