// Package coord keeps in Redis what several frontiers have to agree on, and what has to survive
// each of them: who owns which shard, from when on each key may be fetched from, and which URLs are
// leased to whom until when. URLs themselves are in the files of package shard.
//
// The owner of a shard remembers all that Redis has of it, and decides by that. Redis is for
// whoever opens the shard next.
//
// A queue has the URLs of a crawl and a key, such as a domain. Times, delays and everything else
// that protects a server are of the key: crawls that share it share its delay. All queues of a key
// are in one shard.
//
// A time is in milliseconds since 1970, by the clock of the shard's owner.
package coord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/numbers"
)

// ErrRedis means that Redis did not answer, or with an error.
var ErrRedis = errors.New("redis")

// errReopened means that a change was not made, since the shard was opened again meanwhile.
var errReopened = errors.New("the shard was opened again meanwhile")

// ErrFenced means that another process owns the shard by now.
var ErrFenced = errors.New("another process owns the shard")

// batch bounds how many values a script gets in one call: Lua unpacks at most some 8,000.
const batch = 1000

// Frontier is what the processes of one frontier share.
type Frontier struct {
	redis  redis.UniversalClient
	name   string
	node   string
	shards int
	watch  *watch
}

// Open connects to the frontier of a name, with so many shards, as a node: a name that is unique to
// the process. The client must not send a command again by itself: Certain sees to those that had
// no answer.
func Open(ctx context.Context, client redis.UniversalClient, name, node string, shards int) (*Frontier, error) {
	f := &Frontier{client, name, node, shards, &watch{}}
	client.AddHook(f.watch)
	var snapshot string
	err := redirected(ctx, openRedirects, func() (err error) {
		snapshot, err = client.Get(ctx, "{"+name+"}:"+restoring).Result()
		return err
	})
	if err == nil {
		return nil, fmt.Errorf("frontier %q in Redis: its restore from snapshot %s has not ended; run frontierd restore again", name, snapshot)
	}
	if !errors.Is(err, redis.Nil) {
		return nil, failed(err)
	}
	if err := f.checkFormat(ctx); err != nil {
		return nil, err
	}
	got, err := f.agreed(ctx, "shards", strconv.Itoa(shards))
	if err != nil {
		return nil, err
	}
	if got != strconv.Itoa(shards) {
		return nil, fmt.Errorf("frontier %q in Redis has %s shards, not %d", name, got, shards)
	}
	return f, nil
}

// Join notes that the process lives, for a time, and returns how many of the frontier do.
func (f *Frontier) Join(ctx context.Context, ttl time.Duration) (processes int, err error) {
	err = redirected(ctx, redirects, func() (err error) {
		processes, err = joinScript.Run(ctx, f.redis, []string{f.nodes()}, f.node, ttl.Milliseconds()).Int()
		return err
	})
	return processes, failed(err)
}

// Ping asks whether Redis answers; of a cluster, one of its nodes.
func (f *Frontier) Ping(ctx context.Context) error { return failed(f.redis.Ping(ctx).Err()) }

// Incarnation identifies the running Redis server, or those of a cluster. Another one may have
// forgotten what the one before had acknowledged last.
func (f *Frontier) Incarnation(ctx context.Context) (string, error) {
	return incarnations(ctx, f.redis)
}

// Leave says that the process ends.
func (f *Frontier) Leave(ctx context.Context) error { return f.Forget(ctx, f.node) }

// Forget says that a process has ended.
func (f *Frontier) Forget(ctx context.Context, process string) error {
	return failed(f.redis.ZRem(ctx, f.nodes(), process).Err())
}

func (f *Frontier) nodes() string { return "{" + f.name + "}:nodes" }

// Shard is a shard of a frontier as its owner sees it.
type Shard struct {
	f      *Frontier
	prefix string
	// Fresh says that the shard was not this process' when it was taken last.
	Fresh  bool
	grants grants
	keys   keys
	// opening is the number of the opening of the shard. What was sent under an earlier one is not
	// done any more.
	opening atomic.Int64
	// uncertain says that something may be done later that was sent under this opening and had no
	// answer. Reopening is held while there is another opening because of that.
	uncertain atomic.Bool
	reopening sync.Mutex
}

func (f *Frontier) prefix(shard int) string { return fmt.Sprintf("{%s:%d}:", f.name, shard) }

// Own takes a shard for a time, or keeps it. If another process has it, it returns nil and that
// process' name.
func (f *Frontier) Own(ctx context.Context, shard int, ttl time.Duration) (*Shard, string, error) {
	return f.own(ctx, shard, ttl, "")
}

// Succeed takes a shard, also if it is that of a process of which the caller knows that it has
// ended. It returns nil if a third process has it.
func (f *Frontier) Succeed(ctx context.Context, shard int, ttl time.Duration, ended string) (*Shard, error) {
	s, _, err := f.own(ctx, shard, ttl, ended)
	return s, err
}

