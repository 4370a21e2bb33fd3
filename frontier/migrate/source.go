package migrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/urlake/urlake/export/postgres"
)

const (
	tableVisited  = "visited_urls"
	tableFrontier = "frontier"
	tableDomains  = "domain_metadata"
	// stageExclusions goes through domain_metadata once more.
	stageExclusions = "exclusions"
)

// Tables lists the tables.
var Tables = []string{tableVisited, tableFrontier, tableDomains}

// Stages are the steps of a migration in their order, each of which goes through a table. Delays
// hold before anything can be claimed, and what was visited is known when the frontier comes. A
// frontier takes no URLs of domains that are excluded, so those only rest until all URLs are there.
var Stages = []string{tableDomains, tableVisited, tableFrontier, stageExclusions}

// field is a column that a table may have, by any of some names.
type field struct {
	names    []string
	required bool
}

func named(names ...string) field    { return field{names: names} }
func required(names ...string) field { return field{names: names, required: true} }

// fields are the columns that are read of each table, in the order of the constants below.
var fields = map[string][]field{
	tableVisited: {
		required("url"), named("crawled_timestamp", "fetched_at"), named("http_status_code", "status_code"),
		named("content_storage_path", "content_path"), named("redirected_to_url"), named("error", "error_message"), named("depth"),
	},
	tableFrontier: {required("url"), named("depth"), named("priority", "priority_score")},
	tableDomains: {
		required("domain"), named("robots_txt_content", "robots_txt"), named("robots_txt_expires_timestamp", "robots_expires"),
		named("is_manually_excluded", "is_excluded"), named("last_scheduled_fetch_timestamp"), named("crawl_delay", "crawl_delay_seconds"),
	},
}

// Positions of fields.
const (
	visitedURL = iota
	visitedTime
	visitedStatus
	visitedContent
	visitedRedirect
	visitedError
	visitedDepth
)

const (
	frontierURL = iota
	frontierDepth
	frontierPriority
)

const (
	domainName = iota
	domainRobots
	domainExpires
	domainExcluded
	domainLast
	domainDelay
)

// source reads the tables of a database in pages, each in the order of a unique key. Rows that are
// added or changed meanwhile are in what is read if they are behind the page that is read.
type source struct {
	conn   *pgx.Conn
	schema string
	tables map[string]*table
}

// table is what is known of a table. Every value is read as text.
type table struct {
	name string
	// columns are expressions for the fields, "" for those that the table lacks.
	columns []string
	// integer tells of each field whether it is of a type of whole numbers.
	integer []bool
	// keys are the columns of a unique key, types their types.
	keys, types []string
	// rows is an estimate, or a count of a small table.
	rows int64
}

// only returns a table of which only some fields are read; of nil it returns nil.
func (t *table) only(fields ...int) *table {
	if t == nil {
		return nil
	}
	out := *t
	out.columns = make([]string, len(t.columns))
	for _, f := range fields {
		out.columns[f] = t.columns[f]
	}
	return &out
}

// open connects to a database and looks at the tables. Tables that are not there are left out.
func open(ctx context.Context, spec *Spec) (*source, error) {
	c, err := postgres.Connect(ctx, spec.DSN, spec.Schema, "urlake migration")
	if err != nil {
		return nil, err
	}
	s := &source{conn: c, schema: spec.Schema, tables: map[string]*table{}}
	for _, name := range Tables {
		t, err := s.look(ctx, name)
		if err != nil {
			s.close(ctx)
			return nil, err
		}
		if t != nil {
			s.tables[name] = t
		}
	}
	if len(s.tables) == 0 {
		s.close(ctx)
		return nil, inputf("schema %s has none of the tables %s; --schema names another", spec.Schema, strings.Join(Tables, ", "))
	}
	return s, nil
}

func (s *source) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the server ends the session in any case
}

