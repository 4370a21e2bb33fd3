package frontier

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// New starts to serve the shards of a frontier that no other process owns.
func New(ctx context.Context, c *coord.Frontier, o Options) (*Frontier, error) {
	if _, err := os.Stat(filepath.Join(o.Dir, RestoringName)); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("%s: a restore has not ended; run frontierd restore again", o.Dir))
	}
	if err := c.QueueBy(ctx, cmp.Or(o.QueueBy, ByDomain)); err != nil {
		return nil, err
	}
	f := &Frontier{o: o, coord: c, list: urlnorm.BuiltinSuffixes(), owned: map[int]*owned{}, owners: map[int]string{}, woken: make(chan struct{}), bulk: newBulk()}
	f.tenures, f.moves = map[int]*tenure{}, make([]sync.Mutex, o.Shards)
	f.held.since, f.held.had = map[int]time.Time{}, map[int]string{}
	f.claims.turns, f.settles.turns = claimTurns, settleTurns
	if o.Exclusions != nil {
		if err := f.readExclusions(ctx); err != nil {
			return nil, err
		}
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.loop(run, o.Own/4, f.renewAll)
	if err := errors.Join(f.Refresh(ctx), f.claimShards(ctx)); err != nil {
		stop()
		f.loops.Wait()
		return nil, errors.Join(err, f.giveUp(ctx))
	}
	f.loop(run, o.Own/3, f.claimShards)
	f.loop(run, time.Second, f.tick)
	if o.AlarmWaiting > 0 {
		f.loop(run, largestEvery, f.warnOfLarge)
	}
	if o.Exclusions != nil {
		f.loop(run, o.Refresh, f.readExclusions)
	}
	f.loop(run, 100*time.Millisecond, f.upkeep)
	f.loop(run, time.Minute, func(context.Context) error { return f.sweepSnapshots() })
	return f, nil
}

// loop calls do again and again until the frontier is closed.
func (f *Frontier) loop(ctx context.Context, every time.Duration, do func(context.Context) error) {
	f.loops.Go(func() {
		for {
			// Processes that began together drift apart.
			wait := every/2 + rand.N(every)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if err := do(ctx); err != nil && ctx.Err() == nil {
				f.o.Log.Error(err.Error())
			}
		}
	})
}

// Close gives the shards back.
func (f *Frontier) Close(ctx context.Context) error {
	f.stop()
	f.loops.Wait()
	return errors.Join(f.giveUp(ctx), f.coord.Leave(ctx))
}

func (f *Frontier) giveUp(ctx context.Context) (err error) {
	for _, s := range f.all() {
		err = errors.Join(err, f.drop(s), s.coord.Disown(ctx))
	}
	return err
}

func (f *Frontier) all() []*owned {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Values(f.owned))
}

// drop closes a shard.
func (f *Frontier) drop(s *owned) error {
	f.ends(s.tenure)
	f.mu.Lock()
	if f.owned[s.number] == s {
		delete(f.owned, s.number)
	}
	f.mu.Unlock()
	s.use.Lock()
	defer s.use.Unlock()
	return errors.Join(s.files.Close(), s.robots.Close(), s.lock.Unlock())
}

// claimShards keeps what this process owns, takes what nobody does, and gives up what is more than
// its share.
func (f *Frontier) claimShards(ctx context.Context) (err error) {
	processes, err := f.coord.Join(ctx, f.o.Own)
	share := f.o.Shards
	if err == nil {
		share = (f.o.Shards + processes - 1) / processes
	}
	incarnation, asked := f.coord.Incarnation(ctx)
	err = errors.Join(err, f.away(asked))
	if asked == nil {
		if f.incarnation != "" && f.incarnation != incarnation {
			for _, s := range f.all() {
				s.doubtful.Store(true)
			}
		}
		f.incarnation = incarnation
	}
	f.succeeded.Store(false)
	for n := range f.o.Shards {
		err = errors.Join(err, f.place(ctx, n, share))
	}
	f.warnOfHeld()
	if err == nil && f.succeeded.Load() { // the process that has ended counted for the share
		return f.claimShards(ctx)
	}
	return err
}

