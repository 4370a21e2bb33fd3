package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake/blob"
)

// Result is the result of an export.
type Result struct {
	Version       string `json:"version"`
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Current tells that the database had the version already, so that nothing was written.
	Current bool `json:"current,omitempty"`
	// Whole tells that everything was loaded anew.
	Whole bool `json:"whole,omitempty"`
	// Rows are the lake's rows of the slice, URLs the rows of the table urls, Collisions those of
	// the table collisions, and Datasets how many datasets there are.
	Rows       int64 `json:"rows"`
	URLs       int64 `json:"urls"`
	Collisions int64 `json:"collisions"`
	Datasets   int64 `json:"datasets"`
	// Added and Removed are how many rows of the table urls this export added and removed.
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

// Index gives a table of the load its primary key, and separates what collides in it. It may be
// repeated.
func Index(ctx context.Context, store blob.Store, run string, number int, opt Options) error {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return err
	}
	names := p.leaves()
	if number < 0 || number >= len(names) {
		return inputf("the plan has %d tables, none with the number %d", len(names), number)
	}
	c, err := connect(ctx, p.Spec.target())
	if err != nil {
		return err
	}
	defer disconnect(ctx, c)
	table := names[number]
	if err := index(ctx, c, p, table, opt); err != nil {
		return explain("index "+table, err)
	}
	_, err = c.Exec(ctx, "ANALYZE "+quote(table))
	return explain("analyze "+table, err)
}

func index(ctx context.Context, c *pgx.Conn, p *plan, table string, opt Options) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if err := fence(ctx, tx, &opt, p.Load, "SHARE"); err != nil {
			return err
		}
		for _, sql := range []string{
			"SET LOCAL maintenance_work_mem = '" + indexMemory + "'",
			"SET LOCAL work_mem = '" + indexMemory + "'",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		var done bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype = 'p')", quote(table)).
			Scan(&done); err != nil || done {
			return err
		}
		primary := p.primaryKey(table)
		sub, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err = sub.Exec(ctx, primary); err == nil {
			err = sub.Commit(ctx)
		} else if rollback := sub.Rollback(ctx); rollback != nil {
			return err
		}
		if hasCode(err, codeUnique) {
			// Two URLs of a batch have one key, or a URL is in two parts of it.
			if err := resolve(ctx, tx, quote(table), "SELECT domain64, key FROM "+quote(table)+
				" GROUP BY domain64, key, batch_id HAVING count(*) > 1"); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, primary)
		}
		if err != nil {
			return err
		}
		if len(p.Batches) > 1 {
			// Two URLs of different batches have one key. Other hashes tell them apart.
			if err := resolve(ctx, tx, quote(table), "SELECT domain64, key FROM "+quote(table)+
				" GROUP BY domain64, key HAVING min(hashtextextended(url, 0)) <> max(hashtextextended(url, 0))"); err != nil {
				return err
			}
		}
		return opt.fail("before " + table + " is indexed")
	})
}

