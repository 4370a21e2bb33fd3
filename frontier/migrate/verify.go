package migrate

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Verify compares three sets. Both sides of visits and of what waits are too large for memory, so
// each is written to files by the hash of its URLs, and the files are compared one after the other.

const (
	// verifyFiles is the number of files of each side: of 160 million visits a file has some 60 MB.
	verifyFiles = 256
	// examples is how many differences of a kind are named.
	examples = 20
	// maxDomainRobots is how many of the robots.txt files of a domain the frontier lists.
	maxDomainRobots = 100
)

// Verifying is the progress of Verify.
type Verifying struct {
	// Rows are those of the tables that were read. Visits, and URLs that wait, are those of the
	// frontier.
	Rows   int64 `json:"rows"`
	Visits int64 `json:"visits"`
	URLs   int64 `json:"urls,omitempty"`
}

// Set is how the two sides of a set compare.
type Set struct {
	// Rows are those of the table whose URL or domain has a canonical form, Equal those that the
	// frontier has just so. Same counts rows of a URL that another row counts for.
	Rows  int64 `json:"rows"`
	Equal int64 `json:"equal"`
	Same  int64 `json:"same,omitempty"`
	// Altered have in the frontier what the migration made of a value that it cannot hold: a status
	// above 999, a time in the future, a depth or a priority that is too large, or negative.
	Altered int64 `json:"altered,omitempty"`
	// Visited do not wait since visited_urls has their URLs, too.
	Visited int64 `json:"visited,omitempty"`
	// Newer were visited, or have got another robots.txt, since by the frontier's own crawlers.
	Newer int64 `json:"newer,omitempty"`
	// Missing are not in the frontier, Differ have another state there.
	Missing int64 `json:"missing"`
	Differ  int64 `json:"differ"`
	// Only are in the frontier alone: visits, or URLs that wait.
	Only int64 `json:"only"`
	// Left counts rows by the reason why they are not compared.
	Left map[string]int64 `json:"left,omitempty"`
	// Examples name some of what is missing or differs by the keys of its rows, and some of what
	// only the frontier has by the SHA-256 of its URL.
	Examples []string `json:"examples,omitempty"`
}

// differ notes a row that differs, missing one that is not there, and only what has no row. Each
// names as many as the others, so that none hides another.
func (s *Set) differ(format string, args ...any)  { s.example(&s.Differ, format, args...) }
func (s *Set) missing(format string, args ...any) { s.example(&s.Missing, format, args...) }
func (s *Set) only(format string, args ...any)    { s.example(&s.Only, format, args...) }

func (s *Set) example(count *int64, format string, args ...any) {
	if *count++; *count <= examples {
		s.Examples = append(s.Examples, fmt.Sprintf(format, args...))
	}
}

// same notes a row that the frontier has as it was sent.
func (s *Set) same(altered bool) {
	if altered {
		s.Altered++
	} else {
		s.Equal++
	}
}

func (s *Set) left(why string) {
	if s.Left == nil {
		s.Left = map[string]int64{}
	}
	s.Left[why]++
}

// Comparison is the result of Verify.
type Comparison struct {
	// Sets are by table.
	Sets map[string]*Set `json:"sets"`
	// Equal says that nothing is missing and nothing differs.
	Equal bool `json:"equal"`
}

// Verify reads the tables and what the frontier has, and compares them. Dir is for its files.
func Verify(ctx context.Context, spec Spec, dir string, report func(Verifying)) (c Comparison, err error) {
	if err := spec.Check(); err != nil {
		return Comparison{}, err
	}
	src, err := open(ctx, &spec)
	if err != nil {
		return Comparison{}, final1(err)
	}
	defer src.close(ctx)
	frontier, err := client.Dial(ctx, spec.Frontier)
	if err != nil {
		return Comparison{}, inputf("frontier: %v", err)
	}
	if dir, err = os.MkdirTemp(dir, "verify-"); err != nil {
		return Comparison{}, err
	}
	defer os.RemoveAll(dir)
	norm, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{})
	if err != nil {
		return Comparison{}, err
	}
	v := verification{
		m: migration{spec: &spec, src: src, client: frontier, now: time.Now()}, norm: norm, dir: dir, report: report,
		out: Comparison{Sets: map[string]*Set{}, Equal: true},
	}
	checks := map[string]func(context.Context, *table, *Set) error{
		tableVisited: v.visited, tableFrontier: v.waiting, tableDomains: v.domains,
	}
	defer func() { err = errors.Join(err, v.visitedRows.close()) }()
	for _, name := range Tables { // visited_urls first
		t := src.tables[name]
		if t == nil {
			continue
		}
		set := &Set{}
		v.out.Sets[name] = set
		if err := checks[name](ctx, t, set); err != nil {
			return Comparison{}, final1(err)
		}
		v.out.Equal = v.out.Equal && set.Missing == 0 && set.Differ == 0
	}
	return v.out, nil
}