// place takes a shard, gives it up, or notes whose it is, so that this process serves its share.
func (f *Frontier) place(ctx context.Context, n, share int) error {
	f.moves[n].Lock()
	defer f.moves[n].Unlock()
	f.mu.RLock()
	s, have := f.owned[n], len(f.owned)
	f.mu.RUnlock()
	switch {
	case s != nil && !s.mine():
		f.o.Log.Warn("lost a shard", "shard", n)
		return f.drop(s)
	case s != nil && have > share:
		f.o.Log.Info("giving a shard to another process", "shard", n)
		return errors.Join(f.drop(s), f.away(s.coord.Disown(ctx)))
	case s != nil:
		return nil
	case have < share:
		return f.away(f.acquire(ctx, n))
	}
	owner, err := f.coord.Owner(ctx, n)
	f.setOwner(n, owner)
	f.holdsNoMore(n)
	return f.away(err)
}

// reopen closes a shard and opens it again, which makes its files and Redis agree.
func (f *Frontier) reopen(ctx context.Context, s *owned) error {
	f.moves[s.number].Lock()
	defer f.moves[s.number].Unlock()
	f.mu.RLock()
	current := f.owned[s.number]
	f.mu.RUnlock()
	if current != s { // it was lost or given up meanwhile
		return nil
	}
	f.o.Log.Info("opening a shard again", "shard", s.number)
	f.counters.reopened.Add(1)
	return errors.Join(f.drop(s), s.coord.Disown(ctx), f.acquire(ctx, s.number))
}

// away logs an error of Redis, and returns any other: of a cluster one node may be away while the
// others answer.
func (f *Frontier) away(err error) error {
	if !errors.Is(err, coord.ErrRedis) {
		return err
	}
	f.o.Log.Error(err.Error())
	return nil
}

func (f *Frontier) setOwner(n int, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners[n] = owner
}

// acquire owns and opens a shard, unless another process owns it. The caller holds its lock of
// moves.
func (f *Frontier) acquire(ctx context.Context, n int) error {
	asked := time.Since(begin)
	c, owner, err := f.coord.Own(ctx, n, f.o.Own)
	if err != nil {
		return err
	}
	var lock *flock.Flock
	if c == nil {
		c, lock, err = f.succeed(ctx, n, owner)
	}
	if c == nil {
		f.setOwner(n, owner)
		f.holdsNoMore(n)
		return err
	}
	t := f.begins(n, asked)
	s, err := f.open(ctx, n, c, lock)
	if err != nil {
		f.ends(t)
		return errors.Join(fmt.Errorf("shard %d: %w", n, err), c.Disown(ctx))
	}
	if s == nil {
		f.ends(t)
		f.holds(n)
		return c.Disown(ctx)
	}
	s.tenure = t
	f.mu.Lock()
	f.owned[n] = s
	delete(f.owners, n)
	f.mu.Unlock()
	f.holdsNoMore(n)
	f.notify()
	return nil
}

// ShardName is the folder of a shard.
func ShardName(n int) string { return fmt.Sprintf("shard-%03d", n) }

// lockName is the file that the process which has the files of a shard open holds locked.
func lockName(n int) string { return ShardName(n) + ".lock" }

