package activities

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// Containment of what kills workers, or makes steps panic.
//
// A dead worker takes along all its steps. One of them may be to blame, or none: processes are
// killed from outside, too. A step whose workers died twice therefore runs alone in its process,
// beside small steps only. From its second attempt on it keeps a document in staging, its marker,
// that names the object that it reads, and says how far it has come; every orderly end removes the
// marker. If the worker dies, the marker is left. A fault of the step itself recurs at the same
// place. So the step fails for good, with the name of the object, when its workers died at the same
// place and, at last, while it ran alone. Kills from outside come at random places. If nothing but
// the connection to Temporal was lost, there is no marker, and the step runs again. Steps that died
// along with another one succeed when they run alone.
const (
	// markedFrom is the number of deaths from which a step keeps a marker, aloneFrom the number
	// from which it runs alone, and lastDeath the number from which it may fail.
	markedFrom = 1
	aloneFrom  = 2
	lastDeath  = 3
	// mostAlone is the number of deaths while it ran alone after which a step fails, wherever its
	// workers died: memory may run out at places that vary.
	mostAlone = 10
	// placeBytes is the resolution of a place.
	placeBytes = 8 << 20
	// lastPanic is how many panics a step may have.
	lastPanic = 3
)

// Variables, so that tests need not wait.
var (
	// refreshMarker is how often a step that runs alone writes its marker again.
	refreshMarker = 5 * time.Second
	// watchMarker is how long a marker stays as it is before its worker counts as dead. A worker
	// that lost Temporal may still be at work.
	watchMarker = 4 * refreshMarker
)

// step names a step of which deaths and panics are counted.
type step struct {
	run    string // its staging has the step's documents
	name   string // in the run
	deaths int
	// ofLake tells that the step reads objects of the lake, and not the inputs of an ingest.
	ofLake bool
	// killer, unless nil, is called with the object at which the step's workers died and with the
	// error that would be the step's. The step then goes on without that object.
	killer func(object string, err error)
}

// key returns the key of one of the step's documents.
func (s *step) key(name string) string {
	return lake.StagingPrefix(s.run) + "suspects/" + s.name + name + ".json"
}

// marker is staging/{run}/suspects/{step}.json.
type marker struct {
	Format int `json:"format"`
	// Object is what the step has opened last: the URL of an input, or the key of an object of the
	// lake.
	Object string `json:"object"`
	// Beat changes whenever the marker is written.
	Beat int `json:"beat"`
	// Attempt is the attempt at the step that writes the marker.
	Attempt string `json:"attempt,omitempty"`
	// Place is the step's progress. Deaths counts the latest consecutive deaths at the place Died.
	Place  place `json:"place"`
	Deaths int   `json:"deaths,omitempty"`
	Died   place `json:"died"`
	// Alone counts all deaths of workers in which the step ran alone.
	Alone int `json:"alone,omitempty"`
}

// place is the progress of a step.
type place struct {
	// Read is how much the step has read of its objects, in placeBytes.
	Read int64 `json:"read"`
	// Waits is how often the marker has been refreshed since.
	Waits int64 `json:"waits"`
}

// same reports whether a step that is repeated may have died at two places for the same reason.
// Memory runs out a little earlier or later, and objects of the lake are read several at once.
func (p place) same(q place) bool {
	near := func(a, b, share int64) bool { return max(a, b)-min(a, b) <= 1+min(a, b)/share }
	return near(p.Read, q.Read, 32) && near(p.Waits, q.Waits, 8)
}

// enough returns how many deaths at a place count as the step's fault. Random kills from outside
// hardly hit the beginning of a step twice. Later, two kills may seem to be at the same place.
func (p place) enough() int {
	if p.Read <= 8 && p.Waits <= 1 {
		return 2
	}
	return 3
}

// panics is staging/{run}/suspects/{step}-panics.json.
type panics struct {
	Format int `json:"format"`
	Count  int `json:"count"`
}

const suspectFormat = 1

// readDocument reads a sealed document. ok is false if there is none.
func readDocument(ctx context.Context, store blob.Store, key string, into any) (ok bool, err error) {
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = codec.Unseal(data, key, suspectFormat, into)
	}
	return err == nil, err
}

func writeDocument(ctx context.Context, store blob.Store, key string, doc any) error {
	data, err := codec.Seal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = store.Put(ctx, key, data, blob.Condition{})
	return err
}

// contained is withHeartbeat for a step whose workers may have died. It gives the step the store
// from which to read the lake.
func contained[T any](
	ctx context.Context, l *Lake, s step, need int64,
	do func(ctx context.Context, store blob.Store, report func(any)) (T, error),
) (T, error) {
	acquire := func(ctx context.Context) (func(), error) { return s.acquire(ctx, l.Memory, need) }
	return heartbeat(ctx, acquire, func(ctx context.Context, report func(any)) (T, error) {
		return watch(ctx, l, s, func(ctx context.Context, store blob.Store) (T, error) { return do(ctx, store, report) })
	})
}

