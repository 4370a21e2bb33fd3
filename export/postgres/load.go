package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
)

const (
	// bufferBytes is the size of the buffers that are handed to the connection, of which there are
	// buffers. A row may exceed one.
	bufferBytes = 512 << 10
	buffers     = 4
)

// Loaded is the result of Load.
type Loaded struct {
	// Rows are the rows of the lake that were copied, URLs the rows of the table urls that they
	// became.
	Rows int64 `json:"rows"`
	URLs int64 `json:"urls"`
}

// Load copies the rows of a chunk, in one transaction. If the chunk was loaded already, it returns
// what was loaded then.
func Load(ctx context.Context, store blob.Store, run string, number int, opt Options) (Loaded, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return Loaded{}, err
	}
	if number < 0 || number >= len(p.Chunks) {
		return Loaded{}, inputf("the plan has %d chunks, none with the number %d", len(p.Chunks), number)
	}
	release, err := hold(ctx, store, p.Version)
	if err != nil {
		return Loaded{}, err
	}
	defer release()
	c, err := connect(ctx, p.Spec.target())
	if err != nil {
		return Loaded{}, err
	}
	defer disconnect(ctx, c)
	out, err := load(ctx, c, store, p, number, opt)
	return out, explain(fmt.Sprintf("load chunk %d of %d", number+1, len(p.Chunks)), err)
}

// stepWait is how long a step waits for another one that does the same.
const stepWait = 30 * time.Second

func load(ctx context.Context, c *pgx.Conn, store blob.Store, p *plan, number int, opt Options) (Loaded, error) {
	var out Loaded
	const loaded = "SELECT rows, urls FROM load_chunks WHERE load = $1 AND chunk = $2"
	err := c.QueryRow(ctx, loaded, p.Load, number).Scan(&out.Rows, &out.URLs)
	if !errors.Is(err, pgx.ErrNoRows) {
		return out, err
	}
	s, err := newSource(ctx, store, p, opt)
	if err != nil {
		return out, err
	}
	defer s.close()
	// Commits of the registry would keep the transaction, and its COPY, waiting.
	if err := s.numberHosts(&p.Chunks[number]); err != nil {
		return out, err
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return out, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a Commit there is nothing to roll back
	if err := fence(ctx, tx, &opt, p.Load, "SHARE"); err != nil {
		return out, err
	}
	done, err := tx.Exec(ctx, "INSERT INTO load_chunks (load, chunk) VALUES ($1, $2) ON CONFLICT DO NOTHING", p.Load, number)
	if hasCode(err, codeLockTimeout) {
		return out, errors.New("another step, perhaps of a worker that died, still copies the same rows; it is waited for")
	}
	if err != nil {
		return out, err
	}
	if done.RowsAffected() == 0 {
		err := tx.QueryRow(ctx, loaded, p.Load, number).Scan(&out.Rows, &out.URLs)
		return out, err
	}
	into := staged
	if leaves := p.leaves(); len(leaves) == 1 {
		into = leaves[0] // so that PostgreSQL need not look for a partition of each row
	}
	r := newCopyReader(func(w *copyReader) error { return s.copy(&p.Chunks[number], w) })
	_, err = c.PgConn().CopyFrom(ctx, r, "COPY "+quote(into)+" ("+copyColumns+") FROM STDIN (FORMAT binary)")
	if failed := r.stop(); failed != nil && !errors.Is(failed, errStopped) {
		err = failed // what made the COPY fail
	}
	if err != nil {
		return out, err
	}
	for _, more := range []struct {
		into string
		rows *spool
	}{{"load_hosts (number, host, domain)", &s.hosts.rows}, {"load_id_map (" + idMapColumns + ")", &s.mapRows}} {
		if more.rows.empty() {
			continue
		}
		r, err := more.rows.reader()
		if err != nil {
			return out, err
		}
		if _, err := c.PgConn().CopyFrom(ctx, r, "COPY "+more.into+" FROM STDIN (FORMAT binary)"); err != nil {
			return out, err
		}
	}
	out = Loaded{Rows: s.rows, URLs: s.urls}
	if _, err := tx.Exec(ctx, "UPDATE load_chunks SET rows = $3, urls = $4 WHERE load = $1 AND chunk = $2", p.Load, number, out.Rows, out.URLs); err != nil {
		return out, err
	}
	if err := opt.fail(fmt.Sprintf("before chunk %d is committed", number)); err != nil {
		return out, err
	}
	return out, tx.Commit(ctx)
}

// errOver tells a step that another export has begun, or that its own has ended.
var errOver = &InputError{"the export is over, or another one of the schema has taken its place; start it again"}

// fence locks the row of a load FOR SHARE or FOR UPDATE until the transaction ends, and fails if
// the load is over. It also bounds how long the transaction waits for locks.
func fence(ctx context.Context, tx pgx.Tx, opt *Options, number int64, lock string) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", cmp.Or(opt.wait, stepWait).Milliseconds())); err != nil {
		return err
	}
	var one int
	err := tx.QueryRow(ctx, "SELECT 1 FROM load WHERE load = $1 FOR "+lock, number).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return errOver
	}
	return err
}

