// Package move gives finished batches another public suffix list. The list decides the domain of a
// host, by which rows are sorted, partitioned and indexed. Canonical URLs do not depend on it, so
// under another list a batch has the same rows, some of them in other domains.
//
// Batch writes only what changes. It reads the postings of a batch to find the domains that the new
// list can affect, and of these the rows (scan.go). Rows that move go to shuffle files, as in an
// ingest. Then each postings object with a part that loses or gains rows is made again
// (rewrite.go): such parts are written again, all others are kept and their postings copied. If a
// partition gains domains that it did not have, and none of its parts is written again, they become
// a new part. At last Batch writes a batch record. The old record and its objects stay, so versions
// that name them answer as before.
//
// A batch of which nothing moves is only read, and keeps its record.
//
// The same batch and the same list give the same bytes. Batch may be repeated, run twice at once,
// and stop anywhere: what it has finished is listed in the staging of its run, where the next
// attempt goes on. The caller is package publish.
package move

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowsort"
)

const (
	// arena is the memory for rows of one step, in bytes. Rows beyond it are sorted in pieces.
	arena = 192 << 20

	// concurrentReads is how many postings objects are opened at once.
	concurrentReads = 16

	// stagingFormat is the version of the documents in staging.
	stagingFormat = 1
)

// Change is a change of the public suffix list, as far as one batch needs to know it.
type Change struct {
	// To is the identity of the new list.
	To string
	// Domain returns the domain of a canonical host by the new list.
	Domain func(host string) string
	// Affected reports whether hosts of a stored domain may have another domain by the new list. It
	// is never false if one has. Nil stands for all domains: the old list is not known.
	Affected func(domain string) bool
}

// affects is Affected.
func (c *Change) affects(domain string) bool { return c.Affected == nil || c.Affected(domain) }

// Options are options of Batch.
type Options struct {
	// TempDir holds at most one part at a time, and postings; "" is the system's temporary folder.
	TempDir string
	// Progress, if not nil, is called from the caller's goroutine after some rows.
	Progress func(Progress)

	limits limits
}

// limits are sizes that only tests change.
type limits struct {
	arena      int64
	smallPart  int64 // see smallPart
	gains      int   // see maxGains
	checkpoint int   // see checkpointObjects
}

func (l *limits) setDefaults() {
	if *l == (limits{}) {
		*l = limits{arena: arena, smallPart: smallPart, gains: maxGains, checkpoint: checkpointObjects}
	}
}

// Progress says how far Batch is.
type Progress struct {
	// Scanned of Rows rows have been looked for in the postings.
	Scanned int64 `json:"scanned"`
	Rows    int64 `json:"rows"`
	// Moved is the number of rows found that have another domain, Written that of rows in new
	// parts so far.
	Moved   int64 `json:"moved"`
	Written int64 `json:"written"`
}

// Result is the result of Batch.
type Result struct {
	// Digest names the record of the batch under the new list. It is that of the old record if
	// nothing moves.
	Digest string `json:"digest"`
	// Moved is the number of rows that have another domain. Parts is the number of new parts,
	// Bytes the size of them and of the new postings.
	Moved int64 `json:"moved"`
	Parts int   `json:"parts"`
	Bytes int64 `json:"bytes"`
}

// Batch writes a batch under the list of c and returns its record's digest, unless no row moves.
// Run names the staging that repeated calls share. A damaged or missing object of the batch is a
// *postings.DamageError.
//
// Memory is bounded, whatever the size of the batch, by 192 MiB for rows and what a merge of an
// ingest needs besides.
func Batch(
	ctx context.Context, store blob.Store, run string, ref segment.BatchRef, c *Change, opt Options,
) (Result, error) {
	opt.limits.setDefaults()
	m := &mover{
		ctx: ctx, store: store, ref: ref, change: c, opt: opt, limits: opt.limits,
		staging: lake.StagingPrefix(run) + "move/" + lake.Digest([]byte(ref.Key()+"\x00"+c.To)) + "/",
	}
	out, err := m.run()
	if err != nil {
		return Result{}, fmt.Errorf("move batch %s of dataset %d to another public suffix list: %w",
			ref.Batch, ref.DatasetID, postings.Damaged(ref, err))
	}
	return out, nil
}

// mover is one run of Batch.
type mover struct {
	ctx     context.Context
	store   blob.Store
	staging string
	ref     segment.BatchRef
	change  *Change
	opt     Options
	limits  limits

	record   *lake.Batch
	objects  []*postings.Reader // of the record's postings
	shuffle  *rowsort.Shuffle   // the rows that move; nil before the scan has ended
	progress Progress
}