type verification struct {
	m        migration
	norm     *urlnorm.Normalizer
	dir      string
	progress Verifying
	report   func(Verifying)
	out      Comparison
	// visitedRows are the rows of visited_urls, nil if it is not there.
	visitedRows *sides
}

// rows calls yield with the pages of a table.
func (v *verification) rows(ctx context.Context, t *table, size int, yield func([]row) error) error {
	var key []string
	for {
		rows, err := v.m.src.page(ctx, t, key, size)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := yield(rows); err != nil {
				return err
			}
			key = rows[len(rows)-1].key
			v.progress.Rows += int64(len(rows))
			v.report(v.progress)
		}
		if len(rows) < size {
			return nil
		}
	}
}

// canonical returns the canonical form of a URL, or why there is none.
func (v *verification) canonical(url string) (text, why string) {
	u, err := v.norm.Parse([]byte(url))
	var reject *urlnorm.RejectError
	switch {
	case errors.As(err, &reject):
		return "", string(reject.Reason)
	case err != nil:
		return "", "no URL"
	}
	return u.String(), ""
}

// keyOf names a row. A key that is a URL is named by its hash.
func keyOf(t *table, r *row) string {
	var parts []string
	for i, k := range t.keys {
		value := readable(r.key[i])
		if strings.Contains(value, "://") {
			value = digest(value)
		}
		parts = append(parts, k+"="+value)
	}
	return strings.Join(parts, " ")
}

