package frontier

import (
	"errors"
	"sync"
)

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
