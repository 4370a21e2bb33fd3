//go:build unix

package frontier_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// scanning is a hook that lets scans of Redis wait, once armed.
type scanning struct {
	began, end chan struct{}
	armed      bool
}

func (*scanning) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scanning) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" && s.armed {
			s.armed = false
			close(s.began)
			<-s.end
		}
		return next(ctx, cmd)
	}
}

func (*scanning) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestNothingWaitsForASnapshot adds, claims and settles in a shard of which a snapshot is being
// made, and that takes as long as Redis does.
func TestNothingWaitsForASnapshot(t *testing.T) {
	o := options(t, newClock(), 0)
	o.Shards = 1
	scans := &scanning{began: make(chan struct{}), end: make(chan struct{})}
	f := start(t, testenv.NewRedis(t), o, scans)
	scans.armed = true
	made := make(chan error)
	go func() {
		p, err := f.Snapshot(t.Context(), "id", "part", true)
		if err == nil && (len(p.Shards) != 1 || len(p.Files) < 3) {
			t.Errorf("%+v", p)
		}
		made <- err
	}()
	<-scans.began
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		urls := []frontier.URL{{URL: "https://a.example/"}}
		if got, err := f.Add(t.Context(), urls); err != nil || got[0].Result != frontier.Added {
			t.Error(got, err)
			return
		}
		claims, err := f.Claim(t.Context(), frontier.ClaimRequest{Max: 1})
		if err != nil || len(claims) != 1 {
			t.Error(claims, err)
			return
		}
		got, err := f.Settle(t.Context(), []frontier.Outcome{{Lease: claims[0].Lease, Status: 200}})
		if err != nil || got[0].Result != frontier.Settled {
			t.Error(got, err)
		}
	}()
	select {
	case <-worked:
	case <-time.After(20 * time.Second):
		t.Error("the shard answers nothing")
	}
	close(scans.end)
	if err := <-made; err != nil {
		t.Error(err)
	}
	<-worked
}
