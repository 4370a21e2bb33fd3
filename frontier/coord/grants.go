package coord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/urlake/urlake/frontier/numbers"
	"github.com/urlake/urlake/frontier/ready"
	"github.com/urlake/urlake/lake/codec"
)

// Leases that begin together are one value in Redis, a grant, which goes when none of them holds
// any more. So the end of a lease costs Redis nothing, and what it has may have ended: the files
// know that, which get the outcome before the lease ends. Which leases hold the owner of the shard
// remembers. It alone changes them, and nobody else has the files open.

const (
	// sparse is how many times as many leases a grant may have as hold of it, before those that
	// hold get a grant of their own; smallest is the size of grants that are left as they are.
	sparse   = 4
	smallest = 16
	// rewriteAtOnce bounds the leases that are read to give those that hold another grant.
	rewriteAtOnce = 20_000
)

// appendGrant appends the value of a grant: until when its leases last, and the leases.
func appendGrant(b []byte, until int64, leases []Lease) []byte {
	b = codec.AppendU64(b, uint64(until))
	for _, l := range leases {
		b = codec.AppendString(b, string(l))
	}
	return b
}

// parseGrant returns what a grant of a key in Redis has.
func parseGrant(value, key string, number uint64) (until int64, leases []Lease, err error) {
	d := codec.NewDecoder([]byte(value), fmt.Sprintf("redis: key %s: field %d", key, number), "grant")
	until = int64(d.U64())
	for d.Err() == nil && d.Len() > 0 {
		text := d.String()
		l, err := ParseLease(text)
		if err != nil || l.Seq() == math.MaxUint64 { // which package numbers does not have
			d.Fail("a lease", text)
		}
		leases = append(leases, l)
	}
	return until, leases, d.Close()
}

// grants are those of a shard as its owner remembers them. They have no pointers to leases: there
// may be millions.
type grants struct {
	mu     sync.Mutex
	leases *numbers.Table[terms]
	grants map[uint64]grant
	last   uint64   // the number of the newest
	gone   []uint64 // those that Redis has and of which no lease holds
	sparse []uint64 // those of which few do
	asked  uint32   // how often live was called
	// touched is the sum of what touch loaded, which has no meaning.
	touched uint64
	// regranting is held while leases get other grants, from the number of these on.
	regranting sync.Mutex
}

// terms are those of a lease, by the number of its entry: its token, its grant, and by which call
// of live it was asked for last.
type terms struct {
	token uint64
	grant uint64
	asked uint32
}

// grant is until when leases last, how many there are, and how many of them hold.
type grant struct {
	until      int64
	size, hold uint32
}

// next returns the number of a new grant.
func (g *grants) next() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	return g.last
}

// touch loads what is looked at first of some leases, all at the same time. Mu is held.
func (g *grants) touch(leases []Lease) {
	for _, l := range leases {
		g.touched += g.leases.Touch(l.Seq())
	}
}

// note adds a grant, and leases it.
func (g *grants) note(number uint64, until int64, leases []Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = max(g.last, number)
	g.touch(leases)
	for _, l := range leases {
		seq := l.Seq()
		if before := g.leases.At(seq); before != nil {
			g.release(before.grant)
		}
		g.leases.Set(seq, terms{token: l.token(), grant: number})
	}
	g.grants[number] = grant{until, uint32(len(leases)), uint32(len(leases))}
}

// move adds a grant to which those of some leases go that hold, and says which do.
func (g *grants) move(number uint64, until int64, leases []Lease) (hold []bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hold = make([]bool, len(leases))
	to := grant{until: until, size: uint32(len(leases))}
	for i, l := range leases {
		t := g.leases.At(l.Seq())
		if t == nil || t.token != l.token() || t.grant == number {
			continue
		}
		g.release(t.grant)
		t.grant = number
		hold[i] = true
		to.hold++
	}
	g.grants[number] = to
	g.look(number, to)
	return hold
}

// end ends a lease, and says whether it had not ended. Mu is held.
func (g *grants) end(l Lease) bool {
	t := g.leases.At(l.Seq())
	if t == nil || t.token != l.token() {
		return false
	}
	of := t.grant
	g.leases.Delete(l.Seq())
	g.release(of)
	return true
}

// release notes that one lease of a grant holds no more. Mu is held.
func (g *grants) release(number uint64) {
	of, ok := g.grants[number]
	if !ok {
		return // Redis has lost it
	}
	of.hold--
	g.grants[number] = of
	g.look(number, of)
}

// look notes that few or none of the leases of a grant hold. Mu is held.
func (g *grants) look(number uint64, of grant) {
	switch {
	case of.hold == 0:
		delete(g.grants, number)
		g.gone = append(g.gone, number)
	case of.size >= smallest && of.hold == of.size/sparse:
		g.sparse = append(g.sparse, number)
	}
}

