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
)

// ErrRedis means that Redis did not answer, or with an error.
var ErrRedis = errors.New("redis")

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
// the process. The client must not send a command again by itself: what settles a lease is no error
// the first time, and the second time the lease has ended.
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

// Ping asks whether Redis answers.
func (f *Frontier) Ping(ctx context.Context) error { return failed(f.redis.Ping(ctx).Err()) }

// Incarnation identifies the running Redis server, or those of a cluster. Another one may have
// forgotten what the one before had acknowledged last.
func (f *Frontier) Incarnation(ctx context.Context) (string, error) {
	return incarnations(ctx, f.redis)
}

// Leave says that the process ends.
func (f *Frontier) Leave(ctx context.Context) error {
	return failed(f.redis.ZRem(ctx, f.nodes(), f.node).Err())
}

func (f *Frontier) nodes() string { return "{" + f.name + "}:nodes" }

// Shard is a shard of a frontier as its owner sees it.
type Shard struct {
	f      *Frontier
	prefix string
	// Fresh says that nobody owned the shard when it was taken last.
	Fresh  bool
	grants grants
	keys   keys
	// away says that Redis did not answer when it was asked last.
	away atomic.Bool
}

func (f *Frontier) prefix(shard int) string { return fmt.Sprintf("{%s:%d}:", f.name, shard) }

// Own takes a shard for a time, or keeps it. If another process has it, it returns nil and that
// process' name.
func (f *Frontier) Own(ctx context.Context, shard int, ttl time.Duration) (*Shard, string, error) {
	p := f.prefix(shard)
	got, err := ownScript.Run(ctx, f.redis, []string{p + "owner"}, f.node, ttl.Milliseconds()).Slice()
	if err != nil {
		return nil, "", failed(err)
	}
	owner, fresh := got[0].(string), got[1].(int64) == 1
	if owner != f.node {
		return nil, owner, nil
	}
	return &Shard{f: f, prefix: p, Fresh: fresh}, owner, nil
}

// Load has the shard remember what Redis has, and returns the leases. Of these some may have ended
// without Redis being told. It is called before anything else is.
func (s *Shard) Load(ctx context.Context) ([]Lease, error) {
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
	_, err := s.run(ctx, disownScript, []string{"owner"})
	return err
}

// call is a call of a script that is being put together. All keys are the shard's.
type call struct {
	shard  *Shard
	script *redis.Script
	keys   int
	// args are EVALSHA, the hash of the script, how many keys, the keys, and the arguments of the
	// script, of which the first is the node.
	args *[]any
}

// argsRoom keeps the memory of arguments for other calls.
var argsRoom = sync.Pool{New: func() any { return new([]any) }}

// call begins a call, which is to be run.
func (s *Shard) call(script *redis.Script, keys ...string) call {
	c := call{s, script, len(keys), argsRoom.Get().(*[]any)}
	c.add("evalsha", script.Hash(), len(keys))
	for _, k := range keys {
		c.add(s.prefix + k)
	}
	c.add(s.f.node)
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
	client := c.shard.f.redis
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
	err = failed(err)
	c.shard.away.Store(errors.Is(err, ErrRedis))
	return v, err
}

// Reach asks whether Redis answers again, if it did not when it was asked last.
func (s *Shard) Reach(ctx context.Context) error {
	if !s.away.Load() {
		return nil
	}
	err := failed(s.f.redis.Exists(ctx, s.prefix+"owner").Err())
	if err == nil {
		s.away.Store(false)
	}
	return err
}

// run calls a script with few arguments.
func (s *Shard) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	c := s.call(script, keys...)
	c.add(args...)
	return c.run(ctx)
}

func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "FENCED"):
		return ErrFenced
	default:
		return fmt.Errorf("%w: %w", ErrRedis, err)
	}
}
