// Package migrate brings the frontier of a crawler that had it in PostgreSQL into a frontier: the
// tables visited_urls, frontier and domain_metadata.
//
// # What becomes of the rows
//
// A row of visited_urls becomes a visit with its time, status, content, redirect and error, and its
// URL is settled. A row of frontier becomes a URL that waits, with depth and priority, unless it
// was visited. A row of domain_metadata sets the delay of a domain, its robots.txt as long as that
// holds, and in the end its exclusion: until then the domain is paused. Columns and tables that are
// not there are left out, and so are rows whose URL has no canonical form: they are counted by
// reason.
//
// # Promises
//
// Migrate may be repeated and may die at any point. It reads each table by a unique key, says after
// which key it is, and goes on there. What is sent twice is known the second time, so a second
// migration adds what the tables have got since. Verify compares both sides. Nothing is written to
// the database.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// pageRows is how many rows are read at once, and sent together; atOnce is how many requests
	// are under way.
	pageRows = 5_000
	atOnce   = 3
	// domainRows is pageRows of domain_metadata, whose rows have a robots.txt.
	domainRows = 200
	// migrateRows is the number of rows after which Migrate returns.
	migrateRows = 5_000_000
	// maxName is the largest length of the name of a crawl, as in the frontier.
	maxName = 512
	// maxRobots is the largest robots.txt: what is behind it means nothing (RFC 9309).
	maxRobots = 500 << 10
	// priorityScale is what a priority that is no whole number is multiplied by.
	priorityScale = 1000
)

// DefaultSchema is the schema of a migration that names none.
const DefaultSchema = "public"

// Spec says which database goes to which frontier. Its JSON is what a person types into the
// Temporal UI.
type Spec struct {
	// Lake is the lake whose workers do it; nothing of it is read or written.
	Lake string `json:"lake"`
	// DSN says how workers connect, as in package postgres; it has no password. Schema is that of
	// the tables, "" for DefaultSchema.
	DSN    string `json:"dsn"`
	Schema string `json:"schema,omitempty"`
	// Frontier is the URL of a frontierd, Crawl the crawl of the URLs.
	Frontier string `json:"frontier"`
	Crawl    string `json:"crawl,omitempty"`
	// ByHost says that the frontier groups URLs by host (frontierd --queue-by host).
	ByHost bool `json:"by_host,omitempty"`
	// Verify compares the database with the frontier and sends nothing.
	Verify bool `json:"verify,omitempty"`
}

// InputError means that the request, or what the database has, does not allow it. A retry cannot
// help; the text says what to do.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputf(format string, args ...any) error { return &InputError{fmt.Sprintf(format, args...)} }

// Check sets the defaults and returns what is wrong with the request, an *InputError.
func (s *Spec) Check() error {
	if s.Schema == "" {
		s.Schema = DefaultSchema
	}
	if err := postgres.CheckDSN(s.DSN); err != nil {
		return inputf("dsn: %v", err)
	}
	if err := client.CheckURL(s.Frontier); err != nil {
		return inputf("frontier: %v", err)
	}
	if len(s.Crawl) > maxName || strings.ContainsRune(s.Crawl, 0) {
		return inputf("crawl: at most %d bytes, none of them 0", maxName)
	}
	if s.Lake == "" {
		return inputf("lake: it is missing")
	}
	return nil
}

// Plan is what there is to do.
type Plan struct {
	// Rows are about how many rows each table has. A table that is not there is not in it.
	Rows map[string]int64 `json:"rows"`
}

// Look finds the tables, and asks the frontier whether it is there.
func Look(ctx context.Context, spec Spec) (Plan, error) {
	if err := spec.Check(); err != nil {
		return Plan{}, err
	}
	src, err := open(ctx, &spec)
	if err != nil {
		return Plan{}, final1(err)
	}
	defer src.close(ctx)
	c, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return Plan{}, inputf("frontier: %v", err)
	}
	if _, err := c.Stats(ctx); err != nil {
		return Plan{}, final1(err)
	}
	p := Plan{Rows: map[string]int64{}}
	for name, t := range src.tables {
		p.Rows[name] = t.rows
	}
	return p, nil
}

