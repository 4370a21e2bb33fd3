// Package feed joins a frontier with a lake. Seed adds the URLs of a version of the lake to the
// frontier. Collect takes the visits that the frontier has had since the last time, as objects that
// an ordinary ingest reads, and Settle notes that the ingest has finished. Package activities calls
// the steps from Temporal.
//
// # Promises
//
// Every step may be repeated and may die at any point. Seed says how far it is, and goes on from
// there; URLs that it adds once more are known. Of the visits each is in one batch: Collect decides
// which by one conditional put of the dataset's cursor, before anything is ingested. See
// docs/formats/visits-cursor.md.
package feed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest/deadline"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

// InputError means that the request, or what the lake or the frontier has, does not allow it. A
// retry cannot help; the text says what to do.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputf(format string, args ...any) error { return &InputError{fmt.Sprintf(format, args...)} }

const (
	// seedAtOnce is how many requests are under way.
	seedAtOnce = 3
	// maxDomains bounds the domains of a Seed, since the input of a workflow is small.
	maxDomains = 10_000
	// maxName is the largest length of the name of a crawl, as in the frontier.
	maxName = 512
)

// seedLimits are how many URLs are sent at once, and the number of rows after which Seed returns.
// Only tests use others than the default.
type seedLimits struct {
	lines int
	rows  int64
}

var defaultSeed = seedLimits{lines: 5_000, rows: 5_000_000}

// SeedSpec says which URLs of a lake go to which frontier. Its JSON is what a person types into
// the Temporal UI.
type SeedSpec struct {
	Lake string `json:"lake"`
	// Frontier is the URL of a frontierd.
	Frontier string `json:"frontier"`
	// Datasets, by name or number, Batches and Domains bound what is seeded; none stands for all.
	Datasets []string `json:"datasets,omitempty"`
	Batches  []string `json:"batches,omitempty"`
	Domains  []string `json:"domains,omitempty"`
	// Version is a version id or a tag, "" for the current version.
	Version string `json:"version,omitempty"`
	// Crawl and Priority are those of the URLs in the frontier.
	Crawl    string `json:"crawl,omitempty"`
	Priority uint16 `json:"priority,omitempty"`
	// RefetchAfter is the time after that of a row before which its URL is not fetched: a duration
	// such as 36h or 30d.
	RefetchAfter string `json:"refetch_after,omitempty"`
	// Update schedules URLs that the frontier knows again.
	Update bool `json:"update,omitempty"`
}

// Check returns what is wrong with the request, an *InputError.
func (s *SeedSpec) Check() error {
	if s.Lake == "" {
		return inputf("lake: it is missing")
	}
	if err := client.CheckURL(s.Frontier); err != nil {
		return inputf("frontier: %v", err)
	}
	if len(s.Domains) > maxDomains {
		return inputf("domains: %d are too many, at most %d; leave them out to seed all, or seed a part at a time", len(s.Domains), maxDomains)
	}
	for _, list := range [][]string{s.Datasets, s.Batches, s.Domains} {
		if slices.Contains(list, "") {
			return inputf("an empty name of a dataset, a batch or a domain")
		}
	}
	if len(s.Batches) > 0 && len(s.Datasets) != 1 {
		return inputf("batches: they are of one dataset; name it")
	}
	if len(s.Crawl) > maxName || strings.ContainsRune(s.Crawl, 0) {
		return inputf("crawl: at most %d bytes, none of them 0", maxName)
	}
	if s.RefetchAfter != "" {
		if _, err := deadline.ParseDuration(s.RefetchAfter); err != nil {
			return inputf("refetch_after: %v", err)
		}
	}
	_, err := s.hosts()
	return err
}

