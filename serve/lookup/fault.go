package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// PanicError is a panic in one of the goroutines of a lookup: an error of that lookup and no end of the server.
type PanicError struct {
	Value any
	// Stack is that of the goroutine that panicked.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// contain runs f; a panic in it is its error.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}

// group is an errgroup in which a panic is an error.
type group struct{ *errgroup.Group }

func newGroup(ctx context.Context) (group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	return group{g}, ctx
}

func (g group) Go(f func() error) { g.Group.Go(func() error { return contain(f) }) }

var (
	errStarting = errors.New("the server is starting")
	errClosed   = errors.New("the server is closed")
)

// Reason is what may be told to anybody of why the lake could not be read: which of its objects is damaged, or what kind of failure it
// is. Paths, addresses and what the store's own messages hold are in the error itself, which is for the log.
func Reason(err error) string {
	var corrupt *codec.CorruptError
	if errors.As(err, &corrupt) {
		return corrupt.Error()
	}
	for _, kind := range []error{errStarting, errClosed, manifest.ErrNoVersion, manifest.ErrGeneration, blob.ErrDenied, blob.ErrNotExist, ErrDeadline} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "the store did not answer in time"
	}
	return "the lake could not be read; the server's log says more"
}

const (
	// firstPause is how long after its first line a failure that goes on has its second; pauses double up to lastPause.
	firstPause = time.Minute
	lastPause  = time.Hour
)

// complaints tell the log of what fails again and again: when it begins, at growing intervals while it lasts, and when it is over.
type complaints struct {
	log  *slog.Logger
	what string

	reason      string // "" while all is well
	since, next time.Time
	pause       time.Duration
	failures    int
}

// note takes the result of one try.
func (c *complaints) note(ctx context.Context, err error, now time.Time) {
	if err == nil {
		if c.reason != "" {
			c.log.LogAttrs(ctx, slog.LevelInfo, c.what+" works again", slog.Int("failures", c.failures), slog.Duration("for", now.Sub(c.since)))
			c.reason = ""
		}
		return
	}
	// What the store says differs from one time to the next, by request ids and addresses.
	if reason := Reason(err); reason != c.reason {
		c.reason, c.since, c.failures = reason, now, 0
		c.pause, c.next = firstPause, now
	}
	c.failures++
	if now.Before(c.next) {
		return
	}
	c.next = now.Add(c.pause)
	c.pause = min(2*c.pause, lastPause)
	attrs := []slog.Attr{slog.String("error", err.Error()), slog.Int("failures", c.failures)}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	c.log.LogAttrs(ctx, slog.LevelWarn, c.what+" fails", attrs...)
}