// final1 makes an *InputError of errors of other packages that no retry mends.
func final1(err error) error {
	var r *client.RefusedError
	var db *postgres.InputError
	switch {
	case errors.As(err, &r) && r.Status < 500 && r.Status != 429:
		return &InputError{err.Error()}
	case errors.As(err, &db):
		return &InputError{db.Reason}
	}
	return err
}

// Counts say what became of the rows of a table.
type Counts struct {
	Rows int64 `json:"rows"`
	// Added are new in the frontier, Known were there: as a visit, or waiting. What was sent, and
	// not yet counted, when a worker died is known, too.
	Added int64 `json:"added"`
	Known int64 `json:"known"`
	// Changed counts domains with settings.
	Changed int64 `json:"changed,omitempty"`
	// Left counts the rows that were left out by reason.
	Left map[string]int64 `json:"left,omitempty"`
}

// Progress is how far a migration is. It is a heartbeat, too.
type Progress struct {
	// Stage is the number of the stage in Stages, Key the key of its last row that is done.
	Stage int      `json:"stage"`
	Key   []string `json:"key,omitempty"`
	// Counts are by stage.
	Counts map[string]Counts `json:"counts"`
	// Restarts counts the workers that went on for another.
	Restarts int `json:"restarts,omitempty"`
	// Done says that all stages are done.
	Done bool `json:"done,omitempty"`
}

func (p *Progress) clone() Progress {
	out := *p
	out.Key = slices.Clone(p.Key)
	out.Counts = map[string]Counts{}
	for name, c := range p.Counts {
		c.Left = maps.Clone(c.Left)
		out.Counts[name] = c
	}
	return out
}

// Rows counts the rows of all stages.
func (p *Progress) Rows() (n int64) {
	for _, c := range p.Counts {
		n += c.Rows
	}
	return n
}

// sent is a page that was sent.
type sent struct {
	stage  int
	key    []string // nil at the end of the table
	counts Counts
}

// Migrate sends rows to the frontier, from a position on. It returns when all are done, or after
// some millions of rows. Report gets every progress.
func Migrate(ctx context.Context, spec Spec, from Progress, report func(Progress)) (Progress, error) {
	if err := spec.Check(); err != nil {
		return from, err
	}
	src, err := open(ctx, &spec)
	if err != nil {
		return from, final1(err)
	}
	defer src.close(ctx)
	c, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return from, inputf("frontier: %v", err)
	}
	m := migration{spec: &spec, src: src, client: c, now: time.Now()}
	at := from.clone()
	err = client.InOrder(ctx, atOnce, func(ctx context.Context, hand func(func(context.Context) (*sent, error)) error) error {
		return m.read(ctx, from, hand)
	}, func(s *sent) error {
		at.take(s)
		report(at.clone()) // whoever gets it keeps it
		return nil
	})
	if err != nil {
		return at, final1(err)
	}
	at.Done = at.Stage == len(Stages)
	return at, nil
}

func (p *Progress) take(s *sent) {
	p.Stage, p.Key = s.stage, s.key
	if s.key == nil {
		p.Stage++
	}
	c := p.Counts[Stages[s.stage]]
	c.Rows += s.counts.Rows
	c.Added += s.counts.Added
	c.Known += s.counts.Known
	c.Changed += s.counts.Changed
	for reason, n := range s.counts.Left {
		if c.Left == nil {
			c.Left = map[string]int64{}
		}
		c.Left[reason] += n
	}
	p.Counts[Stages[s.stage]] = c
}

// migration is a Migrate at work.
type migration struct {
	spec   *Spec
	src    *source
	client *client.Client
	now    time.Time
}

