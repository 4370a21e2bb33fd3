//go:build unix

package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/ready"
)

var errLate = errors.New("i/o timeout")

// late fails the next command whose arguments match, and keeps it, so that it can be done later: a
// network may deliver long after nobody waits any more. With before it calls that instead, and then
// sends the command.
type late struct {
	mu     sync.Mutex
	match  string
	kept   []any
	before func()
}

func (*late) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.match == "" || !strings.Contains(fmt.Sprint(cmd.Args()), h.match) {
			return next(ctx, cmd)
		}
		h.match = ""
		if h.before != nil {
			h.before()
			return next(ctx, cmd)
		}
		h.kept = nil
		for _, arg := range cmd.Args() { // whose memory is used again
			switch v := arg.(type) {
			case *string:
				arg = strings.Clone(*v)
			case []byte:
				arg = string(v)
			}
			h.kept = append(h.kept, arg)
		}
		cmd.SetErr(errLate)
		return errLate
	}
}

// lateIn returns a hook of a client of which Redis knows the scripts.
func lateIn(t *testing.T, client *redis.Client, s *coord.Shard) *late {
	t.Helper()
	yes := true
	if _, err := s.Change(t.Context(), "known.example", coord.Change{Paused: &yes}); err != nil {
		t.Fatal(err)
	}
	if err := s.Lease(t.Context(), 1<<40, []coord.Lease{numbered(1)}, ready.Claim{}); err != nil {
		t.Fatal(err)
	}
	h := &late{}
	client.AddHook(h)
	return h
}

func numbered(n int) coord.Lease {
	return coord.NewLease(uint64(n)*0x9e3779b97f4a7c15+1, uint64(n), fmt.Sprintf("c\x00k%d.example", n))
}

