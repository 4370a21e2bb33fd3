//go:build unix

package coord_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/ready"
	"github.com/urlake/urlake/internal/testenv"
)

// TestStateWhileItChanges reads the state of a shard while leases come, go and are extended. Every
// lease that is there all the time is in the state.
func TestStateWhileItChanges(t *testing.T) {
	opt, err := redis.ParseURL(testenv.NewRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	f, err := coord.Open(t.Context(), client, "f", "node", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := own(t, f)
	const until = 1 << 40
	leases := func(first, n int) []coord.Lease {
		all := make([]coord.Lease, n)
		for i := range all {
			all[i] = coord.NewLease(uint64(first+i)*0x9e3779b97f4a7c15, uint64(first+i), fmt.Sprintf("c\x00k%d", i))
		}
		return all
	}
	stay, gone := leases(0, 15_000), leases(100_000, 15_000)
	if err := s.Lease(t.Context(), until, append(stay[:len(stay):len(stay)], gone...), ready.Claim{}); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		defer close(read)
		state, err := s.State(t.Context())
		if err != nil {
			t.Error(err)
		}
		read <- state
	}()
	var state []byte
	for n := 0; state == nil && n*500 < len(gone); n++ {
		part := gone[n*500:][:500]
		s.End(part)
		if _, _, err := s.Expire(t.Context(), 0); err != nil { // which moves what is left of grants
			t.Fatal(err)
		}
		if _, err := s.Extend(t.Context(), 0, until+int64(n)+1, stay[n*500:][:500]); err != nil {
			t.Fatal(err)
		}
		if err := s.Lease(t.Context(), until, leases(200_000+n*500, 500), ready.Claim{}); err != nil {
			t.Fatal(err)
		}
		select {
		case state = <-read:
		default:
		}
	}
	if state == nil {
		state = <-read
	}
	r, err := coord.BeginRestore(t.Context(), client, "g", "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shard(t.Context(), 0, state, "state"); err != nil {
		t.Fatal(err)
	}
	if err := r.End(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	g, err := coord.Open(t.Context(), client, "g", "node", 1)
	if err != nil {
		t.Fatal(err)
	}
	restored := own(t, g)
	live, err := restored.Extend(t.Context(), 0, until, stay)
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, l := range live {
		if !l {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d leases are not in the state", missing, len(stay))
	}
}

// afterRead calls a function once, after the first key of leases or times was read.
type afterRead struct {
	once sync.Once
	do   func()
}

func (*afterRead) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *afterRead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if key := fmt.Sprint(cmd.Args()[1:]); cmd.Name() == "hgetall" && strings.Contains(key, "grants") || cmd.Name() == "zscan" && strings.Contains(key, "times") {
			h.once.Do(h.do)
		}
		return err
	}
}

func (*afterRead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLeaseEndsBetweenReads ends a lease between the reads of leases and of times, with an answer
// that asks for an hour of rest. The state has the lease or the rest.
func TestLeaseEndsBetweenReads(t *testing.T) {
	client := newClient(t)
	_, s := shardIn(t, client)
	const now = exampleNow
	lease := coord.NewLease(1, 1, "c\x00a.example")
	s.Wake(now, []string{lease.Queue()})
	claim, _ := s.Claim("c", now, 1, time.Second)
	if len(claim.Keys) != 1 {
		t.Fatal(claim)
	}
	if err := s.Lease(t.Context(), now+60_000, []coord.Lease{lease}, claim); err != nil {
		t.Fatal(err)
	}
	ended := false
	client.AddHook(&afterRead{do: func() {
		live, _, err := s.Report(t.Context(), now, []coord.Lease{lease}, []coord.Report{{Failed: true, RetryAfter: time.Hour}},
			coord.Backoff{Delay: time.Second, Longest: time.Hour})
		s.End([]coord.Lease{lease})
		if _, _, failed := s.Expire(t.Context(), now); failed != nil || err != nil || !live[0] { // which tells Redis
			t.Error(live, err, failed)
		}
		ended = true
	}})
	state, err := s.State(t.Context())
	if err != nil || !ended {
		t.Fatal(ended, err)
	}
	client = newClient(t)
	r, err := coord.BeginRestore(t.Context(), client, "f", "id")
	if err == nil {
		err = r.Shard(t.Context(), 0, state, "state")
	}
	if err == nil {
		err = r.End(t.Context(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, s, leases := open(t, client)
	s.Wake(now, []string{lease.Queue()})
	claim, _ = s.Claim("c", now+2000, 1, time.Second)
	if len(leases) == 0 && len(claim.Keys) > 0 {
		t.Errorf("the server of %s is asked again at once", claim.Keys)
	}
}
