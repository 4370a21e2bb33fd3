// Package coord keeps in Redis what several frontiers have to agree on, and what has to survive
// each of them: who owns which shard, from when on each queue may be fetched from, and which URLs
// are leased to whom until when. URLs themselves are in the files of package shard.
//
// A time is in milliseconds since 1970, by the clock of the shard's owner.
package coord

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrFenced means that another process owns the shard by now.
var ErrFenced = errors.New("another process owns the shard")

// Lease is the claim of a client to a URL. Token is a random number, so no two leases of a URL are
// the same; Seq is the entry's number in its shard.
type Lease struct {
	Token, Seq uint64
	Queue      string
}

func (l Lease) member() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 16+len(l.Queue)), l.Token)
	return string(append(binary.BigEndian.AppendUint64(b, l.Seq), l.Queue...))
}

func parseLease(member string) (Lease, error) {
	if len(member) < 16 {
		return Lease{}, fmt.Errorf("a lease in Redis of %d bytes", len(member))
	}
	b := []byte(member)
	return Lease{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), member[16:]}, nil
}

// batch bounds how many values a script gets in one call: Lua unpacks at most some 8,000.
const batch = 1000

// Frontier is what the processes of one frontier share.
type Frontier struct {
	redis  redis.UniversalClient
	name   string
	node   string
	shards int
}

// Open connects to the frontier of a name, with so many shards, as a node: a name that is unique to
// the process. The client must not send a command again by itself: what settles a lease is no error
// the first time, and the second time the lease has ended.
func Open(ctx context.Context, client redis.UniversalClient, name, node string, shards int) (*Frontier, error) {
	f := &Frontier{client, name, node, shards}
	snapshot, err := client.Get(ctx, "{"+name+"}:"+restoring).Result()
	if err == nil {
		return nil, fmt.Errorf("frontier %q in Redis: its restore from snapshot %s has not ended; run frontierd restore again", name, snapshot)
	}
	if !errors.Is(err, redis.Nil) {
		return nil, failed(err)
	}
	key := "{" + name + "}:shards"
	if err := client.SetNX(ctx, key, shards, 0).Err(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	got, err := client.Get(ctx, key).Int()
	if err != nil {
		return nil, fmt.Errorf("redis: key %s: %w", key, err)
	}
	if got != shards {
		return nil, fmt.Errorf("frontier %q in Redis has %d shards, not %d", name, got, shards)
	}
	return f, nil
}

// Join notes that the process lives, for a time, and returns how many of the frontier do.
func (f *Frontier) Join(ctx context.Context, ttl time.Duration) (processes int, err error) {
	n, err := joinScript.Run(ctx, f.redis, []string{f.nodes()}, f.node, ttl.Milliseconds()).Int()
	return n, failed(err)
}

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
	Fresh bool
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
	return &Shard{f, p, fresh}, owner, nil
}

// Owner returns the process that owns a shard, "" if none does.
func (f *Frontier) Owner(ctx context.Context, shard int) (string, error) {
	owner, err := f.redis.Get(ctx, f.prefix(shard)+"owner").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return owner, failed(err)
}

// Disown gives a shard back.
func (s *Shard) Disown(ctx context.Context) error {
	_, err := s.run(ctx, disownScript, []string{"owner"})
	return err
}

func (s *Shard) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = s.prefix + k
	}
	args = append([]any{s.f.node}, args...)
	var v any
	err := redirected(ctx, func() (err error) {
		v, err = script.Run(ctx, s.f.redis, all, args...).Result()
		return err
	})
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return v, failed(err)
}

func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "FENCED"):
		return ErrFenced
	default:
		return fmt.Errorf("redis: %w", err)
	}
}

// queues splits names by crawl, and these into batches.
func queues(names []string, do func(crawl string, names []any) error) error {
	byCrawl := map[string][]any{}
	for _, name := range names {
		crawl, _, _ := strings.Cut(name, "\x00")
		byCrawl[crawl] = append(byCrawl[crawl], name)
	}
	for crawl, names := range byCrawl {
		for len(names) > 0 {
			n := min(len(names), batch)
			if err := do(crawl, names[:n]); err != nil {
				return err
			}
			names = names[n:]
		}
	}
	return nil
}

// Wake makes queues ready in which something waits.
func (s *Shard) Wake(ctx context.Context, now int64, names []string) error {
	return queues(names, func(crawl string, names []any) error {
		_, err := s.run(ctx, wakeScript, []string{"owner", "ready:" + crawl, "idle", "paused"}, append([]any{now}, names...)...)
		return err
	})
}

// Claim returns up to n queues of a crawl that may be fetched from now, and puts each off by its
// delay for each of per URLs. If there is none it returns when the next one is, -1 if no queue has
// anything waiting.
func (s *Shard) Claim(ctx context.Context, crawl string, now int64, n, per int, delay time.Duration) (names []string, next int64, err error) {
	v, err := s.run(ctx, claimScript, []string{"owner", "ready:" + crawl, "delays"}, now, min(n, batch), per, delay.Milliseconds())
	if err != nil {
		return nil, 0, err
	}
	if next, ok := v.(int64); ok {
		return nil, next, nil
	}
	for _, name := range v.([]any) {
		names = append(names, name.(string))
	}
	return names, 0, nil
}

