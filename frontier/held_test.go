//go:build unix

package frontier_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAStoppedProcessHoldsItsFiles has a process that owned a shard, is not heard of any more, and
// has the lock of its files nevertheless. The shard is not taken, the log says so, and nobody is
// asked for it; all others are served. When the lock is free the shard is taken.
func TestAStoppedProcessHoldsItsFiles(t *testing.T) {
	server := testenv.NewRedis(t)
	var log lockedBuffer
	o := options(t, newClock(), 0)
	o.Own, o.Log = 3*time.Second, slog.New(slog.NewTextHandler(&log, nil))
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	stopped, err := coord.Open(t.Context(), client, "test", "stopped:1#1", o.Shards)
	if err != nil {
		t.Fatal(err)
	}
	const shard, name = 2, "shard-002.lock"
	if c, owner, err := stopped.Own(t.Context(), shard, 4*time.Second); err != nil || c == nil {
		t.Fatal(owner, err)
	}
	lock := flock.New(filepath.Join(o.Dir, name))
	if ok, err := lock.TryLock(); err != nil || !ok {
		t.Fatal(ok, err)
	}

	f := start(t, server, o)
	if others := f.Others(); len(others) != 1 || others[0] != "stopped:1#1" {
		t.Fatalf("the owner is %v", others)
	}
	testenv.Until(t, "that the shard is held", func() bool { return f.Held() == 1 })
	testenv.Until(t, "all other shards", func() bool { return f.Stats().Shards == o.Shards-1 })
	if others := f.Others(); len(others) != 0 {
		t.Errorf("%v is asked, which has stopped", others)
	}
	testenv.Until(t, "the log", func() bool { return strings.Contains(log.String(), name) })
	for _, part := range []string{"shards=[2]", "since=", "processes=[stopped:1#1]"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %s: %s", part, log.String())
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the shard", func() bool { return f.Stats().Shards == o.Shards && f.Held() == 0 })
	testenv.Until(t, "an answer", func() bool {
		_, err := f.Seen("", "", "https://a.example/")
		return !errors.Is(err, frontier.ErrElsewhere)
	})
}