func (f *Frontier) own(ctx context.Context, shard int, ttl time.Duration, ended string) (*Shard, string, error) {
	p := f.prefix(shard)
	got, err := ownScript.Run(ctx, f.redis, []string{p + "owner"}, f.node, ttl.Milliseconds(), ended).Slice()
	if err != nil {
		return nil, "", failed(err)
	}
	owner, fresh := got[0].(string), got[1].(int64) == 1
	if owner != f.node {
		return nil, owner, nil
	}
	s := &Shard{f: f, prefix: p, Fresh: fresh}
	s.grants.leases, s.grants.grants = numbers.New[terms](), map[uint64]grant{}
	return s, owner, nil
}

// Load has the shard remember what Redis has, and returns the leases. Of these some may have ended
// without Redis being told. It is called before anything else is.
func (s *Shard) Load(ctx context.Context) ([]Lease, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := s.loadKeys(ctx); err != nil {
		return nil, err
	}
	return s.loadGrants(ctx)
}

// Owner returns the process that owns a shard, "" if none does.
func (f *Frontier) Owner(ctx context.Context, shard int) (string, error) {
	owner, err := f.redis.Get(ctx, f.prefix(shard)+"owner").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return owner, failed(err)
}

// Disown gives a shard back, unless another process has taken it meanwhile.
func (s *Shard) Disown(ctx context.Context) error {
	_, err := s.run(ctx, disownScript)
	return err
}

// call is a call of a script that is being put together. All keys are the shard's.
type call struct {
	shard  *Shard
	script *redis.Script
	keys   int
	// args are EVALSHA, the hash of the script, how many keys, the keys, of which the first are
	// owner and opening, and the arguments of the script, of which the first are node and opening.
	args *[]any
}

// argsRoom keeps the memory of arguments for other calls.
var argsRoom = sync.Pool{New: func() any { return new([]any) }}

// call begins a call, which is to be run.
func (s *Shard) call(script *redis.Script, keys ...string) call {
	c := call{s, script, 2 + len(keys), argsRoom.Get().(*[]any)}
	c.add("evalsha", script.Hash(), c.keys, s.prefix+"owner", s.prefix+openingKey)
	for _, k := range keys {
		c.add(s.prefix + k)
	}
	c.add(s.f.node, s.opening.Load())
	return c
}

func (c *call) add(args ...any) { *c.args = append(*c.args, args...) }

// addText adds an argument, which stays where it is until run has returned.
func (c *call) addText(text *string) { *c.args = append(*c.args, text) }

func (c *call) run(ctx context.Context) (v any, err error) {
	args := *c.args
	defer func() {
		clear(args) // so that the texts are free
		*c.args = args[:0]
		argsRoom.Put(c.args)
	}()
	if v, err = c.send(ctx); errors.Is(err, errReopened) {
		// It was not done. Redis may also have lost the opening.
		opening := &args[3+c.keys+1]
		if err = c.shard.reopen(ctx, (*opening).(int64)); err == nil {
			*opening = c.shard.opening.Load()
			v, err = c.send(ctx)
		}
	}
	if errors.Is(err, ErrRedis) {
		c.shard.uncertain.Store(true)
	}
	return v, err
}

// send sends the call once.
func (c *call) send(ctx context.Context) (v any, err error) {
	args, client := *c.args, c.shard.f.redis
	err = redirected(ctx, redirects, func() error {
		// The client's Run would copy all arguments.
		cmd := redis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		_ = client.Process(ctx, cmd)
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = args[3+i].(string)
			}
			cmd = c.script.Eval(ctx, client, keys, args[3+c.keys:]...)
		}
		var err error
		v, err = cmd.Result()
		return err
	})
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return v, failed(err)
}

// open begins another opening.
func (s *Shard) open(ctx context.Context) error {
	v, err := s.run(ctx, openScript)
	if err == nil {
		s.opening.Store(v.(int64))
	}
	return err
}

// Certain sees to it that nothing is done any more of what had no answer from Redis, which may have
// been on its way. It is called before each change, and fails while Redis is away.
func (s *Shard) Certain(ctx context.Context) error {
	if !s.uncertain.Load() {
		return nil
	}
	return s.reopen(ctx, s.opening.Load())
}

// reopen begins another opening after one.
func (s *Shard) reopen(ctx context.Context, after int64) error {
	s.reopening.Lock()
	defer s.reopening.Unlock()
	if s.opening.Load() != after {
		return nil
	}
	err := s.open(ctx)
	if err == nil {
		s.uncertain.Store(false)
	}
	return err
}

// Uncertain says that Redis did not answer when it was told something last.
func (s *Shard) Uncertain() bool { return s.uncertain.Load() }

// run calls a script without further arguments.
func (s *Shard) run(ctx context.Context, script *redis.Script, key ...string) (any, error) {
	c := s.call(script, key...)
	return c.run(ctx)
}

func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "FENCED"):
		return ErrFenced
	case strings.HasPrefix(err.Error(), "REOPENED"):
		return fmt.Errorf("%w: %w", ErrRedis, errReopened)
	default:
		return fmt.Errorf("%w: %w", ErrRedis, err)
	}
}
