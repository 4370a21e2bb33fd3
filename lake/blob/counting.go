package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// Op is a kind of operation on a store.
type Op uint8

const (
	OpStat Op = iota + 1
	OpGet
	OpReadRange
	OpOpen
	OpPut
	OpCreate
	OpFinish
	OpList
	OpDelete
	// OpWrite and OpStream are the bytes that go through a Writer and an opened stream. Only
	// blobtest.Faulty knows them as operations; Counting counts them with OpCreate and OpOpen.
	OpWrite
	OpStream
)

var opNames = [...]string{
	OpStat: "stat", OpGet: "get", OpReadRange: "read", OpOpen: "open", OpPut: "put", OpCreate: "create",
	OpFinish: "finish", OpList: "list", OpDelete: "delete", OpWrite: "write", OpStream: "stream",
}

// String is the name of the operation in error texts.
func (o Op) String() string {
	if o == 0 || int(o) >= len(opNames) {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}

// MarshalText makes JSON of an Op its name.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Failure is why an operation failed.
type Failure uint8

const (
	// FailureAbsent: the object does not exist. Callers often expect it.
	FailureAbsent Failure = iota
	// FailureCondition: the condition of a Put did not hold. Another process was first.
	FailureCondition
	// FailureDenied: the store refuses until a person removes the reason.
	FailureDenied
	// FailureCancelled: the caller's context ended first.
	FailureCancelled
	// FailureOther is all else: above all, a store that does not answer.
	FailureOther
)

var failureNames = [...]string{
	FailureAbsent: "absent", FailureCondition: "condition", FailureDenied: "denied",
	FailureCancelled: "cancelled", FailureOther: "other",
}

// Failures lists all kinds of failures.
var Failures = []Failure{FailureAbsent, FailureCondition, FailureDenied, FailureCancelled, FailureOther}

// String is the name of the failure in metrics.
func (f Failure) String() string { return failureNames[f] }

// FailureOf returns why an operation failed that returned err, which is not nil.
func FailureOf(err error) Failure {
	switch {
	case errors.Is(err, ErrNotExist):
		return FailureAbsent
	case errors.Is(err, ErrPrecondition):
		return FailureCondition
	case errors.Is(err, ErrDenied):
		return FailureDenied
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return FailureCancelled
	}
	return FailureOther
}

// Count is the statistics of one kind of operation.
type Count struct {
	// Requests is the number of calls, including failed ones. A call is one request to the store,
	// and more if it is retried, lists several pages or uploads several parts.
	Requests int64
	// Errors is the number of calls that failed.
	Errors int64
	// Bytes is the number of bytes read or written by calls that succeeded.
	Bytes int64
}

type counts struct {
	requests, bytes atomic.Int64
	errors          [len(failureNames)]atomic.Int64
}

// Counting wraps a Store and counts its operations. It also appends each operation to the Trace of
// its context, if there is one.
type Counting struct {
	store  Store
	counts [len(opNames)]counts
}

// NewCounting wraps a store.
func NewCounting(s Store) *Counting { return &Counting{store: s} }

// Unwrap returns the store inside.
func (c *Counting) Unwrap() Store { return c.store }

// Count returns the counts of one kind of operation.
func (c *Counting) Count(op Op) Count {
	n := &c.counts[op]
	count := Count{Requests: n.requests.Load(), Bytes: n.bytes.Load()}
	for i := range n.errors {
		count.Errors += n.errors[i].Load()
	}
	return count
}

// Failed returns how many calls of one kind of operation failed for that reason.
func (c *Counting) Failed(op Op, why Failure) int64 { return c.counts[op].errors[why].Load() }

// Reads returns the counts of Stat, Get, ReadRange, Open and List together.
func (c *Counting) Reads() Count { return c.sum(OpStat, OpGet, OpReadRange, OpOpen, OpList) }

// Writes returns the counts of Put, Create, Finish and Delete together.
func (c *Counting) Writes() Count { return c.sum(OpPut, OpCreate, OpFinish, OpDelete) }

func (c *Counting) sum(ops ...Op) Count {
	var sum Count
	for _, op := range ops {
		n := c.Count(op)
		sum.Requests += n.Requests
		sum.Errors += n.Errors
		sum.Bytes += n.Bytes
	}
	return sum
}

// Access is one operation of a Trace.
type Access struct {
	Op  Op     `json:"op"`
	Key string `json:"key"` // for List the prefix, for Delete the first key
	Off int64  `json:"off"`
	// N is the number of bytes read or written, of a stream so far; for Delete the number of keys,
	// for List the number of objects.
	N int64 `json:"n"`
	// Failed is true if the operation returned an error.
	Failed bool `json:"failed,omitempty"`
}

// Trace is the list of operations of one request. It is safe for concurrent use; the zero value is
// empty.
type Trace struct {
	mu  sync.Mutex
	log []Access
}

// Accesses returns the operations so far, in the order in which they returned.
func (t *Trace) Accesses() []Access {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

type traceKey struct{}

// WithTrace returns a context with which operations of a Counting store are appended to t.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// meter adds the bytes of a stream or Writer to the record of its call.
type meter struct {
	bytes *atomic.Int64
	trace *Trace // nil without one
	index int
}

func (m meter) add(n int) {
	m.bytes.Add(int64(n))
	if m.trace != nil {
		m.trace.mu.Lock()
		m.trace.log[m.index].N += int64(n)
		m.trace.mu.Unlock()
	}
}

// record counts one call and appends it to the Trace of ctx.
func (c *Counting) record(ctx context.Context, a Access, bytes int64, err error) meter {
	n := &c.counts[a.Op]
	n.requests.Add(1)
	n.bytes.Add(bytes)
	if err != nil {
		n.errors[FailureOf(err)].Add(1)
		a.Failed = true
	}
	m := meter{bytes: &n.bytes}
	m.trace, _ = ctx.Value(traceKey{}).(*Trace)
	if m.trace != nil {
		m.trace.mu.Lock()
		m.index = len(m.trace.log)
		m.trace.log = append(m.trace.log, a)
		m.trace.mu.Unlock()
	}
	return m
}

// URL implements Store.
func (c *Counting) URL() string { return c.store.URL() }

// Stat implements Store.
func (c *Counting) Stat(ctx context.Context, key string) (Info, error) {
	info, err := c.store.Stat(ctx, key)
	c.record(ctx, Access{Op: OpStat, Key: key}, 0, err)
	return info, err
}

// Get implements Store.
func (c *Counting) Get(ctx context.Context, key string) ([]byte, Info, error) {
	b, info, err := c.store.Get(ctx, key)
	c.record(ctx, Access{Op: OpGet, Key: key, N: int64(len(b))}, int64(len(b)), err)
	return b, info, err
}

// ReadRange implements Store.
func (c *Counting) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := c.store.ReadRange(ctx, key, off, n)
	c.record(ctx, Access{Op: OpReadRange, Key: key, Off: off, N: int64(len(b))}, int64(len(b)), err)
	return b, err
}

// Open implements Store.
func (c *Counting) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := c.store.Open(ctx, key, off, n)
	m := c.record(ctx, Access{Op: OpOpen, Key: key, Off: off}, 0, err)
	if err != nil {
		return nil, err
	}
	return &countingStream{r, m}, nil
}