// source reads rows of the lake and encodes them.
type source struct {
	ctx      context.Context
	store    blob.Store
	plan     *plan
	opt      Options
	version  *manifest.Version
	rules    *takedown.Rules
	segments map[int]*segment.Segment
	cache    *segment.FrameCache
	hosts    hosts
	mapRows  spool
	idMap    *idMapper

	rows, urls int64
}

func newSource(ctx context.Context, store blob.Store, p *plan, opt Options) (*source, error) {
	s := &source{
		ctx: ctx, store: store, plan: p, opt: opt, mapRows: spool{dir: opt.TempDir},
		segments: map[int]*segment.Segment{}, cache: segment.NewFrameCache(cacheBytes),
	}
	var err error
	if s.version, err = manifest.ReadVersion(ctx, store, p.Ref); err != nil {
		return nil, err
	}
	if s.rules, err = rulesOf(ctx, store, p.Takedowns); err != nil {
		return nil, err
	}
	s.hosts = hosts{known: map[string]domain64.Code{}, written: map[domain64.Code]bool{}, rows: spool{dir: opt.TempDir}}
	s.hosts.registry, err = p.registry(store)
	return s, err
}

func (s *source) close() {
	for _, seg := range s.segments {
		seg.Close()
	}
	s.hosts.rows.close()
	s.mapRows.close()
}

// copy encodes the rows of a chunk, whose hosts have numbers.
func (s *source) copy(c *chunk, w *copyReader) error {
	e := &encoder{weaken: s.opt.weaken, number: s.hosts.next}
	e.out = append(e.out, copyHeader...)
	for i := range c.Reads {
		r := &c.Reads[i]
		e.dataset, e.batches = r.Dataset, s.plan.Stored[r.Stored].Members
		e.batch, e.batchID = "", 0
		if err := s.copyPart(r, e, w); err != nil {
			return err
		}
		e.finish()
		s.rows, s.urls = e.rows, e.urls
		s.opt.report(s.rows)
	}
	e.out = append(e.out, copyTrailer...)
	return w.write(&e.out)
}

// columns are what a row of urls is made of.
var columns = []part.Column{
	part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
}

// copyPart encodes the rows of a part.
func (s *source) copyPart(r *read, e *encoder, w *copyReader) error {
	cols := columns
	canonical := s.canonical(r.Dataset)
	if canonical != "" {
		cols = append(cols[:len(cols):len(cols)], part.ColExtras)
	}
	read := int64(0)
	for rows, err := range s.read(r, s.rules, cols...) {
		if err != nil {
			return err
		}
		if err := e.add(rows); err != nil {
			return err
		}
		if canonical != "" {
			if err := s.mapURLs(e, rows, canonical); err != nil {
				return err
			}
		}
		if err := s.hosts.rows.flush(); err != nil {
			return err
		}
		if len(e.out) >= bufferBytes {
			if err := w.write(&e.out); err != nil {
				return err
			}
		}
		read += int64(rows.Rows)
		s.opt.report(s.rows + read)
	}
	return nil
}

