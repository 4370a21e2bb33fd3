package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/export/domain64"
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

const (
	// indexers is how many tables of a load are indexed at once, each by a connection.
	indexers = 4
	// indexMemory is what PostgreSQL may use to build an index.
	indexMemory = "128MB"
)

// Finishing is how many tables of a load have their keys, and how many there are.
type Finishing struct {
	Indexed int64 `json:"indexed"`
	Tables  int   `json:"tables"`
}

// index gives a table of the load its keys, and separates what collides in it, unless that was
// done.
func (s *step) index(number int) error {
	var table string
	err := s.within("SHARE", func() error {
		table = s.plan.leaves(s.load)[number]
		var done bool
		if err := s.tx.QueryRow(s.ctx, "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = $1::text::regclass)", table).
			Scan(&done); err != nil || done {
			return err
		}
		if err := s.execAll("SET LOCAL maintenance_work_mem = '"+indexMemory+"'", "SET LOCAL work_mem = '"+indexMemory+"'"); err != nil {
			return err
		}
		sql := "ALTER TABLE " + table + " ADD PRIMARY KEY (domain64, key, batch_id, dataset_id)"
		err := pgx.BeginFunc(s.ctx, s.tx, func(sub pgx.Tx) error {
			_, err := sub.Exec(s.ctx, sql)
			return err
		})
		if hasCode(err, codeUnique) {
			// Two URLs of a batch have one key, or a URL is in two parts of it.
			if err = s.resolve(table, "HAVING count(*) > 1", ", batch_id"); err == nil {
				err = s.exec(sql)
			}
		}
		if err == nil {
			// Two URLs of different batches have one key. Other hashes tell them apart.
			err = s.resolve(table, "HAVING min(hashtextextended(url, 0)) <> max(hashtextextended(url, 0))", "")
		}
		if err == nil {
			err = s.exec("ANALYZE " + table)
		}
		if err == nil {
			err = s.opt.fail("before " + s.plan.leaves(0)[number] + " is indexed")
		}
		return err
	})
	return explain("index "+table, err)
}

// indexAll indexes all tables of the load, some at once.
func (s *step) indexAll(progress func(Finishing)) error {
	tables := len(s.plan.leaves(0))
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(s.ctx)
	for range min(indexers, tables) {
		g.Go(func() error {
			own := *s
			own.ctx = ctx
			var err error
			if own.c, err = connect(ctx, &s.plan.Spec); err != nil {
				return err
			}
			defer own.close()
			for i := int(next.Add(1)) - 1; i < tables; i = int(next.Add(1)) - 1 {
				if err := own.index(i); err != nil {
					return err
				}
				progress(Finishing{done.Add(1), tables})
			}
			return nil
		})
	}
	return g.Wait()
}

// resolve takes the rows of keys out of a table, adds up those of one URL and batch, and puts those
// of the smallest URL of each key back. The others go to load_collisions. Which is the smallest
// does not depend on the order in which rows were loaded.
func (s *step) resolve(table, having, by string) error {
	return s.execAll(
		"CREATE TEMPORARY TABLE resolved ON COMMIT DROP AS SELECT domain64, key FROM "+table+" GROUP BY domain64, key"+by+" "+having,
		`CREATE TEMPORARY TABLE merged ON COMMIT DROP AS
		WITH gone AS (DELETE FROM `+table+` t USING (SELECT DISTINCT domain64, key FROM resolved) r
			WHERE t.domain64 = r.domain64 AND t.key = r.key RETURNING t.*)
		SELECT domain64, key, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
			CASE WHEN sum(size) > 9223372036854775807 THEN 9223372036854775807 ELSE sum(size) END::bigint AS size,
			sum(rows)::bigint AS rows, batch_id, dataset_id, url,
			min(url COLLATE "C") OVER (PARTITION BY domain64, key) AS stays
		FROM gone GROUP BY domain64, key, batch_id, dataset_id, url`,
		"INSERT INTO "+table+" ("+copyColumns+") SELECT "+copyColumns+" FROM merged WHERE url = stays",
		"INSERT INTO load_collisions ("+copyColumns+") SELECT "+copyColumns+" FROM merged WHERE url <> stays",
		"DROP TABLE resolved, merged",
	)
}

// Finish gives the loaded tables their keys, a few at once, and then puts them in the place of
// those that are read, in one transaction. It fails, and nothing changes, if a dataset then has
// other rows than the lake shows of it. Goroutines call progress whenever a table has its key.
func Finish(ctx context.Context, store blob.Store, run string, progress func(Finishing), opt Options) (Result, error) {
	s, err := openStep(ctx, store, run, opt)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	f := finisher{step: s, out: Result{Version: s.plan.Version, TakedownEpoch: s.plan.TakedownEpoch}}
	if err := f.finish(progress); err != nil {
		return Result{}, explain("finish the export of version "+s.plan.Version, err)
	}
	return f.out, nil
}

