package coord

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Counts are what a frontier has asked of Redis since it was opened.
type Counts struct {
	// Commands counts what was sent, a pipeline as one, Time how long the answers took together.
	Commands int64
	Time     time.Duration
	// Errors counts commands without an answer, or with one that says that Redis cannot do them.
	Errors int64
}

// watch counts commands. It is a hook of the client.
type watch struct{ commands, nanos, errors atomic.Int64 }

// Counts returns what was asked of Redis until now.
func (f *Frontier) Counts() Counts {
	return Counts{f.watch.commands.Load(), time.Duration(f.watch.nanos.Load()), f.watch.errors.Load()}
}

// DialHook implements redis.Hook.
func (w *watch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		w.count(began, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		w.count(began, err)
		return err
	}
}

// count leaves out answers that are expected: no value, a script that has to be sent whole, a slot
// that has moved, a shard that another process owns by now or that was opened again, and what the
// client asks of each new connection that an older Redis does not know.
func (w *watch) count(began time.Time, err error) {
	w.commands.Add(1)
	w.nanos.Add(int64(time.Since(began)))
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return
	}
	for _, expected := range []string{"NOSCRIPT", "FENCED", "REOPENED", "MOVED", "ASK", "ERR unknown"} {
		if strings.HasPrefix(err.Error(), expected) {
			return
		}
	}
	w.errors.Add(1)
}
