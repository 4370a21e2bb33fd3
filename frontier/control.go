package frontier

import (
	"context"
	"slices"
	"time"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
)

// What is said of the frontier as a whole is in Redis. Each process reads it once a second, and at
// once if it was told of a change.

// Refresh reads what was said of the frontier as a whole: whether URLs are handed out, the default
// delay, and which keys are excluded.
func (f *Frontier) Refresh(ctx context.Context) error {
	c, err := f.coord.Control(ctx)
	if err != nil {
		return err
	}
	was := f.inactive()
	f.control.Store(&c)
	if was && !f.inactive() {
		f.notify()
	}
	return f.readExcluded(ctx, c.Exclusions)
}

// inactive says that this process hands out nothing.
func (f *Frontier) inactive() bool {
	c := f.control.Load()
	return c != nil && c.InactiveNode(f.coord.Node())
}

// delay is the time between two URLs of a key that has none of its own.
func (f *Frontier) delay() time.Duration {
	if c := f.control.Load(); c != nil {
		return max(c.Delay, f.o.Delay)
	}
	return f.o.Delay
}

// SetActive says whether this process hands out URLs, or all processes of the frontier do. It
// outlives a restart. Other processes know it after a second, or when they Refresh.
func (f *Frontier) SetActive(ctx context.Context, active, all bool) error {
	if err := f.coord.SetActive(ctx, active, all); err != nil {
		return err
	}
	return f.Refresh(ctx)
}

// Active says whether this process hands out URLs, or all that live do.
func (f *Frontier) Active(ctx context.Context, all bool) (bool, error) {
	c, err := f.coord.Control(ctx)
	if err != nil || c.InactiveNode(f.coord.Node()) || !all {
		return err == nil && !c.InactiveNode(f.coord.Node()), err
	}
	nodes, err := f.coord.Nodes(ctx)
	for _, node := range nodes {
		if c.InactiveNode(node) {
			return false, err
		}
	}
	return err == nil, err
}

// SetDefaultDelay sets the time between two URLs of the keys that have none of their own, if it is
// longer than Options.Delay: clients of some crawlers say it without being asked. It outlives a
// restart. Other processes know it after a second, or when they Refresh.
func (f *Frontier) SetDefaultDelay(ctx context.Context, delay time.Duration) error {
	if err := f.coord.SetDelay(ctx, delay); err != nil {
		return err
	}
	return f.Refresh(ctx)
}

// Nodes returns the names of the processes that live.
func (f *Frontier) Nodes(ctx context.Context) ([]string, error) { return f.coord.Nodes(ctx) }

// RedisIsAway says that Redis does not answer, or did not when it was told something last of a
// shard.
func (f *Frontier) RedisIsAway(ctx context.Context) bool {
	return slices.ContainsFunc(f.all(), func(s *owned) bool { return s.coord.Uncertain() }) || f.coord.Ping(ctx) != nil
}

// Now is the time by the frontier's clock.
func (f *Frontier) Now() time.Time { return f.o.Now() }

// Node returns the name of this process.
func (f *Frontier) Node() string { return f.coord.Node() }

// NumShards returns how many shards the frontier has.
func (f *Frontier) NumShards() int { return f.o.Shards }

// Block lets nothing be taken of a key until a time, in all crawls, whether anything waits of it or
// not. It comes in place of another block; a time that is over ends that.
func (f *Frontier) Block(ctx context.Context, key string, until time.Time) error {
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return err
	}
	defer release()
	at := max(until.UnixMilli(), 0)
	if at <= f.now() {
		at = 0
	}
	return f.changeDomain(context.WithoutCancel(ctx), s, key, coord.Change{Blocked: &at})
}

// Blocked says whether a key of this process' shards is blocked.
func (f *Frontier) Blocked(key string) bool {
	f.mu.RLock()
	s := f.owned[f.shardOf(key)]
	f.mu.RUnlock()
	if s == nil {
		return false
	}
	return s.coord.Settings(key).Blocked > f.now()
}

// Expire lets URLs whose leases are over wait again, those of a key if there is one: it does at
// once what else is done once a second. It is ErrElsewhere if another process serves the key.
func (f *Frontier) Expire(ctx context.Context, key string) error {
	if key == "" {
		return f.tick(ctx)
	}
	number := f.shardOf(key)
	_, release, err := f.use(number)
	if err != nil {
		return err
	}
	release()
	return f.tickOf(ctx, number)
}

// SetLimit lets nothing be taken from a queue once so many of its URLs are done; 0 ends that. A
// queue that is below its limit again, since URLs were deleted or updated, wakes within a second.
func (f *Frontier) SetLimit(ctx context.Context, crawl, key string, limit int64) error {
	if crawl == "" {
		crawl = DefaultCrawl
	}
	name := shard.QueueName(crawl, key)
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return err
	}
	defer release()
	ctx = context.WithoutCancel(ctx) // a client that leaves in between makes nothing doubtful
	if err := s.coord.SetLimit(ctx, name, limit); err != nil {
		s.doubtful.Store(true) // if Redis has it, what is remembered is wrong
		return err
	}
	if limit == 0 {
		s.limits.Delete(name)
	} else {
		s.limits.Store(name, limit)
	}
	f.wakeAgain(s, []string{name})
	return nil
}

// loadLimits reads the limits of the shard's queues.
func (s *owned) loadLimits(ctx context.Context) error {
	limits, err := s.coord.Limits(ctx)
	for name, limit := range limits {
		s.limits.Store(name, limit)
	}
	return err
}
