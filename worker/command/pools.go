package command

import (
	"fmt"
	"sync"

	"github.com/urlake/urlake/activities"
)

// poller takes steps from a queue between Start and Stop, as a worker.Worker does.
type poller interface {
	Start() error
	Stop()
}

// queue is one queue that the process polls, for a pool.
type queue struct {
	pool string
	poller
}

// start starts all pollers. If one fails, none runs.
func start(all []queue) error {
	for i, q := range all {
		if err := q.Start(); err != nil {
			stop(all[:i])
			return fmt.Errorf("pool %s: %w", q.pool, err)
		}
	}
	return nil
}

// stop stops all pollers at once, since each waits for its steps for up to stopTimeout. None takes
// steps while another one waits.
func stop(all []queue) {
	var wg sync.WaitGroup
	for _, q := range all {
		wg.Go(q.Stop)
	}
	wg.Wait()
}

// startPools starts and returns the queues that open makes, one for each pool and its steps. Steps
// ask for the limits of other pools, so all limits are set before.
func startPools(memory *activities.Memory, pools []string, perPool int, open func(pool string, slots int) poller) ([]queue, error) {
	limits := limit(memory, pools, perPool)
	var all []queue
	for _, pool := range pools {
		all = append(all, queue{pool, open(pool, limits[pool])})
	}
	return all, start(all)
}

// limit sets and returns how many steps of each pool run at once.
func limit(memory *activities.Memory, pools []string, perPool int) map[string]int {
	slots := map[string]int{}
	for _, pool := range pools {
		n := memory.Slots(pool, perPool)
		slots[pool] = n
		if pool == activities.PoolNormalize || pool == activities.PoolWrite {
			memory.Limit(pool, n)
		}
	}
	return slots
}
