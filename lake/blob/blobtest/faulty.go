package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

var (
	// ErrInjected is the error of a Fault that names no other.
	ErrInjected = errors.New("injected fault")
	// ErrCrashed is what a Faulty store says to everything after its crash point.
	ErrCrashed = errors.New("store crashed")
)

// Fault is one thing that a Faulty store does wrong.
type Fault struct {
	// Op is the operation it happens to; 0 is every one but OpWrite and OpStream.
	Op blob.Op
	// Key tells the keys it happens to (the prefix, for List; any of the keys, for Delete); nil
	// is every one.
	Key func(key string) bool
	// Nth is the matching call it happens to, counting from 1 at Inject; 0 is every one. For
	// OpWrite and OpStream it counts Writers and streams.
	Nth int
	// Do, if set, is called at that moment, outside all locks: a place for what somebody else does
	// to the store in between, or for cancelling a context.
	Do func()
	// Err is what the call returns. Where it is nil it is ErrInjected, or no failure if Do is
	// set.
	Err error
	// After lets the call take effect first: only the reply is lost. For Put, Finish and Delete
	// this is what a broken connection looks like.
	After bool
	// Cut is, for OpWrite and OpStream, how many bytes still go through before the
	// failure. With Err io.EOF a stream ends early without an error, which no store may do and
	// readers should notice all the same.
	Cut int64

	seen int
}

// Faulty is a Store for tests that fails where it is told to. Two ways combine: Faults happen to
// chosen calls, and a crash point makes every call fail from the nth change of the store on, so
// that a test can stop its subject everywhere:
//
//	for n := 0; ; n++ {
//		store := blobtest.NewFaulty(blob.NewMemory())
//		store.CrashAfter(n)
//		run(store) // fails with blobtest.ErrCrashed
//		check(store.Unwrap())
//		if !store.Crashed() {
//			break
//		}
//	}
//
// Changes are Put, Finish, and each key of a Delete. Creating and writing make nothing
// visible, so crashes there look like crashes before Finish.
type Faulty struct {
	store blob.Store

	mu      sync.Mutex
	faults  []*Fault
	fired   int
	armed   bool
	left    int // changes until the crash
	changes int
	crashed bool
}

// NewFaulty wraps a store. Without faults and crash point it behaves as that.
func NewFaulty(s blob.Store) *Faulty { return &Faulty{store: s} }

// Unwrap returns the store inside, which knows no faults.
func (f *Faulty) Unwrap() blob.Store { return f.store }

// Inject adds faults. When several match a call the first one happens, and all count it.
func (f *Faulty) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		fault.seen = 0
		f.faults = append(f.faults, &fault)
	}
}

// Heal removes all faults and the crash point.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.armed, f.crashed = nil, false, false
}

// Fired is how often a fault happened, for tests that must not pass because none did.
func (f *Faulty) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// CrashAfter sets the crash point: n more changes take effect; the next one does not, and
// from then on everything fails with ErrCrashed.
func (f *Faulty) CrashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.left, f.crashed = true, n, false
}

// Crashed tells whether the crash point was reached.
func (f *Faulty) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Changes is the number of changes that were let through.
func (f *Faulty) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

// change asks leave for one change of the store.
func (f *Faulty) change() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed && f.left == 0 {
		f.crashed = true
	}
	if f.crashed {
		return ErrCrashed
	}
	f.left--
	f.changes++
	return nil
}

func (f *Faulty) alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return ErrCrashed
	}
	return nil
}

// match returns the fault that happens to this call, or nil.
func (f *Faulty) match(op blob.Op, keys ...string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hit *Fault
	for _, fault := range f.faults {
		if fault.Op != op && (fault.Op != 0 || op == blob.OpWrite || op == blob.OpStream) {
			continue
		}
		matches := fault.Key == nil
		for _, key := range keys {
			matches = matches || fault.Key(key)
		}
		if !matches {
			continue
		}
		fault.seen++
		if hit == nil && (fault.Nth == 0 || fault.Nth == fault.seen) {
			hit = fault
		}
	}
	if hit != nil {
		f.fired++
	}
	return hit
}

