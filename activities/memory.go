package activities

import (
	"context"
	"strings"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/lake/ingest"
)

// The most memory that a step usually allocates, in bytes. Small inputs need less.
const (
	// normalizeMemory holds an arena for rows of 5/16 of ingest.WorkerMemory, the cache of origins
	// with their hosts, and buffers for reading and compressing. Parquet with very large pages can
	// need as much again.
	normalizeMemory = ingest.WorkerMemory*5/16 + 192<<20
	// mergeMemory holds an arena for rows (192 MiB) or the ends of all runs, what is prefetched, a
	// compressed row group and a page.
	mergeMemory = 320 << 20
	// extractMemory holds the buffer of a sort (64 MiB) and a page of each column.
	extractMemory = 128 << 20
	// segmentMemory holds the buffer of a sort (128 MiB), and about 380 MiB of other buffers, merge
	// sources and the perfect hash (indexbuild.Options).
	segmentMemory = 512 << 20
	// moveMemory holds what mergeMemory does: a move merges rows, too.
	moveMemory = mergeMemory
	// planMemory holds the decompressors of several objects, one of which may need much memory
	// (zstd --long).
	planMemory = ingest.PlanMemory
	// smallMemory is for steps that handle a few small objects. They need not wait for memory.
	smallMemory = 0
)

// poolMemory is the memory of the largest step of each pool, except for pools with only small
// steps. In the control pool only PlanIngest is large; it does not limit the slots of the others.
var poolMemory = map[string]int64{
	PoolNormalize: normalizeMemory, PoolWrite: mergeMemory, PoolIndex: segmentMemory, PoolPublish: segmentMemory,
}

// Memory limits how many steps of a process run at once to those that fit into it together. The
// others wait and heartbeat meanwhile. What a step writes does not depend on it. A nil *Memory has
// no limit. Its methods may be called concurrently.
type Memory struct {
	total    int64
	free     *semaphore.Weighted
	reserved atomic.Int64
	waiting  map[string]*atomic.Int64 // by pool
}

// Usage is the state of a Memory at one moment.
type Usage struct {
	// Limit is the memory of all steps together, Reserved what running steps hold, in bytes.
	Limit, Reserved int64
	// Waiting is the number of steps of each pool that wait for memory.
	Waiting map[string]int64
}

// NewMemory returns a Memory of that many bytes.
func NewMemory(bytes int64) *Memory {
	m := &Memory{total: bytes, free: semaphore.NewWeighted(bytes), waiting: map[string]*atomic.Int64{}}
	for _, pool := range Pools {
		m.waiting[pool] = new(atomic.Int64)
	}
	return m
}

// Usage returns the current state. Without a limit it is zero.
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

// Slots returns how many steps of a pool fit at once, at most n and at least 1: a step that is
// larger than all of the memory runs alone.
func (m *Memory) Slots(pool string, n int) int {
	if m == nil || poolMemory[pool] == 0 {
		return n
	}
	return int(max(1, min(int64(n), m.total/poolMemory[pool])))
}

// acquire waits until a step that needs that many bytes fits, or ctx ends. The caller has to call
// release when the step ends.
func (m *Memory) acquire(ctx context.Context, need int64) (release func(), err error) {
	if m == nil || need == 0 {
		return func() {}, nil
	}
	need = min(need, m.total)
	if err := m.await(ctx, need); err != nil {
		return nil, err
	}
	m.reserved.Add(need)
	return func() {
		m.reserved.Add(-need)
		m.free.Release(need)
	}, nil
}

// await waits for memory, and counts the step as waiting meanwhile.
func (m *Memory) await(ctx context.Context, need int64) error {
	if m.free.TryAcquire(need) {
		return nil
	}
	if activity.IsActivity(ctx) {
		pool, _, _ := strings.Cut(activity.GetInfo(ctx).TaskQueue, "@")
		if n := m.waiting[pool]; n != nil {
			n.Add(1)
			defer n.Add(-1)
		}
	}
	return m.free.Acquire(ctx, need)
}
