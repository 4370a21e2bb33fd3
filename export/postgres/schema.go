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

// schemaFormat is the version of the schema, with what its functions and rows mean.
const schemaFormat = 2

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
	if number < 140000 {
		return inputf("PostgreSQL %d is too old; an export needs 14 or later", number/10000)
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		// A right to create schemas is needed only if somebody has to.
		if _, err := tx.Exec(ctx, fmt.Sprintf("DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '%s') THEN "+
			"CREATE SCHEMA IF NOT EXISTS \"%[1]s\"; END IF; END $$; "+
			"SELECT pg_advisory_xact_lock(hashtextextended('urlake ' || current_schema(), 0))", schema), simple); err != nil {
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
		_, err := tx.Exec(ctx, schemaSQL+strings.ReplaceAll(functionsSQL, "@schema@", `"`+schema+`"`), simple)
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
	load                         int64     // the last one
	run                          string    // of the last load
	loading                      bool      // that load has not ended
}

// readState returns nil for a schema without an export. Lock is a locking clause or "".
func readState(ctx context.Context, q querier, lock string) (*state, error) {
	var s state
	var format int
	var exported *time.Time
	err := q.QueryRow(ctx, "SELECT "+columnsOf["state"]+" FROM state"+lock).
		Scan(&format, &s.lake, &s.slice, &s.layout, &s.version, &s.epoch, &exported, &s.load, &s.run, &s.loading)
	if exported != nil {
		s.exported = *exported
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, explain("read the table state", err)
	case format != schemaFormat:
		return nil, inputf("the schema has format %d, and this build of urlake knows %d; use a build that knows it, or drop the schema and export again", format, schemaFormat)
	}
	return &s, nil
}

// readTable reads columns of a table as the fields of T.
func readTable[T any](ctx context.Context, q querier, table, columns string) (all []T, err error) {
	rows, err := q.Query(ctx, "SELECT "+columns+" FROM "+table)
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	}
	return all, explain("read the table "+table, err)
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
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

// errOutdated is the error of a plan that was made before another export changed the database.
var errOutdated = errors.New("another export into the schema has ended meanwhile; the plan is made again")

// begin creates the tables that rows are copied into, unless an earlier attempt has, and drops
// those of a load that did not end.
func (s *step) begin() error {
	return explain("begin a load", pgx.BeginFunc(s.ctx, s.c, func(tx pgx.Tx) error {
		s.tx = tx
		if err := s.bound(); err != nil {
			return err
		}
		was, err := readState(s.ctx, tx, " FOR UPDATE")
		switch {
		case err != nil || was.run == s.plan.Run:
			return err
		case !was.exported.IsZero() && !was.exported.Equal(s.plan.Exported):
			return errOutdated
		case was.loading:
			if err := s.dropLoad(was.load); err != nil {
				return err
			}
		}
		if err := s.createLoad(was.load + 1); err != nil {
			return err
		}
		return s.exec("UPDATE state SET last_load = $1, run = $2, loading = true", was.load+1, s.plan.Run)
	}))
}

// loadTables are the tables of a load beside those that it attaches.
const loadTables = "load_chunks, load_hosts, load_collisions, load_id_map"

func (s *step) createLoad(load int64) error {
	create := []string{
		"CREATE TABLE load_chunks (chunk integer PRIMARY KEY, rows bigint, urls bigint)",
		"CREATE TABLE load_hosts (LIKE domain64)",
		"CREATE TABLE load_collisions (LIKE collisions)",
		"CREATE TABLE load_id_map (LIKE id_map)",
	}
	by := ""
	if len(s.plan.Partitions) > 0 {
		by = " PARTITION BY RANGE (domain64)"
	}
	for _, dataset := range s.plan.loaded() {
		name := tableName(dataset, load)
		// By the CHECK PostgreSQL knows, without reading the rows, that the table may be attached.
		create = append(create, fmt.Sprintf("CREATE TABLE %s (LIKE urls INCLUDING CONSTRAINTS, CHECK (dataset_id = %d))%s", name, dataset, by))
		for _, part := range s.plan.Partitions {
			sub := name + part.suffix()
			create = append(create,
				fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES %s", sub, name, part.values()),
				fmt.Sprintf("COMMENT ON TABLE %s IS '%s'", sub, strings.ReplaceAll(part.Name, "'", "''")))
		}
	}
	return s.execAll(create...)
}

// dropLoad drops the tables of a load that did not end. Only a load that ended attaches its tables.
func (s *step) dropLoad(load int64) error {
	rows, err := s.tx.Query(s.ctx, `SELECT oid::regclass::text FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname ~ $1`,
		fmt.Sprintf("^urls_[0-9]+_%d$", load))
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	return s.exec("DROP TABLE IF EXISTS " + strings.Join(append(names, loadTables), ", "))
}
