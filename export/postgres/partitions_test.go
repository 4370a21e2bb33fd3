//go:build unix

package postgres

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
)

// explained returns the tables that PostgreSQL's plan of a query reads.
func explained(t *testing.T, c *pgx.Conn, sql string, args ...any) (read []string) {
	t.Helper()
	var text []byte
	if err := c.QueryRow(t.Context(), "EXPLAIN (FORMAT json) "+sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans any
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if name, ok := v["Relation Name"].(string); ok {
				read = append(read, name)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(plans)
	slices.Sort(read)
	return slices.Compact(read)
}

func TestPartitionsArePrunedAndDetached(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.spec.Partitions = []string{"com", "zz", "a-b.com", "ab.com", "h0.a-b.com"}
	// 254 TLDs before, so that the last one is 0xff.
	registry := numbers.Open(s.store, domain64.Document)
	var names []domain64.Name
	for i := range 253 {
		names = append(names, domain64.Name{TLD: fmt.Sprintf("t%03d", i)})
	}
	if _, err := registry.Assign(t.Context(), append([]domain64.Name{{TLD: "com"}}, names...)); err != nil {
		t.Fatal(err)
	}
	// com and zz are large; of com two sites are, whose names without dots and hyphens are equal;
	// of a-b.com one subdomain is.
	urls := slices.Concat(urlsOf("a-b.com", 1, 40), urlsOf("ab.com", 4, 9), urlsOf("small.com", 1, 3),
		[]string{"https://a-b.com/", "https://other.t001/"}, urlsOf("large.zz", 2, 20))
	if _, err := registry.Assign(t.Context(), []domain64.Name{{TLD: "zz"}}); err != nil {
		t.Fatal(err)
	}
	s.publish("a", "1", urls...)
	s.export()
	c := s.connect()
	code := func(host, domain string) domain64.Code {
		t.Helper()
		n, err := domain64.SplitHost(host, domain)
		if err != nil {
			t.Fatal(err)
		}
		got, err := registry.Find(t.Context(), []domain64.Name{n})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	for _, q := range []struct {
		host, domain string
		level        domain64.Level
		rows         int
		want         []string
	}{
		{"com", "com", domain64.TLD, 40 + 36 + 3 + 1, nil},
		{"zz", "zz", domain64.TLD, 40, nil},
		{"a-b.com", "a-b.com", domain64.Domain, 41, nil},
		{"ab.com", "ab.com", domain64.Domain, 36, nil},
		{"h0.a-b.com", "a-b.com", domain64.Sub, 40, nil},
		{"h1.ab.com", "ab.com", domain64.Sub, 9, nil},
	} {
		r := domain64.Document.Range(code(q.host, q.domain))
		where := fmt.Sprintf("FROM urls WHERE domain64 >= %d AND (%t OR domain64 < %d)", r.From, r.Open, r.To)
		var n int
		if err := c.QueryRow(t.Context(), "SELECT count(*) "+where).Scan(&n); err != nil || n != q.rows {
			t.Errorf("%s: %d URLs, want %d: %v", q.host, n, q.rows, err)
		}
		read := explained(t, c, "SELECT count(*) "+where)
		for _, table := range read {
			var of string
			if err := c.QueryRow(t.Context(), "SELECT obj_description($1::text::regclass)", table).Scan(&of); err != nil ||
				of != q.host && !strings.HasSuffix(of, "."+q.host) && !strings.HasSuffix(q.host, "."+of) {
				t.Errorf("%s: the plan reads %s, which is of %q: %v", q.host, table, of, err)
			}
		}
		if len(read) == 0 {
			t.Errorf("%s: the plan reads nothing", q.host)
		}
	}
	// One URL is in one partition, found by the lookup function.
	if got := lookupURL(t, c, "https://h1.large.zz/p/7?q=1"); got != "a https://h1.large.zz/p/7?q=1 1" {
		t.Errorf("lookup: %s", got)
	}
	// Detaching a site removes exactly it.
	site := domain64.Document.Range(code("ab.com", "ab.com"))
	if _, err := c.Exec(t.Context(), fmt.Sprintf("ALTER TABLE urls_1_1 DETACH PARTITION urls_1_1_%016x", uint64(site.From))); err != nil {
		t.Fatal(err)
	}
	rows, err := c.Query(t.Context(), "SELECT url FROM urls")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(urls), func(u string) bool { return strings.Contains(u, ".ab.com/") })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d URLs are left of %d, want %d", len(got), len(urls), len(want))
	}
}

// TestDivideCoversEverything compares the partitions of random names with a search for each number.
func TestDivideCoversEverything(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	l := domain64.Document
	for range 200 {
		var codes []domain64.Code
		for range rng.IntN(12) {
			c := domain64.Code([]uint64{0x01, 0x7f, 0x80, 0xff}[rng.IntN(4)]<<56 | rng.Uint64N(3)<<32)
			if c>>32&0xffffff != 0 {
				c |= domain64.Code(rng.Uint64N(3)) << 24
			}
			codes = append(codes, c)
		}
		names := make([]domain64.Name, len(codes))
		for i := range names {
			names[i].TLD = fmt.Sprint(codes[i])
		}
		parts := divide(l, codes, names)
		if len(codes) == 0 {
			if parts != nil {
				t.Fatalf("partitions of nothing: %+v", parts)
			}
			continue
		}
		tables := map[string]bool{}
		for _, p := range parts {
			if tables[p.suffix()] = true; len(tableName(math.MaxUint32, math.MaxInt64)+p.suffix()) > 63 {
				t.Fatalf("the name of %+v is too long", p)
			}
		}
		if len(tables) != len(parts) {
			t.Fatalf("%d names of %d partitions", len(tables), len(parts))
		}
		numbers := []int64{math.MinInt64, math.MaxInt64, 0, -1}
		for _, c := range codes {
			r := l.Range(c)
			numbers = append(numbers, r.From, r.From-1, r.To, r.To-1)
		}
		for _, n := range numbers {
			want, size := "", uint64(0) // of the smallest name that holds n
			for i, c := range codes {
				if r := l.Range(c); r.Contains(n) && (want == "" || r.Len() <= size) {
					want, size = names[i].TLD, r.Len()
				}
			}
			in := 0
			for _, p := range parts {
				if p.From <= n && n <= p.To {
					in++
					if p.Name != want {
						t.Fatalf("%d is in a partition of %q, want %q", n, p.Name, want)
					}
				}
			}
			if in != 1 {
				t.Fatalf("%d is in %d partitions of %+v", n, in, parts)
			}
		}
	}
}

func TestSubdomainsOfADomainAreBounded(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	urls := urlsOf("example.com", 255, 1)
	s.publish("a", "1", urls...)
	s.export()
	want := counts{}
	want.want(t, "a", urls...)
	same(t, s.has(), want)
	s.publish("a", "2", "https://h255.example.com/")
	if _, err := s.steps(s.run()); !isInput(err) || !strings.Contains(err.Error(), "example.com") {
		t.Errorf("the 256th subdomain: %v", err)
	}
	same(t, s.has(), want)
	// The default has room.
	s.spec.Schema, s.spec.Layout = "wider", ""
	s.export()
	want.want(t, "a", "https://h255.example.com/")
	same(t, s.has(), want)
}

func TestFullDisk(t *testing.T) {
	s := newSetup(t)
	dir := smallDisk(t, 4<<20)
	if err := s.server.Own(dir); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != filepath.Dir(d) && d != os.TempDir(); d = filepath.Dir(d) {
		if d != dir {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := s.connect()
	var database string
	if err := c.QueryRow(t.Context(), "SELECT current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	s.publish("a", "1", urlsOf("example.com", 2, 20)...)
	s.export()
	before := s.has()
	for _, sql := range []string{
		"CREATE TABLESPACE small_disk LOCATION " + "'" + dir + "'",
		"ALTER DATABASE " + database + " SET default_tablespace = small_disk",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	big := urlsOf("example.org", 100, 400)
	s.publish("b", "1", big...)
	run := s.run()
	if _, err := s.steps(run); err == nil || isInput(err) || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("error %v", err)
	}
	same(t, s.has(), before)
	if _, err := c.Exec(t.Context(), "ALTER DATABASE "+database+" RESET default_tablespace"); err != nil {
		t.Fatal(err)
	}
	// The next export finds room elsewhere.
	s.spec.Rebuild = true
	if r := s.export(); r.Rows != int64(40+len(big)) {
		t.Errorf("%+v", r)
	}
	if _, err := c.Exec(t.Context(), "DROP TABLESPACE small_disk"); err != nil {
		t.Fatal(err)
	}
}

func TestDSNHasNoPassword(t *testing.T) {
	for dsn, ok := range map[string]bool{
		"postgres://user@host/db": true, "postgresql:///db?host=/run/postgresql": true, "host=h dbname=d": true, "host='h' user = u dbname=d": true, "host=a,b port=1": true,
		"service=urls": false, "postgres://h/d?passfile=/etc/x": false, "host=h sslrootcert=/etc/x": false, "postgres://h/d?servicefile=x": false,
		"host=h options='-c x=y'": false, "host='a\\' passfile=/x'": true /* one value */, "host=h;passfile=x passfile=/x": false,
		// pgx takes # for a part of the database's name, and what follows for settings.
		"postgres://u@h/db#?servicefile=/etc/x&service=s": false, "postgres://u@h/db#?passfile=/etc/x": false, "postgres://u@h/db#?password=secret": false,
		"postgres://u@h/db?sslmode=require#&sslrootcert=/etc/x": false,
		"env:URLAKE_DSN": true, "env:URLAKE_DSN_2": true,
		"postgres://user:secret@host/db": false, "postgres://host/db?password=secret": false, "postgres://host/db?sslpassword=secret": false,
		"host=h password=secret": false, "password = 'secret'": false, "host=h PASSWORD=secret": false,
		" postgres://user:secret@host/db?sslmode=disable": false, "Postgres://user:secret@host/db?a=b": false, "POSTGRESQL://user:secret@h/?a=b": false,
		"\tpostgres://user:secret@host/db?a=b": false, "pg://user:secret@host/db?a=b": false,
		"": false, "db": false, "env:HOME": false, "env:": false, "postgres://%zz:secret@h/": false,
	} {
		err := CheckDSN(dsn)
		if (err == nil) != ok {
			t.Errorf("%q: %v", dsn, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the password: %v", dsn, err)
		}
	}
	s := newSetup(t)
	t.Setenv("URLAKE_DSN_TEST", s.dsn)
	s.spec.DSN = "env:URLAKE_DSN_TEST"
	s.publish("a", "1", "https://example.com/")
	s.export()
	t.Setenv("URLAKE_DSN_TEST", "host=secret port=secret")
	if _, err := s.steps(s.run()); !isInput(err) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed DSN: %v", err)
	}
	s.spec.DSN = "host=" + t.TempDir() + " user=postgres dbname=none"
	if _, err := s.steps(s.run()); err == nil || isInput(err) {
		t.Errorf("a server that is away: %v", err)
	}
	s.spec.DSN = strings.Replace(s.dsn, "dbname=", "dbname=none", 1)
	if _, err := s.steps(s.run()); !isInput(err) {
		t.Errorf("a database that does not exist: %v", err)
	}
}
