package feed

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
)

// Root begins the keys of all objects of this package.
const Root = "frontier/"

const (
	// cursorFormat is the version of the document of a dataset's visits.
	cursorFormat = 1
)

// visitLimits are how many visits are asked for at once, and about how many an object and a batch
// have. Only tests use others than the default.
type visitLimits struct{ page, object, batch int }

var defaultVisits = visitLimits{page: 20_000, object: 1_000_000, batch: 20_000_000}

// batchPrefix begins the names of the batches, of which numbers follow.
const batchPrefix = "visits-"

var batchName = regexp.MustCompile(`^` + batchPrefix + `(\d{8})$`)

func nameOf(number int64) string { return fmt.Sprintf("%s%08d", batchPrefix, number) }

func folder(dataset string) string { return Root + "visits/" + dataset + "/" }

// CursorKey is the key of the document that says which visits a dataset has.
func CursorKey(dataset string) string { return folder(dataset) + "cursor.json" }

func objectsOf(dataset, batch string) string { return folder(dataset) + batch + "/" }

// VisitsSpec says which frontier's visits go to which dataset. Its JSON is what a person types into
// the Temporal UI.
type VisitsSpec struct {
	Lake string `json:"lake"`
	// Frontier is the URL of a frontierd, Dataset the name of the dataset.
	Frontier string `json:"frontier"`
	Dataset  string `json:"dataset"`
	// Since is the time of the first visit of a dataset that has none yet, in RFC 3339; "" for all.
	Since string `json:"since,omitempty"`
	// Moved says that the frontier of which the dataset has visits is at another URL now.
	Moved bool `json:"moved,omitempty"`
}

// Check returns what is wrong with the request, an *InputError.
func (s *VisitsSpec) Check() error {
	if s.Lake == "" {
		return inputf("lake: it is missing")
	}
	if err := client.CheckURL(s.Frontier); err != nil {
		return inputf("frontier: %v", err)
	}
	if s.Dataset == "" {
		return inputf("dataset: it is missing; use e.g. visits")
	}
	if err := lake.CheckDatasetName(s.Dataset); err != nil {
		return &InputError{err.Error()}
	}
	if _, err := s.since(); err != nil {
		return inputf("since: %q is no time; use e.g. 2026-11-26T08:00:00Z", s.Since)
	}
	return nil
}

func (s *VisitsSpec) since() (t time.Time, err error) {
	if s.Since != "" {
		t, err = time.Parse(time.RFC3339, s.Since)
	}
	return t, err
}

// cursor is what a dataset has of the visits of a frontier.
type cursor struct {
	lake.KeyedHeader
	// Frontier is the URL of the frontier, Since the time of the first visit.
	Frontier string `json:"frontier"`
	Since    string `json:"since,omitempty"`
	// Batches counts the batches that are ingested, Visits what is in them. Next is the frontier's
	// cursor of what follows them.
	Batches int64  `json:"batches"`
	Visits  int64  `json:"visits"`
	Next    string `json:"next,omitempty"`
	// Pending is the batch that is to be ingested; nil for none.
	Pending *pendingBatch `json:"pending,omitempty"`
}

type pendingBatch struct {
	Batch  string `json:"batch"`
	Visits int64  `json:"visits"`
	// Objects are the keys of what is to be ingested.
	Objects []string `json:"objects"`
	Next    string   `json:"next"`
	// More says that the frontier had more visits.
	More bool `json:"more,omitempty"`
}

// Collected is a batch of visits that is to be ingested.
type Collected struct {
	// Batch is its name, "" if there are no new visits. Visits counts them.
	Batch  string `json:"batch,omitempty"`
	Visits int64  `json:"visits,omitempty"`
	// Again says that an earlier run has collected the batch.
	Again bool `json:"again,omitempty"`
	// More says that the frontier had more visits than go into one batch.
	More bool `json:"more,omitempty"`
	// Most is how many batches a run should ingest at most. Collect leaves it to the caller.
	Most int `json:"most,omitempty"`
	// Ingest is the ingest of the batch.
	Ingest ingest.Spec `json:"ingest,omitzero"`
	// Total counts the visits of all batches before.
	Total int64 `json:"total"`
}

