//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/suppress"
)

// hide adds a takedown and returns its id.
func (s *setup) hide(kind catalog.TargetKind, text string, dataset uint32, name string) string {
	s.tb.Helper()
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
	if err != nil {
		s.tb.Fatal(err)
	}
	r := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, DatasetID: dataset, Dataset: name, Reason: "a test", Created: time.Now()}
	if _, err := suppress.Add(s.tb.Context(), s.store, r, suppress.Options{TempDir: s.tb.TempDir()}); err != nil {
		s.tb.Fatal(err)
	}
	return r.ID
}

func (s *setup) compact(run string) {
	s.tb.Helper()
	if _, err := publish.CompactAll(s.tb.Context(), s.store, run, publish.Compaction{Full: true}, s.tb.TempDir()); err != nil {
		s.tb.Fatal(err)
	}
}

// xids is the next transaction id of the server: it stays if nobody writes.
func (s *setup) xids(c *pgx.Conn) string {
	s.tb.Helper()
	var out string
	if err := c.QueryRow(s.tb.Context(), "SELECT pg_snapshot_xmax(pg_current_snapshot())::text").Scan(&out); err != nil {
		s.tb.Fatal(err)
	}
	return out
}

func TestSecondExportWritesNothing(t *testing.T) {
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 5)...)
	s.export()
	c := s.connect()
	before := s.xids(c)
	if r := s.export(); !r.Current || r.Rows != 10 || r.URLs != 10 || r.Datasets != 1 {
		t.Errorf("the second export: %+v", r)
	}
	if after := s.xids(c); after != before {
		t.Errorf("the second export wrote something: transaction %s, then %s", before, after)
	}
}