// happen does what the fault says and returns its error, which may be none.
func (fault *Fault) happen() error {
	if fault.Do != nil {
		fault.Do()
	}
	if fault.Err == nil && fault.Do == nil {
		return ErrInjected
	}
	return fault.Err
}

// call runs one operation with whatever happens to it. Those that change the store ask
// leave for it themselves.
func (f *Faulty) call(op blob.Op, key string, effect func() error) error {
	err := f.alive()
	if err != nil {
		return blob.OpError(op.String(), f.URL(), key, err)
	}
	fault := f.match(op, key)
	if fault != nil && !fault.After {
		if err := fault.happen(); err != nil {
			return blob.OpError(op.String(), f.URL(), key, err)
		}
	}
	if err := effect(); err != nil {
		return err
	}
	if fault != nil && fault.After {
		return blob.OpError(op.String(), f.URL(), key, fault.happen())
	}
	return nil
}

// URL implements Store.
func (f *Faulty) URL() string { return f.store.URL() }

// Stat implements Store.
func (f *Faulty) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = f.call(blob.OpStat, key, func() error {
		info, err = f.store.Stat(ctx, key)
		return err
	})
	if err != nil {
		return blob.Info{}, err
	}
	return info, nil
}

// Get implements Store.
func (f *Faulty) Get(ctx context.Context, key string) (b []byte, info blob.Info, err error) {
	err = f.call(blob.OpGet, key, func() error {
		b, info, err = f.store.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, blob.Info{}, err
	}
	return b, info, nil
}

// ReadRange implements Store.
func (f *Faulty) ReadRange(ctx context.Context, key string, off, n int64) (b []byte, err error) {
	err = f.call(blob.OpReadRange, key, func() error {
		b, err = f.store.ReadRange(ctx, key, off, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Open implements Store.
func (f *Faulty) Open(ctx context.Context, key string, off, n int64) (r io.ReadCloser, err error) {
	err = f.call(blob.OpOpen, key, func() error {
		r, err = f.store.Open(ctx, key, off, n)
		return err
	})
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, err
	}
	return &faultyStream{ReadCloser: r, body: f.body(blob.OpStream, key)}, nil
}

// body watches the bytes of one Writer or stream.
type faultyBody struct {
	f     *Faulty
	op    blob.Op
	key   string
	fault *Fault // nil when there is none left
	left  int64
	err   error
}

func (f *Faulty) body(op blob.Op, key string) *faultyBody {
	b := &faultyBody{f: f, op: op, key: key, fault: f.match(op, key)}
	if b.fault != nil {
		b.left = b.fault.Cut
	}
	return b
}

// room returns how many of n bytes may go through now; with none, why.
func (b *faultyBody) room(n int) (int, error) {
	if err := b.f.alive(); err != nil {
		return 0, blob.OpError(b.op.String(), b.f.URL(), b.key, err)
	}
	if b.err == nil && b.fault != nil && b.left == 0 {
		err := b.fault.happen()
		if err != nil && err != io.EOF {
			err = blob.OpError(b.op.String(), b.f.URL(), b.key, err)
		}
		b.fault, b.err = nil, err
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.fault != nil {
		n = int(min(int64(n), b.left))
	}
	return n, nil
}

func (b *faultyBody) moved(n int) {
	if b.fault != nil {
		b.left -= int64(n)
	}
}

type faultyStream struct {
	io.ReadCloser
	body *faultyBody
}

func (s *faultyStream) Read(p []byte) (int, error) {
	room, err := s.body.room(len(p))
	if err != nil {
		return 0, err
	}
	n, err := s.ReadCloser.Read(p[:room])
	s.body.moved(n)
	return n, err
}

// Put implements Store.
func (f *Faulty) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (info blob.Info, err error) {
	err = f.call(blob.OpPut, key, func() error {
		if err := f.change(); err != nil {
			return blob.OpError("put", f.URL(), key, err)
		}
		info, err = f.store.Put(ctx, key, data, cond)
		return err
	})
	if err != nil {
		return blob.Info{}, err
	}
	return info, nil
}

// Create implements Store.
func (f *Faulty) Create(ctx context.Context, key string) (w blob.Writer, err error) {
	err = f.call(blob.OpCreate, key, func() error {
		w, err = f.store.Create(ctx, key)
		return err
	})
	if err != nil {
		if w != nil {
			w.Abort()
		}
		return nil, err
	}
	return &faultyWriter{w: w, body: f.body(blob.OpWrite, key)}, nil
}

type faultyWriter struct {
	w    blob.Writer
	body *faultyBody
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		room, err := w.body.room(len(p) - written)
		if err != nil {
			return written, err
		}
		n, err := w.w.Write(p[written : written+room])
		w.body.moved(n)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (w *faultyWriter) Finish() (info blob.Info, err error) {
	f, key := w.body.f, w.body.key
	if w.body.err != nil {
		w.w.Abort()
		return blob.Info{}, w.body.err
	}
	err = f.call(blob.OpFinish, key, func() error {
		if err := f.change(); err != nil {
			return blob.OpError("finish", f.URL(), key, err)
		}
		info, err = w.w.Finish()
		return err
	})
	if err != nil {
		w.w.Abort()
		return blob.Info{}, err
	}
	return info, nil
}

func (w *faultyWriter) Abort() { w.w.Abort() }

// List implements Store. A fault with After happens behind the last object.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		errDone := errors.New("done")
		err := f.call(blob.OpList, prefix, func() error {
			for info, err := range f.store.List(ctx, prefix) {
				if err == nil {
					err = blob.OpError("list", f.URL(), prefix, f.alive())
				}
				if err != nil && info.Key == "" {
					return err
				}
				if !yield(info, err) {
					return errDone
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errDone) {
			yield(blob.Info{}, err)
		}
	}
}

// Delete implements Store. With a crash point set, keys go one by one.
func (f *Faulty) Delete(ctx context.Context, keys ...string) error {
	fail := func(err error) error {
		if len(keys) > 1 {
			return blob.OpError("delete", f.URL(), fmt.Sprintf("%s and %d more", keys[0], len(keys)-1), err)
		}
		return blob.OpError("delete", f.URL(), keys[0], err)
	}
	if len(keys) == 0 {
		return nil
	}
	if err := f.alive(); err != nil {
		return fail(err)
	}
	fault := f.match(blob.OpDelete, keys...)
	if fault != nil && !fault.After {
		if err := fault.happen(); err != nil {
			return fail(err)
		}
	}
	if err := f.delete(ctx, keys); err != nil {
		return err
	}
	if fault != nil && fault.After {
		return fail(fault.happen())
	}
	return nil
}

// delete asks leave for each key.
func (f *Faulty) delete(ctx context.Context, keys []string) error {
	f.mu.Lock()
	armed := f.armed
	f.mu.Unlock()
	if !armed {
		return f.store.Delete(ctx, keys...)
	}
	if err := blob.CheckKeys(ctx, keys); err != nil {
		return err
	}
	for _, key := range keys {
		if err := f.change(); err != nil {
			return blob.OpError("delete", f.URL(), key, err)
		}
		if err := f.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Copy writes all objects of a store to another, over those of the same keys.
func Copy(t testing.TB, from, to blob.Store) {
	t.Helper()
	for info, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := from.Get(t.Context(), info.Key)
		if err == nil {
			_, err = to.Put(t.Context(), info.Key, data, blob.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Contents is what a store holds, as "key=value " for each of its objects.
func Contents(t *testing.T, s blob.Store) string {
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
