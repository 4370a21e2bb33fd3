package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
)

// scheduled is what "schedule show --json" prints, as far as tests look at it.
type scheduled struct {
	Name, Kind, Overlap, Note string
	ID                        string `json:"schedule_id"`
	CatchUp                   string `json:"catch_up"`
	Cron                      []string
	Paused                    bool
	Next                      []struct{ Batch string }
	Recent                    []scheduledRun
	Skipped                   int
}

type scheduledRun struct {
	Due        time.Time
	Batch      string
	Inputs     []string
	WorkflowID string `json:"workflow_id"`
	Status     string
	Rows       *int64
	Version    string
	Error      string
}

// backfilled is what "backfill --json" prints.
type backfilled struct {
	Runs []scheduledRun
	Late int `json:"not_due_yet"`
}

// day writes the input of a date: n URLs.
func day(t *testing.T, in, date string, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(in, date), 0o777); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "http://example.com/%s/%d\n", date, i)
	}
	write(t, filepath.Join(in, date), "list.txt", text.String())
}

// temporalCLI runs Temporal's own command line.
func (u *urlake) temporalCLI(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Program(t, "temporal"), args...)
	cmd.Env = u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("temporal %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// show returns a schedule.
func (u *urlake) show(t *testing.T, name string) (s scheduled) {
	t.Helper()
	u.starterJSON(t, &s, "schedule", "show", "--lake", u.lake, "--json", name)
	return s
}

// trigger triggers a schedule and returns its run. The verb itself waits only some seconds for it.
func (u *urlake) trigger(t *testing.T, name string) scheduledRun {
	t.Helper()
	before := len(u.show(t, name).Recent)
	var started struct{ Run scheduledRun }
	u.starterJSON(t, &started, "schedule", "trigger", "--lake", u.lake, "--json", name)
	if started.Run.WorkflowID != "" {
		return started.Run
	}
	var s scheduled
	testenv.Until(t, "schedule "+name+" has started a run", func() bool {
		s = u.show(t, name)
		return len(s.Recent) > before
	})
	return s.Recent[0]
}

// batchRows returns the rows of each batch of a dataset in the current version, by brute force: the
// URLs that the server returns have the date in their paths.
func (u *urlake) batchRows(t *testing.T) map[string]int {
	t.Helper()
	u.serve(t)
	return u.servedRows(t)
}

// servedRows is batchRows of the version that the running server has.
func (u *urlake) servedRows(t *testing.T) map[string]int {
	t.Helper()
	d := u.domain(t, "example.com", "")
	rows := map[string]int{}
	for _, s := range d.Datasets {
		for _, i := range u.urls(t, "example.com", s.Name, client.URLsOptions{PageSize: 5000}) {
			rows[strings.Split(i.URL, "/")[3]]++
		}
	}
	return rows
}

func TestSchedulesIngestTheDatesAtWhichTheyAreDue(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir)+"/lake", [][]string{allPools})
	for n, date := range []string{"2026-11-01", "2026-11-02", "2026-11-03"} {
		day(t, in, date, n+1)
	}
	now := time.Now().UTC()
	for _, ago := range []int{-1, 0} { // in case midnight passes
		day(t, in, now.AddDate(0, 0, ago).Format(time.DateOnly), 7)
	}
	triggered := "" // date of the run that is triggered
	crawl := []string{"schedule", "create", "ingest", "--lake", u.lake, "--dataset", "crawl", "--cron", "0 3 * * *",
		"--offset", "-1d", filepath.Join(in, "{date}")}

	t.Run("create", func(t *testing.T) {
		next := func() string { // the batch of the next time
			return time.Now().UTC().Add(-3 * time.Hour).Format(time.DateOnly)
		}
		var s scheduled
		before := next()
		u.starterJSON(t, &s, append(crawl, "--json")...)
		if s.ID != "ingest:crawl@"+u.lake || s.Overlap != "buffer-all" || s.CatchUp != "365d" || len(s.Next) == 0 ||
			s.Next[0].Batch != before && s.Next[0].Batch != next() || !slices.Equal(s.Cron, []string{"0 3 * * *"}) {
			t.Errorf("%+v", s)
		}
		_, errs, code := u.starter(t, crawl...)
		if code != 1 || !strings.Contains(errs, "exists already") || !strings.Contains(errs, "--overwrite") {
			t.Errorf("the same again: exit %d: %s", code, errs)
		}
		out, _, code := u.starter(t, append(crawl, "--overwrite", "--catch-up", "36h", "--overlap", "allow-all")...)
		if s := u.show(t, "ingest:crawl"); code != 0 || !strings.HasPrefix(out, "Changed schedule ingest:crawl") ||
			s.CatchUp != "36h" || s.Overlap != "allow-all" {
			t.Errorf("overwritten: exit %d: %s\n%+v", code, out, s)
		}
	})

	t.Run("a run has the date at which it is due", func(t *testing.T) {
		run := u.trigger(t, "ingest:crawl")
		triggered = run.Due.AddDate(0, 0, -1).Format(time.DateOnly)
		out, errs, code := u.starter(t, "watch", run.WorkflowID)
		if code != 0 || run.Batch != triggered || !strings.Contains(out, "batch "+triggered) {
			t.Errorf("exit %d, run %+v, want batch %s: %s%s", code, run, triggered, out, errs)
		}
		s := u.show(t, "ingest:crawl")
		if len(s.Recent) != 1 || s.Recent[0].Status != "done" || s.Recent[0].Batch != triggered || *s.Recent[0].Rows != 7 {
			t.Errorf("%+v", s.Recent)
		}
	})

	t.Run("backfill", func(t *testing.T) {
		args := []string{"backfill", "--lake", u.lake, "--json", "--from", "2026-11-01", "--to", "2026-11-03"}
		var plan, b backfilled
		u.starterJSON(t, &plan, append(args, "--dry-run")...)
		if len(plan.Runs) != 3 || plan.Runs[2].Batch != "2026-11-03" || plan.Runs[2].Status != "waiting" ||
			!plan.Runs[2].Due.Equal(time.Date(2026, 11, 4, 3, 0, 0, 0, time.UTC)) {
			t.Errorf("plan %+v", plan)
		}
		u.starterJSON(t, &b, append(args, "--wait")...)
		var got []string
		for _, r := range b.Runs {
			got = append(got, fmt.Sprintf("%s %s %d", r.Batch, r.Status, *r.Rows))
		}
		if diff := gocmp.Diff([]string{"2026-11-01 done 1", "2026-11-02 done 2", "2026-11-03 done 3"}, got); diff != "" {
			t.Error(diff)
		}
		want := map[string]int{"2026-11-01": 1, "2026-11-02": 2, "2026-11-03": 3, triggered: 7}
		if diff := gocmp.Diff(want, u.batchRows(t)); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("a date again replaces its batch", func(t *testing.T) {
		day(t, in, "2026-11-02", 20)
		out, errs, code := u.starter(t, "backfill", "--lake", u.lake, "ingest:crawl", "--from", "2026-11-02", "--to", "2026-11-02", "--wait")
		if code != 0 || !strings.Contains(out, "2026-11-02  done, 20 rows in version ") || !strings.HasSuffix(out, "\n1 of 1 batch ingested\n") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
		want := map[string]int{"2026-11-01": 1, "2026-11-02": 20, "2026-11-03": 3, triggered: 7}
		if diff := gocmp.Diff(want, u.batchRows(t)); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("temporal schedule backfill does the same", func(t *testing.T) {
		day(t, in, "2026-11-01", 4)
		day(t, in, "2026-11-03", 5)
		u.temporalCLI(t, "schedule", "backfill", "--schedule-id", "ingest:crawl@"+u.lake, "--overlap-policy", "BufferAll",
			"--start-time", "2026-11-02T00:00:00Z", "--end-time", "2026-11-04T12:00:00Z")
		want := map[string]int{"2026-11-01": 4, "2026-11-02": 20, "2026-11-03": 5, triggered: 7}
		u.serve(t)
		until(t, "all dates are ingested again", func(context.Context) error {
			if diff := gocmp.Diff(want, u.servedRows(t)); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	})

	t.Run("a date without data fails, and says so", func(t *testing.T) {
		out, errs, code := u.starter(t, "backfill", "--lake", u.lake, "--from", "2026-10-30", "--to", "2026-11-01", "--wait")
		if code != 1 || !strings.Contains(out, "2026-10-30  failed: ") || !strings.Contains(out, filepath.Join(in, "2026-10-30")) ||
			!strings.Contains(out, "1 of 3 batches ingested") || !strings.Contains(errs, "2 batches not ingested") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
		var s scheduled
		u.starterJSON(t, &s, "schedule", "create", "ingest", "--lake", u.lake, "--dataset", "crawl", "--cron", "0 3 * * *", "--json",
			"--name", "careful", "--pause-on-failure", filepath.Join(in, "absent-{date}"))
		u.starterJSON(t, new(any), "schedule", "trigger", "--lake", u.lake, "--json", "careful")
		until(t, "the schedule is paused", func(context.Context) error {
			if s := u.show(t, "careful"); !s.Paused {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})

	t.Run("pause and unpause", func(t *testing.T) {
		out, _, code := u.starter(t, "schedule", "pause", "--lake", u.lake, "ingest:crawl", "--reason", "the archive moves")
		if s := u.show(t, "ingest:crawl"); code != 0 || out != "Paused schedule ingest:crawl\n" || !s.Paused || s.Note != "the archive moves" {
			t.Errorf("exit %d: %s%+v", code, out, s)
		}
		// Lists of schedules and the status are a moment behind.
		until(t, "the list says so", func(context.Context) error {
			if out, _, _ := u.starter(t, "schedule", "list", "--lake", u.lake); !strings.Contains(out, "paused: the archive moves") {
				return errors.New(out)
			}
			return nil
		})
		// Overwriting leaves it paused.
		u.starterJSON(t, new(any), append(crawl, "--overwrite", "--json")...)
		if s := u.show(t, "ingest:crawl"); !s.Paused {
			t.Errorf("%+v", s)
		}
		out, _, code = u.starter(t, "schedule", "unpause", "--lake", u.lake, "ingest:crawl@"+u.lake)
		if s := u.show(t, "ingest:crawl"); code != 0 || out != "Schedule ingest:crawl goes on\n" || s.Paused {
			t.Errorf("exit %d: %s%+v", code, out, s)
		}
	})

	t.Run("several schedules of one dataset", func(t *testing.T) {
		u.starterJSON(t, new(any), "schedule", "create", "ingest", "--lake", u.lake, "--dataset", "crawl", "--name", "crawl-monthly",
			"--cron", "0 0 1 * *", "--json", filepath.Join(in, "{yyyy}-{mm}-01"))
		u.starterJSON(t, new(any), "schedule", "create", "gc", "--lake", u.lake, "--cron", "@daily", "--grace", "0s", "--json")
		var list []scheduled
		until(t, "all schedules are listed", func(context.Context) error {
			u.starterJSON(t, &list, "schedule", "list", "--lake", u.lake, "--json")
			var names []string
			for _, s := range list {
				names = append(names, s.Name+" "+s.Kind)
			}
			if diff := gocmp.Diff([]string{"careful ingest", "crawl-monthly ingest", "gc gc", "ingest:crawl ingest"}, names); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
		until(t, "the status counts them", func(context.Context) error {
			var status struct {
				Schedules struct {
					Schedules, Paused int
					Next              string
				}
			}
			u.starterJSON(t, &status, "status", "--lake", u.lake, "--json")
			if s := status.Schedules; s.Schedules != 4 || s.Paused != 1 || s.Next != "gc" && s.Next != "ingest:crawl" && s.Next != "crawl-monthly" {
				return fmt.Errorf("%+v", s)
			}
			if out, _, _ := u.starter(t, "status", "--lake", u.lake); !strings.Contains(out, "\nSchedules   4, of which 1 is paused; next ") {
				return errors.New(out)
			}
			return nil
		})
		if len(list[1].Next) != 1 || len(list[1].Next[0].Batch) != len("2026-12") {
			t.Errorf("a batch of each month: %+v", list[1])
		}
		_, errs, code := u.starter(t, "backfill", "--lake", u.lake, "--from", "2026-11-01", "--to", "2026-11-01")
		if code != 2 || !strings.Contains(errs, "careful, crawl-monthly, ingest:crawl") {
			t.Errorf("a backfill of any: exit %d: %s", code, errs)
		}
		_, errs, code = u.starter(t, "backfill", "--lake", u.lake, "gc", "--from", "2026-11-01", "--to", "2026-11-01")
		if code != 1 || !strings.Contains(errs, "{date}") {
			t.Errorf("a backfill of gc: exit %d: %s", code, errs)
		}
	})

	t.Run("a scheduled gc", func(t *testing.T) {
		out, errs, code := u.starter(t, "watch", u.trigger(t, "gc").WorkflowID)
		if code != 0 || !strings.Contains(out, "Dropped") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
	})

	t.Run("a time of the schedule that is still to come", func(t *testing.T) {
		today := time.Now().UTC()
		from, to := today.AddDate(0, 0, 3).Format(time.DateOnly), today.AddDate(0, 0, 4).Format(time.DateOnly)
		_, errs, code := u.starter(t, "backfill", "--lake", u.lake, "ingest:crawl", "--from", from, "--to", to)
		if code != 1 || !strings.Contains(errs, "only later") {
			t.Errorf("exit %d: %s", code, errs)
		}
	})

	t.Run("a run that a person starts again", func(t *testing.T) {
		day(t, in, "2026-11-02", 9)
		id := "ingest:crawl@" + u.lake + "-2026-11-03T03:00:00Z"
		input, err := json.Marshal(map[string]any{"lake": u.lake, "dataset": "crawl", "inputs": []string{filepath.Join(in, "{date}")},
			"date": "scheduled", "date_offset": "-24h"})
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"workflow", "execute", "--task-queue", "control@" + u.lake, "--type", "IngestWorkflow", "--input", string(input), "--workflow-id"}
		if out := u.temporalCLI(t, append(args, id)...); !strings.Contains(out, "2026-11-02") {
			t.Errorf("%s", out)
		}
		want := map[string]int{"2026-11-01": 4, "2026-11-02": 9, "2026-11-03": 5, triggered: 7}
		if diff := gocmp.Diff(want, u.batchRows(t)); diff != "" {
			t.Error(diff)
		}
		// Nothing says the date of another.
		cmd := exec.Command(testenv.Program(t, "temporal"), append(args, "by-hand")...)
		cmd.Env = u.env
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no schedule has started this") {
			t.Errorf("%v: %s", err, out)
		}
	})

	t.Run("by hand", func(t *testing.T) {
		var res ingestAnswer
		u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "crawl", "--date", "2026-11-03", "--wait", "--json",
			filepath.Join(in, "{yyyy}-{mm}-{dd}"))
		if res.Batch != "2026-11-03" || res.Rows != 5 || !res.Unchanged {
			t.Errorf("%+v", res)
		}
	})

	t.Run("delete", func(t *testing.T) {
		out, _, code := u.starter(t, "schedule", "delete", "--lake", u.lake, "ingest:crawl")
		if code != 0 || out != "Deleted schedule ingest:crawl; what it has ingested stays\n" {
			t.Errorf("exit %d: %s", code, out)
		}
		_, errs, code := u.starter(t, "schedule", "show", "--lake", u.lake, "ingest:crawl")
		if code != 1 || !strings.Contains(errs, "no schedule \"ingest:crawl\"") {
			t.Errorf("exit %d: %s", code, errs)
		}
	})
}

// TestOverlapPolicies lets three dates be due, by each policy, while no worker is there, so that
// the first run goes on until one comes.
func TestOverlapPolicies(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir)+"/lake", nil)
	dates := []string{"2026-11-01", "2026-11-02", "2026-11-03"}
	for _, date := range dates {
		day(t, in, date, 1)
	}
	// How the runs end, the oldest first, as far as they begin.
	want := map[string]string{
		"skip": "done", "buffer-one": "done done", "buffer-all": "done done done", "allow-all": "done done done",
		"cancel-other": "cancelled done", "terminate-other": "terminated terminated done",
	}
	// statuses returns how the runs of a schedule are doing, the oldest first.
	statuses := func(policy string) string {
		var all []string
		for _, r := range slices.Backward(u.show(t, "ingest:"+policy).Recent) {
			all = append(all, r.Status)
		}
		return strings.Join(all, " ")
	}
	for policy := range want {
		u.starterJSON(t, new(any), "schedule", "create", "ingest", "--lake", u.lake, "--dataset", policy, "--cron", "0 3 * * *",
			"--overlap", policy, "--json", filepath.Join(in, "{date}"))
		if s := u.show(t, "ingest:"+policy); s.Overlap != policy {
			t.Errorf("%s: %+v", policy, s)
		}
		for i, date := range dates {
			if policy == "cancel-other" && i == 2 {
				continue // which would take the place of the second, before that begins
			}
			var b backfilled
			u.starterJSON(t, &b, "backfill", "--lake", u.lake, "--json", "--from", date, "--to", date, "--overlap", policy, "ingest:"+policy)
			if len(b.Runs) != 1 || b.Runs[0].Batch != date {
				t.Fatalf("%s: %+v", policy, b)
			}
			if i == 0 || policy == "terminate-other" {
				until(t, policy+" runs", func(context.Context) error {
					if got := statuses(policy); strings.Count(got, " ") != i || !strings.HasSuffix(got, "running") {
						return errors.New(got)
					}
					return nil
				})
			}
		}
	}
	// A backfill says what a policy has left out, when it is clear that it has.
	waited := make(chan string)
	go func() {
		out, errs, code := u.starter(t, "backfill", "--lake", u.lake, "--from", dates[1], "--to", dates[2], "--overlap", "skip", "--wait", "ingest:skip")
		waited <- fmt.Sprintf("exit %d: %s%s", code, out, errs)
	}()
	testenv.Until(t, "both are left out", func() bool { return u.show(t, "ingest:skip").Skipped == 4 })
	u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	if out := <-waited; !strings.HasPrefix(out, "exit 1: 2026-11-02  left out: another run went on\n2026-11-03  left out: another run went on\n0 of 2 batches ingested\n") {
		t.Error(out)
	}
	for policy := range want {
		untilWithin(t, 2*time.Minute, policy+" has run", func(context.Context) error {
			if got := statuses(policy); got != want[policy] {
				return fmt.Errorf("%s, want %s", got, want[policy])
			}
			return nil
		})
	}
}

// TestScheduledRebuildAndVerify loses the whole index and all postings, and kills the worker at
// each stage of the rebuild.
func TestScheduledRebuildAndVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir), nil)
	worker := func() *exec.Cmd {
		return u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	}
	running := worker()
	u.ingestAndPublish(t, sites(t, 66_000))
	for _, kind := range []string{"rebuild", "verify"} {
		u.starterJSON(t, new(any), "schedule", "create", kind, "--lake", u.lake, "--cron", "@daily", "--json")
	}
	// trigger runs a schedule and returns how its run ended.
	trigger := func(kind string) (r scheduledRun) {
		started := u.trigger(t, kind)
		untilWithin(t, 3*time.Minute, kind+" ends", func(context.Context) error {
			r = u.show(t, kind).Recent[0]
			if r.WorkflowID != started.WorkflowID || r.Status == "running" {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
		return r
	}
	before := objects(t, u.lake)
	for _, kind := range []string{"rebuild", "verify"} {
		if r := trigger(kind); r.Status != "done" {
			t.Errorf("%s of an intact lake: %+v", kind, r)
		}
	}

	lost := 0
	for _, pattern := range []string{"index/segments/*/*.*", "index/segments/*/postings/*/*", "batches/*/*/postings-*"} {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			lost++
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := trigger("verify"); r.Status != "failed" || !strings.Contains(r.Error, "mend it with: starter rebuild") {
		t.Errorf("verify with damage: %+v", r)
	}

	done := make(chan int)
	go func() {
		killed := 0
		defer func() { done <- killed }()
		for _, stage := range []string{"staging/*/rebuild.json", "staging/*/inspected/*", "index/segments/*/domains.mphf"} {
			limit := time.Now().Add(2 * time.Minute)
			for found := 0; found == 0 && time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
				files, _ := filepath.Glob(filepath.Join(dir, filepath.FromSlash(stage)))
				found = len(files)
			}
			running.Process.Signal(syscall.SIGKILL)
			running.Wait()
			killed++
			running = worker()
		}
	}()
	r := trigger("rebuild")
	killed := <-done
	out, errs, code := u.starter(t, "watch", r.WorkflowID)
	if r.Status != "done" || code != 0 || !strings.Contains(out, "Checked 1 segment: built 1 again, extracted 2 postings objects\n") {
		t.Errorf("rebuild with %d objects lost and %d kills: %+v: %s%s", lost, killed, r, out, errs)
	}
	t.Logf("%d objects lost, killed %d times\n%s", lost, killed, out)
	if diff := gocmp.Diff(before, objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "staging", "*", "*")); len(left) > 0 {
		t.Errorf("staging was left: %v", left)
	}
	if r := trigger("verify"); r.Status != "done" {
		t.Errorf("verify afterwards: %+v", r)
	}
}
