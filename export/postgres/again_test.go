//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish/suppress"
)

// content is all that a schema has for readers, with names in the place of the numbers of batches.
// Which of several URLs with one key is beside the others depends on the order of exports.
func (s *setup) content(schema string) (lines []string) {
	s.tb.Helper()
	c, err := connect(s.tb.Context(), &Spec{DSN: s.dsn, Schema: schema})
	if err != nil {
		s.tb.Fatal(err)
	}
	defer disconnect(s.tb.Context(), c)
	for _, sql := range []string{
		`SELECT 'url ' || row(u.domain64, u.key, u.first_ts, u.last_ts, u.size, u.rows, b.name, u.dataset_id, u.url)::text
			FROM (SELECT * FROM urls UNION ALL SELECT * FROM collisions) u JOIN batches b USING (batch_id)`,
		`SELECT 'id_map ' || row(m.requested_key, m.canonical_key, b.name, m.dataset_id, m.requested_url, m.canonical_url)::text
			FROM id_map m JOIN batches b USING (batch_id)`,
		"SELECT 'name ' || d::text FROM domain64 d",
		"SELECT 'dataset ' || d::text FROM datasets d",
		"SELECT 'batch ' || row(dataset_id, name, digest)::text FROM batches",
		"SELECT 'takedown ' || t::text FROM takedowns t",
		"SELECT 'state ' || row(lake, slice, layout, version, takedown_epoch)::text FROM state",
	} {
		rows, err := c.Query(s.tb.Context(), sql)
		if err != nil {
			s.tb.Fatal(err)
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			s.tb.Fatal(err)
		}
		lines = append(lines, some...)
	}
	slices.Sort(lines)
	return lines
}

// asAnew checks that the schema has what an export into an empty schema has.
func (s *setup) asAnew(what string) {
	s.tb.Helper()
	anew := *s
	anew.spec.Schema, anew.spec.Rebuild = fmt.Sprintf("anew%d", s.runs), false
	if _, err := anew.steps(anew.spec.Schema); err != nil {
		s.tb.Fatal(err)
	}
	got, want := s.content(DefaultSchema), s.content(anew.spec.Schema)
	for _, l := range want {
		if _, ok := slices.BinarySearch(got, l); !ok {
			s.tb.Errorf("%s: the schema lacks %s", what, l)
		}
	}
	for _, l := range got {
		if _, ok := slices.BinarySearch(want, l); !ok {
			s.tb.Errorf("%s: the schema has %s", what, l)
		}
	}
	if s.tb.Failed() {
		s.tb.FailNow()
	}
}