func (m *migration) read(ctx context.Context, from Progress, hand func(func(context.Context) (*sent, error)) error) error {
	n, key := int64(0), from.Key
	for number := from.Stage; number < len(Stages); number++ {
		stage := Stages[number]
		t, size := m.src.tables[stage], pageRows
		switch stage {
		case tableDomains:
			size = domainRows
		case stageExclusions:
			t = m.src.tables[tableDomains].only(domainName, domainExcluded)
		}
		for more := t != nil; more; {
			if n >= migrateRows {
				return nil
			}
			rows, err := m.src.page(ctx, t, key, size)
			if err != nil {
				return err
			}
			n += int64(len(rows))
			if more = len(rows) == size; !more && len(rows) == 0 {
				break
			}
			key = rows[len(rows)-1].key
			position := key
			if err := hand(func(ctx context.Context) (*sent, error) {
				s := &sent{stage: number, key: position, counts: Counts{Rows: int64(len(rows)), Left: map[string]int64{}}}
				return s, m.send(ctx, stage, t, rows, &s.counts)
			}); err != nil {
				return err
			}
		}
		if err := hand(func(context.Context) (*sent, error) { return &sent{stage: number}, nil }); err != nil {
			return err
		}
		key = nil
	}
	return nil
}

// send sends a page of a stage.
func (m *migration) send(ctx context.Context, stage string, t *table, rows []row, c *Counts) error {
	var results []client.Result
	var err error
	switch stage {
	case tableVisited:
		visits := make([]client.Visit, len(rows))
		for i := range rows {
			visits[i], _ = m.visit(&rows[i])
		}
		results, err = m.client.Import(ctx, visits)
	case tableFrontier:
		urls := make([]client.URL, len(rows))
		for i := range rows {
			urls[i], _ = m.url(t, &rows[i])
		}
		results, err = m.client.Add(ctx, urls)
	case tableDomains:
		return m.domains(ctx, rows, c)
	case stageExclusions:
		return m.exclusions(ctx, rows, c)
	}
	if err != nil {
		return err
	}
	for _, r := range results {
		switch r.Result {
		case client.Added:
			c.Added++
		case client.Known:
			c.Known++
		default:
			reason, _, _ := strings.Cut(r.Reason, ":") // the rest may have a URL
			if reason == "" {
				reason = r.Result
			}
			c.Left[reason]++
		}
	}
	return nil
}

