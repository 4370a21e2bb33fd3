package activities

import (
	"context"

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
	// smallMemory is for steps that handle a few small objects. They wait only for a step that runs
	// alone.
	smallMemory = 0
)

// poolMemory is the memory of the largest step of each pool, except for pools with only small
// steps. In the control pool only PlanIngest is large; it does not limit the slots of the others.
var poolMemory = map[string]int64{
	PoolNormalize: normalizeMemory, PoolWrite: mergeMemory, PoolIndex: segmentMemory, PoolPublish: segmentMemory,
}

// Memory limits how many steps of a process run at once to those that fit into it together, and to
// one where a step has to run alone. The others wait and heartbeat meanwhile. What a step writes
// does not depend on it. A nil *Memory has no limit. Its methods may be called concurrently.
type Memory struct {
	total int64 // 0 for no limit
	free  *semaphore.Weighted
	// steps is one for each step that runs, and all of maxSteps for one that runs alone. It is
	// served in order: steps that come later wait for the one that waits to be alone.
	steps *semaphore.Weighted
}

// maxSteps is more steps than a process runs.
const maxSteps = 1 << 30

// NewMemory returns a Memory of that many bytes. 0 stands for no limit.
func NewMemory(bytes int64) *Memory {
	return &Memory{total: bytes, free: semaphore.NewWeighted(bytes), steps: semaphore.NewWeighted(maxSteps)}
}

// Slots returns how many steps of a pool fit at once, at most n and at least 1: a step that is
// larger than all of the memory runs alone.
func (m *Memory) Slots(pool string, n int) int {
	if m == nil || m.total == 0 || poolMemory[pool] == 0 {
		return n
	}
	return int(max(1, min(int64(n), m.total/poolMemory[pool])))
}

// acquire waits until no step runs alone and a step that needs that many bytes fits, or ctx ends.
// The caller has to call release when the step ends.
func (m *Memory) acquire(ctx context.Context, need int64) (release func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if err := m.steps.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	need = min(need, m.total)
	if err := m.free.Acquire(ctx, need); err != nil {
		m.steps.Release(1)
		return nil, err
	}
	return func() { m.free.Release(need); m.steps.Release(1) }, nil
}

// acquireAll is acquire for a step that runs alone: it waits until no other step runs, of any pool.
func (m *Memory) acquireAll(ctx context.Context) (release func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if err := m.steps.Acquire(ctx, maxSteps); err != nil {
		return nil, err
	}
	return func() { m.steps.Release(maxSteps) }, nil
}