// collect runs a query whose rows are of T.
func collect[T any](ctx context.Context, c *pgx.Conn, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, explain(what, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	return all, explain(what, err)
}

// look finds the columns and the key of a table, nil if there is none of the name.
func (s *source) look(ctx context.Context, name string) (*table, error) {
	what := "look at table " + name
	type column struct {
		Name, Type string
	}
	columns, err := collect(ctx, s.conn, what, pgx.RowToStructByPos[column], `SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
		FROM pg_attribute a WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped`, s.qualified(name))
	if err != nil || len(columns) == 0 {
		return nil, err
	}
	types := map[string]string{}
	for _, c := range columns {
		types[c.Name] = c.Type
	}
	t := &table{name: s.qualified(name)}
	for _, f := range fields[name] {
		expression, whole := "", false
		for _, n := range f.names {
			if kind, ok := types[n]; ok {
				expression, whole = expressionOf(n, kind)
				break
			}
		}
		if expression == "" && f.required {
			return nil, inputf("table %s has no column %s", name, f.names[0])
		}
		t.columns, t.integer = append(t.columns, expression), append(t.integer, whole)
	}
	// A key has no nulls, and is compared by the operators of its types.
	keys, err := collect(ctx, s.conn, what, pgx.RowTo[[]string], `SELECT array_agg(a.attname::text ORDER BY k.n)
		FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n)
			JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
		WHERE i.indrelid = to_regclass($1::text) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND k.n <= i.indnkeyatts
		GROUP BY i.indexrelid, i.indisprimary HAVING bool_and(a.attnotnull) ORDER BY i.indisprimary DESC, count(*), i.indexrelid LIMIT 1`, t.name)
	switch {
	case err != nil:
		return nil, err
	case len(keys) == 0:
		return nil, inputf("table %s has no primary key and no unique index of columns that are NOT NULL, by which it could be read in pages; "+
			"add one, e.g. ALTER TABLE %s ADD COLUMN migration_id bigserial PRIMARY KEY", name, name)
	}
	for _, k := range keys[0] {
		t.keys, t.types = append(t.keys, k), append(t.types, types[k])
	}
	counts, err := collect(ctx, s.conn, what, pgx.RowTo[int64], "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1::text)", t.name)
	if err != nil {
		return nil, err
	}
	if t.rows = counts[0]; t.rows < 100_000 { // or never analyzed
		if counts, err = collect(ctx, s.conn, what, pgx.RowTo[int64], "SELECT count(*) FROM "+t.name); err != nil {
			return nil, err
		}
		t.rows = counts[0]
	}
	return t, nil
}

func (s *source) qualified(name string) string { return pgx.Identifier{s.schema, name}.Sanitize() }

// expressionOf returns what reads a column as text: times as seconds since 1970.
func expressionOf(name, kind string) (expression string, whole bool) {
	column := pgx.Identifier{name}.Sanitize()
	switch {
	case strings.HasPrefix(kind, "timestamp"), kind == "date":
		return "extract(epoch FROM " + column + ")::text", false
	case strings.HasPrefix(kind, "interval"):
		return "extract(epoch FROM " + column + ")::text", false
	}
	return column + "::text", kind == "smallint" || kind == "integer" || kind == "bigint"
}

// row is a row of a table: the text of its key and of its fields, nil for nulls and for columns
// that the table lacks.
type row struct {
	key    []string
	values []*string
}

// page returns up to n rows that follow a key; nil begins with the first.
func (s *source) page(ctx context.Context, t *table, after []string, n int) ([]row, error) {
	var sql strings.Builder
	sql.WriteString("SELECT ")
	for i, k := range t.keys {
		if i > 0 {
			sql.WriteString(", ")
		}
		sql.WriteString(pgx.Identifier{k}.Sanitize() + "::text")
	}
	for _, c := range t.columns {
		if c != "" {
			sql.WriteString(", " + c)
		}
	}
	sql.WriteString(" FROM " + t.name + " AS t")
	order := make([]string, len(t.keys))
	for i, k := range t.keys {
		order[i] = "t." + pgx.Identifier{k}.Sanitize() // the bare name would be that of the text above
	}
	var args []any
	if after != nil {
		if len(after) != len(t.keys) {
			return nil, inputf("table %s has another key than when the migration began; start it again", t.name)
		}
		values := make([]string, len(after))
		for i, v := range after {
			values[i] = fmt.Sprintf("$%d::text::%s", i+1, t.types[i])
			args = append(args, v)
		}
		fmt.Fprintf(&sql, " WHERE (%s) > (%s)", strings.Join(order, ", "), strings.Join(values, ", "))
	}
	fmt.Fprintf(&sql, " ORDER BY %s LIMIT %d", strings.Join(order, ", "), n)
	what := "read table " + t.name
	rows, err := s.conn.Query(ctx, sql.String(), args...)
	if err != nil {
		return nil, explain(what, err)
	}
	defer rows.Close()
	var all []row
	for rows.Next() {
		raw := rows.RawValues()
		r := row{key: make([]string, len(t.keys)), values: make([]*string, len(t.columns))}
		for i := range r.key {
			r.key[i] = string(raw[i])
		}
		at := len(t.keys)
		for i, c := range t.columns {
			if c == "" {
				continue
			}
			if raw[at] != nil {
				v := string(raw[at])
				r.values[i] = &v
			}
			at++
		}
		all = append(all, r)
	}
	return all, explain(what, rows.Err())
}

// text returns a value, "" for none.
func (r *row) text(i int) string {
	if r.values[i] == nil {
		return ""
	}
	return *r.values[i]
}

// number returns a value as a number, 0 for none and for what is no number.
func (r *row) number(i int) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(r.text(i)), 64)
	if err != nil || math.IsNaN(v) {
		return 0
	}
	return v
}

// clamped returns a value as a whole number from 0 to most.
func (r *row) clamped(i int, most float64) uint64 {
	return uint64(min(max(math.Round(r.number(i)), 0), most))
}

// outside says that a value is no number from 0 to most.
func (r *row) outside(i int, most float64) bool {
	n := r.number(i)
	return math.Round(n) < 0 || n > most
}

// milliseconds is the number of seconds since 1970 from which on a number counts milliseconds: the
// year 5138.
const milliseconds = 1e11

// lastTime is the end of the year 9999 in seconds since 1970.
const lastTime = 253402300799

// time returns a value that is a time in seconds, or milliseconds, since 1970, or in RFC 3339. It
// is zero for none.
func (r *row) time(i int) time.Time {
	text := strings.TrimSpace(r.text(i))
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}
		}
		return t.UTC()
	}
	if v >= milliseconds {
		v /= 1000
	}
	if !(v > 0 && v <= lastTime) {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Round(v * 1000))).UTC()
}

// flag returns a value that is a boolean or a number.
func (r *row) flag(i int) bool {
	switch strings.ToLower(strings.TrimSpace(r.text(i))) {
	case "t", "true", "yes", "y", "on":
		return true
	}
	return r.number(i) != 0
}

// final are the classes of errors of a server that no retry mends: the user is refused, no such
// database, something is missing or no right to it, and text that is of no encoding.
var final = []string{"28", "3D", "42", "22021", "22P05"}

// explain names the operation. An error that no retry mends is an *InputError. The details of an
// error are left out, since they may have values of rows.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", what, err)
	}
	text := fmt.Sprintf("%s: PostgreSQL: %s (SQLSTATE %s)", what, e.Message, e.Code)
	for _, f := range final {
		if strings.HasPrefix(e.Code, f) {
			return &InputError{text}
		}
	}
	return errors.New(text)
}
