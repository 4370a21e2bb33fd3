package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
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
	s, err := newSource(ctx, store, p, &p.Chunks[number], opt)
	if err != nil {
		return out, err
	}
	// Commits of the registry would keep the transaction, and its COPY, waiting.
	if err := s.numberHosts(); err != nil {
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
		for first := s.first; first < s.end; {
			end := first + 1
			for end < s.end && s.slice.Tasks[end].Dataset == s.slice.Tasks[first].Dataset {
				end++
			}
			if err := s.copyDataset(c, load, first, end); err != nil {
				return err
			}
			first = end
		}
		out = Loaded{Rows: s.rows, URLs: s.urls}
		if _, err := tx.Exec(ctx, "UPDATE load_chunks SET rows = $2, urls = $3 WHERE chunk = $1", number, out.Rows, out.URLs); err != nil {
			return err
		}
		return opt.fail(fmt.Sprintf("before chunk %d is committed", number))
	})
	return out, err
}

// source reads the rows of a chunk, the tasks from first to end of a slice, and encodes them.
type source struct {
	ctx        context.Context
	store      blob.Store
	opt        Options
	slice      *scan.Slice
	first, end int
	batches    map[batchName]int32
	canonical  map[uint32]string // by dataset
	registry   *numbers.Registry
	// codes are the numbers of the hosts, in the order of the rows: a host that rows of a task have
	// in succession is there once. A chunk with a million hosts takes 8 MB.
	codes []domain64.Code

	rows, urls int64
}

func newSource(ctx context.Context, store blob.Store, p *plan, c *chunk, opt Options) (*source, error) {
	s := &source{ctx: ctx, store: store, opt: opt, batches: map[batchName]int32{}, canonical: map[uint32]string{}}
	for _, b := range p.Batches {
		s.batches[batchName{b.Dataset, b.Name}] = b.ID
	}
	for i := range p.Datasets {
		s.canonical[p.Datasets[i].ID] = p.Datasets[i].Canonical
	}
	var err error
	if s.registry, err = p.registry(store); err != nil {
		return nil, err
	}
	if s.slice, err = p.slice(ctx, store, c.Datasets); err != nil {
		return nil, err
	}
	s.first, s.end = c.Skip, c.Skip+c.Parts
	return s, nil
}

// copyDataset copies the rows of tasks of a dataset into the tables of a load.
func (s *source) copyDataset(c *pgx.Conn, load int64, first, end int) error {
	dataset := s.slice.Tasks[first].Dataset
	into := tableName(dataset, load) + " (" + copyColumns + ")"
	if err := copyInto(s.ctx, c, into, func(w io.Writer) error { return s.copyURLs(first, end, w) }); err != nil {
		return err
	}
	if s.canonical[dataset] == "" {
		return nil
	}
	return copyInto(s.ctx, c, "load_id_map ("+idMapColumns+")", func(w io.Writer) error { return s.mapURLs(first, end, w) })
}

// columns are what a row of urls is made of.
var columns = []part.Column{
	part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery,
}

// copyURLs encodes rows of urls.
func (s *source) copyURLs(first, end int, w io.Writer) error {
	dataset := s.slice.Tasks[first].Dataset
	e := &encoder{w: w, dataset: dataset, batches: batches{of: s.batches, dataset: dataset}, weaken: s.opt.weaken, number: s.next}
	e.out = append(e.out, copyHeader...)
	done := s.rows
	for task := first; task < end; task++ {
		for rows, err := range s.slice.Read(s.ctx, task, columns...) {
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
