package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// SchemaFormat is the version of the schema.
const SchemaFormat = 1

var (
	//go:embed schema.sql
	schemaSQL string
	//go:embed functions.sql
	functionsSQL string
)

// simple sends several statements at once.
const simple = pgx.QueryExecModeSimpleProtocol

// columnsOf are the columns of the tables that steps use.
var columnsOf = map[string]string{
	"state":      "format, lake, slice, layout, version, takedown_epoch, exported, last_load, run, loading",
	"exports":    "version, takedown_epoch, finished, rows, urls, datasets, added, removed",
	"datasets":   "dataset_id, name, title, source, licence, batches, rows, urls, digest",
	"batches":    "batch_id, dataset_id, name, digest",
	"domain64":   "number, level, host, domain",
	urlsTable:    copyColumns,
	"collisions": copyColumns,
	"id_map":     idMapColumns,
	"takedowns":  "rule, host",
}

// prepare creates the schema if it is missing, and checks that it has what was created.
func prepare(ctx context.Context, c *pgx.Conn, schema string) error {
	var number int
	if err := c.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&number); err != nil {
		return explain("ask for the server's version", err)
	}
	if number < minServer {
		return inputf("PostgreSQL %d is too old; an export needs %d or later", number/10000, minServer/10000)
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		// A right to create schemas is needed only if somebody has to.
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			if _, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize()); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('urlake ' || current_schema(), 0))"); err != nil {
			return err
		}
		var ours, others bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass(current_schema() || '.state') IS NOT NULL, EXISTS (
			SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p'))`).
			Scan(&ours, &others); err != nil || ours {
			return err
		}
		if others {
			return inputf("the schema %s has tables that are not of an export; give --schema another name", schema)
		}
		_, err := tx.Exec(ctx, schemaSQL+strings.ReplaceAll(functionsSQL, "@schema@", pgx.Identifier{schema}.Sanitize()), simple)
		return err
	})
	for table, columns := range columnsOf {
		if err == nil {
			_, err = c.Exec(ctx, "SELECT "+columns+" FROM "+table+" LIMIT 0")
		}
	}
	return explain("prepare the schema "+schema, err)
}

// state is what a schema has.
type state struct {
	lake, slice, layout, version string
	epoch                        uint64
	exported                     time.Time // when the last export ended; zero if none has
	run                          string    // of the last load
	loading                      bool      // that load has not ended
}

// readState returns nil for a schema without an export.
func readState(ctx context.Context, c *pgx.Conn) (*state, error) {
	var s state
	var format int
	var exported *time.Time
	err := c.QueryRow(ctx, "SELECT format, lake, slice, layout, version, takedown_epoch, exported, run, loading FROM state").
		Scan(&format, &s.lake, &s.slice, &s.layout, &s.version, &s.epoch, &exported, &s.run, &s.loading)
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
		SchemaFormat, p.Spec.Lake, p.Slice, p.Spec.Layout)
	return explain("write the table state", err)
}

// known is a dataset that the database has.
type known struct {
	digest string
	rows   int64
}

func readDatasets(ctx context.Context, c *pgx.Conn) (map[uint32]known, error) {
	out := map[uint32]known{}
	var id uint32
	var k known
	return out, readTable(ctx, c, "datasets", "dataset_id, digest, rows", []any{&id, &k.digest, &k.rows}, func() { out[id] = k })
}

func readBatches(ctx context.Context, c *pgx.Conn) (map[batchName]planBatch, error) {
	out := map[batchName]planBatch{}
	var b planBatch
	return out, readTable(ctx, c, "batches", "batch_id, dataset_id, name, digest",
		[]any{&b.ID, &b.Dataset, &b.Name, &b.Digest}, func() { out[batchName{b.Dataset, b.Name}] = b })
}

// readRules returns the hosts of the rules that the database has, by id.
func readRules(ctx context.Context, c *pgx.Conn) (map[string]string, error) {
	out := map[string]string{}
	var id, host string
	return out, readTable(ctx, c, "takedowns", "rule, host", []any{&id, &host}, func() { out[id] = host })
}

