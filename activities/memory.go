package activities

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/lake/ingest"
)

// The most memory that a step usually allocates, in bytes. Small inputs need less.
const (
	// normalizeMemory holds an arena for rows of 5/16 of ingest.WorkerMemory, the cache of origins
	// with their hosts, buffers for reading and compressing, and usualPages.
	normalizeMemory = ingest.WorkerMemory*5/16 + 192<<20
	// usualPages is what pages of Parquet take at most in a step of normalizeMemory, which is
	// enough for most files. pageMemory holds all that they may take.
	usualPages = 64 << 20
	pageMemory = normalizeMemory - usualPages + ingest.PageMemory
	// mergeMemory holds an arena for rows (192 MiB) or the ends of all runs, what is prefetched, a
	// compressed row group and a page.
	mergeMemory = 320 << 20
	// extractMemory holds the buffer of a sort (64 MiB) and a page of each column.
	extractMemory = 128 << 20
	// segmentMemory holds the buffer of a sort (128 MiB), and about 380 MiB of other buffers, merge
	// sources and the perfect hash (indexbuild.Options).
	segmentMemory = 512 << 20
	// planMemory holds the decompressors of several objects, one of which may need much memory
	// (zstd --long).
	planMemory = ingest.PlanMemory
	// smallMemory is for steps that handle a few small objects. They wait for nothing, not even for
	// a step that runs alone: claims, looks and plans would wait with it, perhaps for hours.
	smallMemory = 0
)

// poolMemory is the memory of the largest step of each pool, except for pools with only small
// steps. In the control pool only PlanIngest is large; it does not limit the slots of the others.
var poolMemory = map[string]int64{
	PoolNormalize: normalizeMemory, PoolWrite: mergeMemory, PoolIndex: segmentMemory, PoolPublish: segmentMemory,
	PoolBackground: segmentMemory,
}

// Memory limits how many steps of a process run at once: in a pool to its slots, in all pools to
// those that fit into memory together, and to one where a step has to run alone. Steps of
// smallMemory do not count. The others wait and heartbeat meanwhile. A process takes more steps
// from Temporal than run at once, so that the next is there when one ends. What a step writes does
// not depend on it. A nil *Memory has no limit. Its methods may be called concurrently.
type Memory struct {
	total int64 // 0 for no limit
	free  *semaphore.Weighted
	// background is what steps of the background pool hold of free together. If they fit, it leaves
	// room for a split, which is the largest step of an ingest, even with large pages of Parquet.
	background *semaphore.Weighted
	// steps is one for each step that counts, and all of maxSteps for one that runs alone. It is
	// served in order: steps that come later wait for the one that waits to be alone.
	steps *semaphore.Weighted
	// slots is one for each running step of a pool that has a limit. A step takes its slot first,
	// so that it holds no memory while it waits for one.
	slots map[string]*semaphore.Weighted

	reserved atomic.Int64
	waiting  map[string]*atomic.Int64 // by pool
}

// Usage is the state of a Memory at one moment.
type Usage struct {
	// Limit is the memory of all steps together, 0 for no limit. Reserved is what running steps
	// hold. Both are in bytes.
	Limit, Reserved int64
	// Waiting is the number of steps of each pool that wait for a slot or for memory, or for a step
	// that runs alone.
	Waiting map[string]int64
}

// maxSteps is more steps than a process runs.
const maxSteps = 1 << 30

// NewMemory returns a Memory of that many bytes. 0 stands for no limit.
func NewMemory(bytes int64) *Memory {
	m := &Memory{
		total: bytes, free: semaphore.NewWeighted(bytes), steps: semaphore.NewWeighted(maxSteps),
		background: semaphore.NewWeighted(backgroundMemory(bytes)),
		slots:      map[string]*semaphore.Weighted{}, waiting: map[string]*atomic.Int64{},
	}
	for _, pool := range Pools {
		m.waiting[pool] = new(atomic.Int64)
	}
	return m
}

// backgroundMemory returns how much of a total steps of the background pool hold together.
func backgroundMemory(total int64) int64 {
	for _, room := range []int64{pageMemory, normalizeMemory} {
		if total >= segmentMemory+room {
			return total - room
		}
	}
	return total
}

// Limit sets how many steps of a pool run at once. It is called before any pool starts.
func (m *Memory) Limit(pool string, slots int) {
	m.slots[pool] = semaphore.NewWeighted(int64(slots))
}

// poolOf returns the pool whose step has the context, "" if none has.
func poolOf(ctx context.Context) string {
	if !activity.IsActivity(ctx) {
		return ""
	}
	pool, _, _ := strings.Cut(activity.GetInfo(ctx).TaskQueue, "@")
	return pool
}

// Usage returns the current state.
func (m *Memory) Usage() Usage {
	if m == nil {
		return Usage{}
	}
	u := Usage{Limit: m.total, Reserved: m.reserved.Load(), Waiting: map[string]int64{}}
	for pool, n := range m.waiting {
		u.Waiting[pool] = n.Load()
	}
	return u
}

// await acquires n of a semaphore. It counts the pool's step as waiting meanwhile.
func (m *Memory) await(ctx context.Context, pool string, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	if waiting := m.waiting[pool]; waiting != nil {
		waiting.Add(1)
		defer waiting.Add(-1)
	}
	return s.Acquire(ctx, n)
}

// Slots returns how many steps of a pool fit at once, at most n and at least 1: a step that is
// larger than all of the memory runs alone.
func (m *Memory) Slots(pool string, n int) int {
	if m == nil || m.total == 0 || poolMemory[pool] == 0 {
		return n
	}
	total := m.total
	if pool == PoolBackground {
		total = backgroundMemory(total)
	}
	return int(max(1, min(int64(n), total/poolMemory[pool])))
}

// acquire waits until the pool has a slot, no step runs alone, and a step that needs that many
// bytes fits, or until ctx ends. A step of smallMemory does not wait. The caller has to call
// release when the step ends.
func (m *Memory) acquire(ctx context.Context, need int64) (release func(), err error) {
	return m.acquireIn(ctx, poolOf(ctx), need)
}

// acquireIn is acquire for a step of a pool.
func (m *Memory) acquireIn(ctx context.Context, pool string, need int64) (release func(), err error) {
	if m == nil || need == smallMemory {
		return func() {}, nil
	}
	need = min(need, m.total)
	type share struct {
		of *semaphore.Weighted
		n  int64
	}
	var shares []share // in the order in which they are taken
	if slots := m.slots[pool]; slots != nil {
		shares = append(shares, share{slots, 1})
	}
	if pool == PoolBackground { // before steps: nobody waits for a step that has not begun
		shares = append(shares, share{m.background, min(need, backgroundMemory(m.total))})
	}
	shares = append(shares, share{m.steps, 1}, share{m.free, need})
	giveBack := func(taken []share) {
		for _, t := range slices.Backward(taken) {
			t.of.Release(t.n)
		}
	}
	for i, t := range shares {
		if err := m.await(ctx, pool, t.of, t.n); err != nil {
			giveBack(shares[:i])
			return nil, err
		}
	}
	m.reserved.Add(need)
	return func() { m.reserved.Add(-need); giveBack(shares) }, nil
}

// acquireAll is acquire for a step that runs alone: it waits until no other step of any pool runs,
// except those of smallMemory.
func (m *Memory) acquireAll(ctx context.Context) (release func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if err := m.await(ctx, poolOf(ctx), m.steps, maxSteps); err != nil {
		return nil, err
	}
	m.reserved.Add(m.total)
	return func() { m.reserved.Add(-m.total); m.steps.Release(maxSteps) }, nil
}