func digest(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// side is one of the two sides of a visit.
type side struct {
	time   int64 // in milliseconds since 1970, 0 for none
	status uint16
	depth  uint32
	rest   uint64 // a hash of content, redirect and error
	// altered says that a value of the row is another in the frontier.
	altered bool
	name    string // of the row, or of the URL
}

// same reports whether a visit is that of a row, which may have no time.
func (s *side) same(row side) bool {
	return (s.time == row.time || row.time == 0) && s.status == row.status && s.depth == row.depth && s.rest == row.rest
}

func (s *side) append(b []byte) []byte {
	b = codec.AppendU64(codec.AppendU32(codec.AppendU64(b, uint64(s.time)), s.depth), s.rest)
	return codec.AppendString(codec.AppendUvarint(b, uint64(s.status)<<1|bit(s.altered)), s.name)
}

func parseSide(d *codec.Decoder) (s side, err error) {
	s = side{time: int64(d.U64()), depth: d.U32(), rest: d.U64()}
	status := d.Uint(1<<17 - 1)
	s.status, s.altered, s.name = uint16(status>>1), status&1 != 0, d.String()
	return s, d.Close()
}

// pending is one of the two sides of a URL that waits.
type pending struct {
	priority uint16
	depth    uint32
	altered  bool // as that of side
	// name and url are those of a row.
	name, url string
}

func (p *pending) append(b []byte) []byte {
	b = codec.AppendU32(codec.AppendUvarint(b, uint64(p.priority)<<1|bit(p.altered)), p.depth)
	return codec.AppendString(codec.AppendString(b, p.name), p.url)
}

func parsePending(d *codec.Decoder) (p pending, err error) {
	priority := d.Uint(1<<17 - 1)
	p = pending{uint16(priority >> 1), d.U32(), priority&1 != 0, d.String(), d.String()}
	return p, d.Close()
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// hashOf hashes what a visit has besides URL, time, status and depth. A content that is no UTF-8 is
// compared as it was sent.
func hashOf(v *client.Visit) uint64 {
	return xxh3.HashString(v.Content + "\x00" + v.Redirect + "\x00" + v.Error)
}

// sides writes one side of a comparison to files.
type sides struct {
	files [verifyFiles]*os.File
	out   [verifyFiles]*bufio.Writer
	buf   []byte
}

func newSides(dir, name string) (*sides, error) {
	s := &sides{}
	for i := range s.files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%03d", name, i)))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.files[i], s.out[i] = f, bufio.NewWriterSize(f, 32<<10)
	}
	return s, nil
}

// add adds what is known of a URL.
func (s *sides) add(url string, one interface{ append(b []byte) []byte }) error {
	id := xxh3.HashString128(url)
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(s.buf[:0], id.Hi), id.Lo)
	b = one.append(append(b, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(b[16:], uint32(len(b)-20))
	s.buf = b
	_, err := s.out[id.Hi%verifyFiles].Write(b)
	return err
}

// readSides returns what file i has of each URL.
func readSides[T any](s *sides, i int, parse func(*codec.Decoder) (T, error)) (map[xxh3.Uint128][]T, error) {
	if err := s.out[i].Flush(); err != nil {
		return nil, err
	}
	name := s.files[i].Name()
	if _, err := s.files[i].Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(s.files[i], 256<<10)
	all := map[xxh3.Uint128][]T{}
	var head [20]byte
	for {
		_, err := io.ReadFull(in, head[:])
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		b := make([]byte, binary.BigEndian.Uint32(head[16:]))
		if err == nil {
			_, err = io.ReadFull(in, b)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		one, err := parse(codec.NewDecoder(b, name, "side"))
		if err != nil {
			return nil, err
		}
		id := xxh3.Uint128{Hi: binary.BigEndian.Uint64(head[:]), Lo: binary.BigEndian.Uint64(head[8:])}
		all[id] = append(all[id], one)
	}
}

func (s *sides) close() (err error) {
	if s == nil {
		return nil
	}
	for _, f := range s.files {
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	return err
}

// visited compares visited_urls with the visits of the crawl. Of several rows, or visits, of a URL
// the latest counts.
func (v *verification) visited(ctx context.Context, t *table, set *Set) (err error) {
	rows, err := newSides(v.dir, "rows")
	if err != nil {
		return err
	}
	v.visitedRows = rows // which Verify closes
	if err := v.rows(ctx, t, pageRows, func(page []row) error {
		for i := range page {
			visit, altered := v.m.visit(&page[i])
			url, why := v.canonical(visit.URL)
			if why != "" {
				set.left(why)
				continue
			}
			set.Rows++
			one := side{status: visit.Status, depth: visit.Depth, rest: hashOf(&visit), altered: altered, name: keyOf(t, &page[i])}
			if !visit.Time.IsZero() {
				one.time = visit.Time.UnixMilli()
			}
			if err := rows.add(url, &one); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	visits, err := newSides(v.dir, "visits")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, visits.close()) }()
	if err := v.visits(ctx, visits); err != nil {
		return err
	}
	for i := range verifyFiles {
		if err := compareFile(i, rows, visits, set); err != nil {
			return err
		}
	}
	return nil
}

// visits writes the visits of the crawl.
func (v *verification) visits(ctx context.Context, to *sides) error {
	crawl := cmp.Or(v.m.spec.Crawl, "DEFAULT")
	for cursor := ""; ; {
		page, err := v.m.client.Visited(ctx, time.Time{}, cursor, 20_000)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(page.Lines)) {
			var visit client.Visit
			if err := json.Unmarshal([]byte(line), &visit); err != nil {
				return fmt.Errorf("a visit of the frontier: %w", err)
			}
			v.progress.Visits++
			if visit.Crawl != crawl {
				continue
			}
			one := side{time: visit.Time.UnixMilli(), status: visit.Status, depth: visit.Depth, rest: hashOf(&visit), name: digest(visit.URL)}
			if err := to.add(visit.URL, &one); err != nil {
				return err
			}
		}
		v.report(v.progress)
		if page.Visits == 0 {
			return nil
		}
		cursor = page.Next
	}
}

// compareFile compares the two sides of the URLs of a file.
func compareFile(i int, rowSides, visitSides *sides, set *Set) error {
	rows, err := readSides(rowSides, i, parseSide)
	if err != nil {
		return err
	}
	visits, err := readSides(visitSides, i, parseSide)
	if err != nil {
		return err
	}
	for id, all := range visits {
		if len(rows[id]) == 0 {
			set.only("only the frontier has the visit of URL %s", all[0].name)
		}
	}
	for id, all := range rows {
		compareVisits(all, visits[id], set)
	}
	return nil
}

// compareVisits compares the rows of a URL with its visits.
func compareVisits(rows, visits []side, set *Set) {
	// The frontier keeps one visit of several in one second.
	latest := slices.MaxFunc(rows, func(a, b side) int { return cmp.Compare(a.time/1000, b.time/1000) })
	for _, r := range rows {
		if r.time/1000 == latest.time/1000 && slices.ContainsFunc(visits, func(v side) bool { return v.same(r) }) {
			latest = r
		}
	}
	set.Same += int64(len(rows) - 1)
	if len(visits) == 0 {
		set.missing("the frontier has no visit of row %s", latest.name)
		return
	}
	last := slices.MaxFunc(visits, func(a, b side) int { return cmp.Compare(a.time, b.time) })
	switch {
	case slices.ContainsFunc(visits, func(v side) bool { return v.time == last.time && v.same(latest) }):
		set.same(latest.altered)
	case last.time > latest.time && latest.time > 0 && slices.ContainsFunc(visits, func(v side) bool { return v.same(latest) }):
		set.Newer++
	case last.time != latest.time && latest.time > 0:
		set.differ("row %s: the time is %s, in the frontier %s", latest.name, stamp(latest.time), stamp(last.time))
	case last.status != latest.status:
		set.differ("row %s: the status is %d, in the frontier %d", latest.name, latest.status, last.status)
	case last.depth != latest.depth:
		set.differ("row %s: the depth is %d, in the frontier %d", latest.name, latest.depth, last.depth)
	default:
		set.differ("row %s: content, redirect or error is not that of the frontier", latest.name)
	}
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// waiting compares the table frontier with what the frontier knows: each URL waits with its
// priority and depth, or was visited. Of several rows of a URL one counts that the frontier has.
func (v *verification) waiting(ctx context.Context, t *table, set *Set) (err error) {
	rows, err := newSides(v.dir, "waiting-rows")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.close()) }()
	if err := v.rows(ctx, t, pageRows, func(page []row) error {
		for i := range page {
			u, altered := v.m.url(t, &page[i])
			url, why := v.canonical(u.URL)
			if why != "" {
				set.left(why)
				continue
			}
			set.Rows++
			if err := rows.add(url, &pending{u.Priority, u.Depth, altered, keyOf(t, &page[i]), url}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	urls, err := newSides(v.dir, "waiting-urls")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, urls.close()) }()
	for cursor, more := "", true; more; more = cursor != "" {
		var page []client.ListedURL
		if page, cursor, err = v.m.client.List(ctx, v.m.spec.Crawl, cursor, 20_000); err != nil {
			return err
		}
		for _, u := range page {
			if err := urls.add(u.URL, &pending{priority: u.Priority, depth: u.Depth}); err != nil {
				return err
			}
		}
		v.progress.URLs += int64(len(page))
		v.report(v.progress)
	}
	for i := range verifyFiles {
		if err := v.compareWaiting(ctx, i, rows, urls, set); err != nil {
			return err
		}
	}
	return nil
}

// compareWaiting compares the two sides of the URLs of a file.
func (v *verification) compareWaiting(ctx context.Context, i int, rowSides, urlSides *sides, set *Set) error {
	rows, err := readSides(rowSides, i, parsePending)
	if err != nil {
		return err
	}
	urls, err := readSides(urlSides, i, parsePending)
	if err != nil {
		return err
	}
	for id := range urls {
		if len(rows[id]) == 0 {
			set.Only++ // most are links that were found since
		}
	}
	unlisted := map[xxh3.Uint128]pending{}
	for id, all := range rows {
		set.Same += int64(len(all) - 1)
		if len(urls[id]) == 0 {
			unlisted[id] = all[0]
			continue
		}
		r, got := all[0], urls[id][0]
		equal := slices.IndexFunc(all, func(r pending) bool { return r.priority == got.priority && r.depth == got.depth })
		switch {
		case equal >= 0:
			set.same(all[equal].altered)
		case r.priority != got.priority:
			set.differ("row %s: the priority is %d, in the frontier %d", r.name, r.priority, got.priority)
		default:
			set.differ("row %s: the depth is %d, in the frontier %d", r.name, r.depth, got.depth)
		}
	}
	if len(unlisted) == 0 {
		return nil
	}
	var visited map[xxh3.Uint128][]side
	if v.visitedRows != nil {
		if visited, err = readSides(v.visitedRows, i, parseSide); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(unlisted)), pageRows) {
		if err := v.unlisted(ctx, part, unlisted, visited, set); err != nil {
			return err
		}
	}
	return nil
}

// unlisted asks for URLs that do not wait, or changed while the list was read.
func (v *verification) unlisted(ctx context.Context, ids []xxh3.Uint128, all map[xxh3.Uint128]pending, visited map[xxh3.Uint128][]side, set *Set) error {
	rows := make([]pending, len(ids))
	for i, id := range ids {
		rows[i] = all[id]
	}
	questions := make([]client.Question, len(rows))
	for i, r := range rows {
		questions[i] = client.Question{URL: r.url, Crawl: v.m.spec.Crawl}
	}
	answers, err := v.m.client.SeenAll(ctx, questions)
	if err != nil {
		return err
	}
	for i, s := range answers {
		switch {
		case !s.Seen:
			set.missing("the frontier does not know row %s", rows[i].name)
		case s.Settled && len(visited[ids[i]]) > 0:
			set.Visited++
		case s.Settled:
			set.Newer++
		default:
			set.left("changed in the frontier meanwhile: compare again")
		}
	}
	return nil
}

// domains compares the settings of domains.
func (v *verification) domains(ctx context.Context, t *table, set *Set) error {
	return v.rows(ctx, t, domainRows, func(page []row) error {
		for i := range page {
			s, why := v.m.settingsOf(&page[i])
			if why == "" && s.change == (client.DomainChange{}) && !s.excluded {
				why = "nothing to set"
			}
			if why != "" {
				set.left(why)
				continue
			}
			set.Rows++
			differs, newer, err := v.domain(ctx, &s)
			switch {
			case err != nil:
				return err
			case differs != "":
				set.differ("row %s: %s", keyOf(t, &page[i]), differs)
			case newer:
				set.Newer++
			default:
				set.Equal++
			}
		}
		return nil
	})
}

// domain says how the settings of a row differ from those of the frontier, and whether that has
// fetched another robots.txt since.
func (v *verification) domain(ctx context.Context, s *settings) (differs string, newer bool, err error) {
	d, err := v.m.client.Domain(ctx, s.key)
	if err != nil {
		return "", false, err
	}
	if s.excluded && !d.Excluded {
		return "it is not excluded", false, nil
	}
	if want := s.change.Delay; want != nil {
		asked := *want // or what the robots.txt of a host asks for, of which not all may be there
		for _, r := range d.Robots {
			asked = max(asked, r.Delay)
		}
		if d.Delay < *want || d.Delay > asked && s.own && len(d.Robots) < maxDomainRobots {
			return fmt.Sprintf("its delay is %g s, in the frontier %g s", *want, d.Delay), false, nil
		}
	}
	if s.change.Robots == nil {
		return "", false, nil
	}
	got, ok, err := v.m.client.Robots(ctx, s.key, cmp.Or(s.change.Robots.Host, s.key))
	switch at := s.change.Robots.Expires.Unix(); {
	case err != nil:
		return "", false, err
	case !ok:
		return "its robots.txt is not there", false, nil
	case got.Expires.Unix() > at:
		return "", true, nil
	case got.Expires.Unix() < at:
		return fmt.Sprintf("its robots.txt holds until %s, in the frontier until %s", stamp(at*1000), stamp(got.Expires.UnixMilli())), false, nil
	case got.Text != s.change.Robots.Text:
		return "its robots.txt has another text in the frontier", false, nil
	}
	return "", false, nil
}
