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

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
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

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	only := func(key string) func(string) bool { return func(k string) bool { return k == key } }
	put := func(s blob.Store, key string) error {
		_, err := s.Put(t.Context(), key, []byte("new"), blob.Condition{})
		return err
	}
	get := func(s blob.Store, key string) error {
		_, _, err := s.Get(t.Context(), key)
		return err
	}
	create := func(s blob.Store, key string) error {
		w, err := s.Create(t.Context(), key)
		if err != nil {
			return err
		}
		defer w.Abort()
		if n, err := w.Write([]byte("new and longer")); err != nil {
			return fmt.Errorf("wrote %d: %w", n, err)
		}
		_, err = w.Finish()
		return err
	}
	read := func(s blob.Store, key string) error {
		r, err := s.Open(t.Context(), key, 0, -1)
		if err != nil {
			return err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return fmt.Errorf("read %q, then %v", b, err)
	}
	list := func(s blob.Store, prefix string) error {
		n := 0
		for _, err := range s.List(t.Context(), prefix) {
			if err != nil {
				return fmt.Errorf("after %d: %w", n, err)
			}
			n++
		}
		return nil
	}
	del := func(s blob.Store, key string) error { return s.Delete(t.Context(), key, "b") }

	for _, test := range []struct {
		name  string
		fault blob.Fault
		do    func(blob.Store, string) error
		want  []string // for each call on "a": "" for success or a piece of the error
		left  string   // what the store holds afterwards, as "key=content "
	}{
		{"every call", blob.Fault{}, get, []string{"injected", "injected"}, "a=old b=old "},
		{"the second call", blob.Fault{Nth: 2, Err: boom}, get, []string{"", "boom", ""}, "a=old b=old "},
		{"another operation", blob.Fault{Op: blob.OpStat}, get, []string{""}, "a=old b=old "},
		{"another key", blob.Fault{Key: only("b")}, get, []string{""}, "a=old b=old "},
		{"this key", blob.Fault{Key: only("a")}, get, []string{"injected"}, "a=old b=old "},
		{"a put before its effect", blob.Fault{Op: blob.OpPut, Nth: 1}, put, []string{"injected"}, "a=old b=old "},
		{"a put whose reply is lost", blob.Fault{Op: blob.OpPut, Nth: 1, After: true}, put, []string{"injected"}, "a=new b=old "},
		{"a create", blob.Fault{Op: blob.OpCreate}, create, []string{"injected"}, "a=old b=old "},
		{"a write cut", blob.Fault{Op: blob.OpWrite, Cut: 3, Nth: 2}, create, []string{"", "wrote 3"}, "a=new and longer b=old "},
		{"a finish before its effect", blob.Fault{Op: blob.OpFinish}, create, []string{"injected"}, "a=old b=old "},
		{"a finish whose reply is lost", blob.Fault{Op: blob.OpFinish, After: true}, create, []string{"injected"}, "a=new and longer b=old "},
		{"a stream cut", blob.Fault{Op: blob.OpStream, Cut: 2, Nth: 1}, read, []string{`read "ol", then stream`, `read "old", then <nil>`}, "a=old b=old "},
		{"a stream short without an error", blob.Fault{Op: blob.OpStream, Cut: 2, Err: io.EOF}, read, []string{`read "ol", then <nil>`}, "a=old b=old "},
		{"a listing", blob.Fault{Op: blob.OpList}, list, []string{"after 0"}, ""},
		{"a listing's end", blob.Fault{Op: blob.OpList, After: true, Nth: 1}, list, []string{"after 1", ""}, "a=old b=old "},
		{"a deletion before its effect", blob.Fault{Op: blob.OpDelete, Key: only("b")}, del, []string{"injected"}, "a=old b=old "},
		{"a deletion whose reply is lost", blob.Fault{Op: blob.OpDelete, After: true}, del, []string{"injected"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := blob.NewMemory()
			for _, key := range []string{"a", "b"} {
				if _, err := m.Put(t.Context(), key, []byte("old"), blob.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			f := blob.NewFaulty(m)
			f.Inject(test.fault)
			for i, want := range test.want {
				got := ""
				if err := test.do(f, "a"); err != nil {
					got = err.Error()
				}
				if (want == "") != (got == "") || !strings.Contains(got, want) {
					t.Errorf("call %d: %q, want %q", i+1, got, want)
				}
			}
			if test.left != "" || test.fault.Op == blob.OpDelete {
				if got := contents(t, m); got != test.left {
					t.Errorf("the store holds %q, want %q", got, test.left)
				}
			}
			f.Heal()
			if err := put(f, "a"); err != nil {
				t.Errorf("healed: %v", err)
			}
		})
	}
}

func contents(t *testing.T, s blob.Store) string {
	t.Helper()
	all := ""
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := s.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all += info.Key + "=" + string(b) + " "
	}
	return all
}

func TestFaultLetsSomebodyElseIn(t *testing.T) {
	m := blob.NewMemory()
	info, err := m.Put(t.Context(), "manifest", []byte("1"), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	f := blob.NewFaulty(m)
	f.Inject(blob.Fault{Op: blob.OpPut, Nth: 1, Do: func() {
		if _, err := m.Put(t.Context(), "manifest", []byte("other"), blob.Condition{}); err != nil {
			t.Error(err)
		}
	}})
	_, err = f.Put(t.Context(), "manifest", []byte("2"), blob.Condition{IfMatch: info.ETag})
	if !errors.Is(err, blob.ErrPrecondition) || f.Fired() != 1 {
		t.Errorf("Put = %v after %d faults", err, f.Fired())
	}
}

// TestCrashPointsCoverEveryState walks the crash points of a subject with one change of each
// kind and wants to have seen each state between them, and nothing else.
func TestCrashPointsCoverEveryState(t *testing.T) {
	ctx := t.Context()
	subject := func(s blob.Store) error {
		if _, err := s.Put(ctx, "a", []byte("1"), blob.Condition{}); err != nil {
			return err
		}
		w, err := s.Create(ctx, "b")
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := w.Write([]byte("2")); err != nil {
			return err
		}
		if _, err := w.Finish(); err != nil {
			return err
		}
		if _, _, err := s.Get(ctx, "a"); err != nil {
			return err
		}
		return s.Delete(ctx, "a", "c")
	}
	want := []string{"c=0 ", "a=1 c=0 ", "a=1 b=2 c=0 ", "b=2 c=0 ", "b=2 "}
	for n := 0; ; n++ {
		m := blob.NewMemory()
		if _, err := m.Put(ctx, "c", []byte("0"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		s := blob.NewFaulty(m)
		s.CrashAfter(n)
		err := subject(s)
		if errors.Is(err, blob.ErrCrashed) != s.Crashed() || (err == nil) == s.Crashed() {
			t.Fatalf("crash after %d: %v", n, err)
		}
		if got := contents(t, m); n >= len(want) || got != want[n] || s.Changes() != n {
			t.Fatalf("crash after %d: the store holds %q after %d changes", n, got, s.Changes())
		}
		if !s.Crashed() {
			if n != len(want)-1 {
				t.Errorf("no crash after %d changes", n)
			}
			break
		}
		// A crashed store does nothing any more.
		for what, err := range map[string]error{
			"Put":    second(s.Put(ctx, "z", nil, blob.Condition{})),
			"Stat":   second(s.Stat(ctx, "c")),
			"Read":   second(s.ReadRange(ctx, "c", 0, 1)),
			"Open":   second(s.Open(ctx, "c", 0, 1)),
			"Create": second(s.Create(ctx, "z")),
			"Delete": s.Delete(ctx, "c"),
		} {
			if !errors.Is(err, blob.ErrCrashed) {
				t.Errorf("%s after the crash: %v", what, err)
			}
		}
		for _, err := range s.List(ctx, "") {
			if !errors.Is(err, blob.ErrCrashed) {
				t.Errorf("List after the crash: %v", err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

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
		if left := contents(t, m); left != "" {
			t.Errorf("a store that %s: the probe left %q", name, left)
		}
	}
}

func TestProbeIsNotDeceivedByLostReplies(t *testing.T) {
	for nth := 1; nth <= 5; nth++ {
		m := blob.NewMemory()
		f := blob.NewFaulty(m)
		f.Inject(blob.Fault{Op: blob.OpPut, Nth: nth, After: true, Err: blob.ErrPrecondition})
		err := blob.ProbeConditional(t.Context(), f, "")
		if err != nil {
			t.Errorf("reply %d lost: %v", nth, err)
		}
		if left := contents(t, m); left != "" {
			t.Errorf("reply %d lost: the probe left %q", nth, left)
		}
	}
}

func TestProbePassesOtherErrorsOn(t *testing.T) {
	for _, op := range []blob.Op{blob.OpPut, blob.OpGet, blob.OpDelete} {
		f := blob.NewFaulty(blob.NewMemory())
		f.Inject(blob.Fault{Op: op})
		err := blob.ProbeConditional(t.Context(), f, "probe")
		if !errors.Is(err, blob.ErrInjected) || errors.Is(err, blob.ErrUnconditional) {
			t.Errorf("%v fails: %v", op, err)
		}
	}
}