// alone reports whether the step has to run alone in its process.
func (s *step) alone() bool { return s.deaths >= aloneFrom }

// marked reports whether the step keeps a marker.
func (s *step) marked() bool { return s.deaths >= markedFrom }

// acquire waits until the step may run.
func (s *step) acquire(ctx context.Context, m *Memory, need int64) (release func(), err error) {
	if s.alone() {
		return m.acquireAll(ctx)
	}
	return m.acquire(ctx, need)
}

// watch runs a step that may have killed workers, or may panic.
func watch[T any](
	ctx context.Context, l *Lake, s step, do func(ctx context.Context, store blob.Store) (T, error),
) (out T, err error) {
	w := &watched{step: s, store: l.Store, marker: marker{Attempt: rand.Text()}}
	if w.marked() {
		if err := w.begin(ctx); err != nil {
			return out, err
		}
		defer w.end(ctx)
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = w.panicked(ctx, fault)
		}
	}()
	store := l.Store
	if s.ofLake && (w.marked() || activity.GetInfo(ctx).Attempt > 1) {
		store = &watchedStore{Store: l.Store, step: w, opened: map[string]bool{}}
	}
	opening := ingest.Opening{Object: w.opening, Single: w.alone()}
	if w.marked() {
		opening.Read = w.read
	}
	return do(ingest.WithOpening(ctx, opening), store)
}

// watched is a step at work.
type watched struct {
	step
	store blob.Store

	mu      sync.Mutex
	marker  marker
	bytes   int64 // read so far
	refresh context.CancelFunc
	done    chan struct{}
}

// begin judges the step by the marker that the last worker left, and writes its own.
func (w *watched) begin(ctx context.Context) error {
	left, died, err := w.diedWith(ctx)
	if err != nil {
		return err
	}
	if died {
		w.marker.Died, w.marker.Deaths, w.marker.Alone = left.Place, 1, left.Alone
		if w.deaths > aloneFrom {
			w.marker.Alone++
		}
		if left.Deaths > 0 && left.Died.same(left.Place) {
			w.marker.Deaths = left.Deaths + 1
		}
		if w.deaths >= lastDeath && (w.marker.Deaths >= left.Place.enough() || w.marker.Alone >= mostAlone) {
			// A run that goes on with the staging is judged by its own marker.
			if err := w.store.Delete(ctx, w.key("")); err != nil {
				return err
			}
			err := w.killed(left.Object)
			if w.killer == nil || left.Object == "" {
				return err
			}
			w.killer(left.Object, err)
			w.marker.Deaths, w.marker.Alone = 0, 0
		}
	}
	if err := w.write(ctx); err != nil {
		return err
	}
	ctx, w.refresh = context.WithCancel(ctx)
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		tick := time.NewTicker(refreshMarker)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.mu.Lock()
				w.marker.Place.Waits++
				// If the marker cannot be written, the step's own reads and writes fail too.
				_ = w.write(ctx)
				w.mu.Unlock()
			}
		}
	}()
	return nil
}

// diedWith returns the marker of the step's last worker. died is false if there is none. If the
// step may fail, diedWith waits until the marker no longer changes, or disappears.
func (w *watched) diedWith(ctx context.Context) (left marker, died bool, err error) {
	key := w.key("")
	for first := true; ; first = false {
		var now marker
		ok, err := readDocument(ctx, w.store, key, &now)
		if errors.Is(err, codec.ErrCorrupt) {
			ok, err = true, nil // it was being written
		}
		if err != nil || !ok {
			return marker{}, false, err
		}
		if w.deaths < lastDeath || !first && now == left {
			return now, true, nil
		}
		left = now
		select {
		case <-ctx.Done():
			return marker{}, false, ctx.Err()
		case <-time.After(watchMarker):
		}
	}
}

// opening notes that the step opens an object. A step that runs alone writes it down first.
func (w *watched) opening(ctx context.Context, object string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marker.Object = object
	if !w.alone() {
		return nil
	}
	return w.write(ctx)
}

// read adds n to the bytes that the step has read. A step with a marker writes down its progress
// before it uses these bytes.
func (w *watched) read(ctx context.Context, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(n)
	at := w.bytes / placeBytes
	if !w.marked() || at == w.marker.Place.Read {
		return nil
	}
	w.marker.Place = place{Read: at}
	return w.write(ctx)
}

func (w *watched) write(ctx context.Context) error {
	w.marker.Format = suspectFormat
	w.marker.Beat++
	return writeDocument(ctx, w.store, w.key(""), &w.marker)
}

// end removes the marker. If the store is away, the process goes on trying after the step: a marker
// that stays would tell that it had died.
func (w *watched) end(ctx context.Context) {
	w.refresh()
	<-w.done
	ctx = context.WithoutCancel(ctx)
	err := w.remove(ctx)
	if err == nil {
		return
	}
	activity.GetLogger(ctx).Warn("A marker of a step that ended cannot be removed yet", "Key", w.key(""), "Error", err)
	go func() {
		for err != nil {
			time.Sleep(refreshMarker)
			err = w.remove(ctx)
		}
	}()
}

