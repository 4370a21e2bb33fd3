package lease

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

const (
	v1 = "20261120T101112.123Z-00000001"
	v2 = "20261120T101112.124Z-00000002"
)

// stores runs a test with each kind of store, at a time that goes by only while everybody waits.
func stores(t *testing.T, f func(t *testing.T, store blob.Store)) {
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, blob.NewMemory()) }) })
	t.Run("file", func(t *testing.T) {
		store, err := blob.NewLocal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) { f(t, store) })
	})
}

// hold returns a holder whose log is the buffer. The test has to close it.
func hold(t *testing.T, store blob.Store, opt Options) (*Holder, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	return Hold(t.Context(), store, opt), &log
}

func set(t *testing.T, h *Holder, versions ...string) {
	t.Helper()
	if err := h.Set(t.Context(), versions); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, h *Holder) {
	t.Helper()
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // for the end of the renewals
}

func all(t *testing.T, store blob.Store) []Lease {
	t.Helper()
	list, err := All(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// one returns the only lease.
func one(t *testing.T, store blob.Store) Lease {
	t.Helper()
	list := all(t, store)
	if len(list) != 1 || list[0].Err != nil {
		t.Fatalf("leases %+v, want one", list)
	}
	return list[0]
}

func TestLeaseNamesVersionsUntilClose(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		h, log := hold(t, store, Options{Program: "test 1", Host: "a host/ä"})
		if list := all(t, store); len(list) != 0 {
			t.Fatalf("before Set: %+v", list)
		}
		set(t, h, v2, v1, v2)
		start := time.Now().UTC().Truncate(time.Millisecond)
		l := one(t, store)
		if !strings.HasPrefix(l.Holder, "a_host__-") || l.Program != "test 1" || !slices.Equal(l.Versions, []string{v1, v2}) ||
			!l.Renewed.Equal(start) || !l.Expires.Equal(start.Add(DefaultTTL)) || l.Object.Key != leaseKey(l.Holder) {
			t.Errorf("got %+v at %v", l, start)
		}
		last := l.Expires.Add(MaxSkew)
		if !l.Live(last.Add(-1), MaxSkew) || l.Live(last, MaxSkew) {
			t.Error("Live ends at another time than at Expires and the skew")
		}
		set(t, h)
		if got := one(t, store); len(got.Versions) != 0 || got.Holder != l.Holder {
			t.Errorf("without versions: %+v", got)
		}
		end(t, h)
		if list := all(t, store); len(list) != 0 {
			t.Errorf("after Close: %+v", list)
		}
		if err := h.Set(t.Context(), []string{v1}); !errors.Is(err, errClosed) || len(all(t, store)) != 0 {
			t.Errorf("Set after Close: %v", err)
		}
		if log.Len() > 0 {
			t.Errorf("logged %s", log)
		}
	})
}

func TestLeaseIsRenewedAfterAThirdOfItsTime(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		counting := blob.NewCounting(store)
		h, _ := hold(t, counting, Options{TTL: time.Minute})
		set(t, h, v1)
		for range 30 {
			before := one(t, store)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			l := one(t, store)
			if !l.Expires.Equal(before.Expires.Add(20*time.Second)) || l.Holder != before.Holder || !slices.Contains(l.Versions, v1) {
				t.Fatalf("before %+v, after %+v", before, l)
			}
		}
		// A write is a renewal too.
		time.Sleep(15 * time.Second)
		set(t, h, v2)
		n := counting.Count(blob.OpPut).Requests
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if got := counting.Count(blob.OpPut).Requests; got != n {
			t.Errorf("%d writes in the 19 seconds after a write", got-n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := counting.Count(blob.OpPut).Requests; got != n+1 || counting.Reads().Requests != 0 {
			t.Errorf("%d writes in the 20 seconds after a write, and %d reads, want 1 and 0", got-n, counting.Reads().Requests)
		}
		end(t, h)
	})
}

