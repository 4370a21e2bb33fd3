package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake/blob"
)

// Result is the result of an export.
type Result struct {
	Version       string `json:"version"`
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Current tells that the database had the version already, so that nothing was written.
	Current bool `json:"current,omitempty"`
	// Rows are the lake's rows of the slice, URLs the rows of the table urls, Collisions those of
	// the table collisions, and Datasets how many datasets there are.
	Rows       int64 `json:"rows"`
	URLs       int64 `json:"urls"`
	Collisions int64 `json:"collisions"`
	Datasets   int64 `json:"datasets"`
	// Changed is how many datasets this export loaded or removed. Added and Removed are how many
	// rows of the table urls it wrote, and how many it dropped.
	Changed int64 `json:"changed"`
	Added   int64 `json:"added"`
	Removed int64 `json:"removed"`
}

// hold keeps a garbage collector from deleting what a version refers to, until the returned
// function is called.
func hold(ctx context.Context, store blob.Store, version string) (release func(), err error) {
	release, err = scan.Hold(ctx, store, version, "urlake export postgres")
	if errors.Is(err, scan.ErrDropped) {
		err = inputf("version %s was dropped from the lake while it was exported; export a newer one", version)
	}
	return release, err
}

// indexMemory is what PostgreSQL may use to build an index.
const indexMemory = "256MB"

// Index gives a table of the load its keys, separates what collides in it, and looks up the names
// of its numbers. It may be repeated.
func Index(ctx context.Context, store blob.Store, run string, number int, opt Options) error {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return err
	}
	if n := len(p.leaves(0)); number < 0 || number >= n {
		return inputf("the plan has %d tables, none with the number %d", n, number)
	}
	c, err := connect(ctx, p.Spec.target())
	if err != nil {
		return err
	}
	defer disconnect(ctx, c)
	x := indexer{ctx: ctx, c: c, p: p, number: number, opt: opt}
	if x.registry, err = p.registry(store); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		x.tx = tx
		return x.index()
	})
	if err != nil {
		return explain("index "+x.table, err)
	}
	_, err = c.Exec(ctx, "ANALYZE "+x.table)
	return explain("analyze "+x.table, err)
}

// indexer indexes a table.
type indexer struct {
	ctx      context.Context
	c        *pgx.Conn
	tx       pgx.Tx
	p        *plan
	number   int // of the table
	opt      Options
	registry *numbers.Registry
	table    string
}

func (x *indexer) exec(tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(x.ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (x *indexer) index() error {
	load, err := fence(x.ctx, x.tx, &x.opt, x.p, "SHARE")
	if err != nil {
		return err
	}
	x.table = x.p.leaves(load)[x.number]
	var done bool
	if err := x.tx.QueryRow(x.ctx, "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = $1::text::regclass)", x.table).
		Scan(&done); err != nil || done {
		return err
	}
	if err := x.exec(x.tx, "SET LOCAL maintenance_work_mem = '"+indexMemory+"'", "SET LOCAL work_mem = '"+indexMemory+"'"); err != nil {
		return err
	}
	sql := "ALTER TABLE " + x.table + " ADD PRIMARY KEY (domain64, key, batch_id, dataset_id)"
	err = pgx.BeginFunc(x.ctx, x.tx, func(sub pgx.Tx) error { return x.exec(sub, sql) })
	if hasCode(err, codeUnique) {
		// Two URLs of a batch have one key, or a URL is in two parts of it.
		if err = x.resolve("HAVING count(*) > 1", ", batch_id"); err == nil {
			err = x.exec(x.tx, sql)
		}
	}
	if err == nil {
		// Two URLs of different batches have one key. Other hashes tell them apart.
		err = x.resolve("HAVING min(hashtextextended(url, 0)) <> max(hashtextextended(url, 0))", "")
	}
	if err == nil {
		err = x.names()
	}
	if err == nil {
		err = x.opt.fail("before " + x.p.leaves(0)[x.number] + " is indexed")
	}
	return err
}

// resolve takes the rows of keys out of a table, adds up those of one URL and batch, and puts those
// of the smallest URL of each key back. The others go to load_collisions. Which is the smallest
// does not depend on the order in which rows were loaded.
func (x *indexer) resolve(having, by string) error {
	return x.exec(x.tx,
		"CREATE TEMPORARY TABLE resolved ON COMMIT DROP AS SELECT domain64, key FROM "+x.table+" GROUP BY domain64, key"+by+" "+having,
		`CREATE TEMPORARY TABLE merged ON COMMIT DROP AS
		WITH gone AS (DELETE FROM `+x.table+` t USING (SELECT DISTINCT domain64, key FROM resolved) r
			WHERE t.domain64 = r.domain64 AND t.key = r.key RETURNING t.*)
		SELECT domain64, key, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
			least(sum(size), 9223372036854775807)::bigint AS size, sum(rows)::bigint AS rows, batch_id, dataset_id, url,
			min(url COLLATE "C") OVER (PARTITION BY domain64, key) AS stays
		FROM gone GROUP BY domain64, key, batch_id, dataset_id, url`,
		"INSERT INTO "+x.table+" ("+copyColumns+") SELECT "+copyColumns+" FROM merged WHERE url = stays",
		"INSERT INTO load_collisions ("+copyColumns+") SELECT "+copyColumns+" FROM merged WHERE url <> stays",
		"DROP TABLE resolved, merged",
	)
}

// namesAtOnce is how many numbers are looked up at a time.
const namesAtOnce = 50_000

// names writes the names of the table's numbers, and of those above them, to load_hosts. They are
// the lake's: the table domain64 is a copy.
func (x *indexer) names() error {
	layout := x.registry.Layout()
	sql := "SELECT DISTINCT domain64 FROM " + x.table + " ORDER BY 1 LIMIT " + fmt.Sprint(namesAtOnce)
	for {
		rows, err := x.tx.Query(x.ctx, sql)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(found) == 0 {
			return err
		}
		var codes []domain64.Code
		for _, n := range found {
			for c := domain64.FromSigned(n); c != 0; c = layout.Parent(c) {
				codes = append(codes, c)
			}
		}
		slices.Sort(codes)
		codes = slices.Compact(codes)
		names, err := x.registry.Names(x.ctx, codes)
		if err != nil {
			return err
		}
		if _, err := x.tx.CopyFrom(x.ctx, pgx.Identifier{"load_hosts"}, []string{"number", "level", "host", "domain"},
			pgx.CopyFromSlice(len(codes), func(i int) ([]any, error) {
				level, _ := layout.Level(codes[i])
				site := names[i].With(domain64.Sub, "")
				return []any{codes[i].Signed(), int16(level) + 1, names[i].Host(), site.Host()}, nil
			})); err != nil {
			return err
		}
		sql = fmt.Sprintf("SELECT DISTINCT domain64 FROM %s WHERE domain64 > %d ORDER BY 1 LIMIT %d", x.table, found[len(found)-1], namesAtOnce)
	}
}

// Finish puts the loaded tables in the place of those that are read, in one transaction. It fails,
// and nothing changes, if a dataset then has other rows than the lake shows of it.
func Finish(ctx context.Context, store blob.Store, run string, opt Options) (Result, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return Result{}, err
	}
	c, err := connect(ctx, p.Spec.target())
	if err != nil {
		return Result{}, err
	}
	defer disconnect(ctx, c)
	f := finisher{ctx: ctx, c: c, p: p, opt: opt, out: Result{Version: p.Version, TakedownEpoch: p.TakedownEpoch}}
	if err := f.finish(); err != nil {
		return Result{}, explain("finish the export of version "+p.Version, err)
	}
	return f.out, nil
}

// finisher ends a load.
type finisher struct {
	ctx  context.Context
	c    *pgx.Conn
	tx   pgx.Tx
	p    *plan
	opt  Options
	load int64
	out  Result

	// old are the partitions that go, by dataset.
	old map[uint32]string
	// replaced are the datasets that are loaded, and those that go.
	replaced []int32
}

// exec runs a statement of the transaction.
func (f *finisher) exec(sql string, args ...any) error {
	_, err := f.tx.Exec(f.ctx, sql, args...)
	return err
}

func (f *finisher) finish() error {
	s, err := readState(f.ctx, f.c)
	if err != nil {
		return err
	}
	if s != nil && s.run == f.p.Run && !s.loading { // the answer of an earlier attempt was lost
		err = f.c.QueryRow(f.ctx, "SELECT datasets, added, removed FROM exports ORDER BY finished DESC LIMIT 1").
			Scan(&f.out.Changed, &f.out.Added, &f.out.Removed)
		if err != nil {
			return err
		}
		return f.out.totals(f.ctx, f.c)
	}
	return pgx.BeginFunc(f.ctx, f.c, func(tx pgx.Tx) error {
		f.tx = tx
		if f.load, err = fence(f.ctx, tx, &f.opt, f.p, "UPDATE"); err != nil {
			return err
		}
		var chunks int
		if err := tx.QueryRow(f.ctx, "SELECT count(*) FROM load_chunks").Scan(&chunks); err != nil {
			return err
		}
		if chunks != len(f.p.Chunks) {
			return inputf("%d of %d chunks are loaded; start the export again", chunks, len(f.p.Chunks))
		}
		for _, step := range []func() error{f.compare, f.datasets, f.names, f.takedowns, f.swap} {
			if err := step(); err != nil {
				return err
			}
		}
		if err := f.out.totals(f.ctx, tx); err != nil {
			return err
		}
		if err := f.exec("DROP TABLE " + loadTables); err != nil {
			return err
		}
		if err := f.exec("UPDATE state SET version = $1, takedown_epoch = $2, exported = clock_timestamp(), loading = false",
			f.p.Version, f.p.TakedownEpoch); err != nil {
			return err
		}
		if err := f.exec(`INSERT INTO exports (version, takedown_epoch, finished, rows, urls, datasets, added, removed)
			VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6, $7)`,
			f.p.Version, f.p.TakedownEpoch, f.out.Rows, f.out.URLs, f.out.Changed, f.out.Added, f.out.Removed); err != nil {
			return err
		}
		return f.opt.fail("before the export is committed")
	})
}

// totals sets what the database has in all.
func (r *Result) totals(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	return q.QueryRow(ctx, `SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(urls), 0)::bigint, count(*),
		(SELECT count(*) FROM collisions) FROM datasets`).Scan(&r.Rows, &r.URLs, &r.Datasets, &r.Collisions)
}

// compare finds what is replaced, and what goes.
func (f *finisher) compare() error {
	stays := map[uint32]bool{}
	for i := range f.p.Datasets {
		if d := &f.p.Datasets[i]; d.Changed {
			f.replaced = append(f.replaced, int32(d.ID))
		} else {
			stays[d.ID] = true
		}
	}
	rows, err := f.tx.Query(f.ctx, "SELECT dataset_id, urls FROM datasets")
	if err != nil {
		return err
	}
	var id uint32
	var urls int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &urls}, func() error {
		if !stays[id] {
			f.out.Removed += urls
			f.replaced = append(f.replaced, int32(id))
		}
		return nil
	}); err != nil {
		return err
	}
	slices.Sort(f.replaced)
	f.replaced = slices.Compact(f.replaced)
	f.out.Changed = int64(len(f.replaced))
	f.old, err = partitionsOf(f.ctx, f.tx)
	maps.DeleteFunc(f.old, func(id uint32, _ string) bool { return stays[id] })
	return err
}