func TestTakedownsRetirementsAndCompactions(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	com, org := urlsOf("example.com", 2, 30), urlsOf("example.org", 2, 30)
	big := urlsOf("big.test", 20, 30) // so that changes are small beside it
	testlake.Ingest(t, s.store, "big", "1", records(big...))
	testlake.Ingest(t, s.store, "a", "1", records(slices.Concat(com, org)...))
	testlake.Ingest(t, s.store, "a", "2", records(com...))
	s.publish("b", "1", slices.Concat(com, org)...)
	s.export()
	base := func() counts {
		w := counts{}
		w.want(t, "big", big...)
		return w
	}
	check := func(what string, changed int64, w counts) {
		t.Helper()
		if r := s.export(); r.Changed != changed || r.Current {
			t.Errorf("%s: %+v", what, r)
		}
		same(t, s.has(), w)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	domain := s.hide(catalog.DomainTarget, "example.com", 0, "")
	w := base()
	w.want(t, "a", org...)
	w.want(t, "b", org...)
	check("a domain is hidden", 2, w)

	s.hide(catalog.HostTarget, "h1.example.org", 1, "")
	url := s.hide(catalog.URLTarget, org[3], 0, "")
	ids, err := catalog.DatasetsNamed(t.Context(), s.store, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	s.hide(catalog.PrefixTarget, "https://h1.example.org/p/1", ids["b"].ID, "b")
	left := func(dataset string) (out []string) {
		for _, u := range org {
			if u != org[3] && (dataset != "b" || !strings.HasPrefix(u, "https://h1.example.org/p/1")) {
				out = append(out, u)
			}
		}
		return out
	}
	w = base()
	w.want(t, "a", left("a")...)
	w.want(t, "b", left("b")...)
	check("hosts, URLs and prefixes are hidden", 2, w)

	if _, err := suppress.Lift(t.Context(), s.store, domain, "", "a test", suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	w.want(t, "a", com...)
	w.want(t, "a", com...)
	w.want(t, "b", com...)
	check("the domain is shown again", 2, w)

	// As many rows are hidden as before, and others.
	if _, err := suppress.Lift(t.Context(), s.store, url, "", "a test", suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	s.hide(catalog.URLTarget, org[4], 0, "")
	org[3], org[4] = org[4], org[3]
	w = base()
	w.want(t, "a", left("a")...)
	w.want(t, "a", com...)
	w.want(t, "a", com...)
	w.want(t, "b", left("b")...)
	w.want(t, "b", com...)
	check("one URL is hidden instead of another", 2, w)

	s.compact("compaction")
	check("after a compaction", 0, w)

	// A batch of a union goes.
	testlake.Retire(t, s.store, catalog.BatchName{DatasetID: ids["a"].ID, Batch: "2"})
	testlake.Publish(t, s.store)
	w = base()
	w.want(t, "a", left("a")...)
	w.want(t, "a", com...)
	w.want(t, "b", left("b")...)
	w.want(t, "b", com...)
	check("a batch of a union is retired", 1, w)

	// The whole lake at once gives the same.
	s.dsn = s.server.NewDatabase(t)
	s.spec.DSN = s.dsn
	s.export()
	same(t, s.has(), w)
}

// A step fails once at each place, connections are cut and the server crashes; the export goes on.
func TestKilledAnywhereGoesOn(t *testing.T) {
	s := newSetup(t)
	a := urlsOf("example.com", 3, 40)
	b := urlsOf("example.org", 3, 40)
	s.publish("a", "1", a...)
	want := counts{}
	want.want(t, "a", a...)
	failed := map[string]bool{}
	var mu sync.Mutex // tables are indexed at the same time
	s.opt.failed = func(at string) error {
		mu.Lock()
		defer mu.Unlock()
		if !failed[at] {
			failed[at] = true
			return fmt.Errorf("fails %s", at)
		}
		return nil
	}
	// until exports until nothing fails. With again each attempt is a workflow of its own.
	until := func(again bool) {
		t.Helper()
		run := s.run()
		for range 10 {
			_, err := s.steps(run)
			if err == nil {
				same(t, s.has(), want)
				return
			}
			if !strings.Contains(err.Error(), "fails ") {
				t.Fatal(err)
			}
			if again {
				run = s.run()
			}
		}
		t.Fatal("it fails again and again")
	}
	until(false)
	if len(failed) != 5 {
		t.Errorf("failed at %v", failed)
	}
	clear(failed)
	s.publish("b", "1", b...)
	want.want(t, "b", b...)
	until(true)
	clear(failed)
	s.spec.Rebuild = true
	until(true)
	s.spec.Rebuild = false

	// The server crashes between two steps, and the connection is cut within one.
	s.publish("b", "2", b...)
	want.want(t, "b", b...)
	s.opt.failed = nil
	run := s.run()
	if _, err := Plan(t.Context(), s.store, s.spec, run, s.opt); err != nil {
		t.Fatal(err)
	}
	cut := s.opt
	cut.failed = func(string) error {
		c := s.connect()
		_, err := c.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'urlake export' AND pid <> pg_backend_pid()")
		return err
	}
	if _, err := Load(t.Context(), s.store, run, 0, cut); err == nil {
		t.Error("a load without its connection succeeded")
	}
	s.server.Crash(t)
	if _, err := Load(t.Context(), s.store, run, 0, s.opt); err != nil {
		t.Fatal(err)
	}
	s.server.Crash(t)
	again, err := Load(t.Context(), s.store, run, 0, s.opt)
	if err != nil || again.Rows != int64(2*len(b)) {
		t.Errorf("the chunk that was loaded: %+v, %v", again, err)
	}
	if _, err := Finish(t.Context(), s.store, run, s.progress, s.opt); err != nil {
		t.Fatal(err)
	}
	first, err := Finish(t.Context(), s.store, run, s.progress, s.opt)
	if err != nil || first.Rows == 0 {
		t.Errorf("a Finish whose answer was lost: %+v, %v", first, err)
	}
	same(t, s.has(), want)
	// A step that comes too late changes nothing.
	if _, err := Load(t.Context(), s.store, run, 0, s.opt); !isInput(err) {
		t.Errorf("a late load: %v", err)
	}
	same(t, s.has(), want)
}

func isInput(err error) bool {
	var e *InputError
	return errors.As(err, &e)
}

// relations are the tables of the schema and their files, without system catalogs.
func (s *setup) relations(like string) (names []string) {
	s.tb.Helper()
	rows, err := s.connect().Query(s.tb.Context(), `SELECT relname || ' ' || relfilenode FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ $1 ORDER BY 1`, like)
	if err != nil {
		s.tb.Fatal(err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.tb.Fatal(err)
	}
	return names
}

func TestLoadThatDidNotEndIsDropped(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 1, 50)...)
	if _, err := Plan(t.Context(), s.store, s.spec, "first", s.opt); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), s.store, "first", 0, s.opt); err != nil {
		t.Fatal(err)
	}
	s.publish("a", "2", urlsOf("example.com", 1, 7)...)
	if r := s.export(); r.Rows != 57 {
		t.Errorf("%+v", r)
	}
	if _, err := Finish(t.Context(), s.store, "first", s.progress, s.opt); !isInput(err) {
		t.Errorf("the end of the export that was replaced: %v", err)
	}
	if left := s.relations("^(load|urls_1_1$)"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestOnlyWhatChangedIsWritten compares the files of tables and the identities of their rows.
func TestOnlyWhatChangedIsWritten(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for i, d := range []string{"a", "b", "c"} {
		s.publish(d, "1", urlsOf(fmt.Sprintf("site%d.test", i), 3, 200)...)
	}
	s.export()
	rows := func() (all []string) {
		t.Helper()
		for _, table := range []string{"urls_1_1", "urls_3_1", "domain64", "batches WHERE dataset_id <> 2", "datasets WHERE dataset_id <> 2"} {
			r, err := s.connect().Query(t.Context(), "SELECT tableoid || ' ' || ctid || ' ' || xmin FROM "+table)
			if err != nil {
				t.Fatal(err)
			}
			more, err := pgx.CollectRows(r, pgx.RowTo[string])
			if err != nil || len(more) == 0 {
				t.Fatalf("%s: %d rows: %v", table, len(more), err)
			}
			all = append(all, more...)
		}
		return all
	}
	before := rows()
	s.publish("b", "2", "https://h1.site1.test/new")
	if r := s.export(); r.Changed != 1 || r.Added != 601 || r.Removed != 600 || r.Rows != 1801 {
		t.Errorf("%+v", r)
	}
	if after := rows(); !slices.Equal(before, after) {
		t.Error("rows of datasets that have not changed were written")
	}
	if got, want := len(s.relations("^urls_")), 3; got != want {
		t.Errorf("%d tables of datasets, want %d", got, want)
	}
}

func TestCollisionsAreKeptBeside(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	// One key for each host and remainder.
	s.opt.weaken = func(k uint64) uint64 { return k % 16 }
	a := urlsOf("example.com", 2, 60)
	b := slices.Concat(urlsOf("example.com", 1, 80), urlsOf("example.org", 1, 20))
	testlake.Ingest(t, s.store, "a", "1", records(a...))
	s.publish("b", "1", b...)
	r := s.export()
	want := counts{}
	want.want(t, "a", a...)
	want.want(t, "b", b...)
	same(t, s.has(), want)
	if r.Collisions < 100 || r.URLs+r.Collisions != int64(len(a)+len(b)) {
		t.Errorf("result %+v", r)
	}
	more := urlsOf("example.com", 1, 90)
	s.publish("c", "1", more...)
	if r := s.export(); r.Changed != 1 {
		t.Errorf("result %+v", r)
	}
	want.want(t, "c", more...)
	same(t, s.has(), want)

	c := s.connect()
	var wrong int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT 1 FROM urls GROUP BY dataset_id, domain64, key HAVING count(DISTINCT url) > 1) t").Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d keys of a dataset have several URLs: %v", wrong, err)
	}
	// No URL gets a size that no row has.
	if err := c.QueryRow(t.Context(), `SELECT count(size) FROM
		(SELECT size FROM urls UNION ALL SELECT size FROM collisions) t`).Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d URLs without a size have one: %v", wrong, err)
	}
	// The lookup function finds them by their URL.
	if _, err := c.Exec(t.Context(), `CREATE FUNCTION true_key(url text) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT url_key(url)';
		ALTER FUNCTION url_key(text) RENAME TO strong_key;
		CREATE FUNCTION url_key(url text) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT strong_key(url) % 16'`, simple); err != nil {
		t.Fatal(err)
	}
	for _, u := range more {
		want := "b " + u + " 1, c " + u + " 1"
		if slices.Contains(a, u) {
			want = "a " + u + " 1, " + want
		}
		if !slices.Contains(b, u) {
			want = "c " + u + " 1"
		}
		if got := lookupURL(t, c, u); got != want {
			t.Fatalf("lookup of %s: %s, want %s", u, got, want)
		}
	}
}