// Collecting is the progress of Collect.
type Collecting struct {
	Visits int64 `json:"visits"`
}

// spec is the ingest of a batch.
func (p *pendingBatch) spec(s *VisitsSpec) ingest.Spec {
	out := ingest.Spec{
		Lake: s.Lake, Dataset: s.Dataset, Batch: p.Batch, Format: "jsonl", URLColumn: "url", TSColumn: "time",
		Extras: []string{"*"}, MaxRejectRate: 1,
	}
	for _, key := range p.Objects {
		out.Inputs = append(out.Inputs, strings.TrimRight(s.Lake, "/")+"/"+key)
	}
	return out
}

func (p *pendingBatch) collected(s *VisitsSpec, c *cursor, again bool) Collected {
	return Collected{Batch: p.Batch, Visits: p.Visits, Again: again, More: p.More, Ingest: p.spec(s), Total: c.Visits}
}

// Collect returns the next batch of visits. If an earlier run has collected one and its ingest has
// not finished, it is that one. Otherwise it reads the visits since the last batch, writes them to
// objects of the lake, and then, by one conditional put, makes them the next batch: whoever comes
// second, or later, takes what the first has made.
func Collect(ctx context.Context, store blob.Store, spec VisitsSpec, report func(Collecting)) (Collected, error) {
	return collect(ctx, store, spec, defaultVisits, report)
}

func collect(ctx context.Context, store blob.Store, spec VisitsSpec, lim visitLimits, report func(Collecting)) (Collected, error) {
	if err := spec.Check(); err != nil {
		return Collected{}, err
	}
	c, etag, err := readCursor(ctx, store, &spec)
	if err != nil {
		return Collected{}, err
	}
	if c.Pending != nil {
		return c.Pending.collected(&spec, c, true), nil
	}
	since, err := (&VisitsSpec{Since: c.Since}).since()
	if err != nil {
		return Collected{}, inputf("since: %v", err)
	}
	cl, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return Collected{}, inputf("frontier: %v", err)
	}
	// Objects of earlier batches may be left of runs that died. Those of this batch may be of a run
	// that still goes on: Settle deletes them.
	name := nameOf(c.Batches + 1)
	if err := deleteBelow(ctx, store, folder(spec.Dataset), func(key string) bool {
		return strings.HasPrefix(key, folder(spec.Dataset)+batchPrefix) && key < objectsOf(spec.Dataset, name)
	}); err != nil {
		return Collected{}, err
	}
	w := visitWriter{ctx: ctx, object: lim.object, store: store, prefix: objectsOf(spec.Dataset, name) + rand.Text()[:10] + "-"}
	defer w.abort()
	p := &pendingBatch{Batch: name, Next: c.Next}
	for p.Visits < int64(lim.batch) {
		page, err := cl.Visited(ctx, since, p.Next, lim.page)
		if err != nil {
			return Collected{}, refused(err)
		}
		if page.Visits == 0 {
			break
		}
		if err := w.write(page); err != nil {
			return Collected{}, err
		}
		p.Visits += int64(page.Visits)
		p.Next = page.Next
		report(Collecting{p.Visits})
		p.More = p.Visits >= int64(lim.batch)
	}
	if err := w.close(); err != nil {
		return Collected{}, err
	}
	if p.Visits == 0 {
		return Collected{Total: c.Visits}, nil
	}
	p.Objects = w.keys
	c.Pending = p
	if err := writeCursor(ctx, store, spec.Dataset, c, etag); errors.Is(err, blob.ErrPrecondition) {
		if c, _, err = readCursor(ctx, store, &spec); err == nil && c.Pending == nil {
			err = fmt.Errorf("%s: another run has changed it", CursorKey(spec.Dataset)) // and is done, too
		}
		if err != nil {
			return Collected{}, err
		}
	} else if err != nil {
		return Collected{}, err
	}
	// If only the reply to a put was lost, it is this run's.
	return c.Pending.collected(&spec, c, !slices.Equal(c.Pending.Objects, w.keys)), nil
}