// live says which leases have not ended. Of one that is there twice it says so once.
func (g *grants) live(now int64, leases []Lease) []bool {
	live := make([]bool, len(leases))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	g.touch(leases)
	for i, l := range leases {
		t := g.leases.At(l.Seq())
		if t != nil && t.token == l.token() && t.asked != g.asked && g.grants[t.grant].until > now {
			t.asked, live[i] = g.asked, true
		}
	}
	return live
}

// of returns those of some leases that hold by a grant.
func (g *grants) of(number uint64, leases []Lease) (hold []Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range leases {
		if t := g.leases.At(l.Seq()); t != nil && t.token == l.token() && t.grant == number {
			hold = append(hold, l)
		}
	}
	return hold
}

// takeGone returns some grants for Redis to delete.
func (g *grants) takeGone() []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	some := g.gone[:min(len(g.gone), batch)]
	g.gone = g.gone[len(some):]
	return some
}

// stillGone notes that Redis has not been told to delete grants.
func (g *grants) stillGone(some []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = append(g.gone, some...)
}

// takeSparse returns some of the grants of which few leases hold.
func (g *grants) takeSparse() (some []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := uint32(0)
	for len(g.sparse) > 0 && size < rewriteAtOnce {
		number := g.sparse[0]
		g.sparse = g.sparse[1:]
		if of, ok := g.grants[number]; ok {
			some, size = append(some, number), size+of.size
		}
	}
	return some
}

// stillSparse notes that grants were not rewritten.
func (g *grants) stillSparse(some []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sparse = append(g.sparse, some...)
}

// over returns some of the grants whose time is over. More says that there are others.
func (g *grants) over(now int64) (some []uint64, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := uint32(0)
	for number, of := range g.grants {
		if of.until > now {
			continue
		}
		if size >= batch {
			return some, true
		}
		some, size = append(some, number), size+of.size
	}
	return some, false
}

// holds says that leases of a grant hold.
func (g *grants) holds(number uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.grants[number]
	return ok
}

// newGrant is a grant that Redis is to have.
type newGrant struct {
	number uint64
	until  int64
	leases []Lease
}

// write has Redis note grants and the times of claimed keys, and delete some of the grants that are
// gone.
func (s *Shard) write(ctx context.Context, new []newGrant, claim ready.Claim) error {
	if err := s.Certain(ctx); err != nil {
		return err
	}
	gone := s.grants.takeGone()
	c := s.call(grantScript, grantsKey, timesKey)
	c.add(len(new))
	size := 0
	for _, g := range new {
		size += 8
		for _, l := range g.leases {
			size += 2 + len(l)
		}
	}
	values := make([]byte, 0, size)
	for _, g := range new {
		from := len(values)
		values = appendGrant(values, g.until, g.leases)
		c.add(g.number, values[from:len(values):len(values)])
	}
	c.add(len(gone))
	for _, number := range gone {
		c.add(number)
	}
	s.keys.mu.Lock()
	s.keys.ready.Rests(claim, func(key *string, until int64) {
		c.add(until)
		c.addText(key)
	})
	s.keys.mu.Unlock()
	_, err := c.run(ctx)
	if err != nil {
		s.grants.stillGone(gone)
	}
	return err
}

// Lease notes leases of keys that were claimed, until a time. After an error there are none of
// them, whether Redis knows that or not.
func (s *Shard) Lease(ctx context.Context, until int64, leases []Lease, claim ready.Claim) error {
	var new []newGrant
	for len(leases) > 0 {
		n := min(len(leases), batch)
		new = append(new, newGrant{s.grants.next(), until, leases[:n]})
		leases = leases[n:]
	}
	if err := s.write(ctx, new, claim); err != nil {
		s.grants.stillGone(numbersOf(new))
		return err
	}
	for _, g := range new {
		s.grants.note(g.number, g.until, g.leases)
	}
	return nil
}

func numbersOf(of []newGrant) (all []uint64) {
	for _, g := range of {
		all = append(all, g.number)
	}
	return all
}

// End ends leases. Their outcomes are in files. Redis is told later, once for many.
func (s *Shard) End(leases []Lease) {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	for _, l := range leases {
		s.grants.end(l)
	}
}

// EndEntries ends the leases of entries of some numbers.
func (s *Shard) EndEntries(seqs []uint64) {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	for _, seq := range seqs {
		if t := s.grants.leases.At(seq); t != nil {
			of := t.grant
			s.grants.leases.Delete(seq)
			s.grants.release(of)
		}
	}
}

// Extend prolongs leases, and says which had not ended before.
func (s *Shard) Extend(ctx context.Context, now, until int64, leases []Lease) (live []bool, err error) {
	s.grants.regranting.Lock()
	defer s.grants.regranting.Unlock()
	live = s.grants.live(now, leases)
	var some []Lease
	var places []int
	for i, l := range leases {
		if live[i] {
			some, places = append(some, l), append(places, i)
		}
	}
	for len(some) > 0 {
		n := min(len(some), batch)
		hold, err := s.regrant(ctx, []newGrant{{s.grants.next(), until, some[:n]}})
		if err != nil {
			return nil, err
		}
		for i, holds := range hold {
			live[places[i]] = holds
		}
		some, places = some[n:], places[n:]
	}
	return live, nil
}