// TestLateGrant holds that a grant that arrives late takes the place of no other, whether the shard
// was opened again or not.
func TestLateGrant(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		client := newClient(t)
		_, s := shardIn(t, client)
		h := lateIn(t, client, s)
		h.match = "grants"
		if err := s.Lease(t.Context(), 1<<40, []coord.Lease{numbered(2)}, ready.Claim{}); !errors.Is(err, errLate) {
			t.Fatal(err)
		}
		if reopened {
			_, s, _ = open(t, client)
		}
		if err := s.Lease(t.Context(), 1<<40, []coord.Lease{numbered(3)}, ready.Claim{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Do(t.Context(), h.kept...).Err(); err == nil || !strings.HasPrefix(err.Error(), "REOPENED") {
			t.Errorf("reopened %v: %v", reopened, err)
		}
		_, _, leases := open(t, client)
		has := map[uint64]bool{}
		for _, l := range leases {
			has[l.Seq()] = true
		}
		if !has[1] || has[2] || !has[3] {
			t.Errorf("reopened %v: there are the leases %v", reopened, has)
		}
	}
}

// TestLateDeletion holds that a deletion of a grant that arrives late deletes no other.
func TestLateDeletion(t *testing.T) {
	client := newClient(t)
	_, s := shardIn(t, client)
	h := lateIn(t, client, s)
	s.End([]coord.Lease{numbered(1)})
	h.match = "grants"
	if _, _, err := s.Expire(t.Context(), 0); !errors.Is(err, errLate) {
		t.Fatal(err)
	}
	_, s, leases := open(t, client)
	s.End(leases)
	if _, _, err := s.Expire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, s, _ = open(t, client) // from now on the numbers of grants begin again
	if err := s.Lease(t.Context(), 1000, []coord.Lease{numbered(3)}, ready.Claim{}); err != nil {
		t.Fatal(err)
	}
	_ = client.Do(t.Context(), h.kept...).Err()
	ended, _, err := s.Expire(t.Context(), 1001)
	if err != nil || len(ended) != 1 {
		t.Errorf("%d leases have ended: %v", len(ended), err)
	}
}

// TestLateSettings holds that what a report says of a server, and arrives late, does not undo a
// change that was made meanwhile.
func TestLateSettings(t *testing.T) {
	client := newClient(t)
	_, s := shardIn(t, client)
	h := lateIn(t, client, s)
	yes := true
	h.match = "domains"
	_, untold, err := s.Report(t.Context(), 0, []coord.Lease{numbered(1)}, []coord.Report{{Failed: true}}, coord.Backoff{Delay: time.Second, Longest: time.Hour})
	if !errors.Is(err, errLate) || len(untold) != 1 {
		t.Fatal(untold, err)
	}
	if set, err := s.Change(t.Context(), "k1.example", coord.Change{Paused: &yes}); err != nil || !set.Paused {
		t.Fatal(set, err)
	}
	_ = client.Do(t.Context(), h.kept...).Err()
	want := s.Settings("k1.example")
	if _, s, _ = open(t, client); fmt.Sprint(s.Settings("k1.example")) != fmt.Sprint(want) || !want.Paused {
		t.Errorf("%+v after a restart, %+v before", s.Settings("k1.example"), want)
	}
}

// TestUntoldSettings holds that Redis has what is remembered, soon after it did not answer to a
// change of which it has heard.
func TestUntoldSettings(t *testing.T) {
	client := newClient(t)
	_, s := shardIn(t, client)
	h := lateIn(t, client, s)
	yes := true
	h.match = "domains"
	if _, err := s.Change(t.Context(), "k1.example", coord.Change{Paused: &yes}); !errors.Is(err, errLate) {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), h.kept...).Err(); err != nil { // just before anything else
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, s, _ = open(t, client); s.Settings("k1.example").Paused {
		t.Error("a change that has failed holds after a restart")
	}
}

// TestRegrants prolongs a lease while its grant, of which few leases hold, is rewritten, and the
// other way round. It lasts as long as was answered, also after a restart.
func TestRegrants(t *testing.T) {
	for _, first := range []string{"rewrite", "extend"} {
		client := newClient(t)
		_, s := shardIn(t, client)
		h := lateIn(t, client, s)
		var all []coord.Lease
		for i := range 32 {
			all = append(all, numbered(i+2))
		}
		if err := s.Lease(t.Context(), 1000, all, ready.Claim{}); err != nil {
			t.Fatal(err)
		}
		s.End(all[8:])
		extend := func() {
			live, err := s.Extend(t.Context(), 0, 5000, all[:1])
			if err != nil || !live[0] {
				t.Error(live, err)
			}
		}
		rewrite := func() {
			if _, _, err := s.Expire(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		do, other := rewrite, extend
		if first == "extend" {
			do, other = extend, rewrite
		}
		var meanwhile sync.WaitGroup
		h.before = func() {
			done := make(chan struct{})
			meanwhile.Go(func() {
				other()
				close(done)
			})
			select { // it is to wait for the other one
			case <-done:
				t.Errorf("%s first: the other one did not wait", first)
			case <-time.After(50 * time.Millisecond):
			}
		}
		h.match = "grants"
		do()
		meanwhile.Wait()
		for _, when := range []string{"at once", "after a restart"} {
			live, _, err := s.Report(t.Context(), 2000, all[:1], nil, coord.Backoff{})
			if err != nil || !live[0] {
				t.Errorf("%s first, %s: the lease that lasts until 5000 is over", first, when)
			}
			_, s, _ = open(t, client)
		}
	}
}

// TestRewriteIsTriedAgain loses a rewrite of a grant of which few leases hold. It is done the next
// time, and Redis has no more leases than it has to.
func TestRewriteIsTriedAgain(t *testing.T) {
	for _, lost := range []string{"hmget", "evalsha"} {
		client := newClient(t)
		_, s := shardIn(t, client)
		h := lateIn(t, client, s)
		var all []coord.Lease
		for i := range 100 {
			all = append(all, numbered(i+2))
		}
		if err := s.Lease(t.Context(), 1000, all, ready.Claim{}); err != nil {
			t.Fatal(err)
		}
		s.End(all[10:])
		h.match = lost
		if _, _, err := s.Expire(t.Context(), 0); !errors.Is(err, errLate) {
			t.Fatal(lost, err)
		}
		if _, _, err := s.Expire(t.Context(), 0); err != nil {
			t.Fatal(lost, err)
		}
		if until, has := grantsOf(t, client); has != 11 || until[all[0]] != 1000 {
			t.Errorf("%s: Redis has %d leases", lost, has)
		}
	}
}

// TestExpiredWhileExtended holds that a lease that ends meanwhile is not said to be prolonged.
func TestExpiredWhileExtended(t *testing.T) {
	client := newClient(t)
	_, s := shardIn(t, client)
	h := lateIn(t, client, s)
	l := numbered(2)
	if err := s.Lease(t.Context(), 1000, []coord.Lease{l}, ready.Claim{}); err != nil {
		t.Fatal(err)
	}
	h.before, h.match = func() { s.End([]coord.Lease{l}) }, "grants"
	live, err := s.Extend(t.Context(), 999, 5000, []coord.Lease{l})
	if err != nil || live[0] {
		t.Error(live, err)
	}
}