// A store that is away costs the lease, and comes back without anybody's help.
func TestOutageIsLoggedOnceAndEnds(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		faulty := blobtest.NewFaulty(store)
		h, log := hold(t, faulty, Options{})
		set(t, h, v1)
		first := one(t, store)
		faulty.Inject(blobtest.Fault{})
		if err := h.Set(t.Context(), []string{v2}); !errors.Is(err, blobtest.ErrInjected) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := h.Status(); st.Versions != nil || st.Failures < 100 || !errors.Is(st.Err, blobtest.ErrInjected) {
			t.Errorf("after an hour: %+v", st)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "cannot be written") {
			t.Errorf("logged %s", log)
		}
		faulty.Heal()
		time.Sleep(retryPause)
		synctest.Wait()
		// The lease had expired, so a collector may be about to delete its object.
		l := one(t, store)
		if !slices.Equal(l.Versions, []string{v2}) || l.Holder == first.Holder || !slices.Equal(h.Status().Versions, l.Versions) {
			t.Errorf("lease %+v after %+v, status %+v", l, first, h.Status())
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "written again") {
			t.Errorf("logged %s", log)
		}
		end(t, h)
		if list := all(t, store); len(list) != 0 {
			t.Errorf("after Close: %+v", list)
		}
	})
}

// In an outage of writes alone, the names that leases could have had do not add up.
func TestFailedWritesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewMemory()
		faulty := blobtest.NewFaulty(store)
		h, _ := hold(t, faulty, Options{})
		set(t, h, v1)
		faulty.Inject(blobtest.Fault{Op: blob.OpPut})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if len(h.stale) > 1 {
			t.Errorf("%d objects to remove", len(h.stale))
		}
		faulty.Heal()
		time.Sleep(retryPause)
		synctest.Wait()
		if l := one(t, store); !slices.Contains(l.Versions, v1) || !l.Live(time.Now(), 0) {
			t.Errorf("%+v", l)
		}
		end(t, h)
		if list := all(t, store); len(list) != 0 {
			t.Errorf("after Close: %+v", list)
		}
	})
}

func TestRefusedWriteIsReportedOnce(t *testing.T) {
	for name, err := range map[string]error{
		"denied": blob.ErrDenied, "read-only file system": &fs.PathError{Op: "open", Err: os.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := blobtest.NewFaulty(blob.NewMemory())
				faulty.Inject(blobtest.Fault{Op: blob.OpPut, Err: err})
				counting := blob.NewCounting(faulty)
				h, log := hold(t, counting, Options{})
				for range 20 {
					if got := h.Set(t.Context(), []string{v1}); !errors.Is(got, err) {
						t.Fatalf("got %v", got)
					}
				}
				if n := counting.Count(blob.OpPut).Requests; n != 1 {
					t.Errorf("%d writes for 20 calls, want 1", n)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := counting.Count(blob.OpPut).Requests; n != 7 || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("%d writes in an hour, want 7; logged %s", n, log)
				}
				faulty.Heal() // somebody gives permission
				time.Sleep(refusedPause)
				synctest.Wait()
				if st := h.Status(); !slices.Equal(st.Versions, []string{v1}) || st.Err != nil {
					t.Errorf("with permission: %+v", st)
				}
				end(t, h)
			})
		})
	}
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			faulty := blobtest.NewFaulty(blob.NewMemory())
			h, _ := hold(t, faulty, Options{})
			set(t, h, v1, v2)
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Err: blob.ErrDenied})
			if err := h.Set(t.Context(), []string{v1}); err == nil {
				t.Fatal("no error")
			}
			// The lease names v2, but the next renewal will not.
			if got := h.Status().Versions; !slices.Equal(got, []string{v1}) {
				t.Errorf("status names %v", got)
			}
			end(t, h)
		})
	})
	t.Run("nothing to remove", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			faulty := blobtest.NewFaulty(blob.NewMemory())
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Err: blob.ErrDenied})
			counting := blob.NewCounting(faulty)
			h, _ := hold(t, counting, Options{})
			_ = h.Set(t.Context(), []string{v1})
			end(t, h)
			if n := counting.Writes().Requests; n != 1 {
				t.Errorf("%d writes and deletions, want 1", n)
			}
		})
	})
}

