package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// SchemaFormat is the version of the schema.
// 1: first.
const SchemaFormat = 1

var (
	//go:embed schema.sql
	schemaSQL string
	//go:embed functions.sql
	functionsSQL string
)

// schemaLock is the advisory lock of those who create or change a schema.
const schemaLock = "SELECT pg_advisory_xact_lock(hashtextextended('urlake ' || current_schema(), 0))"

// simple sends several statements at once.
const simple = pgx.QueryExecModeSimpleProtocol

// prepare creates the schema if it is missing, and checks that it is as it was created.
func prepare(ctx context.Context, c *pgx.Conn, schema string) error {
	var number int
	if err := c.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&number); err != nil {
		return explain("ask for the server's version", err)
	}
	if number < minServer {
		return inputf("PostgreSQL %d is too old; an export needs %d or later", number/10000, minServer/10000)
	}
	return explain("prepare the schema "+schema, pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		// A right to create schemas is needed only if somebody has to.
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			if _, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+quote(schema)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, schemaLock); err != nil {
			return err
		}
		var tables int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')").Scan(&tables); err != nil {
			return err
		}
		var ours bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass(current_schema() || '.state') IS NOT NULL").Scan(&ours); err != nil {
			return err
		}
		switch {
		case !ours && tables > 0:
			return inputf("the schema %s has tables that are not of an export; give --schema another name", schema)
		case !ours:
			if _, err := tx.Exec(ctx, schemaSQL, simple); err != nil {
				return err
			}
		}
		if err := checkTables(ctx, tx, schema); err != nil {
			return err
		}
		// Functions hold nothing, so those of this build replace others. A comment says which they
		// are.
		text := strings.ReplaceAll(functionsSQL, "@schema@", quote(schema))
		comment := fmt.Sprintf("urlake %016x", xxh3.HashString(text))
		var same bool
		if err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(to_regprocedure(current_schema() || '.lookup(text)'), 'pg_proc') = $1, false)`, comment).
			Scan(&same); err != nil || same {
			return err
		}
		_, err := tx.Exec(ctx, text+"COMMENT ON FUNCTION lookup(text) IS "+quoteText(comment), simple)
		return err
	}))
}

// tables are the tables of a schema with their columns, as checkTables finds them.
var tables = map[string]string{
	"state":       "one boolean!, format integer!, lake text!, slice text!, layout text!, version text!, takedown_epoch bigint!, exported timestamp with time zone, last_load bigint!",
	"exports":     "version text!, takedown_epoch bigint!, finished timestamp with time zone!, rows bigint!, urls bigint!, added bigint!, removed bigint!",
	"datasets":    "dataset_id integer!, name text!, title text!, source text!, licence text!, batches integer!, rows bigint!, urls bigint!",
	"batches":     "batch_id integer!, dataset_id integer!, name text!, digest text!",
	"domain64":    "number bigint!, level smallint!, host text!, domain text!",
	"urls":        urlsColumns,
	"collisions":  urlsColumns,
	"id_map":      "requested_key bigint!, canonical_key bigint!, batch_id integer!, dataset_id integer!, requested_url text!, canonical_url text!",
	"takedowns":   "rule text!, host text!",
	"load":        "load bigint!, plan text!, whole boolean!",
	"load_chunks": "load bigint!, chunk integer!, rows bigint!, urls bigint!",
}

const urlsColumns = "domain64 bigint!, key bigint!, first_ts timestamp with time zone, last_ts timestamp with time zone, " +
	"size bigint, rows bigint!, batch_id integer!, dataset_id integer!, url text!"

// checkTables returns an error that names the first table that is not as it was created.
func checkTables(ctx context.Context, tx pgx.Tx, schema string) error {
	rows, err := tx.Query(ctx, `
		SELECT c.relname::text, coalesce(string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ||
		       CASE WHEN a.attnotnull THEN '!' ELSE '' END, ', ' ORDER BY a.attnum), '')
		FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		GROUP BY c.relname`)
	if err != nil {
		return err
	}
	found := map[string]string{}
	var name, columns string
	if _, err := pgx.ForEachRow(rows, []any{&name, &columns}, func() error { found[name] = columns; return nil }); err != nil {
		return err
	}
	for _, name := range slices.Sorted(keys(tables)) {
		if found[name] != tables[name] {
			what := "is missing"
			if got, ok := found[name]; ok {
				what = fmt.Sprintf("has the columns (%s) and not (%s)", got, tables[name])
			}
			return inputf("the table %s.%s was changed by hand: it %s; undo that, or export into another --schema", schema, name, what)
		}
	}
	var primary *string
	if err := tx.QueryRow(ctx, `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'urls'::regclass AND contype = 'p'`).
		Scan(&primary); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	const want = "PRIMARY KEY (domain64, key, batch_id)"
	if primary == nil || *primary != want {
		return inputf("the table %s.urls was changed by hand: it has no %s; undo that, or export into another --schema", schema, want)
	}
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// state is what a schema has.
type state struct {
	lake, slice, layout, version string
	epoch                        uint64
	exported                     time.Time // when the last export ended; zero if none has
	lastLoad                     int64
}

// readState returns nil for a schema without an export.
func readState(ctx context.Context, c *pgx.Conn) (*state, error) {
	var s state
	var format int
	var exported *time.Time
	err := c.QueryRow(ctx, "SELECT format, lake, slice, layout, version, takedown_epoch, exported, last_load FROM state").
		Scan(&format, &s.lake, &s.slice, &s.layout, &s.version, &s.epoch, &exported, &s.lastLoad)
	if exported != nil {
		s.exported = *exported
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, explain("read the table state", err)
	case format != SchemaFormat:
		return nil, inputf("the schema has format %d, and this build of urlake knows %d; use the newer one", format, SchemaFormat)
	}
	return &s, nil
}

func createState(ctx context.Context, c *pgx.Conn, p *plan) error {
	_, err := c.Exec(ctx, "INSERT INTO state (format, lake, slice, layout) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
		SchemaFormat, p.Spec.Lake, p.Slice, p.Layout)
	return explain("write the table state", err)
}

// known is a batch that the database has.
type known struct {
	ID     int32
	Digest string
}

func readBatches(ctx context.Context, c *pgx.Conn) (map[batchName]known, error) {
	rows, err := c.Query(ctx, "SELECT batch_id, dataset_id, name, digest FROM batches")
	if err != nil {
		return nil, explain("read the table batches", err)
	}
	out := map[batchName]known{}
	var k known
	var n batchName
	_, err = pgx.ForEachRow(rows, []any{&k.ID, &n.dataset, &n.name, &k.Digest}, func() error { out[n] = k; return nil })
	return out, explain("read the table batches", err)
}

func readRules(ctx context.Context, c *pgx.Conn) (map[string]string, error) {
	rows, err := c.Query(ctx, "SELECT rule, host FROM takedowns")
	if err != nil {
		return nil, explain("read the table takedowns", err)
	}
	out := map[string]string{}
	var id, host string
	_, err = pgx.ForEachRow(rows, []any{&id, &host}, func() error { out[id] = host; return nil })
	return out, explain("read the table takedowns", err)
}

// begin creates the tables that rows are copied into, and gives the plan its load's number. If an
// export with the same plan did not end, its load goes on, with what it has loaded. Seen is the
// state that the plan was made for: if another export has ended since, begin fails.
func begin(ctx context.Context, c *pgx.Conn, p *plan, seen *state) error {
	p.Load = 0
	data, err := codec.Seal(p)
	if err != nil {
		return err
	}
	digest := fmt.Sprintf("%016x", xxh3.Hash(data))
	return explain("begin a load", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", stepWait.Milliseconds())); err != nil {
			return err
		}
		var exported time.Time
		if err := tx.QueryRow(ctx, "SELECT last_load + 1, coalesce(exported, $1) FROM state FOR UPDATE", seen.exported).
			Scan(&p.Load, &exported); err != nil {
			return err
		}
		if !exported.Equal(seen.exported) {
			return errors.New("another export into the schema has ended meanwhile; the plan is made again")
		}
		if p.Whole {
			if err := checkNames(ctx, tx, p); err != nil {
				return err
			}
		}
		var before int64
		err := tx.QueryRow(ctx, "SELECT load FROM load WHERE plan = $1 AND to_regclass('"+staged+"') IS NOT NULL", digest).Scan(&before)
		if err == nil {
			p.Load = before
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := dropStaged(ctx, tx); err != nil {
			return err
		}
		for _, sql := range []string{"DELETE FROM load", "DELETE FROM load_chunks"} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := createStaged(ctx, tx, p); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO load (load, plan, whole) VALUES ($1, $2, $3)", p.Load, digest, p.Whole); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE state SET last_load = $1", p.Load)
		return err
	}))
}

// checkNames returns an error if something that is no partition of urls has the name of one.
func checkNames(ctx context.Context, tx pgx.Tx, p *plan) error {
	names := make([]string, len(p.Partitions))
	for i := range p.Partitions {
		names[i] = p.Partitions[i].Name
	}
	var taken string
	err := tx.QueryRow(ctx, `SELECT relname::text FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relname = ANY($1)
		AND oid NOT IN (SELECT relid FROM pg_partition_tree('urls')) ORDER BY relname LIMIT 1`, names).Scan(&taken)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = inputf("%s.%s has the name of a partition, and is none of urls; if it was detached, move it and its own partitions "+
			"to another schema, as docs/postgres.md says, or rename them, after DETACH PARTITION … FINALIZE if that was interrupted, "+
			"and export again", p.Spec.Schema, taken)
	}
	return err
}

// dropStaged drops the tables of loads that did not end.
func dropStaged(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+staged+", load_hosts, load_id_map, load_collisions CASCADE")
	if err != nil {
		return err
	}
	// Partitions that were detached, and not attached elsewhere in the same transaction, cannot be
	// left; the name is for tables of a load alone.
	rows, err := tx.Query(ctx, `SELECT relname::text FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname LIKE 'load\_urls\_%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, n := range names {
		if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+quote(n)+" CASCADE"); err != nil {
			return err
		}
	}
	return nil
}

