package blobtest_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

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
		return fmt.Errorf("read %q, then %v", b, err) //nolint:errorlint // err may be nil
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
		fault blobtest.Fault
		do    func(blob.Store, string) error
		want  []string // for each call on "a": "" for success or a piece of the error
		left  string   // what the store holds afterwards, as "key=content "
	}{
		{"every call", blobtest.Fault{}, get, []string{"injected", "injected"}, "a=old b=old "},
		{"the second call", blobtest.Fault{Nth: 2, Err: boom}, get, []string{"", "boom", ""}, "a=old b=old "},
		{"another operation", blobtest.Fault{Op: blob.OpStat}, get, []string{""}, "a=old b=old "},
		{"another key", blobtest.Fault{Key: only("b")}, get, []string{""}, "a=old b=old "},
		{"this key", blobtest.Fault{Key: only("a")}, get, []string{"injected"}, "a=old b=old "},
		{"a put before its effect", blobtest.Fault{Op: blob.OpPut, Nth: 1}, put, []string{"injected"}, "a=old b=old "},
		{"a put whose reply is lost", blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true}, put, []string{"injected"}, "a=new b=old "},
		{"a create", blobtest.Fault{Op: blob.OpCreate}, create, []string{"injected"}, "a=old b=old "},
		{"a write cut", blobtest.Fault{Op: blob.OpWrite, Cut: 3, Nth: 2}, create, []string{"", "wrote 3"}, "a=new and longer b=old "},
		{"a finish before its effect", blobtest.Fault{Op: blob.OpFinish}, create, []string{"injected"}, "a=old b=old "},
		{"a finish whose reply is lost", blobtest.Fault{Op: blob.OpFinish, After: true}, create, []string{"injected"}, "a=new and longer b=old "},
		{"a stream cut", blobtest.Fault{Op: blob.OpStream, Cut: 2, Nth: 1}, read, []string{`read "ol", then stream`, `read "old", then <nil>`}, "a=old b=old "},
		{"a stream short without an error", blobtest.Fault{Op: blob.OpStream, Cut: 2, Err: io.EOF}, read, []string{`read "ol", then <nil>`}, "a=old b=old "},
		{"a listing", blobtest.Fault{Op: blob.OpList}, list, []string{"after 0"}, ""},
		{"a listing's end", blobtest.Fault{Op: blob.OpList, After: true, Nth: 1}, list, []string{"after 1", ""}, "a=old b=old "},
		{"a deletion before its effect", blobtest.Fault{Op: blob.OpDelete, Key: only("b")}, del, []string{"injected"}, "a=old b=old "},
		{"a deletion whose reply is lost", blobtest.Fault{Op: blob.OpDelete, After: true}, del, []string{"injected"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := blob.NewMemory()
			for _, key := range []string{"a", "b"} {
				if _, err := m.Put(t.Context(), key, []byte("old"), blob.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			f := blobtest.NewFaulty(m)
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
				if got := blobtest.Contents(t, m); got != test.left {
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

func TestFaultLetsSomebodyElseIn(t *testing.T) {
	m := blob.NewMemory()
	info, err := m.Put(t.Context(), "manifest", []byte("1"), blob.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	f := blobtest.NewFaulty(m)
	f.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, Do: func() {
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
		s := blobtest.NewFaulty(m)
		s.CrashAfter(n)
		err := subject(s)
		if errors.Is(err, blobtest.ErrCrashed) != s.Crashed() || (err == nil) == s.Crashed() {
			t.Fatalf("crash after %d: %v", n, err)
		}
		if got := blobtest.Contents(t, m); n >= len(want) || got != want[n] || s.Changes() != n {
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
			if !errors.Is(err, blobtest.ErrCrashed) {
				t.Errorf("%s after the crash: %v", what, err)
			}
		}
		for _, err := range s.List(ctx, "") {
			if !errors.Is(err, blobtest.ErrCrashed) {
				t.Errorf("List after the crash: %v", err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }
