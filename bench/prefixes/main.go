// Command prefixes builds the path-tree index of generated keys and has DuckDB sum up the same keys
// by folder. Both results are compared, folder by folder.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
)

// folders sums up the keys of a file by all their folders, the root among them.
const folders = `
create table folders as
select prefix, count(*)::ubigint objects, sum(size)::ubigint bytes
from (
  select unnest(list_transform(range(0, len(parts)), n -> coalesce(array_to_string(parts[1:n], '/'), '') || if(n > 0, '/', ''))) prefix, size
  from (select string_split(Key, '/') parts, Size size from read_csv('%s', header = true))
)
group by prefix`

func main() {
	keys := flag.Int("keys", 1_000_000, "keys")
	flag.Parse()
	if err := run(*keys); err != nil {
		fmt.Fprintln(os.Stderr, "prefixes:", err)
		os.Exit(1)
	}
}

// key returns the i-th key: data sets by hour, logs by host and day, uploads by hash.
func key(i int) string {
	n := i / 3
	switch i % 3 {
	case 0:
		hour := n % 8784
		return fmt.Sprintf("warehouse/events_%d/year=2026/month=%02d/day=%02d/hour=%02d/part-0000.parquet",
			n/8784, hour/744+1, hour/24%31+1, hour%24)
	case 1:
		return fmt.Sprintf("logs/web-%04d/2026-%02d-%02d/access.log.gz", n/366, n%366/31+1, n%31+1)
	}
	h := uint64(i) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("uploads/%02x/%02x/%012x/original.jpg", h>>56, h>>48&0xff, h&0xffffffffffff)
}

// spent returns the processor time that the process has used.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measured runs f and prints how long it took.
func measured(what string, f func() error) error {
	start, used := time.Now(), spent()
	err := f()
	fmt.Printf("%-28s %8.2f s, %8.2f s of processor time\n", what, time.Since(start).Seconds(), (spent() - used).Seconds())
	return err
}

func run(keys int) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "prefixes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	input := filepath.Join(dir, "keys.csv")
	var text strings.Builder
	text.WriteString("Key,Size\n")
	for i := range keys {
		fmt.Fprintf(&text, "%s,%d\n", key(i), i)
	}
	if err := os.WriteFile(input, []byte(text.String()), 0o644); err != nil {
		return err
	}
	text.Reset()

	index := filepath.Join(dir, "index")
	var built treebuild.InventoryResult
	err = measured("index from CSV", func() (err error) {
		built, err = treebuild.Inventory(ctx, index, []string{input}, treebuild.InventoryOptions{})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d keys, %d prefixes, %.1f bytes a prefix\n", keys, built.Nodes, float64(built.Stats.Bytes)/float64(built.Nodes))

	db, err := sql.Open("duckdb", filepath.Join(dir, "folders.duckdb"))
	if err != nil {
		return err
	}
	defer db.Close()
	for _, s := range []string{"set threads = 2", "set memory_limit = '4GB'"} {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	err = measured("table of DuckDB from CSV", func() error {
		_, err := db.Exec(fmt.Sprintf(folders, input))
		return err
	})
	if err != nil {
		return err
	}

	x, err := prefixtree.Open(index)
	if err != nil {
		return err
	}
	defer x.Close()
	rows, err := db.Query("select prefix, objects, bytes from folders")
	if err != nil {
		return err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var prefix string
		var objects, bytes uint64
		if err := rows.Scan(&prefix, &objects, &bytes); err != nil {
			return err
		}
		pos, ok, err := x.Lookup([]byte(prefix))
		if err != nil {
			return err
		}
		n, err := x.Node(pos)
		if err != nil {
			return err
		}
		if !ok || n.Objects != objects || n.Bytes != bytes {
			return fmt.Errorf("%q has %d objects and %d bytes, and %d and %d in DuckDB", prefix, n.Objects, n.Bytes, objects, bytes)
		}
		all = append(all, prefix)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if uint64(len(all)) != x.Len() {
		return fmt.Errorf("%d prefixes, and %d in DuckDB", x.Len(), len(all))
	}
	const step = 7919 // a stride through the prefixes
	lookups := 100_000
	at := func(i int) string { return all[i*step%len(all)] }
	err = measured(fmt.Sprintf("%d lookups, index", lookups), func() error {
		for i := range lookups {
			pos, _, err := x.Lookup([]byte(at(i)))
			if err == nil {
				_, err = x.Node(pos)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := db.Exec("create unique index by_prefix on folders(prefix)"); err != nil {
		return err
	}
	lookup, err := db.Prepare("select objects, bytes from folders where prefix = ?")
	if err != nil {
		return err
	}
	defer lookup.Close()
	lookups = 2000
	return measured(fmt.Sprintf("%d lookups, DuckDB", lookups), func() error {
		for i := range lookups {
			var objects, bytes uint64
			if err := lookup.QueryRow(at(i)).Scan(&objects, &bytes); err != nil {
				return err
			}
		}
		return nil
	})
}
