package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/takedown"
)

const (
	// batchRows is how many rows are decoded at once.
	batchRows = 32 << 10
	// bufferBytes is the size of the buffers that are handed to the connection, of which there are
	// buffers. A row may exceed one.
	bufferBytes = 512 << 10
	buffers     = 4
	// knownHosts bounds the hosts whose numbers are remembered.
	knownHosts = 1 << 18
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

// chunkWait is how long a step waits for another one that does the same.
const chunkWait = "30s"

func load(ctx context.Context, c *pgx.Conn, store blob.Store, p *plan, number int, opt Options) (Loaded, error) {
	var out Loaded
	tx, err := c.Begin(ctx)
	if err != nil {
		return out, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a Commit there is nothing to roll back
	if err := fence(ctx, tx, p.Load); err != nil {
		return out, err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+chunkWait+"'"); err != nil {
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
		err := tx.QueryRow(ctx, "SELECT rows, urls FROM load_chunks WHERE load = $1 AND chunk = $2", p.Load, number).Scan(&out.Rows, &out.URLs)
		return out, err
	}
	s, err := newSource(ctx, store, p, opt)
	if err != nil {
		return out, err
	}
	defer s.close()
	r := newCopyReader(func(w *copyReader) error { return s.copy(&p.Chunks[number], w) })
	_, err = c.PgConn().CopyFrom(ctx, r, "COPY "+staged+" ("+copyColumns+") FROM STDIN (FORMAT binary)")
	if failed := r.stop(); failed != nil && !errors.Is(failed, errStopped) {
		err = failed // what made the COPY fail
	}
	if err != nil {
		return out, err
	}
	for _, more := range []struct {
		into string
		rows *spool
	}{{"load_hosts (number, host, domain)", &s.hostRows}, {"load_id_map (" + idMapColumns + ")", &s.mapRows}} {
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

// fence keeps the load as it is until the transaction ends, and fails if it is over.
func fence(ctx context.Context, tx pgx.Tx, number int64) error {
	var one int
	err := tx.QueryRow(ctx, "SELECT 1 FROM load WHERE load = $1 FOR SHARE", number).Scan(&one)
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
	registry *numbers.Registry
	segments map[int]*segment.Segment
	known    map[string]domain64.Code
	missing  []Name
	hostRows spool
	mapRows  spool
	idMap    *idMapper

	rows, urls int64
}

func newSource(ctx context.Context, store blob.Store, p *plan, opt Options) (*source, error) {
	s := &source{hostRows: spool{dir: opt.TempDir}, mapRows: spool{dir: opt.TempDir}, ctx: ctx, store: store, plan: p, opt: opt, segments: map[int]*segment.Segment{}, known: map[string]domain64.Code{}}
	var err error
	if s.version, err = manifest.ReadVersion(ctx, store, p.Ref); err != nil {
		return nil, err
	}
	if s.rules, err = rulesOf(ctx, store, p.Takedowns); err != nil {
		return nil, err
	}
	s.registry, err = p.registry(store)
	return s, err
}

func (s *source) close() {
	for _, seg := range s.segments {
		seg.Close()
	}
	s.hostRows.close()
	s.mapRows.close()
}

// copy encodes the rows of a chunk.
func (s *source) copy(c *chunk, w *copyReader) error {
	e := &encoder{rules: s.rules, weaken: s.opt.weaken, numbers: s.known}
	e.out = append(e.out, copyHeader...)
	for i := range c.Reads {
		r := &c.Reads[i]
		e.dataset, e.batches = r.Dataset, s.plan.Stored[r.Stored].Members
		e.batch, e.batchID = "", 0
		if err := s.read(r, e, w); err != nil {
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
	part.ColBatch, part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
}

// read encodes the rows of a part.
func (s *source) read(r *read, e *encoder, w *copyReader) error {
	seg, ok := s.segments[r.Segment]
	if !ok {
		var err error
		if seg, err = openSegment(s.ctx, s.store, &s.version.Segments[r.Segment]); err != nil {
			return err
		}
		s.segments[r.Segment] = seg
	}
	f, err := seg.File(s.ctx, r.File)
	if err != nil {
		return err
	}
	cols := columns
	canonical := s.canonical(r.Dataset)
	if canonical != "" {
		cols = append(cols[:len(cols):len(cols)], part.ColExtras)
	}
	scan := postings.PartScanner{Key: f.Path, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
		return s.store.ReadRange(ctx, f.Path, off, n)
	}}
	take := func(c *part.Columns) error {
		if err := s.number(e, c); err != nil {
			return err
		}
		if err := e.add(c); err != nil {
			return err
		}
		if canonical != "" {
			if err := s.mapURLs(e, c, canonical); err != nil {
				return err
			}
		}
		if len(e.out) >= bufferBytes {
			return w.write(&e.out)
		}
		return nil
	}
	if r.Runs == nil {
		blocks, err := seg.PartBlocks(s.ctx, r.File)
		if err != nil {
			return err
		}
		read := int64(0)
		for rows, err := range scan.Scan(s.ctx, blocks, batchRows, cols) {
			if err != nil {
				return err
			}
			if err := take(rows.Columns); err != nil {
				return err
			}
			read += int64(rows.Rows)
			s.opt.report(s.rows + read)
		}
		return nil
	}
	for _, run := range r.Runs {
		blocks, err := seg.PageBlocks(s.ctx, r.File, run.Group, run.First, run.Rows)
		if err != nil {
			return err
		}
		for _, b := range blocks {
			for first, end := max(run.First, b.FirstRow), min(run.First+run.Rows, b.FirstRow+b.Rows()); first < end; {
				n := min(batchRows, end-first)
				c, err := partreader.ReadColumns(s.ctx, s.store, f.Path, b, first, n, cols...)
				if err != nil {
					return err
				}
				if err := take(c); err != nil {
					return err
				}
				first += n
			}
		}
	}
	return nil
}

// number picks the rows of c and gives their hosts numbers.
func (s *source) number(e *encoder, c *part.Columns) error {
	if len(s.known) > knownHosts {
		clear(s.known)
	}
	s.missing = s.missing[:0]
	e.pick(c, func(n Name) {
		if _, ok := s.known[n.Host]; !ok {
			n = Name{strings.Clone(n.Host), strings.Clone(n.Domain)}
			s.known[n.Host] = 0
			s.missing = append(s.missing, n)
		}
	})
	if len(s.missing) == 0 {
		return nil
	}
	codes, err := assign(s.ctx, s.registry, s.missing)
	if err != nil {
		return err
	}
	for i, n := range s.missing {
		s.known[n.Host] = codes[i]
		s.hostRows.buf = hostRow(s.hostRows.buf, codes[i], n)
	}
	return s.hostRows.flush()
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
		r.err = contain(func() error { return fill(r) })
		close(r.full)
	}()
	return r
}

// contain returns a panic of f as an error: it runs in a goroutine of its own, where a panic would
// end the worker.
func contain(f func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return f()
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

// stop ends the goroutine and returns its error, errStopped if it was not done.
func (r *copyReader) stop() error {
	close(r.stopped)
	for range r.full { // wait for it
	}
	return r.err
}
