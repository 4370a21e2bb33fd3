package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
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

func load(ctx context.Context, c *pgx.Conn, store blob.Store, p *plan, number int, opt Options) (out Loaded, err error) {
	s, err := newSource(ctx, store, p, opt)
	if err != nil {
		return out, err
	}
	defer s.close()
	// Commits of the registry would keep the transaction, and its COPY, waiting.
	if err := s.numberHosts(p.Chunks[number].Reads); err != nil {
		return out, err
	}
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		load, err := fence(ctx, tx, &opt, p, "SHARE")
		if err != nil {
			return err
		}
		done, err := tx.Exec(ctx, "INSERT INTO load_chunks (chunk) VALUES ($1) ON CONFLICT DO NOTHING", number)
		if hasCode(err, codeLockTimeout) {
			return errors.New("another step, perhaps of a worker that died, still copies the same rows; it is waited for")
		}
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return tx.QueryRow(ctx, "SELECT rows, urls FROM load_chunks WHERE chunk = $1", number).Scan(&out.Rows, &out.URLs)
		}
		for reads := range byDataset(p.Chunks[number].Reads) {
			if err := s.copyDataset(c, load, reads); err != nil {
				return err
			}
		}
		out = Loaded{Rows: s.rows, URLs: s.urls}
		if _, err := tx.Exec(ctx, "UPDATE load_chunks SET rows = $2, urls = $3 WHERE chunk = $1", number, out.Rows, out.URLs); err != nil {
			return err
		}
		return opt.fail(fmt.Sprintf("before chunk %d is committed", number))
	})
	return out, err
}

// byDataset yields the reads of each dataset.
func byDataset(reads []read) iter.Seq[[]read] {
	return func(yield func([]read) bool) {
		for len(reads) > 0 {
			n := 1
			for n < len(reads) && reads[n].Dataset == reads[0].Dataset {
				n++
			}
			if !yield(reads[:n]) {
				return
			}
			reads = reads[n:]
		}
	}
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
	registry *numbers.Registry
	hosts    hosts
	list     *urlnorm.SuffixList // of id_map, nil until it is needed

	rows, urls int64
}

func newSource(ctx context.Context, store blob.Store, p *plan, opt Options) (*source, error) {
	s := &source{
		ctx: ctx, store: store, plan: p, opt: opt,
		segments: map[int]*segment.Segment{}, cache: segment.NewFrameCache(cacheBytes),
	}
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
}

// copyDataset copies rows of a dataset, whose hosts have numbers, into the tables of a load.
func (s *source) copyDataset(c *pgx.Conn, load int64, reads []read) error {
	dataset := reads[0].Dataset
	into := quote(tableName(urlsTable, dataset, load)) + " (" + copyColumns + ")"
	if err := copyInto(s.ctx, c, into, func(w io.Writer) error { return s.copyURLs(reads, w) }); err != nil {
		return err
	}
	field := s.plan.dataset(dataset).Canonical
	if field == "" {
		return nil
	}
	into = quote(tableName(idMapTable, dataset, load)) + " (" + idMapColumns + ")"
	return copyInto(s.ctx, c, into, func(w io.Writer) error { return s.mapURLs(reads, field, w) })
}

// columns are what a row of urls is made of.
var columns = []part.Column{
	part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
}

// copyURLs encodes rows of urls.
func (s *source) copyURLs(reads []read, w io.Writer) error {
	e := &encoder{w: w, dataset: reads[0].Dataset, weaken: s.opt.weaken, number: s.hosts.next}
	e.out = append(e.out, copyHeader...)
	done := s.rows
	for i := range reads {
		e.batches = batches{of: s.plan.Stored[reads[i].Stored].Members}
		for rows, err := range s.read(&reads[i], s.rules, columns...) {
			if err != nil {
				return err
			}
			if err := e.add(rows); err != nil {
				return err
			}
			s.opt.report(done + e.rows)
		}
		e.end()
		e.open = false
	}
	s.rows, s.urls = done+e.rows, s.urls+e.urls
	e.out = append(e.out, copyTrailer...)
	e.flush()
	return e.err
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

// dataset returns a dataset of the plan.
func (p *plan) dataset(id uint32) *exported {
	for i := range p.Datasets {
		if p.Datasets[i].ID == id {
			return &p.Datasets[i]
		}
	}
	return nil
}

var errStopped = errors.New("the COPY has ended")

// copyInto runs a COPY of what fill writes. A panic of fill is one of the caller, who knows what to
// do about it.
func copyInto(ctx context.Context, c *pgx.Conn, into string, fill func(io.Writer) error) error {
	r, w := io.Pipe()
	var failed error
	var fault any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				fault = fmt.Sprintf("%v\n%s", v, debug.Stack())
				w.CloseWithError(errStopped)
			}
		}()
		failed = fill(w)
		w.CloseWithError(failed)
	}()
	_, err := c.PgConn().CopyFrom(ctx, r, "COPY "+into+" FROM STDIN (FORMAT binary)")
	r.CloseWithError(errStopped)
	<-done
	if fault != nil {
		panic(fault)
	}
	if failed != nil && !errors.Is(failed, errStopped) {
		return failed // what made the COPY fail
	}
	return err
}