// encoded returns a text in UTF-8: of a URL, bytes that are none are percent-encoded.
func encoded(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", text[0])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

func readable(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

const (
	maxStatus   = 999
	maxPriority = 65535
	maxDepth    = 1e9 - 1 // larger ones are dates, which the frontier shows as 0
)

// visit returns the visit of a row. It is altered if a value of the row is none that the frontier
// can hold: a time in the future is that of the migration, a status that is none is 0, and a depth
// is the next one that there can be.
func (m *migration) visit(r *row) (v client.Visit, altered bool) {
	v = client.Visit{
		URL: encoded(r.text(visitedURL)), Crawl: m.spec.Crawl, Time: r.time(visitedTime), Content: readable(r.text(visitedContent)),
		Redirect: encoded(r.text(visitedRedirect)), Error: readable(r.text(visitedError)), Depth: uint32(r.clamped(visitedDepth, maxDepth)),
	}
	if v.Time.After(m.now) { // of a clock that was wrong
		v.Time, altered = time.Time{}, true
	}
	if s := r.clamped(visitedStatus, 1<<20); s <= maxStatus {
		v.Status = uint16(s)
	}
	return v, altered || r.outside(visitedStatus, maxStatus) || r.outside(visitedDepth, maxDepth)
}

// url returns the URL of a row that waits. It is altered as visits are, by its depth or priority.
func (m *migration) url(t *table, r *row) (u client.URL, altered bool) {
	u = client.URL{
		URL: encoded(r.text(frontierURL)), Crawl: m.spec.Crawl,
		Depth: uint32(r.clamped(frontierDepth, maxDepth)), Priority: priorityOf(t, r),
	}
	return u, r.outside(frontierDepth, maxDepth) || r.outside(frontierPriority, maxPriority/scaleOf(t))
}

// priorityOf returns the priority of a row: a whole number as it is, any other in thousandths.
func priorityOf(t *table, r *row) uint16 {
	return uint16(min(max(r.number(frontierPriority)*scaleOf(t)+0.5, 0), maxPriority))
}

func scaleOf(t *table) float64 {
	if t.integer[frontierPriority] {
		return 1
	}
	return priorityScale
}

// settings are what a row of domain_metadata says.
type settings struct {
	key      string
	change   client.DomainChange
	excluded bool
	// own says that the row is of the domain itself, and not of one of its hosts.
	own bool
	// last is when the domain was asked last.
	last time.Time
}

// settingsOf returns what a row says, or why it says nothing. A domain of the old crawler may be a
// host of a larger domain: then it has a robots.txt of its own, and its delay is the domain's, but
// its exclusion cannot be.
func (m *migration) settingsOf(r *row) (s settings, why string) {
	name := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(r.text(domainName))), ".")
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), "http://"+bracketed(name)+"/")
	if err != nil || strings.ContainsAny(name, "/?#@\\ ") {
		return s, "no domain"
	}
	s.key = u.Domain
	if m.spec.ByHost {
		s.key = u.Host
	}
	s.own = s.key == u.Host
	if r.flag(domainExcluded) {
		if !s.own {
			return s, "exclusion of a host of a larger domain"
		}
		s.excluded = true
	}
	if d := r.number(domainDelay); d > 0 {
		s.change.Delay = &d
	}
	if expires := r.time(domainExpires); expires.After(m.now) && r.values[domainRobots] != nil {
		text := readable(r.text(domainRobots))
		if len(text) > maxRobots {
			text = strings.ToValidUTF8(text[:maxRobots], "")
		}
		s.change.Robots = &client.Robots{Text: text, Expires: expires}
		if !s.own {
			s.change.Robots.Host = strings.Clone(u.Host)
		}
	}
	s.last = r.time(domainLast)
	if s.change == (client.DomainChange{}) && !s.excluded && s.last.Before(m.now.Add(-time.Hour)) {
		return s, "nothing to set"
	}
	return s, ""
}

// bracketed puts an IPv6 address into brackets, as a URL has it.
func bracketed(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

// domains sets what rows of domain_metadata say. A domain that was asked a moment ago is not asked
// again before its delay.
func (m *migration) domains(ctx context.Context, rows []row, c *Counts) error {
	for i := range rows {
		s, why := m.settingsOf(&rows[i])
		if why != "" {
			c.Left[why]++
			continue
		}
		if s.excluded {
			s.change.Pause = &s.excluded // until exclusions
		}
		d, err := m.client.ChangeDomain(ctx, s.key, s.change)
		var refused *client.RefusedError
		if errors.As(err, &refused) && refused.Status < 500 {
			c.Left["refused"]++
			continue
		}
		if err != nil {
			return err
		}
		if rest := s.last.Add(time.Duration(d.Delay * float64(time.Second))).Sub(m.now); !s.last.IsZero() && rest > 0 {
			seconds := min(rest, 24*time.Hour).Seconds()
			if _, err := m.client.ChangeDomain(ctx, s.key, client.DomainChange{Block: &seconds}); err != nil {
				return err
			}
		}
		c.Changed++
	}
	return nil
}

// exclusions excludes the domains that are to be, which have rested until now.
func (m *migration) exclusions(ctx context.Context, rows []row, c *Counts) error {
	c.Rows = 0 // most rows are none
	yes, no := true, false
	for i := range rows {
		s, why := m.settingsOf(&rows[i])
		if why != "" || !s.excluded {
			continue
		}
		c.Rows++
		if _, err := m.client.ChangeDomain(ctx, s.key, client.DomainChange{Exclude: &yes, Pause: &no}); err != nil {
			return err
		}
		c.Changed++
	}
	return nil
}