func readTable(ctx context.Context, c *pgx.Conn, table, columns string, into []any, each func()) error {
	rows, err := c.Query(ctx, "SELECT "+columns+" FROM "+table)
	if err == nil {
		_, err = pgx.ForEachRow(rows, into, func() error { each(); return nil })
	}
	return explain("read the table "+table, err)
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// partitionsOf returns the partitions of urls, quoted, by dataset.
func partitionsOf(ctx context.Context, q querier) (map[uint32]string, error) {
	rows, err := q.Query(ctx, `SELECT substring(pg_get_expr(c.relpartbound, c.oid) FROM '\d+')::bigint, c.oid::regclass::text, i.inhdetachpending
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'urls'::regclass`)
	if err != nil {
		return nil, err
	}
	out := map[uint32]string{}
	var dataset uint32
	var name string
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&dataset, &name, &pending}, func() error {
		if pending {
			return inputf("the partition %s is not wholly detached; ALTER TABLE urls DETACH PARTITION %s FINALIZE, and export again", name, name)
		}
		out[dataset] = name
		return nil
	})
	return out, err
}

// stepWait is how long a step waits for another one that does the same.
const stepWait = 30 * time.Second

var (
	// errOver tells a step that another export has begun, or that its own has ended.
	errOver = &InputError{"the export is over, or another one of the schema has taken its place; start it again"}
	// errOutdated tells that a plan was compared with what the database no longer has.
	errOutdated = errors.New("another export into the schema has ended meanwhile; the plan is made again")
)

// begin creates the tables that rows are copied into, unless an earlier attempt has, and drops
// those of a load that did not end.
func begin(ctx context.Context, c *pgx.Conn, p *plan) error {
	return explain("begin a load", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", stepWait.Milliseconds())); err != nil {
			return err
		}
		var load int64
		var exported *time.Time
		var run string
		var loading bool
		if err := tx.QueryRow(ctx, "SELECT last_load, exported, run, loading FROM state FOR UPDATE").
			Scan(&load, &exported, &run, &loading); err != nil {
			return err
		}
		switch {
		case run == p.Run:
			return nil
		case exported != nil && !exported.Equal(p.Exported):
			return errOutdated
		case loading:
			if err := dropLoad(ctx, tx, load); err != nil {
				return err
			}
		}
		load++
		if err := createLoad(ctx, tx, p, load); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE state SET last_load = $1, run = $2, loading = true", load, p.Run)
		return err
	}))
}

// fence locks the state FOR SHARE or FOR UPDATE until the transaction ends, and returns the number
// of the load. It fails if the load is over. It also bounds how long the transaction waits for
// locks.
func fence(ctx context.Context, tx pgx.Tx, opt *Options, p *plan, lock string) (load int64, err error) {
	wait := stepWait
	if opt.wait > 0 {
		wait = opt.wait
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, "SELECT last_load FROM state WHERE run = $1 AND loading FOR "+lock, p.Run).Scan(&load)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errOver
	}
	return load, err
}

// loadTables are the tables of a load beside those that it attaches.
const loadTables = "load_chunks, load_hosts, load_collisions, load_id_map"

func createLoad(ctx context.Context, tx pgx.Tx, p *plan, load int64) error {
	create := []string{
		"CREATE TABLE load_chunks (chunk integer PRIMARY KEY, rows bigint, urls bigint)",
		"CREATE TABLE load_hosts (LIKE domain64)",
		"CREATE TABLE load_collisions (LIKE collisions)",
		"CREATE TABLE load_id_map (LIKE id_map)",
	}
	for i := range p.Tables {
		t := &p.Tables[i]
		name, by := tableName(t.Dataset, load), ""
		if len(t.Parts) > 0 {
			by = " PARTITION BY RANGE (domain64)"
		}
		// By the CHECK PostgreSQL knows, without reading the rows, that the table may be attached.
		create = append(create, fmt.Sprintf("CREATE TABLE %s (LIKE urls INCLUDING CONSTRAINTS, CHECK (dataset_id = %d))%s", name, t.Dataset, by))
		for _, part := range t.Parts {
			sub := name + part.suffix()
			create = append(create,
				fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES %s", sub, name, part.values()),
				fmt.Sprintf("COMMENT ON TABLE %s IS '%s'", sub, strings.ReplaceAll(part.Name, "'", "''")))
		}
	}
	for _, sql := range create {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// dropLoad drops the tables of a load that did not end. Only a load that ended attaches its tables.
func dropLoad(ctx context.Context, tx pgx.Tx, load int64) error {
	if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+loadTables); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT oid::regclass::text FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname ~ $1`,
		fmt.Sprintf("^urls_[0-9]+_%d$", load))
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, n := range names {
		if err == nil {
			_, err = tx.Exec(ctx, "DROP TABLE "+n)
		}
	}
	return err
}