// loadCheck is the constraint by which PostgreSQL knows, without reading the rows, that a partition
// may be attached.
const loadCheck = "load_range"

func createStaged(ctx context.Context, tx pgx.Tx, p *plan) error {
	create := []string{
		"CREATE TABLE load_hosts (number bigint NOT NULL, host text NOT NULL, domain text NOT NULL)",
		"CREATE TABLE load_id_map (LIKE id_map)",
		"CREATE TABLE load_collisions (LIKE collisions)",
	}
	if !p.Whole {
		create = append(create, "CREATE TABLE "+staged+" (LIKE "+urlsTable+")")
	} else {
		create = append(create, "CREATE TABLE "+staged+" (LIKE "+urlsTable+") PARTITION BY RANGE (domain64)")
		for _, t := range p.Partitions {
			parent, check, by := loadName(t.Parent), "", ""
			if t.Parent == "" {
				parent = staged
				check = fmt.Sprintf(" (CONSTRAINT %s CHECK (%s))", loadCheck, t.Of.check())
			}
			if t.Divided {
				by = " PARTITION BY RANGE (domain64)"
			}
			name := loadName(t.Name)
			create = append(create,
				fmt.Sprintf("CREATE TABLE %s PARTITION OF %s%s FOR VALUES %s%s", quote(name), quote(parent), check, t.Of.values(), by),
				fmt.Sprintf("COMMENT ON TABLE %s IS %s", quote(name), quoteText(t.Comment)))
		}
	}
	for _, sql := range create {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
