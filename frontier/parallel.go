package frontier

import (
	"errors"
	"sync"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
)

// parts keeps the memory of requests that have ended for others: that of 10,000 URLs is a
// megabyte.
type parts struct{ pool sync.Pool }

// part is what a request has for each shard, entries to add or leases, and where the results go.
type part struct {
	ids     [][]shard.ID
	entries [][]shard.Entry
	leases  [][]coord.Lease
	places  [][]int
}

func (p *parts) get(shards int) *part {
	if got, ok := p.pool.Get().(*part); ok {
		return got
	}
	return &part{make([][]shard.ID, shards), make([][]shard.Entry, shards), make([][]coord.Lease, shards), make([][]int, shards)}
}

func (p *parts) put(used *part) {
	for i := range used.places {
		clear(used.entries[i]) // so that the texts are free
		clear(used.leases[i])
		used.ids[i], used.entries[i] = used.ids[i][:0], used.entries[i][:0]
		used.leases[i], used.places[i] = used.leases[i][:0], used.places[i][:0]
	}
	p.pool.Put(used)
}

// shardsAtOnce is how many shards a request works on at a time. They wait for the disk, each for
// its own journal, and for Redis.
const shardsAtOnce = 16

// eachShard calls do with the numbers of shards for which there are places, several at a time, and
// returns its errors.
func eachShard(places [][]int, do func(number int) error) error {
	var numbers []int
	for number, some := range places {
		if len(some) > 0 {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 1 {
		return do(numbers[0])
	}
	errs := make([]error, len(numbers))
	next := make(chan int, len(numbers))
	for i := range numbers {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range min(len(numbers), shardsAtOnce) {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(numbers[i])
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}