// A write whose reply was lost has taken effect or not; both are found out.
func TestLostReply(t *testing.T) {
	for _, after := range []bool{false, true} {
		stores(t, func(t *testing.T, store blob.Store) {
			faulty := blobtest.NewFaulty(store)
			h, _ := hold(t, faulty, Options{})
			set(t, h, v1, v2)
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: after})
			if err := h.Set(t.Context(), []string{v1}); err == nil {
				t.Fatal("no error")
			}
			// The store names v2 still or no longer. Nobody may rely on it.
			if got := h.Status().Versions; !slices.Equal(got, []string{v1}) {
				t.Errorf("status names %v", got)
			}
			time.Sleep(retryPause)
			synctest.Wait()
			if l := one(t, store); !slices.Equal(l.Versions, []string{v1}) {
				t.Errorf("%+v", l)
			}
			set(t, h, v2)
			if l := one(t, store); !slices.Equal(l.Versions, []string{v2}) {
				t.Errorf("%+v", l)
			}
			end(t, h)
		})
	}
	t.Run("then an outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			faulty := blobtest.NewFaulty(blob.NewMemory())
			h, _ := hold(t, faulty, Options{})
			set(t, h, v1, v2)
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true}, blobtest.Fault{Op: blob.OpGet})
			for _, versions := range [][]string{{v1}, {v1, v2}} {
				if err := h.Set(t.Context(), versions); err == nil {
					t.Fatal("no error")
				}
			}
			// The first of the two has removed v2, the second has not added it.
			if got := h.Status().Versions; !slices.Equal(got, []string{v1}) {
				t.Errorf("status names %v", got)
			}
			end(t, h)
		})
	})
	t.Run("of the first write, then Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := blob.NewMemory()
			faulty := blobtest.NewFaulty(store)
			h, _ := hold(t, faulty, Options{})
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true})
			if err := h.Set(t.Context(), []string{v1}); err == nil {
				t.Fatal("no error")
			}
			one(t, store)
			end(t, h)
			if list := all(t, store); len(list) != 0 {
				t.Errorf("after Close: %+v", list)
			}
		})
	})
	t.Run("seen as a failed condition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := blob.NewMemory()
			faulty := blobtest.NewFaulty(store)
			faulty.Inject(blobtest.Fault{Op: blob.OpPut, Nth: 1, After: true, Err: blob.ErrPrecondition})
			h, _ := hold(t, faulty, Options{})
			set(t, h, v1)
			if l := one(t, store); !slices.Contains(l.Versions, v1) || faulty.Changes() != 1 {
				t.Errorf("%+v after %d changes", l, faulty.Changes())
			}
			end(t, h)
		})
	})
}

// late is a store in which one Put is answered by an error and takes effect when the test wants.
type late struct {
	blob.Store
	put func() error // the write that is on its way
	arm bool
}

func (s *late) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if s.arm {
		s.arm = false
		data = bytes.Clone(data)
		s.put = func() error {
			_, err := s.Store.Put(context.WithoutCancel(ctx), key, data, cond)
			return err
		}
		return blob.Info{}, errors.New("no reply")
	}
	return s.Store.Put(ctx, key, data, cond)
}

// A write that takes effect long after it was given up on does not undo a later one.
func TestLateWriteIsRefused(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		slow := &late{Store: store}
		h, _ := hold(t, slow, Options{})
		set(t, h, v1)
		slow.arm = true
		if err := h.Set(t.Context(), nil); err == nil {
			t.Fatal("no error")
		}
		set(t, h, v1, v2)
		if err := slow.put(); !errors.Is(err, blob.ErrPrecondition) {
			t.Errorf("the late write: %v", err)
		}
		if l := one(t, store); !slices.Equal(l.Versions, []string{v1, v2}) {
			t.Errorf("%+v", l)
		}
		slow.arm = true
		if err := h.Set(t.Context(), nil); err == nil {
			t.Fatal("no error")
		}
		end(t, h)
		if err := slow.put(); !errors.Is(err, blob.ErrPrecondition) && !errors.Is(err, blob.ErrNotExist) || len(all(t, store)) != 0 {
			t.Errorf("the late write after Close: %v, leases %+v", err, all(t, store))
		}
	})
}

