package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/urlake/urlake/frontier"
)

// moment is how long a request to another process takes before that is asked whether it answers at
// all, how long it has for saying so, and the time until it is asked again.
const moment = time.Second

// errSilent says that a process takes connections and answers nothing, as one does that is stopped.
var errSilent = fmt.Errorf("%w, and that does not answer now", frontier.ErrElsewhere)

// toPeer returns a context for a request to another process, which ends soon if that process
// answers nothing. Done has to be called when the request has ended. It is errSilent if the process
// is known to be silent.
func (h *Handler) toPeer(ctx context.Context, name string) (to context.Context, done func(), err error) {
	if _, silent := h.silent.Load(name); silent {
		return nil, nil, errSilent
	}
	to, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(moment, func() {
		for to.Err() == nil {
			if h.isSilent(name) {
				h.noteSilent(name)
				cancel(errSilent)
				return
			}
			select {
			case <-to.Done():
			case <-time.After(moment):
			}
		}
	})
	return to, func() { watch.Stop(); cancel(context.Canceled) }, nil
}

// isSilent asks a process whether it runs. Requests that wait for the same process ask once.
func (h *Handler) isSilent(name string) bool {
	silent, _, _ := h.asking.Do(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(h.stopping, moment)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base(name)+"/healthz", nil)
		if err != nil {
			return false, err
		}
		res, err := h.client.Do(req)
		if err != nil { // any other error comes to the request, too
			return errors.Is(err, context.DeadlineExceeded), err
		}
		return false, res.Body.Close()
	})
	return silent.(bool)
}

// warnOfPeer logs an error of a request to another process. That one is silent was logged, and a
// client that has left is none.
func (h *Handler) warnOfPeer(what string, err error) {
	if !errors.Is(err, errSilent) && !errors.Is(err, context.Canceled) {
		h.log.Warn(what, "error", err)
	}
}

// noteSilent lets nothing be asked of a process until it answers, or has no shards any more.
func (h *Handler) noteSilent(name string) {
	if _, noted := h.silent.LoadOrStore(name, true); noted {
		return
	}
	h.log.Warn("a process does not answer; nothing is asked of it until it does", "process", base(name))
	go func() {
		defer h.silent.Delete(name)
		for slices.Contains(h.f.Others(), name) && h.isSilent(name) {
			select {
			case <-h.stopping.Done():
				return
			case <-time.After(moment):
			}
		}
	}()
}
