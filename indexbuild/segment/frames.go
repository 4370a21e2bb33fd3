package segment

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/urlake/urlake/internal/flight"
	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// scanBytes is how many compressed bytes a scan over the frames of a file fetches at once.
const scanBytes = 1 << 20

// Cache keeps decoded frames. Values are immutable, and bytes is what a value holds in memory. A
// Cache must be safe for concurrent use.
type Cache interface {
	Get(key CacheKey) (value any, ok bool)
	// Again is Get for a key that was asked for a moment ago and counted then.
	Again(key CacheKey) (value any, ok bool)
	Add(key CacheKey, value any, bytes int64)
}

// CacheKey names a frame. Objects are immutable, so the key identifies the frame's content.
type CacheKey struct {
	Object string // key in the store
	Frame  int
}

// frames is a frame file in a store.
type frames struct {
	*seekable.Frames
	key  string
	read seekable.RangeReader
	// loading has the frames that are being read for the cache, so that requests for neighbours in
	// one frame, which come at once, read it once.
	loading flight.Group[int, any]
}

func newFrames(ctx context.Context, store blob.Store, key string, f *File, fenceWidth int) (*frames, error) {
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, key, off, n) }
	opened, err := seekable.OpenAt(ctx, read, f.frame, key, fenceWidth)
	if err != nil {
		return nil, err
	}
	if opened.Len() != f.Frames || opened.RawBytes() != f.RawBytes {
		want := fmt.Sprintf("%d frames of %d bytes", f.Frames, f.RawBytes)
		return nil, codec.Corrupt(key, "seek table", -1, want, fmt.Sprintf("%d of %d", opened.Len(), opened.RawBytes()))
	}
	return &frames{Frames: opened, key: key, read: read}, nil
}

// frame reads one frame through the cache.
func (f *frames) frame(ctx context.Context, cache Cache, i int) ([]byte, error) {
	return load(ctx, f, cache, i, func(data []byte) ([]byte, int64, error) { return data, int64(cap(data)), nil })
}

// load returns the decoded form of frame i from the cache, or reads the frame and caches the
// result. Decode returns a value and what it takes in memory.
func load[T any](ctx context.Context, f *frames, cache Cache, i int, decode func([]byte) (T, int64, error)) (T, error) {
	var none T
	read := func() (T, int64, error) {
		data, err := f.Read(ctx, f.read, i, i+1)
		if err != nil {
			return none, 0, err
		}
		return decode(data[0])
	}
	if cache == nil {
		v, _, err := read()
		return v, err
	}
	key := CacheKey{f.key, i}
	v, ok := cache.Get(key)
	spans.Cached(ctx, spans.Frames, ok)
	if ok {
		return v.(T), nil
	}
	v, err := f.loading.Do(ctx, i, func() (any, error) {
		if v, ok := cache.Again(key); ok { // a call that ended since has read it
			return v, nil
		}
		v, size, err := read()
		if err == nil {
			cache.Add(key, v, size)
		}
		return v, err
	})
	if err != nil {
		return none, err
	}
	return v.(T), nil
}

// loadRange is load for the frames [lo, hi). It reads one range: from the first frame that the
// cache does not have to the last.
func loadRange[T any](ctx context.Context, f *frames, cache Cache, lo, hi int,
	decode func(frame int, data []byte) (T, int64, error)) ([]T, error) {
	if hi == lo+1 {
		v, err := load(ctx, f, cache, lo, func(data []byte) (T, int64, error) { return decode(lo, data) })
		return []T{v}, err
	}
	values := make([]T, hi-lo)
	have := make([]bool, hi-lo)
	first, last := hi, lo
	for i := lo; i < hi; i++ {
		if cache != nil {
			v, ok := cache.Get(CacheKey{f.key, i})
			spans.Cached(ctx, spans.Frames, ok)
			if ok {
				values[i-lo], have[i-lo] = v.(T), true
				continue
			}
		}
		first, last = min(first, i), i+1
	}
	if first >= last {
		return values, nil
	}
	data, err := f.Read(ctx, f.read, first, last)
	if err != nil {
		return nil, err
	}
	for i := first; i < last; i++ {
		if have[i-lo] {
			continue
		}
		v, size, err := decode(i, data[i-first])
		if err != nil {
			return nil, err
		}
		values[i-lo] = v
		if cache != nil {
			cache.Add(CacheKey{f.key, i}, v, size)
		}
	}
	return values, nil
}

// scanned is one frame of a scan.
type scanned struct {
	number int
	data   []byte
}

func (s scanned) section() string { return frameSection(s.number) }

// frameSection names a frame in errors.
func frameSection(i int) string { return fmt.Sprintf("frame %d", i) }

// scan yields the frames [first, end). It reads many at once and bypasses the cache. An error is
// the last thing yielded. A frame is valid until the next one is yielded.
func (f *frames) scan(ctx context.Context, first, end int) iter.Seq2[scanned, error] {
	return func(yield func(scanned, error) bool) {
		var buf []byte
		for lo := first; lo < end; {
			hi := f.reach(lo, end, scanBytes)
			off, n := f.Range(lo, hi)
			raw, err := f.read(ctx, off, n)
			if err != nil {
				yield(scanned{}, fmt.Errorf("read frames %d to %d of %s: %w", lo, hi, f.key, err))
				return
			}
			for ; lo < hi; lo++ {
				at, n := f.Range(lo, lo+1)
				buf = slices.Grow(buf[:0], int(f.RawSize(lo)))
				data, err := f.DecodeInto(lo, raw[at-off:][:n], buf)
				if err != nil {
					yield(scanned{}, err)
					return
				}
				if !yield(scanned{lo, data}, nil) {
					return
				}
			}
		}
	}
}

// reach returns the end of the longest range of frames that starts at lo, ends at end at the latest
// and has at most size compressed bytes. The range has at least one frame.
func (f *frames) reach(lo, end int, size int64) int {
	hi := lo + 1
	for hi < end {
		if _, n := f.Range(lo, hi+1); n > size {
			break
		}
		hi++
	}
	return hi
}
