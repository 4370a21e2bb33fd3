package lookup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// PanicError is a panic during a lookup. It is an error of that lookup and does not stop the
// server.
type PanicError struct {
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// contain runs f and turns a panic into a *PanicError.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}

// Contain is contain for goroutines of packages that answer from snapshots.
func Contain(f func() error) error { return contain(f) }

// group is an errgroup that turns a panic in a goroutine into a *PanicError.
type group struct{ *errgroup.Group }

func newGroup(ctx context.Context) (group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	return group{g}, ctx
}

// Go runs f in a goroutine of the group.
func (g group) Go(f func() error) { g.Group.Go(func() error { return contain(f) }) }

var (
	errStarting = errors.New("the server is starting")
	errClosed   = errors.New("the server is closed")
)

// Reason describes err for clients: the damaged object and what mends it, or the kind of failure.
// It discloses no paths or addresses and no messages of the store. Those are in err, which is for
// the log.
func Reason(err error) string {
	var corrupt *codec.CorruptError
	if errors.As(err, &corrupt) {
		return lake.Explain("", corrupt)
	}
	var format *codec.FormatError
	if errors.As(err, &format) {
		return format.Error()
	}
	if errors.Is(err, mapped.ErrCache) {
		switch {
		case errors.Is(err, syscall.ENOSPC):
			return "the server's cache folder has no room; newer versions wait for it"
		case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
			return "the server may not write to its cache folder; newer versions wait for it"
		}
	}
	for _, kind := range []error{
		errStarting, errClosed, catalog.ErrNoVersion, catalog.ErrGeneration,
		blob.ErrDenied, blob.ErrNotExist, ErrDeadline,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "the store did not answer in time"
	}
	return "the lake could not be read; see the server's log"
}

const (
	// firstPause is the time between the first and the second line of a failure that persists. Each
	// further pause is twice as long, up to maxPause.
	firstPause = time.Minute
	maxPause   = time.Hour
)

// failureLog logs repeated failures of one operation: at once, at growing intervals while they
// persist, and when the operation works again.
type failureLog struct {
	log  *slog.Logger
	what string

	reason      string    // of the present failure, empty if there is none
	empty       bool      // nothing is published yet, which is the failure of no one
	since, next time.Time // of the first failure, and of the next line
	pause       time.Duration
	failures    int
}

// note logs the result of one attempt if a line is due.
func (l *failureLog) note(ctx context.Context, err error, now time.Time) {
	if err == nil {
		if l.reason != "" && !l.empty {
			l.log.LogAttrs(ctx, slog.LevelInfo, l.what+" works again",
				slog.Int("failures", l.failures), slog.Duration("for", now.Sub(l.since)))
		}
		l.reason, l.empty = "", false
		return
	}
	// Reasons are compared instead of errors, because errors of the store contain request ids and
	// addresses.
	if reason := Reason(err); reason != l.reason {
		l.reason, l.since, l.failures = reason, now, 0
		l.pause, l.next = firstPause, now
	}
	l.failures++
	if now.Before(l.next) {
		return
	}
	l.next = now.Add(l.pause)
	l.pause = min(2*l.pause, maxPause)
	if l.empty = errors.Is(err, catalog.ErrNoVersion); l.empty {
		l.log.LogAttrs(ctx, slog.LevelInfo, "nothing is published yet; waiting")
		return
	}
	attrs := []slog.Attr{slog.String("error", lake.Explain("", err)), slog.Int("failures", l.failures)}
	if p := (*PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, l.what+" fails", attrs...)
}