// regrant gives leases other grants, and says which still held afterwards. Regranting is held.
func (s *Shard) regrant(ctx context.Context, new []newGrant) (hold []bool, err error) {
	if err := s.write(ctx, new, ready.Claim{}); err != nil {
		s.grants.stillGone(numbersOf(new))
		return nil, err
	}
	for _, g := range new {
		hold = append(hold, s.grants.move(g.number, g.until, g.leases)...)
	}
	return hold, nil
}

// Expire ends some of the leases whose time is over, and returns them, also with an error. More
// says that there may be others. It tells Redis which grants are gone, too.
func (s *Shard) Expire(ctx context.Context, now int64) (ended []Lease, more bool, err error) {
	over, more := s.grants.over(now)
	err = s.read(ctx, over, func(number uint64, _ int64, leases []Lease) error {
		s.grants.mu.Lock()
		defer s.grants.mu.Unlock()
		for _, l := range leases {
			if t := s.grants.leases.At(l.Seq()); t != nil && t.grant == number && s.grants.end(l) {
				ended = append(ended, l)
			}
		}
		return nil
	})
	return ended, more && err == nil, errors.Join(err, s.tidy(ctx))
}

// tidy has Redis delete the grants that are gone, and rewrites those of which few leases hold.
func (s *Shard) tidy(ctx context.Context) error {
	s.grants.regranting.Lock()
	defer s.grants.regranting.Unlock()
	var new []newGrant
	some := s.grants.takeSparse()
	err := s.read(ctx, some, func(number uint64, until int64, leases []Lease) error {
		if hold := s.grants.of(number, leases); len(hold) > 0 {
			new = append(new, newGrant{s.grants.next(), until, hold})
		}
		return nil
	})
	if err == nil && len(new) > 0 {
		_, err = s.regrant(ctx, new)
	}
	if err != nil {
		s.grants.stillSparse(some)
	}
	for err == nil && s.grants.anyGone() {
		err = s.write(ctx, nil, ready.Claim{})
	}
	return err
}

func (g *grants) anyGone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.gone) > 0
}

// ErrForgotten means that Redis has lost leases that hold. Opening the shard again lets their URLs
// wait.
var ErrForgotten = errors.New("redis has lost leases")

// read calls yield with what Redis has of grants.
func (s *Shard) read(ctx context.Context, some []uint64, yield func(number uint64, until int64, leases []Lease) error) error {
	for len(some) > 0 {
		n := min(len(some), batch)
		fields := make([]string, n)
		for i, number := range some[:n] {
			fields[i] = strconv.FormatUint(number, 10)
		}
		values, err := s.f.redis.HMGet(ctx, s.prefix+grantsKey, fields...).Result()
		if err != nil {
			return failed(err)
		}
		for i, v := range values {
			value, ok := v.(string)
			if !ok && s.grants.holds(some[i]) {
				return fmt.Errorf("%w: key %s: there is no field %d", ErrForgotten, s.prefix+grantsKey, some[i])
			}
			if !ok {
				continue // its leases have ended meanwhile
			}
			until, leases, err := parseGrant(value, s.prefix+grantsKey, some[i])
			if err == nil {
				err = yield(some[i], until, leases)
			}
			if err != nil {
				return err
			}
		}
		some = some[n:]
	}
	return nil
}

// loadGrants reads the grants, and returns their leases.
func (s *Shard) loadGrants(ctx context.Context) (all []Lease, err error) {
	found, err := s.readAll(ctx)
	if err != nil {
		return nil, err
	}
	s.grants.load(found)
	if err := s.upgradeLeases(ctx, found); err != nil {
		return nil, err
	}
	for number, g := range found {
		all = append(all, s.grants.of(number, g.leases)...)
	}
	return all, nil
}

// readAll returns the grants that Redis has, by number.
func (s *Shard) readAll(ctx context.Context) (map[uint64]newGrant, error) {
	found := map[uint64]newGrant{}
	key := s.prefix + grantsKey
	for cursor := uint64(0); ; {
		fields, next, err := s.f.redis.HScan(ctx, key, cursor, "", 100).Result()
		if err != nil {
			return nil, failed(err)
		}
		for ; len(fields) > 1; fields = fields[2:] {
			number, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("redis: key %s: field %q is no number", key, fields[0])
			}
			until, leases, err := parseGrant(fields[1], key, number)
			if err != nil {
				return nil, err
			}
			found[number] = newGrant{number, until, leases}
		}
		if cursor = next; cursor == 0 {
			return found, nil
		}
	}
}

// load remembers what Redis has, and nothing else. Of a lease that is in two grants the newer one
// counts.
func (g *grants) load(found map[uint64]newGrant) {
	g.mu.Lock()
	g.leases, g.grants, g.last, g.gone, g.sparse = numbers.New[terms](), map[uint64]grant{}, 0, nil, nil
	g.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(found)) {
		g.note(number, found[number].until, found[number].leases)
	}
}
