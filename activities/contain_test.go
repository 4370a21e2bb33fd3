package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// fastMarkers shortens the times of markers for one test.
func fastMarkers(t *testing.T) {
	refresh, watch := refreshMarker, watchMarker
	refreshMarker, watchMarker = time.Millisecond, 20*time.Millisecond
	t.Cleanup(func() { refreshMarker, watchMarker = refresh, watch })
}

// runStep runs do as a contained activity.
func runStep(t *testing.T, l *Lake, s step, do func(ctx context.Context, store blob.Store) error) error {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	activity := func(ctx context.Context) error {
		_, err := contained(ctx, l, s, 1, func(ctx context.Context, store blob.Store, _ func(any)) (int, error) {
			return 0, do(ctx, store)
		})
		return err
	}
	env.RegisterActivity(activity)
	_, err := env.ExecuteActivity(activity)
	return err
}

func testLake() *Lake {
	return &Lake{Store: blob.NewMemory(), URL: "mem://lake", Memory: NewMemory(1 << 20)}
}

// readMarker returns the object that the step's marker names, and whether there is a marker.
func readMarker(t *testing.T, l *Lake, s step) (string, bool) {
	t.Helper()
	var m marker
	ok, err := readDocument(context.Background(), l.Store, s.key(""), &m)
	if err != nil {
		t.Fatal(err)
	}
	return m.Object, ok
}

// TestThirdDeathIsFinal holds that a step fails for good where its last worker left a marker, and
// only there.
func TestThirdDeathIsFinal(t *testing.T) {
	fastMarkers(t)
	s := step{run: "run", name: "normalize-000001"}
	left := marker{Format: suspectFormat, Object: "file:///in/poison.parquet", Beat: 7, Deaths: 1}
	for name, c := range map[string]struct {
		deaths int
		marked bool
		fails  bool
	}{
		"first":                      {0, true, false},
		"second worker died":         {2, true, false},
		"third, alone":               {3, true, true},
		"fifth, alone":               {5, true, true},
		"third, Temporal was away":   {3, false, false},
		"eleventh, Temporal is away": {11, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := testLake()
			if c.marked {
				if err := writeDocument(t.Context(), l.Store, s.key(""), &left); err != nil {
					t.Fatal(err)
				}
			}
			s := s
			s.deaths = c.deaths
			ran := false
			err := runStep(t, l, s, func(context.Context, blob.Store) error { ran = true; return nil })
			if !c.fails {
				if err != nil || !ran {
					t.Errorf("ran %v, %v", ran, err)
				}
				return
			}
			var app *temporal.ApplicationError
			if !errors.As(err, &app) || !app.NonRetryable() || app.Type() != ErrCrash || ran {
				t.Fatalf("ran %v, error %v, want a final %s", ran, err, ErrCrash)
			}
			for _, want := range []string{"file:///in/poison.parquet: it killed its worker ", "--exclude"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
		})
	}
}

