package lru

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"testing"
)

// listLRU is a textbook LRU cache. A cache with one shard must behave like it.
type listLRU struct {
	limit, used int64
	order       *list.List
	at          map[int]*list.Element
}

type listItem struct {
	key   int
	bytes int64
}

func (l *listLRU) get(key int) bool {
	e, ok := l.at[key]
	if ok {
		l.order.MoveToFront(e)
	}
	return ok
}

func (l *listLRU) add(key int, bytes int64) {
	bytes += entryOverhead
	if e, ok := l.at[key]; ok {
		l.drop(e)
	}
	if bytes > l.limit {
		return
	}
	for l.used+bytes > l.limit {
		l.drop(l.order.Back())
	}
	l.at[key] = l.order.PushFront(listItem{key, bytes})
	l.used += bytes
}

func (l *listLRU) drop(e *list.Element) {
	item := l.order.Remove(e).(listItem)
	delete(l.at, item.key)
	l.used -= item.bytes
}

func TestCacheAgreesWithTextbookLRU(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const limit = 20_000
	c := New[int, any](limit)
	want := &listLRU{limit: limit, order: list.New(), at: map[int]*list.Element{}}
	for i := range 50_000 {
		key := int(rng.ExpFloat64() * 12)
		if rng.IntN(3) == 0 {
			bytes := int64(rng.IntN(3000))
			if rng.IntN(50) == 0 {
				bytes = limit
			}
			c.Add(key, key, bytes)
			want.add(key, bytes)
		} else if v, ok := c.Get(key); ok != want.get(key) || (ok && v != key) {
			t.Fatalf("step %d: key %d: got %v %v", i, key, v, ok)
		}
		if st := c.Stats(); st.Bytes != want.used || st.Entries != int64(len(want.at)) || st.Bytes > limit {
			t.Fatalf("step %d: got %+v, want %d bytes in %d entries", i, st, want.used, len(want.at))
		}
	}
}

func TestCacheUnderConcurrency(t *testing.T) {
	c := New[int, any](64 << 20)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for range 5_000 {
				key := rng.IntN(500)
				if v, ok := c.Get(key); ok && v != key {
					t.Errorf("key %d holds %v", key, v)
				}
				c.Add(key, key, int64(rng.IntN(1<<20)))
			}
		})
	}
	wg.Wait()
	if st := c.Stats(); st.Bytes > 64<<20 {
		t.Fatalf("%d bytes kept", st.Bytes)
	}
}

func BenchmarkCacheGet(b *testing.B) {
	type key struct {
		file  string
		frame int
	}
	c := New[key, any](64 << 20)
	for i := range 1000 {
		c.Add(key{"index/segments/x/postings.idx.zst", i}, i, 1000)
	}
	i := 0
	for b.Loop() {
		i++
		if _, ok := c.Get(key{"index/segments/x/postings.idx.zst", i % 1000}); !ok {
			b.Fatal("missing")
		}
	}
}

// TestWholeKeepsWhatNoShardWould adds a value of nearly all bytes.
func TestWholeKeepsWhatNoShardWould(t *testing.T) {
	c := NewWhole[int, any](16 << 20)
	c.Add(1, "large", 15<<20)
	if _, ok := c.Get(1); !ok {
		t.Error("the value is not kept")
	}
	c.Add(2, "larger", 17<<20)
	if st := c.Stats(); st.Entries != 1 || st.Bytes > 16<<20 {
		t.Errorf("%+v", st)
	}
}