// hosts returns the domains in canonical form.
func (s *SeedSpec) hosts() ([]string, error) {
	var out []string
	for _, text := range s.Domains {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), "http://"+text+"/")
		if err != nil || strings.ContainsAny(text, "/?#@") {
			return nil, inputf("%q is no domain; use a name such as example.com", text)
		}
		if u.Domain != u.Host {
			return nil, inputf("%s is a host of the domain %s, which can be seeded as a whole", u.Host, u.Domain)
		}
		out = append(out, strings.Clone(u.Domain))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (s *SeedSpec) open(ctx context.Context, store blob.Store, version string) (*scan.Slice, error) {
	hosts, err := s.hosts()
	if err != nil {
		return nil, err
	}
	slice, err := scan.Open(ctx, store, scan.Options{Version: version, Datasets: s.Datasets, Batches: s.Batches, Hosts: hosts})
	switch {
	case errors.Is(err, catalog.ErrNoVersion):
		return nil, inputf("the lake has no version yet; ingest something first")
	case errors.Is(err, catalog.ErrUnknownVersion), errors.Is(err, scan.ErrUnknownDataset), errors.Is(err, scan.ErrUnknownBatch):
		return nil, &InputError{err.Error()}
	}
	return slice, err
}

// SeedPlan is what PlanSeed finds.
type SeedPlan struct {
	// Version is the version that is seeded, Rows and Parts what it has to be read for that.
	Version string `json:"version"`
	Rows    int64  `json:"rows"`
	Parts   int    `json:"parts"`
}

// PlanSeed chooses the version, and asks the frontier whether it is there.
func PlanSeed(ctx context.Context, store blob.Store, spec SeedSpec) (SeedPlan, error) {
	if err := spec.Check(); err != nil {
		return SeedPlan{}, err
	}
	slice, err := spec.open(ctx, store, spec.Version)
	if err != nil {
		return SeedPlan{}, err
	}
	c, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return SeedPlan{}, inputf("frontier: %v", err)
	}
	if _, err := c.Stats(ctx); err != nil {
		return SeedPlan{}, refused(err)
	}
	p := SeedPlan{Version: slice.Version, Parts: len(slice.Tasks)}
	for i := range slice.Tasks {
		p.Rows += slice.Tasks[i].Rows
	}
	return p, nil
}

// refused makes an *InputError of an answer that says that a request makes no sense.
func refused(err error) error {
	var r *client.RefusedError
	if errors.As(err, &r) && r.Status < 500 && r.Status != 429 {
		return &InputError{err.Error()}
	}
	return err
}

// SeedProgress is how far a seed is, and what became of the URLs until there. It is a heartbeat,
// too.
type SeedProgress struct {
	// Part is the part that is read, Row how many of its rows are done.
	Part int   `json:"part"`
	Row  int64 `json:"row"`
	// Rows counts the rows of all parts until there, URLs what was sent: hidden rows are not, and
	// equal neighbours are once.
	Rows int64 `json:"rows"`
	URLs int64 `json:"urls"`
	// Added, Known, Updated and Rejected, by reason, are what became of them. What was sent, and
	// not yet counted, when a worker died is sent again, and is then known. Restarts counts these.
	Added    int64            `json:"added"`
	Known    int64            `json:"known"`
	Updated  int64            `json:"updated,omitempty"`
	Rejected map[string]int64 `json:"rejected,omitempty"`
	Restarts int              `json:"restarts,omitempty"`
	// Done says that all parts are done.
	Done bool `json:"done,omitempty"`
}

// seedBatch is URLs that were sent together, and the position after them.
type seedBatch struct {
	urls      int
	part      int
	row, rows int64
	results   []client.Result
}

// Seed adds URLs of the version to the frontier, from a position on, in the order of the parts and
// their rows. It returns when all are done, or after some millions of rows. Report gets every
// progress. The version is held by a lease.
func Seed(ctx context.Context, store blob.Store, spec SeedSpec, version string, from SeedProgress, report func(SeedProgress)) (SeedProgress, error) {
	return seed(ctx, store, spec, version, from, defaultSeed, report)
}

func seed(
	ctx context.Context, store blob.Store, spec SeedSpec, version string, from SeedProgress, lim seedLimits, report func(SeedProgress),
) (SeedProgress, error) {
	slice, err := spec.open(ctx, store, version)
	if err != nil {
		return from, err
	}
	release, err := slice.Hold(ctx, "starter frontier seed")
	if errors.Is(err, scan.ErrDropped) {
		return from, inputf("%v; seed again", err)
	}
	if err != nil {
		return from, err
	}
	defer release()
	c, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return from, inputf("frontier: %v", err)
	}
	after := time.Duration(0)
	if spec.RefetchAfter != "" {
		if after, err = deadline.ParseDuration(spec.RefetchAfter); err != nil {
			return from, inputf("refetch_after: %v", err)
		}
	}
	at := from.clone()
	err = client.InOrder(ctx, seedAtOnce, func(ctx context.Context, hand func(func(context.Context) (*seedBatch, error)) error) error {
		r := seedReader{spec: &spec, lim: lim, slice: slice, client: c, hand: hand, after: after, now: time.Now()}
		return r.read(ctx, from)
	}, func(b *seedBatch) error {
		at.take(b)
		report(at.clone()) // whoever gets it keeps it
		return nil
	})
	if err != nil {
		return at, refused(err)
	}
	at.Done = at.Part == len(slice.Tasks)
	return at, nil
}

