package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
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
	t, err := openStep(ctx, store, run, opt)
	if err != nil {
		return Loaded{}, err
	}
	defer t.close()
	chunks := t.plan.Chunks
	if number < 0 || number >= len(chunks) {
		return Loaded{}, inputf("the plan has %d chunks, none with the number %d", len(chunks), number)
	}
	release, err := t.hold()
	if err != nil {
		return Loaded{}, err
	}
	defer release()
	s, err := newSource(t, &chunks[number])
	if err == nil {
		// Commits of the registry would keep the transaction, and its COPY, waiting.
		err = s.numberHosts()
	}
	var out Loaded
	if err == nil {
		out, err = s.loadChunk(number)
	}
	return out, explain(fmt.Sprintf("load chunk %d of %d", number+1, len(chunks)), err)
}

// loadChunk copies the rows of the chunk with that number, unless that was done.
func (s *source) loadChunk(number int) (out Loaded, err error) {
	err = s.within("SHARE", func() error {
		done, err := s.tx.Exec(s.ctx, "INSERT INTO load_chunks (chunk) VALUES ($1) ON CONFLICT DO NOTHING", number)
		if hasCode(err, codeLockTimeout) {
			return errors.New("another step, perhaps of a worker that died, still copies the same rows; it is waited for")
		}
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return s.tx.QueryRow(s.ctx, "SELECT rows, urls FROM load_chunks WHERE chunk = $1", number).Scan(&out.Rows, &out.URLs)
		}
		for task := s.first; task < s.end; task++ {
			dataset := s.slice.Tasks[task].Dataset
			err := s.copyInto(tableName(dataset, s.load)+" ("+copyColumns+")", func(w io.Writer) error { return s.copyURLs(task, w) })
			if err == nil && s.canonical[dataset] != "" {
				err = s.copyInto("load_id_map ("+idMapColumns+")", func(w io.Writer) error { return s.mapURLs(task, w) })
			}
			if err != nil {
				return err
			}
		}
		if err := s.copyNames(); err != nil {
			return err
		}
		out = Loaded{Rows: s.rows, URLs: s.urls}
		if err := s.exec("UPDATE load_chunks SET rows = $2, urls = $3 WHERE chunk = $1", number, out.Rows, out.URLs); err != nil {
			return err
		}
		return s.opt.fail(fmt.Sprintf("before chunk %d is committed", number))
	})
	return out, err
}

// source reads the rows of a chunk, the tasks from first to end of a slice, and encodes them.
type source struct {
	*step
	slice      *scan.Slice
	first, end int
	batches    map[uint32]map[string]int32 // by dataset and name
	canonical  map[uint32]string           // by dataset
	registry   *numbers.Registry
	suffixes   *urlnorm.SuffixList
	// codes are the numbers of the hosts, in the order of the rows: a host that rows of a task have
	// in succession is there once. A chunk with a million hosts takes 8 MB.
	codes []domain64.Code
	used  int // of codes

	rows, urls int64
	mapped     string // the last entry of id_map
}

func newSource(t *step, c *chunk) (*source, error) {
	s := &source{step: t, batches: map[uint32]map[string]int32{}, canonical: map[uint32]string{}, first: c.Skip, end: c.Skip + c.Parts}
	for i := range t.plan.Datasets {
		d := &t.plan.Datasets[i]
		s.canonical[d.ID], s.batches[d.ID] = d.Canonical, map[string]int32{}
	}
	for _, b := range t.plan.Batches {
		s.batches[b.Dataset][b.Name] = b.ID
	}
	var err error
	if s.registry, err = t.plan.registry(t.store); err == nil {
		s.slice, err = t.slice(c.Datasets)
	}
	if err == nil {
		s.suffixes, err = lake.LoadSuffixList(t.ctx, t.store, s.slice.Manifest().PublicSuffix)
	}
	return s, err
}

// copyURLs encodes rows of urls.
func (s *source) copyURLs(task int, w io.Writer) error {
	dataset := s.slice.Tasks[task].Dataset
	e := &encoder{w: w, dataset: dataset, batches: s.batches[dataset], weaken: s.opt.weaken, number: s.next}
	e.out = append(e.out, copyHeader...)
	for rows, err := range s.slice.Read(s.ctx, task, part.ColScheme, part.ColPort, part.ColDomain, part.ColHost, part.ColTS, part.ColSize, part.ColPathQuery) {
		if err == nil {
			err = e.add(rows)
		}
		if err != nil {
			return err
		}
	}
	e.end()
	s.rows, s.urls = s.rows+e.rows, s.urls+e.urls
	e.out = append(e.out, copyTrailer...)
	e.flush()
	return e.err
}

var errStopped = errors.New("the rows have ended")

// copyInto runs a COPY of what fill writes.
func (s *source) copyInto(into string, fill func(io.Writer) error) error {
	r, w := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		_, err := s.c.PgConn().CopyFrom(s.ctx, r, "COPY "+into+" FROM STDIN (FORMAT binary)")
		r.CloseWithError(cmp.Or(err, errStopped))
		copied <- err
	}()
	ended := false
	defer func() {
		if !ended { // fill panics, which is the caller's: nobody else uses the connection then
			w.CloseWithError(errStopped)
			<-copied //nolint:errcheck // the panic goes on
		}
	}()
	failed := fill(w)
	ended = true
	w.CloseWithError(failed)
	err := <-copied
	if failed != nil && !errors.Is(failed, err) {
		return failed // what made the COPY fail
	}
	return err
}