func TestURLsAddUp(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url := "https://www.example.com/a?b=c"
	testlake.Ingest(t, s.store, "a", "1", []testlake.Record{
		{URL: url, TS: 1000, HasTS: true, Size: 5, HasSize: true},
		{URL: url, TS: 500, HasTS: true},
		{URL: url, TS: 1_700_000_000_123, HasTS: true, Size: 7, HasSize: true},
		{URL: "https://www.example.com/"},
		{URL: "https://www.example.com/huge", Size: 1, HasSize: true},
	})
	testlake.Ingest(t, s.store, "a", "2", []testlake.Record{{URL: "https://www.example.com/huge", Size: 1, HasSize: true}})
	testlake.Publish(t, s.store)
	s.export()
	c := s.connect()
	var first, last time.Time
	var size, rows int64
	if err := c.QueryRow(t.Context(), "SELECT first_ts, last_ts, size, rows FROM lookup($1)", url).Scan(&first, &last, &size, &rows); err != nil {
		t.Fatal(err)
	}
	if first.UnixMilli() != 500 || last.UnixMilli() != 1_700_000_000_123 || size != 12 || rows != 3 {
		t.Errorf("from %v to %v, size %d, %d rows", first, last, size, rows)
	}
	if _, err := c.Exec(t.Context(), "UPDATE urls SET size = 9223372036854775807 WHERE url = 'https://www.example.com/huge' AND batch_id = 1"); err != nil {
		t.Fatal(err)
	}
	if err := c.QueryRow(t.Context(), "SELECT size FROM lookup('https://www.example.com/huge')").Scan(&size); err != nil || size != math.MaxInt64 {
		t.Errorf("the sum of huge sizes is %d: %v", size, err)
	}
	for _, from := range []string{"urls WHERE url = 'https://www.example.com/'", "lookup('https://www.example.com/')"} {
		var none bool
		if err := c.QueryRow(t.Context(), "SELECT first_ts IS NULL AND last_ts IS NULL AND size IS NULL FROM "+from).Scan(&none); err != nil || !none {
			t.Errorf("%s: a URL without a time and a size has some: %v", from, err)
		}
	}
	if got := lookupURL(t, c, "https://www.example.com/none"); got != "" {
		t.Errorf("an unknown URL: %s", got)
	}
}

