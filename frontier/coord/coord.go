// Package coord keeps in Redis what several frontiers have to agree on, and what has to survive
// each of them: who owns which shard, from when on each key may be fetched from, and which URLs are
// leased to whom until when. URLs themselves are in the files of package shard.
//
// A queue has the URLs of a crawl and a key, such as a domain. Times, delays and everything else
// that protects a server are of the key: crawls that share it share its delay. All queues of a key
// are in one shard.
//
// A time is in milliseconds since 1970, by the clock of the shard's owner.
package coord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/lake/codec"
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
	if err := checkFormat(ctx, client, "{"+name+"}:"+formatKey); err != nil {
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

// formatKey is the key with the version of everything that Redis has of a frontier, of which
// knownFormat is the newest that this program knows. Whatever changes the meaning of a key, of its
// members or of their fields is another version; docs/formats/frontier.md describes them.
const (
	formatKey   = "format"
	knownFormat = 1
)

// checkFormat notes the version of a frontier that has none, and refuses a newer one.
func checkFormat(ctx context.Context, client redis.UniversalClient, key string) error {
	got, err := client.Get(ctx, key).Int()
	if errors.Is(err, redis.Nil) {
		// Of two that begin at the same time, one sets it.
		if err := client.SetNX(ctx, key, knownFormat, 0).Err(); err != nil {
			return failed(err)
		}
		got, err = client.Get(ctx, key).Int()
	}
	switch {
	case err != nil:
		return fmt.Errorf("redis: key %s: %w", key, err)
	case got > knownFormat:
		return &codec.FormatError{Key: "redis: key " + key, Found: got, Known: knownFormat}
	}
	return nil
}

// Join notes that the process lives, for a time, and returns how many of the frontier do.
func (f *Frontier) Join(ctx context.Context, ttl time.Duration) (processes int, err error) {
	err = redirected(ctx, redirects, func() (err error) {
		processes, err = joinScript.Run(ctx, f.redis, []string{f.nodes()}, f.node, ttl.Milliseconds()).Int()
		return err
	})
	return processes, failed(err)
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
	held  held
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
	return v, failed(err)
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

// queues splits the names of queues into crawls and keys, and the keys of each into batches.
func queues(names []string, do func(crawl string, keys []any) error) error {
	byCrawl := map[string][]any{}
	for _, name := range names {
		crawl, key, _ := strings.Cut(name, "\x00")
		byCrawl[crawl] = append(byCrawl[crawl], key)
	}
	for crawl, keys := range byCrawl {
		for len(keys) > 0 {
			n := min(len(keys), batch)
			if err := do(crawl, keys[:n]); err != nil {
				return err
			}
			keys = keys[n:]
		}
	}
	return nil
}

// Wake makes the keys of queues ready in which something waits, unless they are held.
func (s *Shard) Wake(ctx context.Context, now int64, names []string) error {
	return queues(names, func(crawl string, keys []any) error {
		_, err := s.run(ctx, wakeScript, []string{"owner", "ready:" + crawl, "times", "domains"}, append([]any{now}, keys...)...)
		return err
	})
}

// Claim returns up to n keys of which something waits in a crawl and that may be fetched from now,
// and puts each off by its delay, whichever crawl asks next. Delay is that of keys that have none
// of their own. If only is given, other keys are left alone. If there is none it returns when the
// next one is, -1 if nothing waits.
func (s *Shard) Claim(ctx context.Context, crawl string, now int64, n int, delay time.Duration, only ...string) (keys []string, next int64, err error) {
	only = only[:min(len(only), batch)]
	c := s.call(claimScript, "owner", "ready:"+crawl, "times", "domains")
	c.add(now, min(n, batch), delay.Milliseconds())
	for i := range only {
		c.addText(&only[i])
	}
	v, err := c.run(ctx)
	if err != nil {
		return nil, 0, err
	}
	if next, ok := v.(int64); ok {
		return nil, next, nil
	}
	return strings.Split(v.(string), "\x00"), 0, nil
}

// Lease notes leases until a time, and of which keys nothing waits in the crawl any more.
func (s *Shard) Lease(ctx context.Context, crawl string, until int64, leases []Lease, empty []string) error {
	for len(leases) > 0 || len(empty) > 0 {
		n, m := min(len(leases), batch), min(len(empty), batch)
		c := s.call(leaseScript, "owner", "leases", "ready:"+crawl)
		c.add(n)
		expiry := any(until)
		for i := range leases[:n] {
			c.add(expiry)
			c.addText((*string)(&leases[i]))
		}
		for i := range empty[:m] {
			c.addText(&empty[i])
		}
		if _, err := c.run(ctx); err != nil {
			return err
		}
		s.held.note(leases[:n], until)
		leases, empty = leases[n:], empty[m:]
	}
	return nil
}

// Report is what the end of a lease says of the server.
type Report struct {
	// Failed says that there was no answer, or one that asks for rest. Answered says that there was
	// one, so that failures before it count no more. With neither it says nothing.
	Failed, Answered bool
	// RetryAfter is how long the server wants to be left alone, 0 if it did not say.
	RetryAfter time.Duration
}

// Backoff says how long a key rests after failures: for its delay, or Delay if it has none of its
// own, twice, then four times, and so on, but no longer than Longest.
type Backoff struct{ Delay, Longest time.Duration }

// Report says which leases have not ended, and notes in Redis what is said of their servers.
// Reports has one for each, or is nil. The leases last until End: a process that dies in between
// has lost nothing.
func (s *Shard) Report(ctx context.Context, now int64, leases []Lease, reports []Report, b Backoff) (live []bool, err error) {
	if err := s.know(ctx); err != nil {
		return nil, err
	}
	live = s.held.live(now, leases)
	var telling []int // the places of live leases of which something is said
	for i := range reports {
		if live[i] && reports[i] != (Report{}) {
			telling = append(telling, i)
		}
	}
	for some := range slices.Chunk(telling, batch) {
		if err := s.tell(ctx, now, some, leases, reports, b, live); err != nil {
			return nil, err
		}
	}
	return live, nil
}

// tell notes what is said of the servers of leases at some places. Those that Redis does not know
// are not live.
func (s *Shard) tell(ctx context.Context, now int64, places []int, leases []Lease, reports []Report, b Backoff, live []bool) error {
	what := bytes.Repeat([]byte{'-'}, len(places))
	told := make([]Lease, len(places))
	var asks []any
	for i, place := range places {
		r := &reports[place]
		switch told[i] = leases[place]; {
		case r.Failed:
			what[i] = 'f'
		case r.Answered:
			what[i] = 'o'
		}
		if ms := r.RetryAfter.Milliseconds(); ms > 0 {
			asks = append(asks, i+1, ms)
		}
	}
	c := s.call(reportScript, "owner", "leases", "times", "domains")
	c.add(now, b.Delay.Milliseconds(), b.Longest.Milliseconds(), what, len(asks)/2)
	c.add(asks...)
	known, err := c.each(ctx, told, nil)
	if err != nil {
		return err
	}
	for i, place := range places {
		live[place] = known[i]
	}
	return nil
}

// End ends leases.
func (s *Shard) End(ctx context.Context, leases []Lease) error {
	s.held.end(leases)
	for some := range slices.Chunk(leases, batch) {
		c := s.call(endScript, "owner", "leases")
		for i := range some {
			c.addText((*string)(&some[i]))
		}
		if _, err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Extend prolongs leases, and says which had not ended before.
func (s *Shard) Extend(ctx context.Context, now, until int64, leases []Lease) (live []bool, err error) {
	for some := range slices.Chunk(leases, batch) {
		c := s.call(extendScript, "owner", "leases")
		c.add(now, until)
		if live, err = c.each(ctx, some, live); err != nil {
			return nil, err
		}
	}
	s.held.extend(leases, live, until)
	return live, nil
}

// each adds leases to a call, runs it, and appends which of them it has said 1 of, and not 0.
func (c *call) each(ctx context.Context, leases []Lease, live []bool) ([]bool, error) {
	for i := range leases {
		c.addText((*string)(&leases[i]))
	}
	v, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	answer := v.(string)
	live = slices.Grow(live, len(leases))
	for i := range leases {
		live = append(live, answer[i] == '1')
	}
	return live, nil
}

// Expire removes some of the leases that have ended, and returns them. More says that there may be
// others.
func (s *Shard) Expire(ctx context.Context, now int64) (ended []Lease, more bool, err error) {
	v, err := s.run(ctx, expireScript, []string{"owner", "leases"}, now, batch)
	if err != nil {
		return nil, false, err
	}
	for _, m := range v.([]any) {
		l, err := ParseLease(m.(string))
		if err != nil {
			return nil, false, err
		}
		ended = append(ended, l)
	}
	s.held.end(ended)
	return ended, len(ended) == batch, nil
}

// Leases returns all leases. The first call is before any other of leases: from then on the shard
// remembers which there are.
func (s *Shard) Leases(ctx context.Context) (all []Lease, err error) {
	s.held.mu.Lock()
	known := s.held.known
	s.held.mu.Unlock()
	for from := int64(0); ; from += batch {
		members, err := s.f.redis.ZRangeWithScores(ctx, s.prefix+"leases", from, from+batch-1).Result()
		if err != nil {
			return nil, failed(err)
		}
		for _, m := range members {
			l, err := ParseLease(m.Member.(string))
			if err != nil {
				return nil, err
			}
			all = append(all, l)
			if !known {
				s.held.note([]Lease{l}, int64(m.Score))
			}
		}
		if len(members) < batch {
			break
		}
	}
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	s.held.known = true
	return all, nil
}

// know has the shard remember its leases.
func (s *Shard) know(ctx context.Context) error {
	s.held.mu.Lock()
	known := s.held.known
	s.held.mu.Unlock()
	if known {
		return nil
	}
	_, err := s.Leases(ctx)
	return err
}
