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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Verify compares three sets. Both sides of the visits are too large for memory, so each is written
// to files by the hash of its URLs, and the files are compared one after the other.

const (
	// verifyFiles is the number of files of each side: of 160 million visits a file has some 60 MB.
	verifyFiles = 256
	// examples is how many differences of a kind are named.
	examples = 20
)

// Verifying is the progress of Verify.
type Verifying struct {
	// Rows are those of the tables that were read, Visits those of the frontier.
	Rows   int64 `json:"rows"`
	Visits int64 `json:"visits"`
}

// Set is how the two sides of a set compare.
type Set struct {
	// Rows are those of the table whose URL or domain has a canonical form, Equal those that the
	// frontier has just so. Same counts rows of which a later one of the same URL counts.
	Rows  int64 `json:"rows"`
	Equal int64 `json:"equal"`
	Same  int64 `json:"same,omitempty"`
	// Newer were visited since by the frontier's own crawlers.
	Newer int64 `json:"newer,omitempty"`
	// Missing are not in the frontier, Differ have another state there.
	Missing int64 `json:"missing"`
	Differ  int64 `json:"differ"`
	// Only are in the frontier alone.
	Only int64 `json:"only"`
	// Left counts rows by the reason why they are not compared.
	Left map[string]int64 `json:"left,omitempty"`
	// Examples name some of what is missing or differs by the keys of its rows, and some of what
	// only the frontier has by the SHA-256 of its URL.
	Examples []string `json:"examples,omitempty"`
}

func (s *Set) example(format string, args ...any) {
	if len(s.Examples) < examples {
		s.Examples = append(s.Examples, fmt.Sprintf(format, args...))
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
func Verify(ctx context.Context, spec Spec, dir string, report func(Verifying)) (Comparison, error) {
	if err := spec.Check(); err != nil {
		return Comparison{}, err
	}
	src, err := open(ctx, &spec)
	if err != nil {
		return Comparison{}, final1(err)
	}
	defer src.close(ctx)
	c, err := client.New(spec.Frontier, client.Options{})
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
		m: migration{spec: &spec, src: src, client: c, now: time.Now()}, norm: norm, dir: dir, report: report,
		out: Comparison{Sets: map[string]*Set{}, Equal: true},
	}
	checks := map[string]func(context.Context, *table, *Set) error{
		tableVisited: v.visited, tableFrontier: v.waiting, tableDomains: v.domains,
	}
	for _, name := range Tables {
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
	rest   uint64 // a hash of content, redirect and error
	name   string // of the row, or of the URL
}

// same reports whether a visit is that of a row, which may have no time.
func (s *side) same(row side) bool {
	return (s.time == row.time || row.time == 0) && s.status == row.status && s.rest == row.rest
}

func (s *side) append(b []byte, id xxh3.Uint128) []byte {
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, id.Hi), id.Lo)
	b = binary.BigEndian.AppendUint64(b, uint64(s.time))
	b = binary.BigEndian.AppendUint16(b, s.status)
	b = binary.BigEndian.AppendUint64(b, s.rest)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.name)))
	return append(b, s.name...)
}

const sideHeader = 16 + 8 + 2 + 8 + 2

func readSide(r *bufio.Reader) (id xxh3.Uint128, s side, err error) {
	var b [sideHeader]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return id, s, err
	}
	id = xxh3.Uint128{Hi: binary.BigEndian.Uint64(b[:]), Lo: binary.BigEndian.Uint64(b[8:])}
	s = side{time: int64(binary.BigEndian.Uint64(b[16:])), status: binary.BigEndian.Uint16(b[24:]), rest: binary.BigEndian.Uint64(b[26:])}
	name := make([]byte, binary.BigEndian.Uint16(b[34:]))
	_, err = io.ReadFull(r, name)
	s.name = string(name)
	return id, s, err
}

// hashOf hashes what a visit has besides URL, time and status. A content that is no UTF-8 is
// compared as it was sent.
func hashOf(v *client.Visit) uint64 {
	return xxh3.HashString(v.Content + "\x00" + v.Redirect + "\x00" + v.Error)
}

// sides writes one side to files.
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

func (s *sides) add(url string, one side) error {
	id := xxh3.HashString128(url)
	one.name = one.name[:min(len(one.name), 1<<16-1)]
	s.buf = one.append(s.buf[:0], id)
	_, err := s.out[id.Hi%verifyFiles].Write(s.buf)
	return err
}

// read calls yield with what file i has.
func (s *sides) read(i int, yield func(id xxh3.Uint128, one side)) error {
	if err := s.out[i].Flush(); err != nil {
		return err
	}
	if _, err := s.files[i].Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(s.files[i], 256<<10)
	for {
		id, one, err := readSide(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.files[i].Name(), err)
		}
		yield(id, one)
	}
}