// remove removes the marker, unless it is that of a later attempt.
func (w *watched) remove(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, stopMarker)
	defer stop()
	var now marker
	ok, err := readDocument(ctx, w.store, w.key(""), &now)
	switch {
	case err != nil && !errors.Is(err, codec.ErrCorrupt):
		return err
	case err == nil && (!ok || now.Attempt != w.marker.Attempt):
		return nil
	}
	return w.store.Delete(ctx, w.key(""))
}

// stopMarker is how long a step tries to remove its marker, less than a worker has to stop.
const stopMarker = 5 * time.Second

// killed returns the error of a step whose object killed its workers.
func (w *watched) killed(object string) error {
	return crashed(object, fmt.Sprintf(
		"%s killed its worker %d times, the last %d times at the same place, %d times when no other large step ran beside it; %s",
		w.subject(object), w.deaths, w.marker.Deaths, w.marker.Alone, w.advice()))
}

// crashed returns the error of a step that killed its workers or panicked too often. Its only
// detail is the object that the step read last, "" if that is not known.
func crashed(object, reason string) error {
	text := reason
	if object != "" {
		text = object + ": " + reason
	}
	return temporal.NewNonRetryableApplicationError(text, ErrCrash, nil, object)
}

// subject begins a sentence about an object, whose name goes before it.
func (w *watched) subject(object string) string {
	if object == "" {
		return "the step " + w.name
	}
	return "it"
}

// advice says what to do about an object that kills workers.
func (w *watched) advice() string {
	if w.ofLake {
		return "check the lake (starter verify --deep), run workers on a machine with more memory, and report this as a defect"
	}
	return "leave it out (--exclude), or convert it, or run workers on a machine with more memory, and report this as a defect"
}

// panicked counts a panic of the step and returns its error, which is final for the last one.
func (w *watched) panicked(ctx context.Context, fault any) error {
	text := firstLine(fmt.Sprint(fault))
	w.mu.Lock()
	object := w.marker.Object
	w.mu.Unlock()
	activity.GetLogger(ctx).Error("A step panicked", "Step", w.name, "Object", object, "Panic", text,
		"Stack", string(debug.Stack()))
	p, key := panics{Format: suspectFormat}, w.key("-panics")
	if _, err := readDocument(ctx, w.store, key, &p); err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	p.Count++
	if p.Count >= lastPanic {
		// The staging stays. A run that continues it, perhaps with a mended build, counts anew.
		if err := w.store.Delete(ctx, key); err != nil {
			return err
		}
		return crashed(object, fmt.Sprintf("%s made urlake panic %d times (%s); %s",
			w.subject(object), p.Count, text, w.advice()))
	}
	if err := writeDocument(ctx, w.store, key, &p); err != nil {
		return err
	}
	if object == "" {
		object = w.name
	}
	return temporal.NewApplicationError(fmt.Sprintf("%s: panic: %s", object, text), "Panic")
}

// firstLine returns the first line of a text, shortened: an error is no place for more.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), 500)]
}

// reading notes that the step reads an object that it has opened before. A marker has it when it is
// written next.
func (w *watched) reading(object string) {
	w.mu.Lock()
	w.marker.Object = object
	w.mu.Unlock()
}

// watchedStore notes each object that a step opens or reads on.
type watchedStore struct {
	blob.Store
	step *watched

	mu     sync.Mutex
	opened map[string]bool
}

// Unwrap returns the store inside.
func (s *watchedStore) Unwrap() blob.Store { return s.Store }

func (s *watchedStore) note(ctx context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[key] {
		s.step.reading(key)
		return nil
	}
	s.opened[key] = true
	return s.step.opening(ctx, key)
}

// Get notes the object and reads it.
func (s *watchedStore) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if err := s.note(ctx, key); err != nil {
		return nil, blob.Info{}, err
	}
	data, info, err := s.Store.Get(ctx, key)
	return data, info, cmp.Or(err, s.step.read(ctx, len(data)))
}

// ReadRange notes the object and reads a part of it.
func (s *watchedStore) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := s.note(ctx, key); err != nil {
		return nil, err
	}
	data, err := s.Store.ReadRange(ctx, key, off, n)
	return data, cmp.Or(err, s.step.read(ctx, len(data)))
}

// Open notes the object and opens it.
func (s *watchedStore) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.note(ctx, key); err != nil {
		return nil, err
	}
	r, err := s.Store.Open(ctx, key, off, n)
	if err != nil || !s.step.marked() {
		return r, err
	}
	return &watchedStream{r, ctx, s.step}, nil
}

// watchedStream counts the bytes that are read from a stream.
type watchedStream struct {
	io.ReadCloser
	ctx  context.Context
	step *watched
}

func (s *watchedStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	return n, cmp.Or(s.step.read(s.ctx, n), err)
}