type countingStream struct {
	io.ReadCloser
	meter meter
}

func (s *countingStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.meter.add(n)
	return n, err
}

// Put implements Store.
func (c *Counting) Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error) {
	info, err := c.store.Put(ctx, key, data, cond)
	c.record(ctx, Access{Op: OpPut, Key: key, N: info.Size}, info.Size, err)
	return info, err
}

// Create implements Store.
func (c *Counting) Create(ctx context.Context, key string) (Writer, error) {
	w, err := c.store.Create(ctx, key)
	m := c.record(ctx, Access{Op: OpCreate, Key: key}, 0, err)
	if err != nil {
		return nil, err
	}
	return &countingWriter{Writer: w, c: c, ctx: ctx, key: key, meter: m}, nil
}

type countingWriter struct {
	Writer
	c     *Counting
	ctx   context.Context
	key   string
	meter meter
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.meter.add(n)
	return n, err
}

func (w *countingWriter) Finish() (Info, error) {
	info, err := w.Writer.Finish()
	w.c.record(w.ctx, Access{Op: OpFinish, Key: w.key}, 0, err)
	return info, err
}

// List implements Store.
func (c *Counting) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		a := Access{Op: OpList, Key: prefix}
		var failed error
		defer func() { c.record(ctx, a, 0, failed) }()
		for info, err := range c.store.List(ctx, prefix) {
			failed = err
			if err == nil {
				a.N++
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// Delete implements Store.
func (c *Counting) Delete(ctx context.Context, keys ...string) error {
	err := c.store.Delete(ctx, keys...)
	a := Access{Op: OpDelete, N: int64(len(keys))}
	if len(keys) > 0 {
		a.Key = keys[0]
	}
	c.record(ctx, a, 0, err)
	return err
}