// open opens the files of a shard, and makes them and Redis agree. It is nil if the process that
// had the shard before has the files still open. Lock is their lock if it is held already, or nil.
func (f *Frontier) open(ctx context.Context, n int, c *coord.Shard, lock *flock.Flock) (s *owned, err error) {
	dir := filepath.Join(f.o.Dir, ShardName(n))
	if lock == nil {
		if lock, err = f.lock(n); lock == nil {
			return nil, err
		}
	}
	f.sign(lock)
	s = &owned{number: n, coord: c, lock: lock}
	opts := f.o.Shard
	opts.Now = f.o.Now
	opts.Rests = func() int { return f.rests(s) }
	opts.Cap = func(queue string) int64 { return s.domains.cap(queue, f.maxWaiting()) }
	files, torn, err := shard.Open(dir, opts)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if torn != nil {
		f.counters.torn.Add(1)
		f.o.Log.Warn("cut the end of a journal, which was not written whole: it was not acknowledged, unless --fsync is never or the disk has changed the last record since", "where", torn.String())
	}
	s.files = files
	if err := s.openRobots(dir, f.o); err != nil {
		return nil, errors.Join(err, files.Close(), lock.Unlock())
	}
	leases, err := c.Load(ctx)
	if err == nil {
		s.loadDomains()
		err = errors.Join(f.repairExcluded(ctx, s), f.resume(ctx, s, leases))
	}
	if err != nil {
		return nil, errors.Join(err, files.Close(), s.robots.Close(), lock.Unlock())
	}
	return s, nil
}

// resume tells the files which leases there are, and wakes the queues in which something waits.
func (f *Frontier) resume(ctx context.Context, s *owned, leases []coord.Lease) error {
	for more := true; more; {
		var err error
		if _, more, err = s.files.Promote(f.now(), 1); err != nil {
			return err
		}
		if err := s.files.Upkeep(); err != nil { // what is due may be more than memory has room for
			return err
		}
	}
	byQueue := map[string][]coord.Lease{}
	for _, l := range leases {
		byQueue[l.Queue()] = append(byQueue[l.Queue()], l)
		s.files.Skip(l.Seq())
	}
	var stale []coord.Lease
	for queue, leases := range byQueue {
		bySeq := map[uint64]coord.Lease{}
		for _, l := range leases {
			bySeq[l.Seq()] = l
		}
		unknown, err := s.files.Resume(queue, slices.Collect(maps.Keys(bySeq)))
		if err != nil {
			return err
		}
		for _, seq := range unknown {
			stale = append(stale, bySeq[seq])
		}
	}
	s.coord.End(stale)
	if err := s.files.Resumed(); err != nil {
		return err
	}
	var waiting []string
	for _, crawl := range s.files.Crawls() {
		s.domains.note([]string{shard.QueueName(crawl, "")})
		s.files.Queues(crawl, func(name string, c shard.Counts) bool {
			if c.Waiting() > 0 {
				waiting = append(waiting, name)
			}
			return true
		})
	}
	s.coord.Wake(f.now(), waiting)
	return s.loadLimits(ctx)
}

// now is the time in milliseconds since 1970.
func (f *Frontier) now() int64 { return f.o.Now().UnixMilli() }

// use returns the owned shard of a number, which is not closed until release is called.
func (f *Frontier) use(n int) (s *owned, release func(), err error) {
	f.mu.RLock()
	s = f.owned[n]
	f.mu.RUnlock()
	if s == nil {
		return nil, nil, ErrElsewhere
	}
	s.use.RLock()
	if !s.mine() {
		s.use.RUnlock()
		return nil, nil, ErrElsewhere
	}
	return s, s.use.RUnlock, nil
}

// shardOf returns the number of the shard that has all queues of a key.
func (f *Frontier) shardOf(key string) int {
	id := shard.IDOfQueue(key)
	// The files of a shard are sorted by the first bytes; these are the last.
	return int(binary.LittleEndian.Uint32(id[12:]) % uint32(f.o.Shards))
}

// Owner returns the name of the process that owns the shard of a key, "" if this one does or none
// is known.
func (f *Frontier) Owner(key string) string { return f.owner(f.shardOf(key)) }

func (f *Frontier) owner(number int) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.owners[number]
}

// Others returns the names of the other processes that own shards.
func (f *Frontier) Others() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := slices.Sorted(maps.Values(f.owners))
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}
