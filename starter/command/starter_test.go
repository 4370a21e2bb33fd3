package command

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// starter runs the command line in this process. There is no Temporal to connect to.
func starter(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	var out, errs bytes.Buffer
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.Run(context.Background(), cmd)
	return out.String(), errs.String(), code
}

// TestWrongUsageIsReportedFirst relies on there being no Temporal: whatever is checked only after
// connecting would be reported as a missing Temporal.
func TestWrongUsageIsReportedFirst(t *testing.T) {
	lake := t.TempDir()
	for _, c := range []struct {
		flags []string
		word  string
	}{
		{[]string{"ingest", "--format", "xml"}, "xml"},
		{[]string{"ingest", "--ts-format", "%Q"}, "%Q"},
		{[]string{"ingest", "--max-line", "-1"}, "-1"},
		{[]string{"ingest", "--exclude", "a,["}, `"["`},
		{[]string{"ingest", "--include", "x", "--include", "a//b"}, `"a//b"`},
		{[]string{"ingest", "--max-reject-rate", "1.5"}, "1.5"},
		{[]string{"ingest", "--strip-params", "a*b"}, "a*b"},
		{[]string{"ingest", "--date", "yesterday"}, "2026-11-20"},
		{[]string{"ingest", "--date", "2026-11-20", "x/{day}"}, "{day}"},
		{[]string{"ingest", "--date", "2026-11-20", "x/{hh}"}, "2026-11-20T03"},
		{[]string{"schedule", "create", "ingest"}, "--cron"},
		{[]string{"schedule", "create", "ingest", "--cron", "at three"}, "at three"},
		{[]string{"schedule", "create", "ingest", "--cron", "0 24 * * *"}, "hour"},
		{[]string{"schedule", "create", "ingest", "--cron", "0 3 * * *", "--time-zone", "Middle/Earth"}, "use e.g. Europe/Berlin"},
		{[]string{"schedule", "create", "ingest", "--cron", "0 3 * * *", "--time-zone", "Local"}, "Local"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--overlap", "some"}, "buffer-all"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--catch-up", "1s"}, "at least 10s"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--catch-up", "long"}, "long"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--offset", "-1d"}, "{date}"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--offset", "later", "{date}"}, "-1d"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "{date}/{day}"}, "{day}"},
		{[]string{"schedule", "create", "ingest", "--cron", "@daily", "--name", "a b"}, "a b"},
		{[]string{"schedule", "create", "ingest", "--cron", "@hourly", "--time-zone", "Europe/Berlin", "x/{hh}"}, "UTC"},
	} {
		args := append(c.flags, "--lake", lake, "--dataset", "d", "list.txt")
		if _, errs, code := starter(t, args...); code != cli.ExitUsage || !strings.Contains(errs, c.word) {
			t.Errorf("%v: exit %d, %q; want exit %d and a message with %q", c.flags, code, errs, cli.ExitUsage, c.word)
		}
	}
}

func TestMissingArgumentsAreNamed(t *testing.T) {
	lake := t.TempDir()
	for _, c := range []struct {
		args []string
		word string
	}{
		{nil, "no verb given"},
		{[]string{"ingest"}, "--lake file:///dir"},
		{[]string{"ingest", "--lake", lake}, "--dataset NAME"},
		{[]string{"ingest", "--lake", lake, "--dataset", "d"}, "no input given"},
		{[]string{"schedule", "create", "ingest", "--lake", lake, "--dataset", "d"}, "no input given"},
		{[]string{"schedule", "create", "ingest", "--lake", lake, "--dataset", "d", "list.txt"}, "--cron '0 3 * * *'"},
		{[]string{"schedule", "create", "gc", "--lake", lake}, "--cron '0 3 * * *'"},
		{[]string{"schedule", "create", "gc", "--lake", lake, "--cron", "@daily", "--keep", "0"}, "--keep 0"},
		{[]string{"schedule", "create", "gc", "--cron", "@daily"}, "--lake file:///dir"},
		{[]string{"schedule", "show", "--lake", lake}, "which schedule"},
		{[]string{"schedule", "show", "--lake", lake, "a/b"}, "a/b"},
		{[]string{"schedule", "list"}, "--lake file:///dir"},
		{[]string{"backfill", "--lake", lake}, "--from 2026-11-01"},
		{[]string{"backfill", "--lake", lake, "--from", "2026-11-02", "--to", "2026-11-01"}, "after"},
		{[]string{"backfill", "--lake", lake, "--from", "1.11.2026", "--to", "2026-11-01"}, "date \"1.11.2026\""},
		{[]string{"backfill", "--lake", lake, "--from", "2026-11-02", "--to", "2026-11-03", "--overlap", "x"}, "buffer-all"},
		{[]string{"watch"}, "no workflow given"},
	} {
		out, errs, code := starter(t, c.args...)
		if code != cli.ExitUsage || out != "" || !strings.Contains(errs, c.word) {
			t.Errorf("%v: exit %d, %q, %q; want exit %d and a message with %q", c.args, code, out, errs, cli.ExitUsage, c.word)
		}
	}
}