// Takedowns of the domain of a requested URL, and of that of a canonical one, which no dataset has.
func TestIDMapFollowsTakedowns(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	file := filepath.Join(t.TempDir(), "pages.ndjson")
	if err := os.WriteFile(file, []byte(`{"url": "https://short.test/1", "canonical": "https://www.example.com/1"}
{"url": "https://short.test/2", "canonical": "https://www.example.org/2"}
{"url": "https://www.example.org/3", "canonical": "https://www.example.net/3"}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	testlake.IngestSpec(t, s.store, ingest.Spec{Dataset: "pages", Batch: "1", Inputs: []string{"file://" + file}, Extras: []string{"canonical"}})
	s.publish("big", "1", urlsOf("big.test", 3, 30)...)
	s.spec.IDMap = []string{"pages=canonical"}
	s.export()
	c := s.connect()
	entries := func(want int, what string) {
		t.Helper()
		var n int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM id_map").Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d entries of id_map, want %d: %v", what, n, want, err)
		}
		s.asAnew(what)
	}
	entries(3, "at first")
	for _, domain := range []string{"example.com", "example.org", "short.test"} {
		left := map[string]int{"example.com": 2, "example.org": 1, "short.test": 1}[domain]
		id := s.hide(catalog.DomainTarget, domain, 0, "")
		s.export()
		entries(left, domain+" is hidden")
		if _, err := suppress.Lift(t.Context(), s.store, id, "", "a test", suppress.Options{TempDir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		s.export()
		entries(3, domain+" is shown again")
	}
}

func TestHostsWithoutURLsGo(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	big := urlsOf("big.test", 3, 40)
	testlake.Ingest(t, s.store, "a", "1", records(big...))
	s.publish("a", "2", "https://www.gone.org/", "https://big.test/", "http://localhost/x", "https://h1.big.test/p/1")
	s.export()
	ids, err := catalog.DatasetsNamed(t.Context(), s.store, "a")
	if err != nil {
		t.Fatal(err)
	}
	testlake.Retire(t, s.store, catalog.BatchName{DatasetID: ids["a"].ID, Batch: "2"})
	testlake.Publish(t, s.store)
	if r := s.export(); r.Changed != 1 || r.Removed != 124 {
		t.Errorf("%+v", r)
	}
	s.asAnew("a batch is retired")
	s.hide(catalog.HostTarget, "h2.big.test", 0, "")
	if r := s.export(); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	s.asAnew("a host is hidden")
}

func TestOlderVersionIsExported(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	var ids []string
	publish := func() {
		testlake.Publish(t, s.store)
		m, _, err := catalog.ReadManifest(t.Context(), s.store)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := m.Version(catalog.Current)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ref.ID)
	}
	testlake.Ingest(t, s.store, "a", "1", records(urlsOf("example.com", 3, 40)...))
	publish()
	testlake.Ingest(t, s.store, "a", "2", records(urlsOf("example.org", 2, 9)...))
	publish()
	testlake.Ingest(t, s.store, "a", "2", records(urlsOf("example.net", 2, 4)...))
	publish()
	s.export()
	for _, id := range []string{ids[1], ids[0], ids[2]} {
		s.spec.Version = id
		if r := s.export(); r.Version != id || r.Changed != 1 || r.Current {
			t.Errorf("%+v", r)
		}
		s.asAnew("version " + id)
	}
}

// refused exports and wants an error that no retry mends.
func (s *setup) refused(text string) {
	s.tb.Helper()
	if _, err := s.steps(s.run()); !isInput(err) || !strings.Contains(err.Error(), text) {
		s.tb.Errorf("error %v, want one that says %q", err, text)
	}
}

// A site that was detached lives on, and comes back with the next load of its dataset.
func TestDetachedSite(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.spec.Partitions = []string{"example.com"}
	s.publish("b", "1", urlsOf("example.com", 1, 10)...)
	s.publish("a", "1", slices.Concat(urlsOf("example.com", 2, 40), urlsOf("other.com", 1, 20))...)
	s.export()
	c := s.connect()
	exec := func(sql string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	count := func(table string, want int) {
		t.Helper()
		var n int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d rows, want %d: %v", table, n, want, err)
		}
	}
	exec("ALTER TABLE urls_2_1 DETACH PARTITION urls_2_1_0100000100000000 CONCURRENTLY")
	count("urls", 30)
	s.publish("b", "2", "https://other.com/new")
	s.export()
	count("urls", 31)
	s.publish("a", "2", "https://h0.example.com/new")
	s.export()
	count("urls", 112)
	count("urls_2_1_0100000100000000", 80)
	exec("DROP TABLE urls_2_1_0100000100000000")
	s.asAnew("a site is back")

	// A dataset that was detached is loaded again.
	exec("ALTER TABLE urls DETACH PARTITION urls_2_3")
	s.publish("b", "3", "https://other.com/newer")
	if r := s.export(); r.Changed != 2 {
		t.Errorf("%+v", r)
	}
	count("urls", 113)
	count("urls_2_3", 101)
	exec("DROP TABLE urls_2_3")
	s.asAnew("a dataset is back")

	// Detaching was interrupted, while a reader kept it waiting.
	reader, err := s.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), "SELECT FROM urls LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	exec("SET statement_timeout = '50ms'")
	if _, err := c.Exec(t.Context(), "ALTER TABLE urls DETACH PARTITION urls_2_4 CONCURRENTLY"); !hasCode(err, "57014") {
		t.Fatal(err)
	}
	exec("RESET statement_timeout")
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.spec.Rebuild = true
	s.refused("FINALIZE")
	exec("ALTER TABLE urls DETACH PARTITION urls_2_4 FINALIZE")
	s.export()
	exec("DROP TABLE urls_2_4")
	s.asAnew("detaching was interrupted")
	rel := s.relations("^urls_2_.*_0100000100000000$")
	exec("CREATE VIEW site AS SELECT * FROM " + strings.Fields(rel[0])[0])
	s.refused("drop what depends on one")
	exec("DROP VIEW site")
	s.export()
	s.asAnew("a view is gone")
}

// Changes by hand of the rows of a dataset are undone with its next load, and constraints hold.
func TestConstraintAddedByHand(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 10)...)
	s.export()
	c := s.connect()
	for _, sql := range []string{
		"INSERT INTO urls SELECT domain64, key, first_ts, last_ts, size, rows, 2, dataset_id, url FROM urls",
		"DELETE FROM urls WHERE batch_id = 2",
		"UPDATE urls SET rows = 7",
		"ALTER TABLE urls ADD CONSTRAINT mine CHECK (batch_id <> 2)",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s.publish("a", "2", urlsOf("example.com", 2, 4)...)
	s.refused("take the constraint away")
	if _, err := c.Exec(t.Context(), "ALTER TABLE urls DROP CONSTRAINT mine; ALTER TABLE urls ADD COLUMN mine text DEFAULT 'x'", simple); err != nil {
		t.Fatal(err)
	}
	s.export()
	if _, err := c.Exec(t.Context(), "ALTER TABLE urls DROP COLUMN mine"); err != nil {
		t.Fatal(err)
	}
	s.asAnew("when all is undone")
}

func TestTakedownsWereCollected(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 10)...)
	s.hide(catalog.HostTarget, "h1.example.com", 0, "")
	run := s.run()
	if _, err := Plan(t.Context(), s.store, s.spec, run, s.opt); err != nil {
		t.Fatal(err)
	}
	p, err := readPlan(t.Context(), s.store, run)
	if err != nil {
		t.Fatal(err)
	}
	load := func() error {
		_, err := Load(t.Context(), s.store, run, 0, s.opt)
		return err
	}
	data, _, err := s.store.Get(t.Context(), p.Takedowns.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Delete(t.Context(), p.Takedowns.Object); err != nil {
		t.Fatal(err)
	}
	if err := load(); err == nil || isInput(err) {
		t.Errorf("takedowns in force are lost: %v", err)
	}
	if _, err := s.store.Put(t.Context(), p.Takedowns.Object, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	s.hide(catalog.URLTarget, "https://h0.example.com/p/1?q=1", 0, "")
	if err := s.store.Delete(t.Context(), p.Takedowns.Object); err != nil { // as a garbage collection does
		t.Fatal(err)
	}
	if err := load(); !isInput(err) || !strings.Contains(err.Error(), "takedowns have changed") {
		t.Errorf("takedowns have changed: %v", err)
	}
	if r := s.export(); r.Rows != 9 {
		t.Errorf("%+v", r)
	}
}

// Two exports begin at the same time.
func TestTwoExportsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	testlake.Ingest(t, s.store, "a", "1", records(urlsOf("example.com", 2, 20)...))
	s.publish("b", "1", urlsOf("example.org", 2, 20)...)
	// other exports a whole time when the first one is at a place.
	other := func(at string, change func()) {
		s.opt.failed = func(now string) error {
			if now == at {
				s.opt.failed = nil
				before := s.spec
				change()
				s.export()
				s.spec = before
			}
			return nil
		}
	}
	s.spec.Datasets = []string{"a"}
	other("before the state is created", func() { s.spec.Datasets = []string{"b"} })
	s.refused("the slice datasets 2")

	s.spec.Datasets = []string{"b"}
	s.publish("b", "2", urlsOf("example.net", 1, 3)...)
	run := s.run()
	other("before the load begins", func() {
		s.publish("b", "3", urlsOf("example.net", 1, 5)...)
	})
	if _, err := s.steps(run); err == nil || isInput(err) || !strings.Contains(err.Error(), "has ended meanwhile") {
		t.Errorf("error %v", err)
	}
	if r, err := s.steps(run); err != nil || r.Rows != 48 {
		t.Errorf("%+v, %v", r, err)
	}
	s.asAnew("after both")
}

func TestStepsWaitForLocksBriefly(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 20)...)
	run := s.run()
	if _, err := Plan(t.Context(), s.store, s.spec, run, s.opt); err != nil {
		t.Fatal(err)
	}
	tx, err := s.connect().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM state FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	s.opt.wait = 20 * time.Millisecond
	for name, step := range map[string]func() error{
		"load":   func() error { _, err := Load(t.Context(), s.store, run, 0, s.opt); return err },
		"finish": func() error { _, err := Finish(t.Context(), s.store, run, s.progress, s.opt); return err },
	} {
		if err := step(); err == nil || isInput(err) || !strings.Contains(err.Error(), codeLockTimeout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := s.steps(run); err != nil || r.Rows != 40 {
		t.Errorf("%+v, %v", r, err)
	}
	var interval string
	if err := s.connect().QueryRow(t.Context(), "SHOW client_connection_check_interval").Scan(&interval); err != nil || interval != "10s" {
		t.Errorf("the server looks for dead workers every %s: %v", interval, err)
	}
}

// A panic among the rows is one of the step, whose caller counts panics.
func TestPanicOfALoad(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 20)...)
	run := s.run()
	if _, err := Plan(t.Context(), s.store, s.spec, run, s.opt); err != nil {
		t.Fatal(err)
	}
	bad := s.opt
	bad.weaken = func(uint64) uint64 { panic("a bad row") }
	var stack []byte
	fault := func() (fault any) {
		defer func() { fault, stack = recover(), debug.Stack() }()
		_, err := Load(t.Context(), s.store, run, 0, bad)
		return errors.Join(errors.New("no panic"), err)
	}()
	if fault != "a bad row" || !strings.Contains(string(stack), "encode.go") {
		t.Errorf("Load ended with %v\n%s", fault, stack)
	}
	if r, err := s.steps(run); err != nil || r.Rows != 40 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestManyHostsOfAChunk(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.spec.Layout = domain64.Production.String()
	// Takedowns hide some hosts wholly and some in part.
	var urls, shown []string
	for i := range 70_000 {
		u := fmt.Sprintf("https://h%d.site%d.test/", i, i%1000)
		urls = append(urls, u)
		if i%1000 != 7 && i != 8 && i != 1008 {
			shown = append(shown, u)
		}
	}
	again := urlsOf("site9.test", 3, 4)
	testlake.Ingest(t, s.store, "a", "1", records(urls...))
	s.publish("a", "2", again...)
	s.hide(catalog.DomainTarget, "site7.test", 0, "")
	s.hide(catalog.HostTarget, "h8.site8.test", 0, "")
	s.hide(catalog.URLTarget, "https://h1008.site8.test/", 0, "")
	s.compact("compaction") // of the batches to a union
	s.export()
	w := counts{}
	w.want(t, "a", shown...)
	w.want(t, "a", again...)
	same(t, s.has(), w)
	var hidden int
	if err := s.connect().QueryRow(t.Context(), "SELECT count(*) FROM domain64 WHERE domain = 'site7.test' OR host IN ('h8.site8.test', 'h1008.site8.test')").
		Scan(&hidden); err != nil || hidden > 0 {
		t.Errorf("%d hidden names are told: %v", hidden, err)
	}
}

// What docs/postgres.md says of transactions that see rows as of their first statement.
func TestRepeatableReadAcrossASwap(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.publish("a", "1", urlsOf("example.com", 2, 20)...)
	s.export()
	s.spec.Rebuild = true
	s.opt.lockTimeout, s.opt.lockAttempts = 20*time.Millisecond, 2
	// read begins a transaction, lets an export swap the partitions, and counts the rows.
	read := func(first string) (n int, exported error) {
		t.Helper()
		tx, err := s.connect().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		for _, sql := range []string{first, "SELECT count(*) FROM datasets"} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		_, exported = s.steps(s.run())
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM urls").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n, exported
	}
	if n, err := read("SELECT 1"); err != nil || n != 0 {
		t.Errorf("a transaction that reads urls after the swap sees %d rows: %v", n, err)
	}
	if n, err := read("LOCK TABLE urls IN ACCESS SHARE MODE"); err == nil || !strings.Contains(err.Error(), "holds a lock") || n != 40 {
		t.Errorf("a transaction that locks urls first sees %d rows: %v", n, err)
	}
	if n, err := read("SELECT 1 FROM urls LIMIT 1"); err == nil || !strings.Contains(err.Error(), "holds a lock") || n != 40 {
		t.Errorf("a transaction that reads urls first sees %d rows: %v", n, err)
	}
	s.export()
	s.asAnew("at last")
}

// Readers need rights on few tables, and none on partitions, which come and go.
func TestRightsOfReaders(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.spec.Partitions = []string{"example.com"}
	s.publish("a", "1", urlsOf("example.com", 2, 20)...)
	s.export()
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "postgres.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, grants, _ := strings.Cut(string(text), "```sql\nGRANT USAGE")
	grants, _, ok := strings.Cut(grants, "```")
	c := s.connect()
	if _, err := c.Exec(t.Context(), "GRANT USAGE"+grants, simple); err != nil || !ok {
		t.Fatal(err)
	}
	reader := fmt.Sprintf("reader%d", os.Getpid())
	if _, err := c.Exec(t.Context(), "CREATE ROLE "+reader); err != nil {
		t.Fatal(err)
	}
	s.spec.Rebuild = true
	s.export()
	// An export that has begun, whose tables nobody else may read.
	s.publish("a", "2", "https://www.example.com/secret")
	s.spec.Rebuild = false
	if _, err := Plan(t.Context(), s.store, s.spec, s.run(), s.opt); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), "SET ROLE "+reader); err != nil {
		t.Fatal(err)
	}
	url := "https://h1.example.com/p/3?q=0"
	if got := lookupURL(t, c, url); got != "a "+url+" 1" {
		t.Errorf("lookup: %s", got)
	}
	var n int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM urls WHERE domain64 BETWEEN first_number('example.com') AND last_number('example.com')").Scan(&n); err != nil || n != 40 {
		t.Errorf("%d URLs of a site: %v", n, err)
	}
	for _, table := range []string{"takedowns", "batches", "load_chunks", "load_hosts", "urls_1_2", "urls_1_3"} {
		if _, err := c.Exec(t.Context(), "SELECT FROM "+table); !hasCode(err, "42501") {
			t.Errorf("a reader reads %s: %v", table, err)
		}
	}
}
