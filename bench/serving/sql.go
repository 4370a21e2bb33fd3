package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/duckdb/duckdb-go/v2"
	_ "github.com/mattn/go-sqlite3"
)

// The tables of a database: the rows in the order of the two queries, and the counts of each domain
// and dataset, so that a lookup counts nothing.
const (
	duckTables = `SET threads=2;
CREATE TABLE urls AS SELECT domain, dataset_id, scheme || '://' || host || coalesce(':' || port, '') || path_query AS url
FROM read_parquet('%s', hive_partitioning=false) ORDER BY domain, dataset_id, url;
CREATE TABLE counts AS SELECT domain, dataset_id, count(*) AS n FROM urls GROUP BY ALL ORDER BY ALL;
CREATE INDEX urls_domain ON urls (domain); CREATE INDEX counts_domain ON counts (domain);`
	sqliteTables = `PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
CREATE TABLE urls (domain TEXT, dataset_id INT, url TEXT, PRIMARY KEY (domain, dataset_id, url)) WITHOUT ROWID;
CREATE TABLE counts (domain TEXT, dataset_id INT, n INT, PRIMARY KEY (domain, dataset_id)) WITHOUT ROWID;`
)

func parquetOf(dir string) string  { return filepath.Join(dir, "lake", "urls", "**", "*.parquet") }
func duckFile(dir string) string   { return filepath.Join(dir, "urls.duckdb") }
func sqliteFile(dir string) string { return filepath.Join(dir, "urls.sqlite") }

// loadTables fills the databases with the rows of the lake's Parquet.
func loadTables(ctx context.Context, dir string) error {
	duck, err := sql.Open("duckdb", duckFile(dir))
	if err != nil {
		return err
	}
	defer duck.Close()
	if _, err := duck.ExecContext(ctx, fmt.Sprintf(duckTables, parquetOf(dir))); err != nil {
		return fmt.Errorf("DuckDB: %w", err)
	}
	lite, err := sql.Open("sqlite3", sqliteFile(dir))
	if err != nil {
		return err
	}
	defer lite.Close()
	lite.SetMaxOpenConns(1) // a transaction and its pragmas are of one connection
	if _, err := lite.ExecContext(ctx, sqliteTables); err != nil {
		return fmt.Errorf("SQLite: %w", err)
	}
	for _, table := range []struct{ name, column string }{{"urls", "url"}, {"counts", "n"}} {
		if err := copyRows(ctx, duck, lite, table.name, table.column); err != nil {
			return fmt.Errorf("SQLite's table %s: %w", table.name, err)
		}
	}
	_, err = lite.ExecContext(ctx, "ANALYZE")
	return err
}

// copyRows copies a table from DuckDB, in the order of the table's key.
func copyRows(ctx context.Context, from, to *sql.DB, table, column string) error {
	tx, err := to.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing to roll back after a commit
	insert, err := tx.PrepareContext(ctx, "INSERT INTO "+table+" VALUES (?, ?, ?)")
	if err != nil {
		return err
	}
	rows, err := from.QueryContext(ctx, fmt.Sprintf("SELECT domain, dataset_id, %s FROM %s ORDER BY ALL", column, table))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var domain string
		var dataset int64
		var value any
		if err := rows.Scan(&domain, &dataset, &value); err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, domain, dataset, value); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return tx.Commit()
}

// The queries. Those over Parquet have no table of counts and put URLs together.
const (
	lookupTables  = "SELECT dataset_id, n FROM counts WHERE domain = ? ORDER BY dataset_id"
	pageTables    = "SELECT url FROM urls WHERE domain = ? AND dataset_id = ? ORDER BY url LIMIT ? OFFSET ?"
	lookupParquet = "SELECT dataset_id, count(*) FROM read_parquet('%s', hive_partitioning=false) WHERE domain = ? " +
		"GROUP BY dataset_id ORDER BY dataset_id"
	pageParquet = "SELECT scheme || '://' || host || coalesce(':' || port, '') || path_query FROM read_parquet('%s', hive_partitioning=false) " +
		"WHERE domain = ? AND dataset_id = ? ORDER BY 1 LIMIT ? OFFSET ?"
)

// serveSQL answers the two queries out of a database until the context ends.
func serveSQL(ctx context.Context, name, dir string) error {
	driver, file := "duckdb", duckFile(dir)+"?access_mode=read_only&threads=2"
	lookup, page := lookupTables, pageTables
	switch name {
	case "sqlite":
		driver, file = "sqlite3", "file:"+sqliteFile(dir)+"?mode=ro&immutable=1&_query_only=1"
	case "parquet":
		file = ""
		lookup, page = fmt.Sprintf(lookupParquet, parquetOf(dir)), fmt.Sprintf(pageParquet, parquetOf(dir))
	}
	db, err := sql.Open(driver, file)
	if err != nil {
		return err
	}
	defer db.Close()
	if name == "parquet" {
		// Footers are read once.
		if _, err := db.ExecContext(ctx, "SET threads=2; SET parquet_metadata_cache=true"); err != nil {
			return err
		}
	}
	db.SetMaxIdleConns(connections())
	h := &sqlHandler{}
	if h.lookup, err = db.PrepareContext(ctx, lookup); err != nil {
		return err
	}
	if h.page, err = db.PrepareContext(ctx, page); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/domain/{d}", h.domain)
	mux.HandleFunc("GET /v1/domain/{d}/datasets/{id}/urls", h.urls)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Printf("{\"msg\":\"listening\",\"address\":%q}\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// sqlHandler answers from two prepared statements.
type sqlHandler struct{ lookup, page *sql.Stmt }

func (h *sqlHandler) domain(w http.ResponseWriter, r *http.Request) {
	answer := domainAnswer{Domain: strings.Clone(r.PathValue("d"))}
	rows, err := h.lookup.QueryContext(r.Context(), answer.Domain)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			var d datasetCount
			err = rows.Scan(&d.ID, &d.Count)
			answer.Datasets = append(answer.Datasets, d)
		}
		err = errors.Join(err, rows.Err())
	}
	reply(w, answer, err)
}

func (h *sqlHandler) urls(w http.ResponseWriter, r *http.Request) {
	var answer pageAnswer
	id, err1 := strconv.ParseInt(r.PathValue("id"), 10, 64)
	offset, err2 := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	limit, err3 := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
	err := errors.Join(err1, err2, err3)
	if err == nil {
		var rows *sql.Rows
		if rows, err = h.page.QueryContext(r.Context(), r.PathValue("d"), id, limit, offset); err == nil {
			defer rows.Close()
			for err == nil && rows.Next() {
				var item pageItem
				err = rows.Scan(&item.URL)
				answer.Items = append(answer.Items, item)
			}
			err = errors.Join(err, rows.Err())
		}
	}
	reply(w, answer, err)
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
}
