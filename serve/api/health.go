package api

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lru"
)

// Readiness is what /readyz tells those who send requests to several servers. The zero value is one
// that does not stop.
type Readiness struct {
	stopping atomic.Bool
	asked    atomic.Int64 // when /readyz was last asked, in nanoseconds
}

// Stop makes /readyz answer 503. Everything else goes on.
func (r *Readiness) Stop() { r.stopping.Store(true) }

// Watched reports whether anybody has asked /readyz within that time. If nobody has, nobody waits
// to be told.
func (r *Readiness) Watched(within time.Duration) bool {
	asked := r.asked.Load()
	return asked > 0 && time.Since(time.Unix(0, asked)) < within
}

func (h *handler) healthz(r *request) error {
	r.doc.open('{')
	r.doc.text("status", "ok")
	r.doc.close('}')
	return nil
}

func (h *handler) readyz(r *request) error {
	h.ready.asked.Store(time.Now().UnixNano())
	if h.ready.stopping.Load() {
		return newProblem(http.StatusServiceUnavailable, "stopping", "The server is about to stop", "ask another one")
	}
	snap, err := h.server.Acquire(r.Context(), "")
	if err != nil {
		return err
	}
	defer snap.Release()
	if r.partial {
		return r.readyPart(snap)
	}
	st := h.server.Status()
	d := &r.doc
	d.open('{')
	d.text("status", "ready")
	d.text("version", st.Version)
	d.number("generation", int64(st.Generation))
	d.number("takedown_epoch", int64(st.TakedownEpoch))
	d.number("rows", st.Counts.Rows)
	d.number("datasets", int64(st.Counts.Datasets))
	d.number("segments", int64(st.Counts.Segments))
	d.text("canonical_form", st.CanonicalForm)
	d.text("public_suffix_list", st.PublicSuffix)
	d.boolean("public_suffix_list_missing", snap.LacksSuffixes())
	reason := "" // why a newer version is not served
	if st.Err != nil {
		reason = lookup.Reason(st.Err)
	}
	d.textOrNull("error", reason)
	d.number("open_versions", int64(st.Open))
	for _, c := range []struct {
		name  string
		stats lru.Stats
	}{{"frame_cache", st.Frames}, {"page_cache", st.Pages}} {
		d.object(c.name)
		d.number("hits", c.stats.Hits)
		d.number("misses", c.stats.Misses)
		d.number("entries", c.stats.Entries)
		d.number("bytes", c.stats.Bytes)
		d.close('}')
	}
	d.close('}')
	return nil
}

// readyPart is readyz for those who may not read all datasets: without what counts all of them, or
// tells what others have asked.
func (r *request) readyPart(snap *lookup.Snapshot) error {
	page, err := snap.Datasets(r.Context(), "")
	if err != nil {
		return err
	}
	d := &r.doc
	d.open('{')
	d.text("status", "ready")
	d.text("version", page.Version)
	d.number("takedown_epoch", int64(page.TakedownEpoch))
	d.number("rows", page.Rows)
	d.number("datasets", int64(page.Total))
	d.text("canonical_form", snap.Version().CanonicalForm)
	d.text("public_suffix_list", snap.Version().PublicSuffix)
	d.boolean("public_suffix_list_missing", snap.LacksSuffixes())
	d.close('}')
	return nil
}