func (p *SeedProgress) clone() SeedProgress {
	out := *p
	out.Rejected = map[string]int64{}
	maps.Copy(out.Rejected, p.Rejected)
	return out
}

// take moves the progress on by a batch.
func (p *SeedProgress) take(b *seedBatch) {
	p.Part, p.Row, p.Rows = b.part, b.row, b.rows
	p.URLs += int64(b.urls)
	for _, r := range b.results {
		switch r.Result {
		case client.Added:
			p.Added++
		case client.Known:
			p.Known++
		case client.Updated:
			p.Updated++
		default:
			reason := r.Reason
			if before, _, ok := strings.Cut(reason, ":"); ok { // the rest may have a URL
				reason = before
			}
			if reason == "" {
				reason = r.Result
			}
			p.Rejected[reason]++
		}
	}
}

// seedReader reads rows and sends their URLs.
type seedReader struct {
	spec   *SeedSpec
	lim    seedLimits
	slice  *scan.Slice
	client *client.Client
	hand   func(func(context.Context) (*seedBatch, error)) error
	after  time.Duration
	now    time.Time

	urls []client.URL
	text []byte
}

func (r *seedReader) read(ctx context.Context, from SeedProgress) error {
	columns := []part.Column{part.ColScheme, part.ColPort, part.ColHost, part.ColPathQuery, part.ColTS}
	before := from.Rows - from.Row // rows of the parts that are done
	skip := from.Row
	for number := from.Part; number < len(r.slice.Tasks); number++ {
		row := int64(0)
		for rows, err := range r.slice.Read(ctx, number, columns...) {
			if err != nil {
				return err
			}
			for i := range rows.Len() {
				at := rows.At(i)
				now := row + int64(at)
				if now < skip {
					continue
				}
				if len(r.urls) >= r.lim.lines {
					if err := r.send(number, now, before+now); err != nil || before+now-from.Rows >= r.lim.rows {
						return err
					}
				}
				r.add(&rows, at)
			}
			row += int64(rows.Rows)
		}
		before += row
		skip = 0
	}
	return r.send(len(r.slice.Tasks), 0, before)
}

// add adds the URL of a row. Of neighbours with one URL the latest time counts.
func (r *seedReader) add(rows *scan.Rows, at int) {
	url := urlnorm.URL{Scheme: rows.Scheme[at], Host: rows.Host[at], Port: rows.Port[at], PathQuery: rows.PathQuery[at]}
	r.text = url.AppendTo(r.text[:0])
	var due time.Time
	if r.after > 0 && rows.HasTS[at] {
		if due = time.UnixMilli(rows.TS[at]).UTC().Add(r.after); !due.After(r.now) {
			due = time.Time{}
		}
	}
	if n := len(r.urls); n > 0 && r.urls[n-1].URL == string(r.text) {
		if due.After(r.urls[n-1].RefetchAfter) {
			r.urls[n-1].RefetchAfter = due
		}
		return
	}
	r.urls = append(r.urls, client.URL{
		URL: string(r.text), Crawl: r.spec.Crawl, Priority: r.spec.Priority, RefetchAfter: due, Update: r.spec.Update,
	})
}

// send sends what was added, with the position after it.
func (r *seedReader) send(number int, row, rows int64) error {
	urls := r.urls
	r.urls = nil
	return r.hand(func(ctx context.Context) (*seedBatch, error) {
		b := &seedBatch{urls: len(urls), part: number, row: row, rows: rows}
		if len(urls) == 0 {
			return b, nil
		}
		var err error
		b.results, err = r.client.Add(ctx, urls)
		return b, err
	})
}