// datasets counts the rows of each dataset that changed, compares them with the lake's, and writes
// the lists of datasets and batches, collisions and id_map.
func (f *finisher) datasets() error {
	for _, table := range []string{"datasets", "batches", "collisions", "id_map"} {
		if err := f.exec("DELETE FROM "+table+" WHERE dataset_id = ANY($1)", f.replaced); err != nil {
			return err
		}
	}
	for table, columns := range map[string]string{"collisions": copyColumns, "id_map": idMapColumns} {
		if err := f.exec("INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM load_" + table); err != nil {
			return err
		}
	}
	for i := range f.p.Datasets {
		d := &f.p.Datasets[i]
		if !d.Changed {
			if err := f.exec(`UPDATE datasets SET name = $2, title = $3, source = $4, licence = $5
				WHERE dataset_id = $1 AND (name, title, source, licence) IS DISTINCT FROM ($2, $3, $4, $5)`,
				int32(d.ID), d.Name, d.Title, d.Source, d.Licence); err != nil {
				return err
			}
			continue
		}
		var rows, urls int64
		if d.loaded() {
			if err := f.tx.QueryRow(f.ctx, "SELECT coalesce(sum(rows), 0)::bigint, count(*) FROM "+tableName(d.ID, f.load)).
				Scan(&rows, &urls); err != nil {
				return err
			}
			var beside int64
			if err := f.tx.QueryRow(f.ctx, "SELECT coalesce(sum(rows), 0)::bigint FROM load_collisions WHERE dataset_id = $1", int32(d.ID)).
				Scan(&beside); err != nil {
				return err
			}
			rows += beside
			f.out.Added += urls
		}
		if rows != d.Shown {
			return inputf("dataset %s would have %d rows in the database and has %d in version %s of the lake, so nothing was changed; "+
				"this is an error of urlake, or damage of the lake, which \"starter verify\" finds", d.Name, rows, d.Shown, f.p.Version)
		}
		if err := f.exec("INSERT INTO datasets (dataset_id, name, title, source, licence, batches, rows, urls, digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
			int32(d.ID), d.Name, d.Title, d.Source, d.Licence, d.Batches, rows, urls, d.Digest); err != nil {
			return err
		}
	}
	_, err := f.tx.CopyFrom(f.ctx, pgx.Identifier{"batches"}, []string{"batch_id", "dataset_id", "name", "digest"},
		pgx.CopyFromSlice(len(f.p.Batches), func(i int) ([]any, error) {
			b := &f.p.Batches[i]
			return []any{b.ID, int32(b.Dataset), b.Name, b.Digest}, nil
		}))
	return err
}