// resolve takes the rows of keys out of a table, adds up those of one URL and batch, and puts those
// of the smallest URL of each key back. The others go to load_collisions. Which is the smallest
// does not depend on the order in which rows were loaded.
func resolve(ctx context.Context, tx pgx.Tx, table, keys string) error {
	for _, sql := range []string{
		"CREATE TEMPORARY TABLE resolved ON COMMIT DROP AS " + keys,
		`CREATE TEMPORARY TABLE merged ON COMMIT DROP AS
		WITH gone AS (DELETE FROM ` + table + ` t USING (SELECT DISTINCT domain64, key FROM resolved) r
			WHERE t.domain64 = r.domain64 AND t.key = r.key RETURNING t.*)
		SELECT domain64, key, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
			least(sum(size), 9223372036854775807)::bigint AS size, sum(rows)::bigint AS rows, batch_id, dataset_id, url,
			min(url COLLATE "C") OVER (PARTITION BY domain64, key) AS stays
		FROM gone GROUP BY domain64, key, batch_id, dataset_id, url`,
		"INSERT INTO " + table + " (" + copyColumns + ") SELECT " + copyColumns + " FROM merged WHERE url = stays",
		"INSERT INTO load_collisions (" + copyColumns + ") SELECT " + copyColumns + " FROM merged WHERE url <> stays",
		"DROP TABLE resolved, merged",
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Finish makes the loaded rows part of what is read, in one transaction. It fails, and nothing
// changes, if a dataset then has other rows than the lake shows of it.
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
	f := finisher{ctx: ctx, c: c, p: p, opt: opt}
	done, err := f.done()
	if err != nil || done {
		return f.out, err
	}
	if err = f.run(); hasCode(err, codeUnique) {
		err = inputf("rows that version %s adds are in the database already: rows were added by hand; "+
			"remove them, or load everything anew with --rebuild: %v", p.Version, explain("add rows", err))
	}
	if err != nil {
		return Result{}, explain("finish the export of version "+p.Version, err)
	}
	return f.out, nil
}

// finisher ends a load.
type finisher struct {
	ctx context.Context
	c   *pgx.Conn
	tx  pgx.Tx
	p   *plan
	opt Options
	out Result
}

// done reports whether the load has ended already: the answer of an earlier attempt was lost.
func (f *finisher) done() (bool, error) {
	s, err := readState(f.ctx, f.c)
	if err != nil || s == nil {
		return false, err
	}
	var open bool
	if err := f.c.QueryRow(f.ctx, "SELECT EXISTS (SELECT 1 FROM load WHERE load = $1)", f.p.Load).Scan(&open); err != nil {
		return false, explain("read the table load", err)
	}
	if open {
		return false, nil
	}
	if s.version != f.p.Version || s.epoch != f.p.TakedownEpoch || s.lastLoad != f.p.Load {
		return false, errOver
	}
	r := &f.out
	*r = Result{Version: s.version, TakedownEpoch: s.epoch, Whole: f.p.Whole}
	err = f.c.QueryRow(f.ctx, "SELECT rows, urls, added, removed FROM exports ORDER BY finished DESC LIMIT 1").
		Scan(&r.Rows, &r.URLs, &r.Added, &r.Removed)
	if err == nil {
		err = f.c.QueryRow(f.ctx, "SELECT (SELECT count(*) FROM datasets), (SELECT count(*) FROM collisions)").Scan(&r.Datasets, &r.Collisions)
	}
	return true, explain("read what is exported", err)
}

// exec runs a statement of the transaction and returns how many rows it changed.
func (f *finisher) exec(sql string, args ...any) (int64, error) {
	tag, err := f.tx.Exec(f.ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (f *finisher) run() error {
	return pgx.BeginFunc(f.ctx, f.c, func(tx pgx.Tx) error {
		f.tx, f.out = tx, Result{Version: f.p.Version, TakedownEpoch: f.p.TakedownEpoch, Whole: f.p.Whole}
		err := fence(f.ctx, tx, &f.opt, f.p.Load, "UPDATE")
		if err != nil {
			return err
		}
		var chunks int
		if err := tx.QueryRow(f.ctx, "SELECT count(*) FROM load_chunks WHERE load = $1", f.p.Load).Scan(&chunks); err != nil {
			return err
		}
		if chunks != len(f.p.Chunks) {
			return inputf("%d of %d chunks are loaded; start the export again", chunks, len(f.p.Chunks))
		}
		if f.p.Whole {
			err = f.replace()
		} else {
			err = f.change()
		}
		if err != nil {
			return err
		}
		for _, step := range []func() error{f.names, f.lists, f.count} {
			if err := step(); err != nil {
				return err
			}
		}
		if f.p.Whole {
			if err := f.swap(); err != nil {
				return err
			}
		}
		if err := dropStaged(f.ctx, tx); err != nil {
			return err
		}
		for _, sql := range []string{"DELETE FROM load", "DELETE FROM load_chunks"} {
			if _, err := f.exec(sql); err != nil {
				return err
			}
		}
		if _, err := f.exec("UPDATE state SET version = $1, takedown_epoch = $2, exported = now()", f.p.Version, f.p.TakedownEpoch); err != nil {
			return err
		}
		if _, err := f.exec("INSERT INTO exports (version, takedown_epoch, rows, urls, added, removed) VALUES ($1, $2, $3, $4, $5, $6)",
			f.p.Version, f.p.TakedownEpoch, f.out.Rows, f.out.URLs, f.out.Added, f.out.Removed); err != nil {
			return err
		}
		return f.opt.fail("before the export is committed")
	})
}

// side are the tables beside urls whose rows belong to batches.
var side = []string{"collisions", "id_map"}

// replace empties the tables beside urls and fills them anew. They are small; TRUNCATE would wait
// for their readers.
func (f *finisher) replace() error {
	for _, t := range side {
		if _, err := f.exec("DELETE FROM " + t); err != nil {
			return err
		}
		if _, err := f.exec("INSERT INTO " + t + " SELECT * FROM load_" + t); err != nil {
			return err
		}
	}
	return nil
}

// change removes and adds rows of the tables that are read.
func (f *finisher) change() error {
	if _, err := f.exec("CREATE TEMPORARY TABLE gone (number bigint NOT NULL) ON COMMIT DROP"); err != nil {
		return err
	}
	const dropped, reloaded = "batch_id = ANY($1)", "domain64 = ANY(ARRAY(SELECT number FROM domain64 WHERE domain = ANY($1)))"
	for _, t := range []string{urlsTable, "collisions"} {
		if err := f.remove(t, dropped, f.p.Drop); err != nil {
			return err
		}
		if err := f.remove(t, reloaded, f.p.Reloaded); err != nil {
			return err
		}
	}
	// With an id_map, rules that change have everything loaded anew.
	if _, err := f.exec("DELETE FROM id_map WHERE "+dropped, f.p.Drop); err != nil {
		return err
	}
	// What is there stays, and another URL with its key goes beside.
	if _, err := f.exec(`WITH other AS (DELETE FROM ` + staged + ` s USING ` + urlsTable + ` u
		WHERE u.domain64 = s.domain64 AND u.key = s.key AND u.url <> s.url RETURNING s.*)
		INSERT INTO load_collisions SELECT DISTINCT * FROM other`); err != nil {
		return err
	}
	n, err := f.exec("INSERT INTO " + urlsTable + " SELECT * FROM " + staged)
	if err != nil {
		return err
	}
	f.out.Added = n
	for _, t := range side {
		if _, err := f.exec("INSERT INTO " + t + " SELECT * FROM load_" + t); err != nil {
			return err
		}
	}
	return nil
}

// remove removes rows, and notes their hosts in the table gone.
func (f *finisher) remove(table, where string, of any) error {
	var n int64
	err := f.tx.QueryRow(f.ctx, "WITH d AS (DELETE FROM "+table+" WHERE "+where+" RETURNING domain64), "+
		"g AS (INSERT INTO gone SELECT DISTINCT domain64 FROM d) SELECT count(*) FROM d", of).Scan(&n)
	if table == urlsTable {
		f.out.Removed += n
	}
	return err
}

// names writes the numbers of hosts. A number that stands for another host is an error: numbers are
// those of the lake's registry, of which the table is a copy.
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
	if f.p.Whole {
		if _, err := f.exec("DELETE FROM domain64"); err != nil {
			return err
		}
	}
	layout, err := domain64.ParseLayout(f.p.Layout)
	if err != nil {
		return err
	}
	// What a number keeps of the levels from the TLD, and from the domain on.
	tld := layout.Child(0, domain64.TLD, layout.Max(domain64.TLD))
	site := layout.Child(tld, domain64.Domain, layout.Max(domain64.Domain))
	for _, sql := range []string{
		`SELECT DISTINCT number, CASE WHEN number & $2 = number AND number & $1 = number THEN 1
			WHEN number & $2 = number THEN 2 ELSE 3 END, host, domain FROM load_hosts`,
		`SELECT DISTINCT number & $2, 2, domain, domain FROM load_hosts WHERE number & $2 <> number AND $1::bigint IS NOT NULL`,
		`SELECT DISTINCT number & $1, 1, CASE WHEN host ~ '^\[|^[0-9.]+$' THEN '` + domain64.IPAddresses + `'
			ELSE regexp_replace(domain, '^.*\.', '') END, '' FROM load_hosts WHERE number & $1 <> number AND $2::bigint IS NOT NULL`,
	} {
		if _, err := f.exec("INSERT INTO domain64 (number, level, host, domain) "+sql+" ON CONFLICT DO NOTHING",
			tld.Signed(), site.Signed()); err != nil {
			return err
		}
	}
	if f.p.Whole {
		return nil
	}
	// Names of which no URL is left go, and so do those above them: takedowns hide them, too.
	const within = "BETWEEN d.number AND d.number | CASE d.level WHEN 1 THEN ~$1::bigint WHEN 2 THEN ~$2::bigint ELSE 0 END"
	_, err = f.exec(`DELETE FROM domain64 d
		WHERE d.number IN (SELECT number FROM gone UNION SELECT number & $2::bigint FROM gone UNION SELECT number & $1::bigint FROM gone)
		AND NOT EXISTS (SELECT 1 FROM urls u WHERE u.domain64 `+within+`)
		AND NOT EXISTS (SELECT 1 FROM collisions u WHERE u.domain64 `+within+`)`,
		tld.Signed(), site.Signed())
	return err
}

// lists writes which batches and rules the tables have.
func (f *finisher) lists() error {
	if _, err := f.exec("DELETE FROM batches"); err != nil {
		return err
	}
	if _, err := f.tx.CopyFrom(f.ctx, pgx.Identifier{"batches"}, []string{"batch_id", "dataset_id", "name", "digest"},
		pgx.CopyFromSlice(len(f.p.Batches), func(i int) ([]any, error) {
			b := &f.p.Batches[i]
			return []any{b.ID, int32(b.Dataset), b.Name, b.Digest}, nil
		})); err != nil {
		return err
	}
	if _, err := f.exec("DELETE FROM takedowns"); err != nil {
		return err
	}
	_, err := f.tx.CopyFrom(f.ctx, pgx.Identifier{"takedowns"}, []string{"rule", "host"},
		pgx.CopyFromSlice(len(f.p.Rules), func(i int) ([]any, error) { return []any{f.p.Rules[i].ID, f.p.Rules[i].Host}, nil }))
	return err
}

// count counts the rows of each dataset, compares them with the lake's, and writes the datasets.
func (f *finisher) count() error {
	from := urlsTable
	if f.p.Whole {
		from = staged
		if err := f.tx.QueryRow(f.ctx, "SELECT coalesce(sum(urls), 0)::bigint FROM datasets").Scan(&f.out.Removed); err != nil {
			return err
		}
	}
	rows, err := f.tx.Query(f.ctx, `SELECT dataset_id, sum(rows)::bigint, sum(urls)::bigint, sum(beside)::bigint FROM (
		SELECT dataset_id, sum(rows) AS rows, count(*) AS urls, 0 AS beside FROM `+from+` GROUP BY dataset_id
		UNION ALL SELECT dataset_id, sum(rows), 0, count(*) FROM collisions GROUP BY dataset_id) both_tables GROUP BY dataset_id`)
	if err != nil {
		return err
	}
	type counted struct{ rows, urls, beside int64 }
	got := map[uint32]counted{}
	var id uint32
	var n counted
	if _, err := pgx.ForEachRow(rows, []any{&id, &n.rows, &n.urls, &n.beside}, func() error { got[id] = n; return nil }); err != nil {
		return err
	}
	if _, err := f.exec("DELETE FROM datasets"); err != nil {
		return err
	}
	batches := map[uint32]int32{}
	for i := range f.p.Batches {
		batches[f.p.Batches[i].Dataset]++
	}
	for i := range f.p.Datasets {
		d := &f.p.Datasets[i]
		n := got[d.ID]
		delete(got, d.ID)
		if n.rows != d.Shown {
			return f.differs(d.Name, n.rows, d.Shown)
		}
		if _, err := f.exec("INSERT INTO datasets (dataset_id, name, title, source, licence, batches, rows, urls) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			int32(d.ID), d.Name, d.Title, d.Source, d.Licence, batches[d.ID], n.rows, n.urls); err != nil {
			return err
		}
		f.out.Rows += n.rows
		f.out.URLs += n.urls
		f.out.Collisions += n.beside
		f.out.Datasets++
	}
	for id, n := range got {
		return f.differs(fmt.Sprint(id), n.rows, 0)
	}
	if f.p.Whole {
		f.out.Added = f.out.URLs
	}
	return nil
}

func (f *finisher) differs(dataset string, got, want int64) error {
	what := "was a partition detached, or were rows changed by hand? --rebuild loads everything anew"
	if f.p.Whole {
		what = "this is an error of urlake, or damage of the lake, which \"starter verify\" finds"
	}
	return inputf("dataset %s would have %d rows in the database and has %d in version %s of the lake, so nothing was changed; %s",
		dataset, got, want, f.p.Version, what)
}

// Locks of readers.
const (
	lockTimeout  = 2 * time.Second
	lockAttempts = 10
)

// swap puts the loaded partitions in the place of those that are there. Locks that it needs are
// waited for only briefly, because everybody who comes later would wait behind it.
func (f *finisher) swap() error {
	timeout, attempts := cmp.Or(f.opt.LockTimeout, lockTimeout), cmp.Or(f.opt.LockAttempts, lockAttempts)
	if _, err := f.exec(fmt.Sprintf("SET LOCAL lock_timeout = %d", timeout.Milliseconds())); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		sub, err := f.tx.Begin(f.ctx)
		if err != nil {
			return err
		}
		whole := f.tx
		f.tx = sub
		err = f.attach()
		f.tx = whole
		if err == nil {
			return sub.Commit(f.ctx)
		}
		if rollback := sub.Rollback(f.ctx); rollback != nil || !hasCode(err, codeLockTimeout) {
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

// attach replaces the partitions of urls.
func (f *finisher) attach() error {
	rows, err := f.tx.Query(f.ctx, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'urls'::regclass")
	if err != nil {
		return err
	}
	old, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, err := f.exec("ALTER TABLE " + urlsTable + " DETACH PARTITION " + name); err != nil {
			return err
		}
		if _, err := f.exec("DROP TABLE " + name); err != nil {
			return err
		}
	}
	for i := range f.p.Partitions {
		// Parents come first. A parent takes over the keys that its partitions have.
		t := f.p.Partitions[len(f.p.Partitions)-1-i]
		if t.Divided {
			if _, err := f.exec(f.p.primaryKey(loadName(t.Name))); err != nil {
				return err
			}
		}
	}
	for _, t := range f.p.Partitions {
		name := quote(loadName(t.Name))
		if t.Parent == "" {
			for _, sql := range []string{
				"ALTER TABLE " + staged + " DETACH PARTITION " + name,
				"ALTER TABLE " + urlsTable + " ATTACH PARTITION " + name + " FOR VALUES " + t.Of.values(),
				"ALTER TABLE " + name + " DROP CONSTRAINT " + loadCheck,
			} {
				if _, err := f.exec(sql); err != nil {
					return err
				}
			}
		}
		if _, err := f.exec("ALTER TABLE " + name + " RENAME TO " + quote(t.Name)); err != nil {
			return err
		}
	}
	return nil
}

// primaryKey gives a table of the load its primary key. The number of the load is part of its name,
// so that the key of a partition that was detached, and perhaps renamed, is not in its way.
func (p *plan) primaryKey(table string) string {
	return fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s PRIMARY KEY (domain64, key, batch_id)",
		quote(table), quote(fmt.Sprintf("%s_key%d", strings.TrimPrefix(table, loadName("")), p.Load)))
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