func (m *mover) run() (Result, error) {
	data, _, err := m.store.Get(m.ctx, m.ref.Key())
	if err != nil {
		return Result{}, err
	}
	if m.record, err = lake.DecodeBatch(data, m.ref.Key()); err != nil {
		return Result{}, err
	}
	if m.record.PublicSuffix == m.change.To {
		return Result{Digest: m.ref.Digest}, nil
	}
	if err := m.open(); err != nil {
		return Result{}, err
	}
	s, err := m.scan()
	if err != nil || len(s.Shuffled) == 0 {
		return Result{Digest: m.ref.Digest}, err
	}
	if m.shuffle, err = rowsort.OpenShuffle(m.ctx, m.store, s.Shuffled); err != nil {
		return Result{}, err
	}
	return m.rewrite(s)
}

// open opens the postings objects and checks that they have the parts of the record.
func (m *mover) open() error {
	m.objects = make([]*postings.Reader, len(m.record.Postings))
	g, ctx := errgroup.WithContext(m.ctx)
	g.SetLimit(concurrentReads)
	for i, o := range m.record.Postings {
		g.Go(func() (err error) {
			m.objects[i], err = postings.Open(ctx, m.store, m.ref, o)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	left := m.record.Parts
	for _, o := range m.objects {
		for _, p := range o.Parts() {
			if len(left) == 0 || left[0].Key != p.Key || left[0].Rows != p.Rows || left[0].Bytes != p.Bytes {
				return codec.Corrupt(o.Key(), "directory", -1, "the parts of the batch record, in its order", p.Key)
			}
			m.progress.Rows += p.Rows
			left = left[1:]
		}
	}
	if len(left) > 0 {
		return codec.Corrupt(m.ref.Key(), "postings", -1, "all parts of the batch", "none of "+left[0].Key)
	}
	return nil
}

// report reports the progress and returns an error if the context has ended.
func (m *mover) report() error {
	if m.opt.Progress != nil {
		m.opt.Progress(m.progress)
	}
	return m.ctx.Err()
}

// scanned is scan.json: what the scan has found in the first Next postings objects.
type scanned struct {
	lake.KeyedHeader
	Next int `json:"next"`
	// Lost lists, for each object, the numbers of its parts that lose rows. Domains is the number
	// of its domains, before the move.
	Lost    [][]int `json:"lost"`
	Domains []int64 `json:"domains"`
	// Shuffled are the files of the rows that move, Rows the numbers of these rows by the partition
	// that they move to.
	Shuffled []rowsort.ShuffleFile `json:"shuffled"`
	Rows     [row.Partitions]int64 `json:"rows"`
}

// rewritten is object-{n}.json: what takes the place of a postings object and its parts.
type rewritten struct {
	lake.KeyedHeader
	Parts []lake.Part `json:"parts"`
	// Postings is zero if there are no parts.
	Postings lake.FrameObject `json:"postings,omitzero"`
	Domains  int64            `json:"domains"`
	// New is the number of parts that were written, Bytes the size of them and of the postings.
	New   int   `json:"new"`
	Bytes int64 `json:"bytes"`
	// Written is the number of rows in new parts.
	Written int64 `json:"written"`
}

// load reads a document of an earlier attempt. It returns false if there is none.
func (m *mover) load(name string, doc lake.Keyed) (bool, error) {
	etag, err := lake.LoadKeyed(m.ctx, m.store, m.staging+name, stagingFormat, doc)
	return etag != "", err
}

// save writes a document.
func (m *mover) save(name string, doc lake.Keyed) error {
	_, err := lake.SaveKeyed(m.ctx, m.store, m.staging+name, stagingFormat, doc, blob.Condition{})
	return err
}

// finish writes the record of the moved batch. Objects that are not in done are kept.
func (m *mover) finish(s *scanned, done map[int]*rewritten) (Result, error) {
	b := *m.record
	b.PublicSuffix, b.MovedFrom = m.change.To, m.ref.Digest
	b.Parts, b.Postings, b.Domains = nil, nil, 0
	out := Result{}
	for _, n := range s.Rows {
		out.Moved += n
	}
	left := m.record.Parts
	for i, o := range m.objects {
		n := len(o.Parts())
		own := left[:n]
		left = left[n:]
		r := done[i]
		if r == nil {
			b.Parts = append(b.Parts, own...)
			b.Postings = append(b.Postings, m.record.Postings[i])
			b.Domains += s.Domains[i]
			continue
		}
		out.Parts += r.New
		out.Bytes += r.Bytes
		b.Domains += r.Domains
		if len(r.Parts) > 0 {
			b.Parts = append(b.Parts, r.Parts...)
			b.Postings = append(b.Postings, r.Postings)
		}
	}
	rows := int64(0)
	for _, p := range b.Parts {
		rows += p.Rows
	}
	if rows != b.Rows {
		return Result{}, fmt.Errorf("the moved batch has %d rows, its record %d", rows, b.Rows)
	}
	data, digest, err := b.Encode()
	if err != nil {
		return Result{}, err
	}
	out.Digest = digest
	_, err = m.store.Put(m.ctx, lake.BatchKey(b.DatasetID, b.Batch, digest), data, blob.Condition{})
	return out, err
}