// Settle notes that a batch is ingested, and deletes the objects that it was made of.
func Settle(ctx context.Context, store blob.Store, spec VisitsSpec, batch string) error {
	c, etag, err := readCursor(ctx, store, &spec)
	if err != nil {
		return err
	}
	if p := c.Pending; p != nil && p.Batch == batch {
		c.Batches, c.Visits, c.Next, c.Pending = c.Batches+1, c.Visits+p.Visits, p.Next, nil
		if err := writeCursor(ctx, store, spec.Dataset, c, etag); err != nil {
			return err // a repetition finds it done, or does it
		}
	}
	return deleteBelow(ctx, store, objectsOf(spec.Dataset, batch), func(string) bool { return true })
}

// readCursor reads the document of a dataset, or makes the first. Its batch names are the
// document's, so if it was lost, nothing is ingested: a batch would replace another.
func readCursor(ctx context.Context, store blob.Store, spec *VisitsSpec) (c *cursor, etag string, err error) {
	c = &cursor{}
	key := CursorKey(spec.Dataset)
	if etag, err = lake.LoadKeyed(ctx, store, key, cursorFormat, c); err != nil {
		return nil, "", err
	}
	if etag != "" {
		if c.Frontier != spec.Frontier && !spec.Moved {
			return nil, "", inputf("dataset %s has the visits of the frontier at %s, not of %s; use another dataset, "+
				"or --moved if it is the same frontier at another address", spec.Dataset, c.Frontier, spec.Frontier)
		}
		c.Frontier = spec.Frontier
		return c, etag, nil
	}
	all, err := catalog.DatasetsNamed(ctx, store, spec.Dataset)
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return nil, "", err
	}
	if d, ok := all[spec.Dataset]; ok {
		state, err := catalog.LookBatches(ctx, store, d.ID)
		if err != nil {
			return nil, "", err
		}
		states, err := state.Batches(ctx, d.ID)
		if err != nil {
			return nil, "", err
		}
		for _, s := range states {
			if batchName.MatchString(s.Batch) {
				return nil, "", inputf("dataset %s has the batch %s of visits, but %s, which says up to where, is missing; "+
					"restore it, or use another dataset", spec.Dataset, s.Batch, key)
			}
		}
	}
	return &cursor{Frontier: spec.Frontier, Since: spec.Since}, "", nil
}

func writeCursor(ctx context.Context, store blob.Store, dataset string, c *cursor, etag string) error {
	cond := blob.Condition{IfMatch: etag}
	if etag == "" {
		cond = blob.Condition{IfAbsent: true}
	}
	_, err := lake.SaveKeyed(ctx, store, CursorKey(dataset), cursorFormat, c, cond)
	return err
}

// deleteBelow deletes the objects below a prefix that are no longer needed.
func deleteBelow(ctx context.Context, store blob.Store, prefix string, unneeded func(key string) bool) error {
	var keys []string
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if unneeded(info.Key) {
			keys = append(keys, info.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return store.Delete(ctx, keys...)
}

// visitWriter writes pages of visits to objects of gzipped lines.
type visitWriter struct {
	ctx    context.Context
	store  blob.Store
	prefix string
	object int // visits that an object has
	keys   []string

	out    blob.Writer // nil between two objects
	zip    *gzip.Writer
	visits int
}

func (w *visitWriter) write(page client.VisitPage) error {
	if w.out == nil {
		key := fmt.Sprintf("%s%06d.jsonl.gz", w.prefix, len(w.keys))
		o, err := w.store.Create(w.ctx, key)
		if err != nil {
			return err
		}
		zip, err := gzip.NewWriterLevel(o, gzip.BestSpeed)
		if err != nil {
			return err
		}
		w.out, w.zip, w.visits = o, zip, 0
		w.keys = append(w.keys, key)
	}
	if _, err := w.zip.Write(page.Lines); err != nil {
		return err
	}
	if w.visits += page.Visits; w.visits >= w.object {
		return w.close()
	}
	return nil
}

// close finishes the object that is being written.
func (w *visitWriter) close() error {
	if w.out == nil {
		return nil
	}
	if err := w.zip.Close(); err != nil {
		return err
	}
	_, err := w.out.Finish()
	if err == nil {
		w.out = nil
	}
	return err
}

func (w *visitWriter) abort() {
	if w.out != nil {
		w.out.Abort()
	}
}