// Somebody else may remove or damage the object. The next write makes it again.
func TestLostLeaseIsWrittenAgain(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		h, log := hold(t, store, Options{})
		set(t, h, v1)
		key := one(t, store).Object.Key
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultTTL / 3)
		synctest.Wait()
		if l := one(t, store); !slices.Contains(l.Versions, v1) || log.Len() > 0 {
			t.Errorf("%+v, logged %s", l, log)
		}
		if _, err := store.Put(t.Context(), key, []byte("damage"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultTTL / 3)
		synctest.Wait()
		if l := one(t, store); !slices.Contains(l.Versions, v1) || log.Len() > 0 {
			t.Errorf("%+v, logged %s", l, log)
		}
		end(t, h)
	})
}

// A clock that jumps ahead, or a machine that slept, makes the lease expire unnoticed. It is not
// renewed, because a collector may have seen it dead.
func TestExpiredLeaseIsNotRenewed(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		jump := time.Duration(0)
		h, _ := hold(t, store, Options{Now: func() time.Time { return time.Now().Add(jump) }})
		set(t, h, v1)
		first := one(t, store)
		jump = DefaultTTL - time.Second
		set(t, h, v1)
		if l := one(t, store); l.Holder != first.Holder {
			t.Error("a lease that was alive has another name")
		}
		jump += DefaultTTL
		if st := h.Status(); st.Versions != nil {
			t.Errorf("expired, but the status names %v", st.Versions)
		}
		set(t, h, v1)
		l := one(t, store)
		if l.Holder == first.Holder || !l.Live(time.Now().Add(jump), 0) {
			t.Errorf("%+v after %+v", l, first)
		}
		end(t, h)
		if len(all(t, store)) != 0 {
			t.Error("a lease is left")
		}
	})
	t.Run("the old one stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := blob.NewMemory()
			faulty := blobtest.NewFaulty(store)
			jump := time.Duration(0)
			h, _ := hold(t, faulty, Options{Now: func() time.Time { return time.Now().Add(jump) }})
			set(t, h, v1)
			jump = time.Hour
			faulty.Inject(blobtest.Fault{Op: blob.OpDelete, Nth: 1})
			set(t, h, v1)
			if n := len(all(t, store)); n != 2 {
				t.Fatalf("%d leases, want the expired one and its successor", n)
			}
			end(t, h)
			if n := len(all(t, store)); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	})
}

// slow is a store whose writes take a second.
type slow struct{ blob.Store }

func (s slow) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	time.Sleep(time.Second)
	return s.Store.Put(ctx, key, data, cond)
}

// A renewal that becomes due while Set writes the lease is not made.
func TestSetReplacesRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting := blob.NewCounting(slow{blob.NewMemory()})
		h, _ := hold(t, counting, Options{TTL: time.Minute})
		set(t, h, v1)
		time.Sleep(20*time.Second - time.Second/2)
		set(t, h, v2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := counting.Count(blob.OpPut).Requests; n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
		end(t, h)
	})
}

func TestDamagedLeaseHoldsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewMemory()
		h, _ := hold(t, store, Options{Program: "test"})
		set(t, h, v1, v2)
		good, info, err := store.Get(t.Context(), one(t, store).Object.Key)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, data []byte) {
			t.Helper()
			if _, err := store.Put(t.Context(), info.Key, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			l := all(t, store)
			if len(l) != 1 || !errors.Is(l[0].Err, codec.ErrCorrupt) && !codec.IsFormat(l[0].Err) || len(l[0].Versions) != 0 || l[0].Object.Key != info.Key ||
				!l[0].Live(time.Now().Add(1000*time.Hour), 0) {
				t.Errorf("%s: %+v", what, l)
			}
		}
		for _, i := range testenv.Places(0, len(good), 5) {
			bad := bytes.Clone(good)
			bad[i] ^= 1
			check("flipped bit", bad)
			check("truncated", good[:i])
		}
		for what, d := range map[string]document{
			"a newer format":   {Format: 2},
			"another holder":   {Holder: newHolder("x")},
			"no holder":        {Holder: ".."},
			"unsorted":         {Versions: []string{v2, v1}},
			"twice":            {Versions: []string{v1, v1}},
			"an empty version": {Versions: []string{""}},
			"no time":          {Renewed: time.Now().UTC(), Expires: time.Now().UTC()},
			"another zone": {Renewed: time.Now().In(time.FixedZone("", 3600)),
				Expires: time.Now().Add(time.Hour).In(time.FixedZone("", 3600))},
		} {
			base := document{Format: 1, Holder: h.name, Versions: []string{}, Renewed: time.Now().UTC(), Expires: time.Now().Add(1).UTC()}
			if d.Format == 0 {
				d.Format = base.Format
			}
			if d.Holder == "" {
				d.Holder = base.Holder
			}
			if d.Renewed.IsZero() {
				d.Renewed, d.Expires = base.Renewed, base.Expires
			}
			data, err := codec.Seal(&d)
			if err != nil {
				t.Fatal(err)
			}
			check(what, data)
		}
		if _, err := store.Put(t.Context(), info.Key, good, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if l := one(t, store); !slices.Equal(l.Versions, []string{v1, v2}) {
			t.Errorf("%+v", l)
		}
		if _, err := store.Put(t.Context(), Root+"~something", []byte("else"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if l := all(t, store); len(l) != 2 || l[1].Err == nil {
			t.Errorf("another object: %+v", l)
		}
		end(t, h)
	})
}

// A list that fails, or a lease that cannot be read, is an error of All and not a shorter answer.
func TestAllFailsRatherThanMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := blob.NewMemory()
		h, _ := hold(t, store, Options{})
		set(t, h, v1)
		for _, op := range []blob.Op{blob.OpList, blob.OpGet} {
			faulty := blobtest.NewFaulty(store)
			faulty.Inject(blobtest.Fault{Op: op})
			if list, err := All(t.Context(), faulty); !errors.Is(err, blobtest.ErrInjected) {
				t.Errorf("%v fails: %+v, %v", op, list, err)
			}
		}
		// Its holder ends between the list and the read.
		faulty := blobtest.NewFaulty(store)
		faulty.Inject(blobtest.Fault{Op: blob.OpGet, Do: func() { end(t, h) }})
		if list, err := All(t.Context(), faulty); err != nil || len(list) != 0 || faulty.Fired() != 1 {
			t.Errorf("a lease that is removed: %+v, %v", list, err)
		}
	})
}

func TestHolderNames(t *testing.T) {
	for _, host := range []string{"", "..", "a", strings.Repeat("x", 300), "ünï", "../../etc", "-x", "a b\n"} {
		name := newHolder(host)
		if !holderName.MatchString(name) || blob.CheckKey(leaseKey(name)) != nil || name == newHolder(host) {
			t.Errorf("%q: %q", host, name)
		}
	}
}

// The example in the document is a lease that this package writes.
func TestDocument(t *testing.T) {
	d := document{
		Holder: "web-1-0f3c9a7152d84e6b", Program: "serve v1.2.0", Versions: []string{v1, v2},
		Renewed: time.Date(2026, 11, 20, 10, 12, 0, 0, time.UTC), Expires: time.Date(2026, 11, 20, 10, 14, 0, 0, time.UTC),
	}
	data, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "lease.md", "json", string(data))
}
