package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/internal/testenv"
)

// A lake goes to PostgreSQL through Temporal, with a worker that is killed in the middle of a step,
// and the database then answers as the lake does.
func TestExportToPostgres(t *testing.T) {
	t.Parallel()
	server := testenv.NewPostgres(t)
	dsn := server.NewDatabase(t)
	dir, in := t.TempDir(), t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir)+"/lake", [][]string{{"control", "normalize", "write", "index", "publish"}})
	worker := func() *exec.Cmd {
		return u.run(t, "worker background", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--pools", "background", "--temp-dir", t.TempDir())
	}
	background := worker()
	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := u.starter(t, append(args, "--lake", u.lake)...)
		if code != want {
			t.Fatalf("starter %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out + errs
	}
	list := func(n int) string {
		var text strings.Builder
		for i := range 500 {
			fmt.Fprintf(&text, "https://host%d.site%d.test/%d/%d\n", i%3, i%9, n, i)
		}
		return write(t, in, fmt.Sprintf("list%d.txt", n), text.String())
	}
	run(0, "ingest", "--dataset", "days", "--batch", "1", "--wait", list(1))
	run(0, "ingest", "--dataset", "days", "--batch", "2", "--wait", list(2))

	if out := run(2, "export", "postgres", "--dsn", "postgres://user:hunter2@host/db"); !strings.Contains(out, "it has a password") || strings.Contains(out, "hunter2") {
		t.Errorf("%s", out)
	}
	if out := run(1, "export", "postgres", "--dsn", strings.Replace(dsn, "dbname=", "dbname=none", 1), "--wait"); !strings.Contains(out, "does not exist") {
		t.Errorf("%s", out)
	}
	if out := run(0, "export", "postgres", "--dsn", dsn, "--wait"); !strings.Contains(out, "1,000 rows of 1,000 URLs in 1 dataset") {
		t.Errorf("%s", out)
	}
	if out := run(0, "export", "postgres", "--dsn", dsn, "--wait"); !strings.Contains(out, "Nothing was written") {
		t.Errorf("%s", out)
	}

	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows := func() (n int) {
		t.Helper()
		if err := c.QueryRow(t.Context(), "SELECT sum(rows) FROM urlake.urls").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// A worker dies within a load: in its COPY, which waits for a lock, when it has noted the chunk
	// and nothing is committed. It is started when the table exists and is locked.
	run(0, "ingest", "--dataset", "days", "--batch", "3", "--wait", list(3))
	if err := background.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	run(0, "export", "postgres", "--dsn", dsn)
	holds := func(what, sql string) {
		t.Helper()
		until(t, what, func(ctx context.Context) error {
			var ok bool
			err := c.QueryRow(ctx, sql).Scan(&ok)
			if err == nil && !ok {
				err = errors.New("not yet")
			}
			return err
		})
	}
	holds("the load begins", "SELECT to_regclass('urlake.urls_1_2') IS NOT NULL")
	locked, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close(context.Background())
	if _, err := locked.Exec(t.Context(), "BEGIN; LOCK TABLE urlake.urls_1_2 IN SHARE MODE", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	doomed := worker()
	holds("the worker copies rows", `SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE NOT l.granted AND l.relation = 'urlake.urls_1_2'::regclass AND a.query LIKE 'COPY %')`)
	if err := doomed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	worker()
	if n := rows(); n != 1000 {
		t.Errorf("%d rows while the export is under way", n)
	}
	if err := locked.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := exportRuns(t, u, postgres.DefaultSchema)[0].Execution.WorkflowID
	if out, errs, code := u.starter(t, "watch", id); code != 0 || !strings.Contains(out, "1,500 rows of 1,500 URLs") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if n := rows(); n != 1500 {
		t.Errorf("%d rows", n)
	}
	run(0, "export", "postgres", "--dsn", dsn, "--schema", "anew", "--wait")
	var differ int
	const content = "SELECT domain64, key, url, rows FROM "
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM (("+content+"urlake.urls EXCEPT ALL "+content+"anew.urls) UNION ALL ("+
		content+"anew.urls EXCEPT ALL "+content+"urlake.urls)) d").Scan(&differ); err != nil || differ > 0 {
		t.Errorf("%d rows differ from those of an export that nobody has killed: %v", differ, err)
	}
	var got, want []string
	if list, err := c.Query(t.Context(), "SELECT url FROM urlake.urls u JOIN urlake.domain64 d ON d.number = u.domain64 WHERE d.domain = 'site4.test'"); err != nil {
		t.Fatal(err)
	} else if got, err = pgx.CollectRows(list, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(run(0, "urls", "site4.test", "--dataset", "days", "--format", "text")) {
		want = append(want, strings.TrimSpace(line))
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) != 3*56 && len(want) != 3*55 || !slices.Equal(got, want) {
		t.Errorf("%d URLs of a domain in the database, %d in the lake", len(got), len(want))
	}
	// A takedown goes to the database with the next export.
	run(0, "takedown", "add", "--domain", "site4.test", "--reason", "request 18")
	var res postgres.Result
	u.starterJSON(t, &res, "export", "postgres", "--dsn", dsn, "--wait", "--json", "--lake", u.lake)
	if left := int64(1500 - len(want)); res.Rows != left || res.Changed != 1 || res.Added != left || res.Removed != 1500 {
		t.Errorf("%+v", res)
	}
}

// exportRun is a run of an export as Temporal lists it.
type exportRun struct {
	Execution struct{ WorkflowID, RunID string }
}

// exportRuns returns the runs of exports to a schema, newest first.
func exportRuns(t *testing.T, u *urlake, schema string) (runs []exportRun) {
	t.Helper()
	var listed []exportRun
	until(t, "Temporal lists the exports", func(context.Context) error {
		out := u.temporalCLI(t, "workflow", "list", "--output", "json", "--query", "WorkflowType = 'PostgresExportWorkflow'")
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			return err
		}
		runs = slices.DeleteFunc(listed, func(r exportRun) bool {
			return !strings.HasPrefix(r.Execution.WorkflowID, "export-postgres:"+schema+":")
		})
		if len(runs) == 0 {
			return errors.New("none is listed")
		}
		return nil
	})
	return runs
}