// TestDeathsAtOnePlace kills the worker of each attempt at a step after a number of MiB. The step
// is at fault if its workers die at the same place, and not if they die at different places.
func TestDeathsAtOnePlace(t *testing.T) {
	fastMarkers(t)
	refreshMarker = time.Hour // the test decides when time passes
	const object = "urls/part"
	type death struct{ mib, waits int64 }
	for name, c := range map[string]struct {
		deaths []death // from the second on: the first leaves no marker
		final  bool    // the attempt after the last death fails
	}{
		"a crash at the beginning":    {[]death{{5, 0}, {5, 0}}, true},
		"memory that runs out":        {[]death{{300, 0}, {308, 0}, {295, 0}}, true},
		"a crash after the last read": {[]death{{300, 40}, {300, 44}, {300, 41}}, true},
		"after kills, a crash":        {[]death{{9, 0}, {400, 0}, {200, 0}, {200, 0}, {201, 0}}, true},
		"kills anywhere":              {[]death{{10, 0}, {300, 0}, {120, 0}, {500, 0}, {30, 0}, {250, 1}}, false},
		"twice alike by chance":       {[]death{{300, 0}, {304, 0}, {120, 0}, {124, 0}, {500, 0}}, false},
		"kills while nothing is read": {[]death{{300, 10}, {300, 70}, {300, 30}, {300, 33}, {300, 55}}, false},
		"a crash, but not when alone": {[]death{{5, 0}, {200, 0}}, false},
		"killed once more, early":     {[]death{{1, 0}, {40, 0}}, false},
		"memory that runs out anywhere": {[]death{
			{9, 0}, {900, 0}, {90, 0}, {700, 0}, {60, 0}, {500, 0}, {30, 0}, {990, 0}, {120, 0}, {600, 0}, {300, 0},
		}, true},
		"a place that was not reached": {[]death{{64, 0}, {64, 9}}, false},
	} {
		for _, ofLake := range []bool{false, true} {
			l := testLake()
			l.Store = &sameMiB{l.Store, make([]byte, 1<<20)}
			s := step{run: "run", name: "merge-000000", ofLake: ofLake}
			var left []byte
			for i := range len(c.deaths) + 1 {
				s.deaths = i + 1
				err := runStep(t, l, s, func(ctx context.Context, store blob.Store) error {
					if i == len(c.deaths) {
						return nil
					}
					o := ingest.OpeningOf(ctx)
					if !ofLake {
						if err := o.Object(ctx, object); err != nil {
							t.Error(err)
						}
					}
					for range c.deaths[i].mib {
						var err error
						if ofLake {
							_, err = store.ReadRange(ctx, object, 0, 1<<20)
						} else {
							err = o.Read(ctx, 1<<20)
						}
						if err != nil {
							t.Error(err)
						}
					}
					var m marker
					if ok, err := readDocument(ctx, l.Store, s.key(""), &m); !ok || err != nil || s.alone() && m.Object != object {
						t.Fatalf("%s: marker %+v, %v, %v", name, m, ok, err)
					}
					m.Place.Waits = c.deaths[i].waits
					var err error
					left, err = codec.Seal(&m)
					return errors.Join(err, errAway)
				})
				if i < len(c.deaths) {
					if !errors.Is(err, errAway) && !strings.Contains(fmt.Sprint(err), errAway.Error()) {
						t.Errorf("%s, of the lake %v: the attempt after %d deaths: %v", name, ofLake, s.deaths, err)
					}
					// The worker died, so nobody removed its marker.
					if _, err := l.Store.Put(t.Context(), s.key(""), left, blob.Condition{}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				var app *temporal.ApplicationError
				if final := errors.As(err, &app) && app.Type() == ErrCrash; final != c.final || !final && err != nil {
					t.Errorf("%s, of the lake %v: %v, want a crash %v", name, ofLake, err, c.final)
				} else if final && !strings.Contains(err.Error(), object+": it killed its worker") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// sameMiB returns the same bytes for every range.
type sameMiB struct {
	blob.Store
	data []byte
}

func (s *sameMiB) ReadRange(context.Context, string, int64, int64) ([]byte, error) {
	return s.data, nil
}

// TestMarkerOfALiveWorkerIsNoDeath holds that a worker which only lost Temporal is not taken for
// dead: the next one waits until the marker is gone.
func TestMarkerOfALiveWorkerIsNoDeath(t *testing.T) {
	synctest.Test(t, markerOfALiveWorkerIsNoDeath)
}

func markerOfALiveWorkerIsNoDeath(t *testing.T) {
	l, s := testLake(), step{run: "run", name: "small", deaths: 2}
	started, lost := make(chan struct{}), make(chan struct{})
	live := make(chan error, 1)
	go func() {
		live <- runStep(t, l, s, func(ctx context.Context, _ blob.Store) error {
			close(started)
			<-lost
			return errors.New("the connection is lost")
		})
	}()
	<-started
	s.deaths = 3
	other := &Lake{Store: l.Store, URL: l.URL, Memory: NewMemory(1 << 20)} // another process
	time.AfterFunc(5*watchMarker, func() { close(lost) })
	ended := false
	err := runStep(t, other, s, func(context.Context, blob.Store) error {
		select {
		case <-lost:
			ended = true
		default:
		}
		return nil
	})
	if err != nil || !ended {
		t.Errorf("error %v; the live worker's step had ended: %v", err, ended)
	}
	if err := <-live; err == nil {
		t.Error("the first step has no error")
	}
}

// TestMarkerIsRemovedAfterAnOutage holds that a worker that lives takes its marker away, even if
// the store is away when the step ends, and that it leaves the marker of a later attempt.
func TestMarkerIsRemovedAfterAnOutage(t *testing.T) {
	fastMarkers(t)
	l, s := testLake(), step{run: "run", name: "build", deaths: 2}
	store := &awayStore{Store: l.Store, deleted: make(chan struct{}, 1)}
	err := runStep(t, &Lake{Store: store, URL: l.URL, Memory: l.Memory}, s, func(context.Context, blob.Store) error {
		store.away.Store(true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := readMarker(t, l, s); !ok {
		t.Fatal("the marker is gone although the store is away")
	}
	store.away.Store(false)
	select {
	case <-store.deleted:
	case <-time.After(5 * time.Second):
	}
	if _, ok := readMarker(t, l, s); ok {
		t.Fatal("the marker of a worker that lives stays")
	}
	later := marker{Format: suspectFormat, Attempt: "later"}
	if err := writeDocument(t.Context(), l.Store, s.key(""), &later); err != nil {
		t.Fatal(err)
	}
	w := &watched{step: s, store: l.Store, marker: marker{Attempt: "earlier"}}
	if err := w.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := readMarker(t, l, s); !ok {
		t.Error("an earlier attempt removed the marker of a later one")
	}
}

// awayStore cannot be reached while away is true.
type awayStore struct {
	blob.Store
	away    atomic.Bool
	deleted chan struct{} // gets a value when something was deleted; may be nil
}

var errAway = errors.New("the store is away")

func (a *awayStore) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if a.away.Load() {
		return nil, blob.Info{}, errAway
	}
	return a.Store.Get(ctx, key)
}

func (a *awayStore) Put(ctx context.Context, key string, data []byte, c blob.Condition) (blob.Info, error) {
	if a.away.Load() {
		return blob.Info{}, errAway
	}
	return a.Store.Put(ctx, key, data, c)
}

func (a *awayStore) Delete(ctx context.Context, keys ...string) error {
	if a.away.Load() {
		return errAway
	}
	err := a.Store.Delete(ctx, keys...)
	select {
	case a.deleted <- struct{}{}:
	default:
	}
	return err
}

// TestMarkerNamesTheObject holds that the marker names an object before it is opened, and that it
// is gone after every orderly end.
func TestMarkerNamesTheObject(t *testing.T) {
	for name, end := range map[string]error{
		"success": nil, "error": errors.New("the store is away"), "cancelled": context.Canceled, "panic": errors.New("panic"),
	} {
		t.Run(name, func(t *testing.T) {
			l, s := testLake(), step{run: "run", name: "merge-000002", deaths: 2, ofLake: true}
			if _, err := l.Store.Put(t.Context(), "staging/run/a", []byte("x"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			below := l.Store
			reads := &onRead{Store: l.Store, before: func(key string) {
				if !strings.Contains(key, "/suspects/") {
					if object, ok := readMarker(t, &Lake{Store: below}, s); !ok || object != key {
						t.Errorf("%s is opened while the marker names %q (%v)", key, object, ok)
					}
				}
			}}
			l.Store = reads
			err := runStep(t, l, s, func(ctx context.Context, store blob.Store) error {
				if _, _, err := store.Get(ctx, "staging/run/a"); err != nil {
					t.Error(err)
				}
				if _, err := store.ReadRange(ctx, "staging/run/a", 0, 1); err != nil {
					t.Error(err)
				}
				if name == "panic" {
					panic("a defect")
				}
				return end
			})
			if (err != nil) != (end != nil) {
				t.Errorf("error %v", err)
			}
			l.Store = below
			if _, ok := readMarker(t, l, s); ok {
				t.Error("the marker is left")
			}
		})
	}
}

// onRead calls before in front of each read.
type onRead struct {
	blob.Store
	before func(key string)
}

func (o *onRead) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	o.before(key)
	return o.Store.Get(ctx, key)
}

func (o *onRead) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	o.before(key)
	return o.Store.ReadRange(ctx, key, off, n)
}

// TestThirdPanicIsFinal holds that a step does not panic for ever, and that its last error says
// what it read.
func TestThirdPanicIsFinal(t *testing.T) {
	l, s := testLake(), step{run: "run", name: "normalize-000000"}
	for i := range 2 * lastPanic { // the second half continues the staging
		err := runStep(t, l, s, func(ctx context.Context, _ blob.Store) error {
			_, err := ingest.Normalize(ctx, l.Store, "run", 0, nil)
			if err == nil {
				t.Error("no error without a plan")
			}
			opening := ingest.OpeningOf(ctx)
			if err := opening.Object(ctx, "s3://b/poison.csv"); err != nil {
				t.Error(err)
			}
			panic("index out of range [7]\nand more")
		})
		var app *temporal.ApplicationError
		if !errors.As(err, &app) || app.NonRetryable() != (i%lastPanic == lastPanic-1) ||
			app.NonRetryable() != (app.Type() == ErrCrash) || !strings.Contains(err.Error(), "s3://b/poison.csv: ") {
			t.Errorf("panic %d: error %v", i+1, err)
		}
		if strings.Contains(err.Error(), "and more") || !strings.Contains(err.Error(), "index out of range [7]") {
			t.Errorf("panic %d: error %v, want the first line of the panic's text", i+1, err)
		}
	}
}

// TestStepAloneWaitsForTheOthers holds that nothing runs beside a step whose workers died twice,
// that such steps get their turn, and that the others go on afterwards.
func TestStepAloneWaitsForTheOthers(t *testing.T) {
	synctest.Test(t, stepAloneWaitsForTheOthers)
}

func stepAloneWaitsForTheOthers(t *testing.T) {
	l := testLake()
	ctx := t.Context()
	var running, lonely atomic.Int32
	use := func(alone bool, hold <-chan struct{}) error {
		acquire := func() (func(), error) { return l.Memory.acquire(ctx, 1) }
		if alone {
			acquire = func() (func(), error) { return l.Memory.acquireAll(ctx) }
		}
		release, err := acquire()
		if err != nil {
			return err
		}
		defer release()
		n := running.Add(1)
		defer running.Add(-1)
		if alone {
			lonely.Add(1)
			if n != 1 {
				t.Errorf("%d steps run beside one that runs alone", n-1)
			}
		} else if hold == nil && lonely.Load() != 2 {
			t.Error("a later step was served before the two that wait to be alone")
		}
		if hold != nil {
			<-hold
		}
		return nil
	}
	hold := make(chan struct{})
	ended := make(chan error)
	begin := func(alone bool, hold <-chan struct{}) { go func() { ended <- use(alone, hold) }() }
	for range 3 {
		begin(false, hold)
	}
	synctest.Wait()
	if n := running.Load(); n != 3 {
		t.Fatalf("%d steps run, want 3", n)
	}
	begin(true, nil)
	synctest.Wait()
	begin(true, nil)
	synctest.Wait()
	for range 5 {
		begin(false, nil)
	}
	synctest.Wait()
	if n := running.Load(); n != 3 {
		t.Fatalf("%d steps run while two wait to be alone, want 3", n)
	}
	close(hold)
	for range 10 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestLargePagesWaitForTheirMemory holds that a step whose pages need more than usual runs again
// when that much memory is free.
func TestLargePagesWaitForTheirMemory(t *testing.T) {
	l := testLake()
	l.Memory = NewMemory(2 * pageMemory)
	var free []bool
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	activity := func(ctx context.Context) (int, error) {
		return withPages(ctx, l, step{run: "run", name: "small"}, func(ctx context.Context, _ blob.Store, _ func(any)) (int, error) {
			ok := l.Memory.free.TryAcquire(2*pageMemory - normalizeMemory)
			if free = append(free, ok); ok {
				l.Memory.free.Release(2*pageMemory - normalizeMemory)
				return 0, fmt.Errorf("s3://b/wide.parquet: %w", ingest.ErrPageMemory)
			}
			return 1, nil
		})
	}
	env.RegisterActivity(activity)
	if _, err := env.ExecuteActivity(activity); err != nil {
		t.Fatal(err)
	}
	if len(free) != 2 || !free[0] || free[1] {
		t.Errorf("beside the step the memory was free in %v, want only the first time", free)
	}
}