func TestDemoHasNoJSON(t *testing.T) {
	if out, _, code := starter(t, "demo", "--help"); code != cli.ExitDone || strings.Contains(out, "--json") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if _, errs, code := starter(t, "demo", "--json"); code != cli.ExitUsage || !strings.Contains(errs, "--json") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestReportHasARateOnlyForLargeInputs(t *testing.T) {
	for size, want := range map[int64]bool{100: false, 1 << 30: true} {
		var out bytes.Buffer
		printIngest(&out, &workflows.IngestResult{Records: 1000, Bytes: size, Version: "v"}, 10*time.Second)
		if got := strings.Contains(out.String(), "records a second"); got != want {
			t.Errorf("%d bytes: with a rate %v, want %v\n%s", size, got, want, &out)
		}
	}
}

func TestNormalizeRejectsInvalidParameters(t *testing.T) {
	out, errs, code := starter(t, "normalize", "--strip-params", "utm_*,a*b", "http://a.example/")
	if code != cli.ExitUsage || out != "" || !strings.Contains(errs, "a*b") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestVerbsReportThatThereIsNoLake(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "lkae")
	for _, verb := range []string{"status", "datasets", "versions", "verify"} {
		for _, dir := range []string{missing, t.TempDir()} {
			want := "no lake at file://" + filepath.ToSlash(dir)
			out, errs, code := starter(t, verb, "--lake", dir)
			if code != cli.ExitFailed || out != "" || !strings.Contains(errs, want) {
				t.Errorf("%s: exit %d, %q, %q; want a message with %q", verb, code, out, errs, want)
			}
		}
	}
}

// stages returns what a watcher sees of an ingest, from its beginning to its end.
func stages() []snapshot {
	p := workflows.IngestProgress{Stage: workflows.StagePlan}
	all := []snapshot{{IngestProgress: p}}
	add := func(stage string, change func(*workflows.IngestProgress)) {
		p.Stage = stage
		if change != nil {
			change(&p)
		}
		all = append(all, snapshot{IngestProgress: p})
	}
	start := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	add(workflows.StageNormalize, func(p *workflows.IngestProgress) {
		p.Objects, p.BytesTotal, p.StageStarted = 2, 200<<20, start
	})
	add(workflows.StageNormalize, func(p *workflows.IngestProgress) {
		p.BytesDone, p.Records, p.Kept = 50<<20, 1_000_000, 999_988
	})
	add(workflows.StageWrite, func(p *workflows.IngestProgress) {
		p.BytesDone, p.Records, p.Kept = 200<<20, 4_000_000, 3_999_900
		p.StageStarted, p.ReadSeconds = start.Add(20*time.Second), 20
	})
	add(workflows.StageWrite, func(p *workflows.IngestProgress) {
		p.Rows, p.Merged, p.PartBytes = 1_000_000, 999_950, 36<<20
	})
	add(workflows.StageRecord, func(p *workflows.IngestProgress) { p.Rows, p.Merged = 2_000_000, 1_999_900 })
	add(workflows.StagePublish, nil)
	for i := range all {
		all[i].rejected = min(12, all[i].Records)
	}
	return all
}

func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	b := newIngestBar(&out, false)
	now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	for _, p := range stages() {
		b.update(p, now)
		b.update(p, now.Add(time.Second)) // too soon for another line
		now = now.Add(plainInterval)
	}
	b.finish(nil)
	want := `planning
reading 200.0 MiB in 2 objects
reading 50.0/200.0 MiB, 1,000,000 records, 50,000/s, 2m28s left, 12 rejected
writing 3,999,900 rows, 12 rejected
writing 1,000,000 of 2,999,950 rows, 36.0 MiB, 50,000/s, 27s left, 12 rejected
recording 2,000,000 rows
publishing 2,000,000 rows
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestProgressNeverDecreases(t *testing.T) {
	last := -1.0
	for _, p := range stages() {
		fraction := p.fraction()
		if fraction < last || fraction > 1 {
			t.Errorf("%s: %v after %v", p.Stage, fraction, last)
		}
		last = fraction
	}
}

// TestTerminalNeverGoesBack shows an ingest whose steps report late and are repeated, in terminals
// of many widths, and reads what they show.
func TestTerminalNeverGoesBack(t *testing.T) {
	all := stages()
	reading := all[2]
	ended, repeated := reading, reading
	ended.BytesDone, ended.Records, ended.Kept = 0, 0, 0 // a step has ended, and the workflow does not know yet
	repeated.BytesDone, repeated.Records = 10<<20, 200_000
	more := reading
	more.BytesDone, more.Records = 300<<20, 1_500_000 // a heartbeat counts what the workflow counts too
	seen := slices.Concat(all[:3], []snapshot{ended, repeated, more, reading}, all[3:])
	shown := regexp.MustCompile(`^ *(\d+) %  (?:\[(#*)(-*)\] )?(.*)$`)
	read := regexp.MustCompile(`reading ([0-9.]+)/200\.0 MiB`)
	for _, columns := range []int{20, 40, 60, 80, 111, 112, 200} {
		var out bytes.Buffer
		b := &ingestBar{bar: &bar{terminal: &out, columns: func() int { return columns }}}
		now := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
		for i, p := range seen {
			b.update(p, now.Add(time.Duration(i)*time.Second))
		}
		b.clear()
		b.clear() // once is enough
		b.finish(nil)
		lines := strings.Split(out.String(), "\r\x1b[K")
		if len(lines) != len(seen)+3 || lines[0] != "" || lines[len(seen)+1] != "" {
			t.Fatalf("%d columns: %d lines: %q", columns, len(lines), lines)
		}
		percent, bytesRead := -1, -1.0
		for _, line := range lines[1:] {
			if line == "" {
				continue
			}
			if len(strings.TrimSpace(line)) >= columns {
				t.Errorf("%d columns: %d in %q", columns, len(line), line)
			}
			m := shown.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				t.Fatalf("%d columns: %q", columns, line)
			}
			if n, _ := strconv.Atoi(m[1]); n < percent {
				t.Errorf("%d columns: %d %% after %d %%", columns, n, percent)
			} else {
				percent = n
			}
			if width := len(m[2]) + len(m[3]); width > 0 && len(m[2]) != percent*width/100 {
				t.Errorf("%d columns: the bar shows something else than the percentage: %q", columns, line)
			}
			if r := read.FindStringSubmatch(line); r != nil {
				n, _ := strconv.ParseFloat(r[1], 64)
				if n < bytesRead || n > 200 {
					t.Errorf("%d columns: %v MiB after %v MiB", columns, n, bytesRead)
				}
				bytesRead = n
				if want := int(n / 200 / (1 + workflows.WriteShare + workflows.PublishShare) * 100); percent != want {
					t.Errorf("%d columns: %d %% with %v of 200 MiB read, want %d %%", columns, percent, n, want)
				}
			}
		}
		if percent != 100 || !strings.HasSuffix(out.String(), "done\n") {
			t.Errorf("%d columns: ends with %q", columns, lines[len(lines)-1])
		}
	}
}

func TestFailedTaskLeavesNoBar(t *testing.T) {
	var out bytes.Buffer
	b := &ingestBar{bar: &bar{terminal: &out, columns: func() int { return 80 }}}
	b.update(stages()[2], time.Now())
	b.finish(errors.New("refused"))
	if !strings.HasSuffix(out.String(), "\r\x1b[K") || strings.Contains(out.String(), "100 %") {
		t.Errorf("%q", out.String())
	}
}

func TestProgressFitsATerminalOf80Columns(t *testing.T) {
	p := stages()[2]
	p.PerSecond, p.SecondsLeft = 123_456, 3725
	text := p.text(short)
	if want := "reading 50.0/200.0 MiB, 1.0M records, 123k/s, 1h2m5s left, 12 rejected"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if before, _, _ := strings.Cut(text, ", 12 rejected"); len(before) > 80-barRest {
		t.Errorf("%d columns: the time left would be truncated", len(before))
	}
}

func TestShortNumbers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1.0k", 1500: "1.5k", 12_345: "12k", 999_499: "999k",
		2_700_000: "2.7M", 50_000_000: "50M", 1_200_000_000: "1.2G",
	} {
		if got := short(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