// read yields the rows of a part that are wanted and that rules do not hide.
func (s *source) read(r *read, rules *takedown.Rules, columns ...part.Column) iter.Seq2[scan.Rows, error] {
	return func(yield func(scan.Rows, error) bool) {
		err := s.readRuns(r, rules, columns, func(rows scan.Rows) bool { return yield(rows, nil) })
		if err != nil && !errors.Is(err, errStopped) {
			yield(scan.Rows{}, err)
		}
	}
}

func (s *source) readRuns(r *read, rules *takedown.Rules, columns []part.Column, each func(scan.Rows) bool) error {
	seg, ok := s.segments[r.Segment]
	if !ok {
		var err error
		if seg, err = scan.OpenSegment(s.ctx, s.store, &s.version.Segments[r.Segment], s.cache); err != nil {
			return err
		}
		s.segments[r.Segment] = seg
	}
	f, err := seg.File(s.ctx, r.File)
	if err != nil {
		return err
	}
	from := &s.plan.Stored[r.Stored]
	p := scan.Part{
		Dataset: r.Dataset, Key: f.Path, Batch: from.Batch, Rules: rules,
		Live: func(batch string) bool { return from.Members[batch] != 0 },
	}
	all := func(blocks []*part.PageIndexBlock, runs []scan.Run) error {
		for rows, err := range p.Read(s.ctx, s.store, blocks, runs, columns...) {
			if err != nil {
				return err
			}
			if !each(rows) {
				return errStopped
			}
		}
		return nil
	}
	if r.Runs == nil {
		blocks, err := seg.PartBlocks(s.ctx, r.File)
		if err != nil {
			return err
		}
		return all(blocks, nil)
	}
	for i, run := range r.Runs {
		blocks, err := seg.PageBlocks(s.ctx, r.File, run.Group, run.First, run.Rows)
		if err != nil {
			return err
		}
		if err := all(blocks, r.Runs[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// canonical is the field of a dataset's extras that has canonical URLs, "" for none.
func (s *source) canonical(dataset uint32) string {
	for i := range s.plan.Datasets {
		if s.plan.Datasets[i].ID == dataset {
			return s.plan.Datasets[i].Canonical
		}
	}
	return ""
}

// copyReader hands the buffers that a goroutine fills to the connection, which sends them
// meanwhile.
type copyReader struct {
	full    chan []byte
	free    chan []byte
	stopped chan struct{}
	err     error // of the goroutine, set before full is closed
	fault   any   // what it panicked with, and its stack
	reading []byte
	rest    []byte
}

var errStopped = errors.New("the COPY has ended")

func newCopyReader(fill func(*copyReader) error) *copyReader {
	r := &copyReader{full: make(chan []byte, buffers), free: make(chan []byte, buffers), stopped: make(chan struct{})}
	for range buffers {
		r.free <- nil
	}
	go func() {
		defer close(r.full)
		defer func() {
			if r.fault = recover(); r.fault != nil {
				r.fault = fmt.Sprintf("%v\n%s", r.fault, debug.Stack())
				r.err = errStopped
			}
		}()
		r.err = fill(r)
	}()
	return r
}

// write hands over a buffer and sets it to an empty one.
func (r *copyReader) write(buf *[]byte) error {
	var next []byte
	select {
	case next = <-r.free:
	case <-r.stopped:
		return errStopped
	}
	r.full <- *buf
	if next == nil {
		next = make([]byte, 0, bufferBytes+bufferBytes/4)
	}
	*buf = next[:0]
	return nil
}

// Read is what the connection reads.
func (r *copyReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.reading != nil {
			r.free <- r.reading
			r.reading = nil
		}
		next, ok := <-r.full
		if !ok {
			if r.err != nil {
				return 0, r.err
			}
			return 0, io.EOF
		}
		r.reading, r.rest = next, next
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// stop ends the goroutine and returns its error, errStopped if it was not done. A panic of the
// goroutine is one of the caller, who knows what to do about it.
func (r *copyReader) stop() error {
	close(r.stopped)
	for range r.full { // wait for it
	}
	if r.fault != nil {
		panic(r.fault)
	}
	return r.err
}