// Lease notes leases until a time, and which queues of the crawl have nothing waiting any more.
func (s *Shard) Lease(ctx context.Context, crawl string, now, until int64, leases []Lease, empty []string) error {
	for len(leases) > 0 || len(empty) > 0 {
		n, m := min(len(leases), batch), min(len(empty), batch)
		args := []any{now, n}
		for _, l := range leases[:n] {
			args = append(args, until, l.member())
		}
		for _, name := range empty[:m] {
			args = append(args, name)
		}
		if _, err := s.run(ctx, leaseScript, []string{"owner", "leases", "ready:" + crawl, "idle"}, args...); err != nil {
			return err
		}
		leases, empty = leases[n:], empty[m:]
	}
	return nil
}

// Settle ends leases, and says which had not ended before.
func (s *Shard) Settle(ctx context.Context, now int64, leases []Lease) (live []bool, err error) {
	return s.each(ctx, settleScript, leases, now)
}

// Extend prolongs leases, and says which had not ended before.
func (s *Shard) Extend(ctx context.Context, now, until int64, leases []Lease) (live []bool, err error) {
	return s.each(ctx, extendScript, leases, now, until)
}

func (s *Shard) each(ctx context.Context, script *redis.Script, leases []Lease, args ...any) (live []bool, err error) {
	for len(leases) > 0 {
		n := min(len(leases), batch)
		all := append([]any{}, args...)
		for _, l := range leases[:n] {
			all = append(all, l.member())
		}
		v, err := s.run(ctx, script, []string{"owner", "leases"}, all...)
		if err != nil {
			return nil, err
		}
		for _, x := range v.([]any) {
			live = append(live, x.(int64) == 1)
		}
		leases = leases[n:]
	}
	return live, nil
}

// Expire removes leases that have ended, and returns some of them.
func (s *Shard) Expire(ctx context.Context, now int64) (ended []Lease, err error) {
	v, err := s.run(ctx, expireScript, []string{"owner", "leases"}, now, batch)
	if err != nil {
		return nil, err
	}
	for _, m := range v.([]any) {
		l, err := parseLease(m.(string))
		if err != nil {
			return nil, err
		}
		ended = append(ended, l)
	}
	return ended, nil
}

// Leases returns all leases.
func (s *Shard) Leases(ctx context.Context) (all []Lease, err error) {
	for from := int64(0); ; from += batch {
		members, err := s.f.redis.ZRange(ctx, s.prefix+"leases", from, from+batch-1).Result()
		if err != nil {
			return nil, failed(err)
		}
		for _, m := range members {
			l, err := parseLease(m)
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
		if len(members) < batch {
			return all, nil
		}
	}
}

// PutOff keeps queues of a crawl from being fetched from before a time each.
func (s *Shard) PutOff(ctx context.Context, until map[string]int64) error {
	names := make([]string, 0, len(until))
	for name := range until {
		names = append(names, name)
	}
	return queues(names, func(crawl string, names []any) error {
		var args []any
		for _, name := range names {
			args = append(args, until[name.(string)], name)
		}
		_, err := s.run(ctx, putOffScript, []string{"owner", "ready:" + crawl, "idle"}, args...)
		return err
	})
}

// Settings are what was said of a queue.
type Settings struct {
	// Delay is the time between two URLs, if HasDelay; else it is the frontier's.
	Delay    time.Duration
	HasDelay bool
	Paused   bool
	// Next is from when on the queue may be fetched from, 0 if there is nothing to wait for.
	Next int64
}

// Settings returns what was said of a queue.
func (s *Shard) Settings(ctx context.Context, queue string) (set Settings, err error) {
	crawl, _, _ := strings.Cut(queue, "\x00")
	p := s.f.redis.Pipeline()
	delay := p.HGet(ctx, s.prefix+"delays", queue)
	paused := p.SIsMember(ctx, s.prefix+"paused", queue)
	ready := p.ZScore(ctx, s.prefix+"ready:"+crawl, queue)
	idle := p.ZScore(ctx, s.prefix+"idle", queue)
	if _, err := p.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return set, failed(err)
	}
	if ms, err := strconv.ParseInt(delay.Val(), 10, 64); err == nil {
		set.Delay, set.HasDelay = time.Duration(ms)*time.Millisecond, true
	}
	set.Paused = paused.Val()
	set.Next = int64(max(ready.Val(), idle.Val()))
	return set, nil
}

// SetDelay sets the time between two URLs of a queue.
func (s *Shard) SetDelay(ctx context.Context, queue string, delay time.Duration) error {
	return failed(s.f.redis.HSet(ctx, s.prefix+"delays", queue, delay.Milliseconds()).Err())
}

// Pause takes a queue out of what may be fetched from, or puts it back. Waiting says whether
// something waits in it.
func (s *Shard) Pause(ctx context.Context, queue string, pause bool, now int64, waiting bool) error {
	crawl, _, _ := strings.Cut(queue, "\x00")
	bit := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	_, err := s.run(ctx, pauseScript, []string{"owner", "ready:" + crawl, "idle", "paused"}, queue, bit(pause), now, bit(waiting))
	return err
}

// Forget drops the times of queues in which nothing waits, once they are over.
func (s *Shard) Forget(ctx context.Context, now int64) error {
	_, err := s.run(ctx, forgetScript, []string{"owner", "idle"}, now)
	return err
}