// TestTablesAreIndexedAtOnce lets the first table that is indexed wait for the second.
func TestTablesAreIndexedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 5)...)
	s.publish("b", "1", urlsOf("example.org", 2, 5)...)
	s.publish("c", "1", urlsOf("example.net", 2, 5)...)
	var mu sync.Mutex
	n, second := 0, make(chan struct{})
	s.opt.failed = func(at string) error {
		if !strings.HasSuffix(at, " is indexed") {
			return nil
		}
		mu.Lock()
		if n++; n == 2 {
			close(second)
		}
		mu.Unlock()
		select {
		case <-second:
			return nil
		case <-time.After(20 * time.Second):
			return errors.New("no other table is indexed")
		}
	}
	last := Finishing{}
	s.progress = func(p Finishing) {
		mu.Lock()
		defer mu.Unlock()
		last = Finishing{max(last.Indexed, p.Indexed), p.Tables}
	}
	if r := s.export(); r.Rows != 30 {
		t.Errorf("%+v", r)
	}
	if want := (Finishing{3, 3}); last != want {
		t.Errorf("progress %+v, want %+v", last, want)
	}
}

func TestSchemaChangedByHand(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 50)...)
	s.export()
	want := s.has()
	s.publish("a", "2", urlsOf("example.org", 1, 5)...)
	c := s.connect()
	exec := func(sql string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(text string) {
		t.Helper()
		if _, err := s.steps(s.run()); !isInput(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one that says %q", err, text)
		}
	}
	for _, change := range []struct{ do, undo, text string }{
		{"ALTER TABLE urls RENAME COLUMN rows TO n", "ALTER TABLE urls RENAME COLUMN n TO rows", `column "rows" does not exist`},
		{"ALTER TABLE batches RENAME TO other", "ALTER TABLE other RENAME TO batches", `"batches" does not exist`},
		{"UPDATE state SET lake = 'file:///other'", "UPDATE state SET lake = 'file:///lake'", "the lake file:///other"},
		{"UPDATE state SET format = 9", "UPDATE state SET format = 2", "format 9"},
		{"UPDATE state SET format = 1", "UPDATE state SET format = 2", "format 1"},
	} {
		if _, err := c.Exec(t.Context(), change.do, simple); err != nil {
			t.Fatal(err)
		}
		refused(change.text)
		if _, err := c.Exec(t.Context(), change.undo, simple); err != nil {
			t.Fatal(err)
		}
		same(t, s.has(), want) // nothing half-visible
	}
	exec("UPDATE domain64 SET host = 'other.test' WHERE host = 'h0.example.com'")
	s.publish("b", "1", urlsOf("example.com", 1, 3)...)
	refused("other.test")
	exec("UPDATE domain64 SET host = 'h0.example.com' WHERE host = 'other.test'")
	if r := s.export(); r.Rows != 108 {
		t.Errorf("when all is undone: %+v", r)
	}
	s.spec.Datasets = []string{"a"}
	refused("the slice everything")
	s.spec.Datasets, s.spec.Layout = nil, "8-24-24-8"
	refused("layout")

	// A schema of somebody else.
	s.spec.Layout, s.spec.Schema = "", "foreign"
	exec("CREATE SCHEMA foreign_things")
	s.spec.Schema = "foreign_things"
	exec("CREATE TABLE foreign_things.t (a int)")
	refused("not of an export")
}

