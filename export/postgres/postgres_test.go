//go:build unix

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

func TestMain(m *testing.M) { os.Exit(testenv.KeepPostgres(m)) }

// setup is a lake and a database. Tests that run at the same time share the server, so those that
// crash it, or count its transactions, are not parallel.
type setup struct {
	tb     testing.TB
	server *testenv.Postgres
	store  blob.Store
	dsn    string
	opt    Options
	spec   Spec
	runs   int
	// progress is called by Finish.
	progress func(Finishing)
}

func newSetup(tb testing.TB) *setup {
	s := &setup{tb: tb, server: testenv.NewPostgres(tb), store: blob.NewMemory(), progress: func(Finishing) {}}
	s.dsn = s.server.NewDatabase(tb)
	s.spec = Spec{Lake: "file:///lake", DSN: s.dsn, Layout: domain64.Document.String()}
	return s
}

// steps runs the steps of an export as the workflow orders them.
func (s *setup) steps(run string) (Result, error) {
	ctx := s.tb.Context()
	planned, err := Plan(ctx, s.store, s.spec, run, s.opt)
	if err != nil {
		return Result{}, err
	}
	if planned.Have != nil {
		return *planned.Have, nil
	}
	for i := range planned.Chunks {
		if _, err := Load(ctx, s.store, run, i, s.opt); err != nil {
			return Result{}, err
		}
	}
	return Finish(ctx, s.store, run, s.progress, s.opt)
}

func (s *setup) run() string {
	s.runs++
	return fmt.Sprintf("run%d", s.runs)
}

func (s *setup) export() Result {
	s.tb.Helper()
	r, err := s.steps(s.run())
	if err != nil {
		s.tb.Fatal(err)
	}
	return r
}

func (s *setup) connect() *pgx.Conn {
	s.tb.Helper()
	c, err := connect(s.tb.Context(), &Spec{DSN: s.dsn, Schema: cmp.Or(s.spec.Schema, DefaultSchema)})
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { disconnect(context.Background(), c) })
	return c
}

// records makes records of URLs.
func records(urls ...string) (out []testlake.Record) {
	for _, u := range urls {
		out = append(out, testlake.Record{URL: u})
	}
	return out
}

// publish adds a batch to a dataset and publishes the lake.
func (s *setup) publish(dataset, batch string, urls ...string) {
	s.tb.Helper()
	testlake.Ingest(s.tb, s.store, dataset, batch, records(urls...))
	testlake.Publish(s.tb, s.store)
}

// counts are rows by dataset, domain or host.
type counts map[string]int64

// has returns how many rows the database has by dataset, domain and host.
func (s *setup) has() counts {
	s.tb.Helper()
	c := s.connect()
	out := counts{}
	for _, sql := range []string{
		"SELECT 'dataset ' || name, rows FROM datasets",
		"SELECT 'by dataset ' || d.name, sum(u.rows)::bigint FROM both_urls u JOIN datasets d USING (dataset_id) GROUP BY 1",
		"SELECT 'domain ' || h.domain || ' of ' || d.name, sum(u.rows)::bigint FROM both_urls u JOIN domain64 h ON h.number = u.domain64 JOIN datasets d USING (dataset_id) GROUP BY 1",
		"SELECT 'host ' || h.host || ' of ' || d.name, sum(u.rows)::bigint FROM both_urls u JOIN domain64 h ON h.number = u.domain64 JOIN datasets d USING (dataset_id) GROUP BY 1",
	} {
		sql = "WITH both_urls AS (SELECT domain64, dataset_id, rows, url FROM urls UNION ALL SELECT domain64, dataset_id, rows, url FROM collisions) " + sql
		rows, err := c.Query(s.tb.Context(), sql)
		if err != nil {
			s.tb.Fatal(err)
		}
		var name string
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { out[name] += n; return nil }); err != nil {
			s.tb.Fatal(err)
		}
	}
	return out
}

// want adds what the database has to have of the records of a dataset.
func (c counts) want(tb testing.TB, dataset string, urls ...string) {
	tb.Helper()
	for _, text := range urls {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), text)
		if err != nil {
			tb.Fatal(err)
		}
		c["dataset "+dataset]++
		c["by dataset "+dataset]++
		c["domain "+u.Domain+" of "+dataset]++
		c["host "+u.Host+" of "+dataset]++
	}
}

func same(tb testing.TB, got, want counts) {
	tb.Helper()
	if maps.Equal(got, want) {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			tb.Errorf("%s: %d rows, want %d", k, got[k], want[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			tb.Errorf("%s: %d rows, want none", k, got[k])
		}
	}
}

func urlsOf(domain string, hosts, paths int) (out []string) {
	for h := range hosts {
		for p := range paths {
			out = append(out, fmt.Sprintf("https://h%d.%s/p/%d?q=%d", h, domain, p, p%3))
		}
	}
	return out
}

func TestCountsAreTheLakes(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	a := slices.Concat(urlsOf("example.com", 3, 40), urlsOf("example.org", 2, 10), []string{"http://localhost/x", "http://192.0.2.7:8080/y", "https://[2001:db8::1]/z"})
	b := slices.Concat(urlsOf("example.com", 2, 20), urlsOf("bbc.co.uk", 1, 5))
	testlake.Ingest(t, s.store, "a", "1", records(a...))
	s.publish("b", "1", b...)
	r := s.export()
	want := counts{}
	want.want(t, "a", a...)
	want.want(t, "b", b...)
	same(t, s.has(), want)
	if r.Rows != int64(len(a)+len(b)) || r.Changed != 2 || r.Added != r.Rows || r.Current {
		t.Errorf("result %+v", r)
	}
	// The keys in the database are those of the function that it has, and of Go.
	c := s.connect()
	rows, err := c.Query(t.Context(), "SELECT url, key, url_key(url) FROM urls")
	if err != nil {
		t.Fatal(err)
	}
	var url string
	var key, again int64
	n := 0
	if _, err := pgx.ForEachRow(rows, []any{&url, &key, &again}, func() error {
		n++
		if want := int64(urlkey.Key(url)); key != want || again != want {
			t.Errorf("%s: key %d, and %d by url_key, want %d", url, key, again, want)
		}
		return nil
	}); err != nil || n == 0 {
		t.Fatalf("%d keys: %v", n, err)
	}

	if r := s.export(); !r.Current || r.Rows != int64(len(a)+len(b)) {
		t.Errorf("the second export: %+v", r)
	}
	// A second batch.
	more := urlsOf("example.net", 1, 7)
	s.publish("a", "2", more...)
	if r := s.export(); r.Changed != 1 || r.Added != int64(len(a)+7) || r.Removed != int64(len(a)) {
		t.Errorf("the second batch: %+v", r)
	}
	want.want(t, "a", more...)
	same(t, s.has(), want)
	// A replaced one.
	s.publish("a", "2", urlsOf("example.net", 1, 9)...)
	if r := s.export(); r.Changed != 1 || r.Added != int64(len(a)+9) || r.Removed != int64(len(a)+7) {
		t.Errorf("the replaced batch: %+v", r)
	}
	want.want(t, "a", urlsOf("example.net", 1, 9)[7:]...)
	same(t, s.has(), want)
}

func lookupURL(t testing.TB, c *pgx.Conn, url string) string {
	t.Helper()
	rows, err := c.Query(t.Context(), "SELECT dataset, canonical_url, rows FROM lookup($1)", url)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	var dataset, canonical string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&dataset, &canonical, &n}, func() error {
		out = append(out, fmt.Sprint(dataset, " ", canonical, " ", n))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, ", ")
}