// names writes the names of new numbers, and removes those of which no URL is left: takedowns hide
// them, too. A number that stands for another name is an error.
func (f *finisher) names() error {
	var number int64
	var host, other string
	err := f.tx.QueryRow(f.ctx, `SELECT h.number, h.host, d.host FROM load_hosts h JOIN domain64 d USING (number)
		WHERE h.host <> d.host LIMIT 1`).Scan(&number, &host, &other)
	if err == nil {
		return inputf("the table domain64 gives %d to %s, and the lake's registry to %s; was the lake or the table restored? export into another --schema",
			number, other, host)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err := f.exec("INSERT INTO domain64 SELECT DISTINCT * FROM load_hosts ON CONFLICT DO NOTHING"); err != nil || len(f.old) == 0 {
		return err
	}
	if err := f.exec("CREATE TEMPORARY TABLE gone (number bigint) ON COMMIT DROP"); err != nil {
		return err
	}
	layout, err := domain64.ParseLayout(f.p.Spec.Layout)
	if err != nil {
		return err
	}
	// What a number keeps of the levels from the TLD, and from the domain on.
	tld := layout.Child(0, domain64.TLD, layout.Max(domain64.TLD))
	site := layout.Child(tld, domain64.Domain, layout.Max(domain64.Domain))
	for _, table := range f.old {
		if err := f.exec("INSERT INTO gone SELECT DISTINCT domain64 FROM " + table); err != nil {
			return err
		}
	}
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(f.replaced), " ", ", "), "[]") // not a parameter, so that they are pruned
	return f.exec(`DELETE FROM domain64 d
		WHERE d.number IN (SELECT number FROM gone UNION SELECT number & $2::bigint FROM gone UNION SELECT number & $1::bigint FROM gone)
		AND NOT EXISTS (SELECT FROM load_hosts h WHERE h.number = d.number)
		AND NOT EXISTS (SELECT FROM urls u WHERE u.dataset_id NOT IN (`+ids+`) AND u.domain64 BETWEEN d.number AND
			d.number | CASE d.level WHEN 1 THEN ~$1::bigint WHEN 2 THEN ~$2::bigint ELSE 0 END)`,
		tld.Signed(), site.Signed())
}

