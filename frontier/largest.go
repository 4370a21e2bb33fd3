package frontier

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/shard"
)

// largestEvery is how often queues that are larger than Options.AlarmWaiting are logged.
const largestEvery = time.Minute

// QueueSize is how many URLs wait in a queue.
type QueueSize struct {
	Crawl, Key string
	Waiting    int64
}

// Largest returns the n queues of this process' shards in which the most URLs wait, the largest
// first and equal ones by name, and how many have more than Options.AlarmWaiting.
func (f *Frontier) Largest(n int) (top []QueueSize, large int) {
	type queue struct {
		name    string
		waiting int64
	}
	compare := func(a, b queue) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), strings.Compare(a.name, b.name))
	}
	var all []queue // up to n
	for _, o := range f.all() {
		s, release, err := f.use(o.number)
		if err != nil {
			continue
		}
		note := func(name string, c shard.Counts) bool {
			waiting := c.Waiting()
			if f.o.AlarmWaiting > 0 && waiting > f.o.AlarmWaiting {
				large++
			}
			q := queue{name, waiting}
			if waiting == 0 || len(all) == n && compare(q, all[n-1]) > 0 {
				return true
			}
			at, _ := slices.BinarySearchFunc(all, q, compare)
			all = slices.Insert(all, at, q)
			all = all[:min(len(all), n)]
			return true
		}
		for _, crawl := range s.files.Crawls() {
			s.files.Queues(crawl, note)
		}
		release()
	}
	for _, q := range all {
		crawl, key, _ := strings.Cut(q.name, "\x00")
		top = append(top, QueueSize{crawl, key, q.waiting})
	}
	return top, large
}

// warnOfLarge logs the queues that are larger than Options.AlarmWaiting.
func (f *Frontier) warnOfLarge(context.Context) error {
	top, large := f.Largest(10)
	if large == 0 {
		return nil
	}
	var names []string
	for _, q := range top[:min(large, len(top))] {
		names = append(names, fmt.Sprintf("%s (crawl %s): %d", q.Key, q.Crawl, q.Waiting))
	}
	f.o.Log.Warn("queues are larger than the alarm allows", "queues", large, "more_than", f.o.AlarmWaiting, "largest", strings.Join(names, ", "))
	return nil
}