func TestReaderHoldsALock(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 10)...)
	s.export()
	reader := s.connect()
	tx, err := reader.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	count := func(q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (n int) {
		t.Helper()
		if err := q.QueryRow(t.Context(), "SELECT count(*) FROM urls").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(tx); n != 20 {
		t.Fatalf("%d rows", n)
	}
	// A new dataset does not wait for readers, and readers do not wait for it.
	s.publish("b", "1", urlsOf("example.org", 1, 3)...)
	if r := s.export(); r.Changed != 1 || r.Added != 3 {
		t.Errorf("%+v", r)
	}
	if n := count(tx); n != 20 {
		t.Errorf("the reader sees %d rows, in a transaction that saw 20", n)
	}
	// Partitions that take the place of others have to wait.
	s.publish("a", "2", urlsOf("example.net", 1, 4)...)
	s.opt.lockTimeout, s.opt.lockAttempts = 20*time.Millisecond, 2
	run := s.run()
	if _, err = s.steps(run); err == nil || isInput(err) || !strings.Contains(err.Error(), "holds a lock since") {
		t.Errorf("error %v", err)
	}
	other := s.connect()
	if n := count(other); n != 23 {
		t.Errorf("%d rows are visible", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.steps(run); err != nil {
		t.Fatal(err)
	}
	if n := count(other); n != 27 {
		t.Errorf("%d rows are visible after the export", n)
	}
}

func TestIDMapIsConsultedFirst(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	file := filepath.Join(t.TempDir(), "pages.ndjson")
	if err := os.WriteFile(file, []byte(`{"url": "https://short.test/1", "canonical": "HTTPS://Example.com:443/long?b=2&a=1"}
{"url": "https://example.com/same", "canonical": "https://example.com/same"}
{"url": "https://short.test/2", "canonical": "no URL"}
{"url": "https://short.test/3"}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	testlake.IngestSpec(t, s.store, ingest.Spec{Dataset: "pages", Batch: "1", Inputs: []string{"file://" + file}, Extras: []string{"canonical"}})
	canonical := "https://example.com/long?a=1&b=2"
	s.publish("crawl", "1", canonical, "https://short.test/2")
	s.spec.IDMap = []string{"pages=canonical"}
	s.export()
	c := s.connect()
	var n int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM id_map").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d entries of id_map: %v", n, err)
	}
	for url, want := range map[string]string{
		"https://short.test/1":     "crawl " + canonical + " 1",
		canonical:                  "crawl " + canonical + " 1",
		"https://short.test/2":     "pages https://short.test/2 1, crawl https://short.test/2 1",
		"https://short.test/3":     "pages https://short.test/3 1",
		"https://example.com/same": "pages https://example.com/same 1",
	} {
		if got := lookupURL(t, c, url); got != want {
			t.Errorf("lookup of %s: %s, want %s", url, got, want)
		}
	}
	testlake.Replace(t, s.store, "pages", "2", records("https://short.test/4"))
	testlake.Publish(t, s.store)
	s.export()
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM id_map").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d entries of id_map when their batch is replaced: %v", n, err)
	}
}

func TestSlices(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	com, org := urlsOf("example.com", 2, 30), urlsOf("example.org", 2, 30)
	testlake.Ingest(t, s.store, "a", "1", records(slices.Concat(com, org)...))
	testlake.Ingest(t, s.store, "a", "2", records(com...))
	s.publish("b", "1", slices.Concat(com, org)...)
	s.hide(catalog.URLTarget, com[3], 0, "")
	shown := slices.DeleteFunc(slices.Clone(com), func(u string) bool { return u == com[3] })
	for _, slice := range []struct {
		schema            string
		datasets, domains []string
		want              func(counts)
	}{
		{"by_dataset", []string{"b"}, nil, func(w counts) { w.want(t, "b", shown...); w.want(t, "b", org...) }},
		{"by_domain", nil, []string{"Example.COM"}, func(w counts) { w.want(t, "a", shown...); w.want(t, "a", shown...); w.want(t, "b", shown...) }},
		{"by_both", []string{"a"}, []string{"example.org"}, func(w counts) { w.want(t, "a", org...) }},
	} {
		s.spec.Datasets, s.spec.Domains, s.spec.Schema = slice.datasets, slice.domains, slice.schema
		s.export()
		w := counts{}
		slice.want(w)
		got := s.has()
		for k, n := range got {
			if n == 0 && w[k] == 0 {
				delete(got, k) // datasets of the slice without rows
			}
		}
		same(t, got, w)
	}
	for _, bad := range []Spec{{Datasets: []string{"none"}}, {Domains: []string{"www.example.com"}}, {Domains: []string{"https://x/"}}, {Version: "none"}, {Layout: "1-2-3-4"}} {
		bad.Lake, bad.DSN = s.spec.Lake, s.dsn
		if _, err := Plan(t.Context(), s.store, bad, s.run(), s.opt); !isInput(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