// finisher ends a load.
type finisher struct {
	*step
	out Result

	// old are the partitions that go, by dataset.
	old map[uint32]string
	// replaced are the datasets that are loaded, and those that go.
	replaced []int32
}

func (f *finisher) finish(progress func(Finishing)) error {
	s, err := readState(f.ctx, f.c, "")
	if err != nil {
		return err
	}
	if s != nil && s.run == f.plan.Run && !s.loading { // the answer of an earlier attempt was lost
		if err := f.c.QueryRow(f.ctx, "SELECT datasets, added, removed FROM exports ORDER BY finished DESC LIMIT 1").
			Scan(&f.out.Changed, &f.out.Added, &f.out.Removed); err != nil {
			return err
		}
		return f.out.totals(f.ctx, f.c)
	}
	if err := f.indexAll(progress); err != nil {
		return err
	}
	return f.within("UPDATE", func() error {
		var chunks int
		if err := f.tx.QueryRow(f.ctx, "SELECT count(*) FROM load_chunks").Scan(&chunks); err != nil {
			return err
		}
		if chunks != len(f.plan.Chunks) {
			return inputf("%d of %d chunks are loaded; start the export again", chunks, len(f.plan.Chunks))
		}
		for _, step := range []func() error{f.compare, f.count, f.names, f.write, f.swap} {
			if err := step(); err != nil {
				return err
			}
		}
		return f.opt.fail("before the export is committed")
	})
}

// totals sets what the database has in all.
func (r *Result) totals(ctx context.Context, q querier) error {
	return q.QueryRow(ctx, `SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(urls), 0)::bigint, count(*),
		(SELECT count(*) FROM collisions) FROM datasets`).Scan(&r.Rows, &r.URLs, &r.Datasets, &r.Collisions)
}

// compare finds what is replaced, and what goes.
func (f *finisher) compare() error {
	stays := f.plan.stays()
	for i := range f.plan.Datasets {
		if d := &f.plan.Datasets[i]; d.Changed {
			f.replaced = append(f.replaced, int32(d.ID))
		}
	}
	type dataset struct {
		ID   uint32
		URLs int64
	}
	all, err := readTable[dataset](f.ctx, f.tx, "datasets", "dataset_id, urls")
	if err != nil {
		return err
	}
	for _, d := range all {
		if !stays[d.ID] {
			f.out.Removed += d.URLs
			f.replaced = append(f.replaced, int32(d.ID))
		}
	}
	slices.Sort(f.replaced)
	f.replaced = slices.Compact(f.replaced)
	f.out.Changed = int64(len(f.replaced))
	f.old, err = partitionsOf(f.ctx, f.tx)
	maps.DeleteFunc(f.old, func(id uint32, _ string) bool { return stays[id] })
	return err
}

// count counts the rows of each dataset that changed, and compares them with the lake's.
func (f *finisher) count() error {
	for i := range f.plan.Datasets {
		d := &f.plan.Datasets[i]
		if !d.Changed {
			continue
		}
		rows := int64(0)
		if d.Shown > 0 {
			if err := f.tx.QueryRow(f.ctx, `SELECT (coalesce(sum(rows), 0) + (SELECT coalesce(sum(rows), 0) FROM load_collisions
				WHERE dataset_id = $1))::bigint, count(*) FROM `+tableName(d.ID, f.load), int32(d.ID)).Scan(&rows, &d.urls); err != nil {
				return err
			}
			f.out.Added += d.urls
		}
		if rows != d.Shown {
			return inputf("dataset %s would have %d rows in the database and has %d in version %s of the lake, so nothing was changed; "+
				"this is an error of urlake, or damage of the lake, which \"starter verify\" finds", d.Name, rows, d.Shown, f.plan.Version)
		}
	}
	return nil
}

