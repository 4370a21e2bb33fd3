package command

import (
	"math"
	"os"
	"runtime/debug"

	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
)

const (
	// cachedWorkflow is the memory of a workflow in the SDK's cache: an ingest with all of its
	// window in flight takes 0.9 MiB, most of it stacks. One that waits takes 50 KiB.
	cachedWorkflow = 1 << 20
	// cacheShare is the part of the memory of steps that the cache gets besides: 1/cacheShare.
	cacheShare = 16
	// minCached is the least number of workflows in the cache. A workflow that was evicted is
	// replayed from its history at its next event.
	minCached = 16
)

// limitMemory sets Go's memory limit and the size of the workflow cache, and returns the memory of
// all steps together. The cache, which only the control pool has, comes on top of
// --memory-limit, given in MiB, and is part of GOMEMLIMIT.
func limitMemory(mib int64, control bool) *activities.Memory {
	steps := mib << 20
	if os.Getenv("GOMEMLIMIT") != "" {
		steps = debug.SetMemoryLimit(-1)
	} else if mib == 0 {
		steps = math.MaxInt64
	}
	if steps == math.MaxInt64 {
		return activities.NewMemory(0)
	}
	cache := int64(0)
	if control {
		workflows := max(minCached, steps/cacheShare/cachedWorkflow)
		cache = workflows * cachedWorkflow
		worker.SetStickyWorkflowCacheSize(int(workflows))
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return activities.NewMemory(max(1, steps-cache))
	}
	debug.SetMemoryLimit(steps + cache)
	return activities.NewMemory(steps)
}