func (s *sides) close() (err error) {
	for _, f := range s.files {
		if f != nil {
			err = errors.Join(err, f.Close())
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
	defer func() { err = errors.Join(err, rows.close()) }()
	if err := v.rows(ctx, t, pageRows, func(page []row) error {
		for i := range page {
			visit := v.m.visit(&page[i])
			url, why := v.canonical(visit.URL)
			if why != "" {
				set.left(why)
				continue
			}
			set.Rows++
			one := side{status: visit.Status, rest: hashOf(&visit), name: keyOf(t, &page[i])}
			if !visit.Time.IsZero() {
				one.time = visit.Time.UnixMilli()
			}
			if err := rows.add(url, one); err != nil {
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
			one := side{time: visit.Time.UnixMilli(), status: visit.Status, rest: hashOf(&visit), name: digest(visit.URL)}
			if err := to.add(visit.URL, one); err != nil {
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
func compareFile(i int, rows, visits *sides, set *Set) error {
	type pair struct{ row, visit []side }
	pairs := map[xxh3.Uint128]*pair{}
	at := func(id xxh3.Uint128) *pair {
		p := pairs[id]
		if p == nil {
			p = &pair{}
			pairs[id] = p
		}
		return p
	}
	if err := rows.read(i, func(id xxh3.Uint128, one side) { p := at(id); p.row = append(p.row, one) }); err != nil {
		return err
	}
	if err := visits.read(i, func(id xxh3.Uint128, one side) { p := at(id); p.visit = append(p.visit, one) }); err != nil {
		return err
	}
	byTime := func(a, b side) int { return cmp.Compare(a.time, b.time) }
	for _, p := range pairs {
		if len(p.row) == 0 {
			set.Only++
			set.example("only the frontier has the visit of URL %s", p.visit[0].name)
			continue
		}
		// The frontier keeps one visit of several in one second.
		latest := slices.MaxFunc(p.row, func(a, b side) int { return cmp.Compare(a.time/1000, b.time/1000) })
		for _, r := range p.row {
			if r.time/1000 == latest.time/1000 && slices.ContainsFunc(p.visit, func(v side) bool { return v.same(r) }) {
				latest = r
			}
		}
		set.Same += int64(len(p.row) - 1)
		if len(p.visit) == 0 {
			set.Missing++
			set.example("the frontier has no visit of row %s", latest.name)
			continue
		}
		last := slices.MaxFunc(p.visit, byTime)
		switch {
		case slices.ContainsFunc(p.visit, func(v side) bool { return v.time == last.time && v.same(latest) }):
			set.Equal++
		case last.time > latest.time && latest.time > 0 && slices.ContainsFunc(p.visit, func(v side) bool { return v.same(latest) }):
			set.Newer++
		case last.time != latest.time && latest.time > 0:
			set.Differ++
			set.example("row %s: the time is %s, in the frontier %s", latest.name, stamp(latest.time), stamp(last.time))
		case last.status != latest.status:
			set.Differ++
			set.example("row %s: the status is %d, in the frontier %d", latest.name, latest.status, last.status)
		default:
			set.Differ++
			set.example("row %s: content, redirect or error is not that of the frontier", latest.name)
		}
	}
	return nil
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// waiting compares the table frontier with what the frontier knows: each URL waits, or was visited.
func (v *verification) waiting(ctx context.Context, t *table, set *Set) error {
	return v.rows(ctx, t, pageRows, func(page []row) error {
		var questions []client.Question
		var names []string
		for i := range page {
			u := v.m.url(t, &page[i])
			if _, why := v.canonical(u.URL); why != "" {
				set.left(why)
				continue
			}
			set.Rows++
			questions = append(questions, client.Question{URL: u.URL, Crawl: u.Crawl})
			names = append(names, keyOf(t, &page[i]))
		}
		all, err := v.m.client.SeenAll(ctx, questions)
		if err != nil {
			return err
		}
		for i, s := range all {
			switch {
			case !s.Seen:
				set.Missing++
				set.example("the frontier does not know row %s", names[i])
			case s.Settled:
				set.Newer++ // it was visited before the migration, or since
			default:
				set.Equal++
			}
		}
		return nil
	})
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
			d, err := v.m.client.Domain(ctx, s.key)
			if err != nil {
				return err
			}
			differs := ""
			switch {
			case s.excluded && !d.Excluded:
				differs = "it is not excluded"
			case s.change.Delay != nil && d.Delay < *s.change.Delay:
				differs = fmt.Sprintf("its delay is %g s instead of %g s", d.Delay, *s.change.Delay)
			case s.change.Robots != nil && !slices.ContainsFunc(d.Robots, func(r client.Robots) bool {
				return r.Host == cmp.Or(s.change.Robots.Host, s.key) && r.Expires.Unix() == s.change.Robots.Expires.Unix()
			}):
				differs = "its robots.txt is not there"
			}
			if differs == "" {
				set.Equal++
				continue
			}
			set.Differ++
			set.example("row %s: %s", keyOf(t, &page[i]), differs)
		}
		return nil
	})
}