// write writes the lists of datasets, batches, collisions, requested URLs and rules.
func (f *finisher) write() error {
	var b pgx.Batch
	for _, table := range []string{"datasets", "batches", "collisions", "id_map"} {
		b.Queue("DELETE FROM "+table+" WHERE dataset_id = ANY($1)", f.replaced)
	}
	for table, columns := range map[string]string{"collisions": copyColumns, "id_map": idMapColumns} {
		b.Queue("INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM load_" + table)
	}
	for i := range f.plan.Datasets {
		if d := &f.plan.Datasets[i]; d.Changed {
			b.Queue("INSERT INTO datasets ("+columnsOf["datasets"]+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
				int32(d.ID), d.Name, d.Title, d.Source, d.Licence, d.Batches, d.Shown, d.urls, d.Digest)
		} else {
			b.Queue(`UPDATE datasets SET name = $2, title = $3, source = $4, licence = $5
				WHERE dataset_id = $1 AND (name, title, source, licence) IS DISTINCT FROM ($2, $3, $4, $5)`,
				int32(d.ID), d.Name, d.Title, d.Source, d.Licence)
		}
	}
	for _, one := range f.plan.Batches {
		b.Queue("INSERT INTO batches ("+columnsOf["batches"]+") VALUES ($1, $2, $3, $4)", one.ID, int32(one.Dataset), one.Name, one.Digest)
	}
	b.Queue("DELETE FROM takedowns")
	for _, r := range f.plan.Rules {
		b.Queue("INSERT INTO takedowns (rule, host) VALUES ($1, $2)", r.ID, r.Host)
	}
	return f.tx.SendBatch(f.ctx, &b).Close()
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
	layout, err := domain64.ParseLayout(f.plan.Spec.Layout)
	if err != nil {
		return err
	}
	// What a number keeps of the levels from the TLD, and from the domain on.
	tld := layout.Child(0, domain64.TLD, layout.Max(domain64.TLD))
	site := layout.Child(tld, domain64.Domain, layout.Max(domain64.Domain))
	var gone []string
	for _, table := range f.old {
		gone = append(gone, "SELECT domain64 AS number FROM "+table)
	}
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(f.replaced), " ", ", "), "[]") // not a parameter, so that they are pruned
	return f.exec(`WITH gone AS MATERIALIZED (`+strings.Join(gone, " UNION ")+`) DELETE FROM domain64 d
		WHERE d.number IN (SELECT number FROM gone UNION SELECT number & $2::bigint FROM gone UNION SELECT number & $1::bigint FROM gone)
		AND NOT EXISTS (SELECT FROM load_hosts h WHERE h.number = d.number)
		AND NOT EXISTS (SELECT FROM urls u WHERE u.dataset_id NOT IN (`+ids+`) AND u.domain64 BETWEEN d.number AND
			d.number | CASE d.level WHEN 1 THEN ~$1::bigint WHEN 2 THEN ~$2::bigint ELSE 0 END)`,
		tld.Signed(), site.Signed())
}

// swap puts the loaded tables in the place of the partitions that go, and notes the export. This is
// the end of the transaction: readers wait for it.
func (f *finisher) swap() error {
	if err := f.out.totals(f.ctx, f.tx); err != nil {
		return err
	}
	if err := f.lock(); err != nil {
		return err
	}
	all := []string{"DROP TABLE " + loadTables}
	for _, table := range f.old {
		all = append(all, "ALTER TABLE urls DETACH PARTITION "+table, "DROP TABLE "+table)
	}
	for _, dataset := range f.plan.loaded() {
		all = append(all, fmt.Sprintf("ALTER TABLE urls ATTACH PARTITION %s FOR VALUES IN (%d)", tableName(dataset, f.load), dataset))
	}
	var b pgx.Batch
	for _, sql := range all {
		b.Queue(sql)
	}
	b.Queue("UPDATE state SET version = $1, takedown_epoch = $2, exported = clock_timestamp(), loading = false",
		f.plan.Version, f.plan.TakedownEpoch)
	b.Queue("INSERT INTO exports ("+columnsOf["exports"]+") VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6, $7)",
		f.plan.Version, f.plan.TakedownEpoch, f.out.Rows, f.out.URLs, f.out.Changed, f.out.Added, f.out.Removed)
	return f.tx.SendBatch(f.ctx, &b).Close()
}

// lock locks urls if partitions of it go. It waits only briefly, because everybody who comes later
// would wait behind it.
func (f *finisher) lock() error {
	timeout, attempts := cmp.Or(f.opt.lockTimeout, 2*time.Second), cmp.Or(f.opt.lockAttempts, 10)
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
	var text string
	if f.tx.QueryRow(f.ctx, `SELECT coalesce(string_agg(format('; process %s of %s (%s) holds a lock since %s',
			pid, usename, application_name, xact_start), '' ORDER BY xact_start), '; a reader holds a lock')
		FROM (SELECT a.* FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.relation = 'urls'::regclass AND l.granted AND a.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 3) a`).Scan(&text) != nil {
		text = "; a reader holds a lock"
	}
	return &serverError{"the new partitions could not take the place of the old ones" + text +
		": end its transaction; nothing has changed, and the export tries again", err}
}