// takedowns writes which rules are applied.
func (f *finisher) takedowns() error {
	ids, hosts := make([]string, len(f.p.Rules)), make([]string, len(f.p.Rules))
	for i, r := range f.p.Rules {
		ids[i], hosts[i] = r.ID, r.Host
	}
	if err := f.exec("DELETE FROM takedowns WHERE rule <> ALL($1)", ids); err != nil {
		return err
	}
	return f.exec("INSERT INTO takedowns (rule, host) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING", ids, hosts)
}

// Locks of readers.
const (
	lockTimeout  = 2 * time.Second
	lockAttempts = 10
)

// swap puts the loaded tables in the place of the partitions that go. This is the end of the
// transaction: readers wait for it.
func (f *finisher) swap() error {
	if err := f.lock(); err != nil {
		return err
	}
	for _, table := range f.old {
		for _, sql := range []string{"ALTER TABLE urls DETACH PARTITION " + table, "DROP TABLE " + table} {
			if err := f.exec(sql); err != nil {
				return err
			}
		}
	}
	for _, t := range f.p.Tables {
		if err := f.exec(fmt.Sprintf("ALTER TABLE urls ATTACH PARTITION %s FOR VALUES IN (%d)", tableName(t.Dataset, f.load), t.Dataset)); err != nil {
			return err
		}
	}
	return nil
}

// lock locks urls if partitions of it go. It waits only briefly, because everybody who comes later
// would wait behind it.
func (f *finisher) lock() error {
	timeout, attempts := cmp.Or(f.opt.LockTimeout, lockTimeout), cmp.Or(f.opt.LockAttempts, lockAttempts)
	if err := f.exec(fmt.Sprintf("SET LOCAL lock_timeout = %d", timeout.Milliseconds())); err != nil || len(f.old) == 0 {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(f.ctx, f.tx, func(sub pgx.Tx) error {
			_, err := sub.Exec(f.ctx, "LOCK TABLE ONLY urls IN ACCESS EXCLUSIVE MODE")
			return err
		})
		if !hasCode(err, codeLockTimeout) {
			return err
		}
		if attempt == attempts {
			return f.locked(err)
		}
		select {
		case <-time.After(timeout / 2):
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// locked says who holds the lock.
func (f *finisher) locked(err error) error {
	rows, askErr := f.tx.Query(f.ctx, `SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(a.xact_start::text, '')
		FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.relation = 'urls'::regclass AND l.granted AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 3`)
	text := ""
	if askErr == nil {
		var pid int
		var user, app, since string
		_, askErr = pgx.ForEachRow(rows, []any{&pid, &user, &app, &since}, func() error {
			text += fmt.Sprintf("; process %d of %s (%s) holds a lock since %s", pid, user, app, since)
			return nil
		})
	}
	if askErr != nil || text == "" {
		text = "; a reader holds a lock"
	}
	return &serverError{"the new partitions could not take the place of the old ones" + text +
		": end its transaction; nothing has changed, and the export tries again", err}
}
