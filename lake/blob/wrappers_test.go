package blob_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

func TestCountingCountsEachOperation(t *testing.T) {
	ctx := t.Context()
	c := blob.NewCounting(blob.NewMemory())
	var trace blob.Trace
	traced := blob.WithTrace(ctx, &trace)

	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Put(ctx, "dir/k", []byte("0123456789"), blob.Condition{})
	must(err)
	_, err = c.ReadRange(traced, "dir/k", 2, 3)
	must(err)
	_, err = c.ReadRange(traced, "dir/k", 2, 300)
	if !errors.Is(err, blob.ErrRange) {
		t.Fatal(err)
	}
	_, err = c.Stat(traced, "dir/k")
	must(err)
	_, _, err = c.Get(traced, "dir/k")
	must(err)
	r, err := c.Open(traced, "dir/k", 4, -1)
	must(err)
	if _, err := io.ReadFull(r, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	must(r.Close())
	w, err := c.Create(traced, "new")
	must(err)
	io.WriteString(w, "abc")
	io.WriteString(w, "de")
	_, err = w.Finish()
	must(err)
	_, err = c.Put(traced, "new", []byte("x"), blob.Condition{IfAbsent: true})
	if !errors.Is(err, blob.ErrPrecondition) {
		t.Fatal(err)
	}
	for _, err := range c.List(traced, "") {
		must(err)
	}
	for _, err := range c.List(traced, "dir/") {
		must(err)
		break
	}
	must(c.Delete(traced, "dir/k", "new"))

	want := []blob.Access{
		{Op: blob.OpReadRange, Key: "dir/k", Off: 2, N: 3},
		{Op: blob.OpReadRange, Key: "dir/k", Off: 2, Failed: true},
		{Op: blob.OpStat, Key: "dir/k"},
		{Op: blob.OpGet, Key: "dir/k", N: 10},
		{Op: blob.OpOpen, Key: "dir/k", Off: 4, N: 5},
		{Op: blob.OpCreate, Key: "new", N: 5},
		{Op: blob.OpFinish, Key: "new"},
		{Op: blob.OpPut, Key: "new", Failed: true},
		{Op: blob.OpList, N: 2},
		{Op: blob.OpList, Key: "dir/", N: 1},
		{Op: blob.OpDelete, Key: "dir/k", N: 2},
	}
	if diff := cmp.Diff(want, trace.Accesses()); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	for op, want := range map[blob.Op]blob.Count{
		blob.OpPut:       {Requests: 2, Errors: 1, Bytes: 10}, // one of them without the trace
		blob.OpReadRange: {Requests: 2, Errors: 1, Bytes: 3},
		blob.OpGet:       {Requests: 1, Bytes: 10},
		blob.OpStat:      {Requests: 1},
		blob.OpOpen:      {Requests: 1, Bytes: 5},
		blob.OpCreate:    {Requests: 1, Bytes: 5},
		blob.OpFinish:    {Requests: 1},
		blob.OpList:      {Requests: 2},
		blob.OpDelete:    {Requests: 1},
	} {
		if got := c.Count(op); got != want {
			t.Errorf("%v: %+v, want %+v", op, got, want)
		}
	}
	if got, want := c.Reads(), (blob.Count{Requests: 7, Errors: 1, Bytes: 18}); got != want {
		t.Errorf("reads: %+v, want %+v", got, want)
	}
	if got, want := c.Writes(), (blob.Count{Requests: 5, Errors: 1, Bytes: 15}); got != want {
		t.Errorf("writes: %+v, want %+v", got, want)
	}
	js, err := json.Marshal(trace.Accesses()[0])
	must(err)
	if got, want := string(js), `{"op":"read","key":"dir/k","off":2,"n":3}`; got != want {
		t.Errorf("as JSON %s, want %s", got, want)
	}
}

func TestTracesOfConcurrentRequestsAreApart(t *testing.T) {
	c := blob.NewCounting(blob.NewMemory())
	if _, err := c.Put(t.Context(), "k", make([]byte, 100), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	const requests, readers, reads = 4, 3, 50
	var traces [requests]blob.Trace
	var wg sync.WaitGroup
	for i := range requests {
		ctx := blob.WithTrace(t.Context(), &traces[i])
		for range readers {
			wg.Go(func() {
				for n := range reads {
					if _, err := c.ReadRange(ctx, "k", int64(i), int64(n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range traces {
		log := traces[i].Accesses()
		if len(log) != readers*reads {
			t.Errorf("trace %d has %d accesses", i, len(log))
		}
		for _, a := range log {
			if a.Off != int64(i) {
				t.Errorf("trace %d has a read from %d", i, a.Off)
			}
		}
	}
	if got := c.Count(blob.OpReadRange).Requests; got != requests*readers*reads {
		t.Errorf("%d reads", got)
	}
}

func TestCountingTellsFailuresApart(t *testing.T) {
	ctx := t.Context()
	faulty := blobtest.NewFaulty(blob.NewMemory())
	c := blob.NewCounting(faulty)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for why, cause := range map[blob.Failure]error{
		blob.FailureAbsent:    fmt.Errorf("stat k: %w", blob.ErrNotExist),
		blob.FailureCondition: blob.ErrPrecondition,
		blob.FailureDenied:    blob.ErrDenied,
		blob.FailureCancelled: cancelled.Err(),
		blob.FailureOther:     errors.New("connection refused"),
	} {
		faulty.Heal()
		faulty.Inject(blobtest.Fault{Op: blob.OpStat, Err: cause})
		if _, err := c.Stat(ctx, "k"); err == nil {
			t.Fatal("no fault")
		}
		if n := c.Failed(blob.OpStat, why); n != 1 {
			t.Errorf("%v: %d failures %s, want 1", cause, n, why)
		}
	}
	if n := c.Count(blob.OpStat); n.Errors != int64(len(blob.Failures)) || n.Requests != n.Errors {
		t.Errorf("all: %+v", n)
	}
}

func TestCountingCostsNothingWithoutATrace(t *testing.T) {
	m := blob.NewMemory()
	c := blob.NewCounting(m)
	ctx := t.Context()
	if _, err := m.Put(ctx, "k", []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	allocs := func(s blob.Store) float64 {
		return testing.AllocsPerRun(100, func() { s.ReadRange(ctx, "k", 0, 1) })
	}
	if plain, counted := allocs(m), allocs(c); counted > plain {
		t.Errorf("a read allocates %v times, counted %v times", plain, counted)
	}
}

// A liar is a store that treats conditions in its own way.
type liar struct {
	blob.Store
	put func(blob.Store, context.Context, string, []byte, blob.Condition) (blob.Info, error)
}

func (l liar) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	return l.put(l.Store, ctx, key, data, cond)
}

func TestProbeFindsStoresThatDoNotKeepConditions(t *testing.T) {
	for name, put := range map[string]func(blob.Store, context.Context, string, []byte, blob.Condition) (blob.Info, error){
		"ignores all": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			return s.Put(ctx, key, data, blob.Condition{})
		},
		"ignores IfMatch": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			cond.IfMatch = ""
			return s.Put(ctx, key, data, cond)
		},
		"ignores IfAbsent": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			cond.IfAbsent = false
			return s.Put(ctx, key, data, cond)
		},
		"takes IfMatch for IfAbsent where nothing is": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			if _, err := s.Stat(ctx, key); errors.Is(err, blob.ErrNotExist) {
				cond.IfMatch = ""
			}
			return s.Put(ctx, key, data, cond)
		},
		"refuses and writes": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			info, err := s.Put(ctx, key, data, cond)
			if errors.Is(err, blob.ErrPrecondition) {
				s.Put(ctx, key, data, blob.Condition{})
			}
			return info, err
		},
		"has one tag for all": func(s blob.Store, ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
			cond.IfMatch = ""
			info, err := s.Put(ctx, key, data, cond)
			info.ETag = "same"
			return info, err
		},
	} {
		m := blob.NewMemory()
		if err := blob.ProbeConditional(t.Context(), liar{Store: m, put: put}, "index/probe"); !errors.Is(err, blob.ErrUnconditional) {
			t.Errorf("a store that %s: %v", name, err)
		}
		if left := blobtest.Contents(t, m); left != "" {
			t.Errorf("a store that %s: the probe left %q", name, left)
		}
	}
}

func TestProbeIsNotDeceivedByLostReplies(t *testing.T) {
	for nth := 1; nth <= 5; nth++ {
		m := blob.NewMemory()
		f := blobtest.NewFaulty(m)
		f.Inject(blobtest.Fault{Op: blob.OpPut, Nth: nth, After: true, Err: blob.ErrPrecondition})
		err := blob.ProbeConditional(t.Context(), f, "")
		if err != nil {
			t.Errorf("reply %d lost: %v", nth, err)
		}
		if left := blobtest.Contents(t, m); left != "" {
			t.Errorf("reply %d lost: the probe left %q", nth, left)
		}
	}
}

// What a probe leaves that was killed has a name that says when it began.
func TestProbesHaveATime(t *testing.T) {
	m := blob.NewMemory()
	f := blobtest.NewFaulty(m)
	f.Inject(blobtest.Fault{Op: blob.OpDelete})
	if err := blob.ProbeConditional(t.Context(), f, "probe"); !errors.Is(err, blobtest.ErrInjected) {
		t.Fatal(err)
	}
	for info, err := range m.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		began, ok := blob.ProbeBegan(strings.TrimPrefix(info.Key, "probe/"))
		if age := time.Since(began); !ok || age < 0 || age > time.Minute {
			t.Errorf("%s began at %v, %t", info.Key, began, ok)
		}
		return
	}
	t.Error("the probe has left nothing")
}

func TestProbePassesOtherErrorsOn(t *testing.T) {
	for _, op := range []blob.Op{blob.OpPut, blob.OpGet, blob.OpDelete} {
		f := blobtest.NewFaulty(blob.NewMemory())
		f.Inject(blobtest.Fault{Op: op})
		err := blob.ProbeConditional(t.Context(), f, "probe")
		if !errors.Is(err, blobtest.ErrInjected) || errors.Is(err, blob.ErrUnconditional) {
			t.Errorf("%v fails: %v", op, err)
		}
	}
}
