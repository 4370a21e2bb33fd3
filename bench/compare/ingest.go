package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/bench/steps"
)

// built is what a child process reports of an ingest and its publish.
type built struct {
	Seconds float64       `json:"seconds"`
	Rows    int64         `json:"rows"`
	Merged  int64         `json:"merged"`
	Domains int64         `json:"domains"`
	Entries int64         `json:"entries"`
	Stages  []steps.Stage `json:"stages"`
	// Publish is the part of Seconds after the last batch.
	Publish float64 `json:"publish"`
	Peak    int64   `json:"peak"`
	CPU     float64 `json:"cpu"` // seconds of all threads
}

// build ingests every list in lists, each as a dataset of its own, into a lake in dir and publishes
// it.
func build(ctx context.Context, lists, dir string) (*built, error) {
	b, err := steps.New(ctx, dir)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	out := new(built)
	if out.Rows, out.Merged, err = b.Lists(ctx, lists); err != nil {
		return nil, err
	}
	ingested := time.Now()
	report, err := b.Publish(ctx)
	if err != nil {
		return nil, err
	}
	out.Domains, out.Entries = report.Domains, report.Entries
	out.Seconds, out.Publish = time.Since(started).Seconds(), time.Since(ingested).Seconds()
	out.Stages = b.TakeStages()
	return out, nil
}

// copyStatement is what a user of DuckDB would run to get sorted, compressed, partitioned Parquet
// of the same lists.
const copyStatement = `SET threads=2; SET preserve_insertion_order=false; COPY (SELECT CAST(regexp_extract(filename,'ds(\d+)',1) AS INT) dataset_id,
regexp_extract(url,'https?://([^/]+)',1) host, url FROM read_csv('*.txt', header=false, columns={'url':'VARCHAR'}, delim='\x01', quote='', escape='', filename=true)
ORDER BY dataset_id, host, url) TO 'out' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (dataset_id), ROW_GROUP_SIZE 122880)`

// copied is what a child process reports of DuckDB's copy.
type copied struct {
	Seconds float64 `json:"seconds"`
	Version string  `json:"version"`
	Peak    int64   `json:"peak"`
	CPU     float64 `json:"cpu"`
}

// duckCopy runs copyStatement on the lists of a folder. DuckDB writes to the folder's subfolder
// out.
func duckCopy(ctx context.Context, lists string) (*copied, error) {
	if err := os.Chdir(lists); err != nil {
		return nil, err
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	out := new(copied)
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&out.Version); err != nil {
		return nil, err
	}
	started := time.Now()
	if _, err := db.ExecContext(ctx, copyStatement); err != nil {
		return nil, fmt.Errorf("DuckDB: %w", err)
	}
	out.Seconds = time.Since(started).Seconds()
	return out, nil
}

// duckCopyColumns has DuckDB write the URL columns of a lake's parts to the folder out.
func duckCopyColumns(ctx context.Context, parts, out string) error {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, fmt.Sprintf(`SET threads=2; SET preserve_insertion_order=false;
COPY (SELECT scheme, port, domain, host, path_query, dataset_id FROM read_parquet('%s/**/*.parquet', hive_partitioning=false) ORDER BY dataset_id, domain, host, path_query)
TO '%s' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (dataset_id), ROW_GROUP_SIZE 122880)`, parts, out))
	return err
}

// columnBytes adds up the compressed bytes of each column over the Parquet files below a folder.
// The name "" stands for what is in no column: footers and page indexes.
func columnBytes(dir string) (columns map[string]int64, rows, total int64, err error) {
	columns = map[string]int64{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".parquet" {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		p, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rest := info.Size()
		for _, g := range p.Metadata().RowGroups {
			for _, c := range g.Columns {
				columns[strings.Join(c.MetaData.PathInSchema, ".")] += c.MetaData.TotalCompressedSize
				rest -= c.MetaData.TotalCompressedSize
			}
		}
		columns[""] += rest
		rows += p.NumRows()
		total += info.Size()
		return nil
	})
	if err == nil && rows == 0 {
		err = errors.New(dir + " holds no rows")
	}
	return columns, rows, total, err
}

// indexBytes adds up the sizes of the files below a folder by file name, over all segments and
// shards.
func indexBytes(dir string) (files map[string]int64, total int64, err error) {
	files = map[string]int64{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[filepath.Base(name)] += info.Size()
		total += info.Size()
		return nil
	})
	return files, total, err
}

// descending returns the keys of sizes, the largest size first.
func descending(sizes map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), strings.Compare(a, b))
	})
}

// writeLists generates lists in dir and returns their bytes.
func writeLists(rows int64, datasets int, dir string) (int64, error) {
	c, err := corpus.New(options(rows, datasets))
	if err != nil {
		return 0, err
	}
	return c.WriteDir(dir, steps.Slots)
}

// options describes a corpus of so many rows, with at most one list a row.
func options(rows int64, datasets int) corpus.Options {
	return corpus.Options{Seed: 1, Rows: rows, Datasets: int(min(int64(datasets), rows))}
}

// usualLists is the number of lists that most measurements use.
const usualLists = 32
