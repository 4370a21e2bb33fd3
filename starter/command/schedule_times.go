package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
)

// times are the flags that say when a schedule is due, and what happens if it is due too often.
type times struct {
	cron           []string
	zone           string
	overlap        string
	catchUp        string
	pauseOnFailure bool
	paused         bool
}

func (t *times) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&t.cron, "cron", nil,
		"when to run: the `FIELDS` minute, hour, day of month, month and day of week as in crontab, or e.g. @daily; "+
			"may be repeated")
	f.StringVar(&t.zone, "time-zone", "UTC", "time `ZONE` of the fields of --cron and of dates, e.g. Europe/Berlin")
	f.StringVar(&t.overlap, "overlap", "",
		"`POLICY` if a run is due while one goes on: "+strings.Join(policyNames(), ", ")+
			" (default: buffer-all with dates, else buffer-one)")
	f.StringVar(&t.catchUp, "catch-up", "365d",
		"when Temporal was away, start what was due in this `DURATION` before it came back, e.g. 36h or 3d")
	f.BoolVar(&t.pauseOnFailure, "pause-on-failure", false, "pause the schedule when a run fails")
	f.BoolVar(&t.paused, "paused", false, "create the schedule paused")
}

// policy is one of Temporal's overlap policies.
type policy struct {
	name, does string
	of         enums.ScheduleOverlapPolicy
}

var policies = []policy{
	{"skip", "what is due meanwhile is left out", enums.SCHEDULE_OVERLAP_POLICY_SKIP},
	{"buffer-one", "if it is due meanwhile, it runs once more afterwards", enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE},
	{"buffer-all", "what is due meanwhile runs afterwards, one after the other", enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ALL},
	{"cancel-other", "the one that goes on is cancelled, then the new one runs", enums.SCHEDULE_OVERLAP_POLICY_CANCEL_OTHER},
	{"terminate-other", "the one that goes on is terminated, and the new one runs", enums.SCHEDULE_OVERLAP_POLICY_TERMINATE_OTHER},
	{"allow-all", "runs go on beside each other", enums.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL},
}

func policyNames() (names []string) {
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// overlapOf returns the policy of a name, otherwise for "".
func overlapOf(name string, otherwise enums.ScheduleOverlapPolicy) (enums.ScheduleOverlapPolicy, error) {
	if name == "" {
		return otherwise, nil
	}
	at := slices.IndexFunc(policies, func(p policy) bool { return p.name == name })
	if at < 0 {
		return 0, cli.Usagef("--overlap %q: no such policy; use one of %s", name, strings.Join(policyNames(), ", "))
	}
	return policies[at].of, nil
}

// policyOf describes a policy. Temporal's default is to skip.
func policyOf(of enums.ScheduleOverlapPolicy) policy {
	if at := slices.IndexFunc(policies, func(p policy) bool { return p.of == of }); at >= 0 {
		return policies[at]
	}
	return policies[0]
}

// minCatchUp is the shortest that Temporal takes.
const minCatchUp = 10 * time.Second

// check returns a *cli.UsageError for flags that are wrong, before anything is asked of Temporal.
func (t *times) check(w *Work) error {
	if len(t.cron) == 0 {
		return cli.Usagef("no time given; use --cron with five fields as in crontab, e.g. --cron '0 3 * * *'")
	}
	for _, cron := range t.cron {
		if err := checkCron(cron); err != nil {
			return err
		}
	}
	location, err := ingest.DateZone(t.zone)
	if err != nil {
		return cli.Usagef("--time-zone %w", err)
	}
	if _, err := overlapOf(t.overlap, 0); err != nil {
		return err
	}
	if d, err := ingest.ParseDuration(t.catchUp); err != nil {
		return cli.Usagef("--catch-up: %w", err)
	} else if d < minCatchUp {
		return cli.Usagef("--catch-up %s: Temporal takes at least %s", t.catchUp, minCatchUp)
	}
	if w.hourly && changes(location) {
		return cli.Usagef("with {hh} use --time-zone UTC: where the clocks of %s go back, two hours have one name, "+
			"and the second would replace the first", t.zone)
	}
	return nil
}

// changes reports whether clocks in a zone change during a year.
func changes(location *time.Location) bool {
	_, first := time.Date(2026, 1, 1, 0, 0, 0, 0, location).Zone()
	for month := time.February; month <= time.December; month++ {
		if _, offset := time.Date(2026, month, 1, 0, 0, 0, 0, location).Zone(); offset != first {
			return true
		}
	}
	return false
}

// spec returns when the schedule is due. Temporal keeps cron lines as calendars; their comments
// show them as they were.
func (t *times) spec() client.ScheduleSpec {
	s := client.ScheduleSpec{TimeZoneName: t.zone}
	for _, cron := range t.cron {
		s.CronExpressions = append(s.CronExpressions, cron+" #"+cron)
	}
	return s
}

// policies returns what happens if the schedule is due too often, or was not heard.
func (t *times) policies(w *Work) client.SchedulePolicies {
	usual := enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE
	if w.Dated() {
		usual = enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ALL // every date is needed
	}
	overlap, _ := overlapOf(t.overlap, usual)    // checked
	window, _ := ingest.ParseDuration(t.catchUp) // checked
	return client.SchedulePolicies{Overlap: overlap, CatchupWindow: window, PauseOnFailure: t.pauseOnFailure}
}

// cronFields are the fields of a crontab line: their ranges, and the names that stand for numbers.
var cronFields = []struct {
	name        string
	first, last int
	names       []string // of first, first+1, …
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// checkCron returns a *cli.UsageError if cron is not a crontab line. It leaves the forms that begin
// with @ to Temporal.
func checkCron(cron string) error {
	if strings.HasPrefix(cron, "@") {
		return nil
	}
	fields := strings.Fields(cron)
	if len(fields) != len(cronFields) {
		return cli.Usagef("--cron %q has %d fields instead of 5: minute, hour, day of month, month, day of week; "+
			"use e.g. '0 3 * * *'", cron, len(fields))
	}
	for i, field := range fields {
		f := cronFields[i]
		number := func(s string) (int, bool) {
			if n := slices.Index(f.names, strings.ToLower(s)); n >= 0 {
				return f.first + n, true
			}
			n, err := strconv.ParseUint(s, 10, 8)
			return int(n), err == nil && int(n) >= f.first && int(n) <= f.last
		}
		for _, item := range strings.Split(field, ",") {
			item, step, stepped := strings.Cut(item, "/")
			n, err := strconv.Atoi(step)
			ok := !stepped || err == nil && n > 0
			if item != "*" && item != "?" {
				from, to, isRange := strings.Cut(item, "-")
				a, okA := number(from)
				ok = ok && okA
				if isRange {
					b, okB := number(to)
					ok = ok && okB && a <= b
				}
			}
			if !ok {
				return cli.Usagef("--cron %q: %q is not a valid %s; use %d to %d, *, a-b, */n, or several separated by commas",
					cron, field, f.name, f.first, f.last)
			}
		}
	}
	return nil
}

// cronLines describes when a schedule is due: by the lines from which it was made, or what they
// would be.
func cronLines(s *client.ScheduleSpec) (lines []string) {
	for _, c := range s.Calendars {
		line := c.Comment
		if line == "" {
			line = fmt.Sprintf("%s %s %s %s %s", ranges(c.Minute, 0, 59), ranges(c.Hour, 0, 23), ranges(c.DayOfMonth, 1, 31),
				ranges(c.Month, 1, 12), ranges(c.DayOfWeek, 0, 6))
		}
		lines = append(lines, line)
	}
	for _, every := range s.Intervals {
		line := "@every " + every.Every.String()
		if every.Offset > 0 {
			line += "/" + every.Offset.String()
		}
		lines = append(lines, line)
	}
	return append(lines, s.CronExpressions...)
}

// ranges formats the ranges of a calendar as a field of crontab.
func ranges(all []client.ScheduleRange, first, last int) string {
	var items []string
	for _, r := range all {
		end := max(r.Start, r.End)
		item := strconv.Itoa(r.Start)
		switch {
		case r.Start == first && end >= last:
			item = "*"
		case end > r.Start:
			item += "-" + strconv.Itoa(end)
		}
		if r.Step > 1 {
			item += "/" + strconv.Itoa(r.Step)
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return "0"
	}
	return strings.Join(items, ",")
}
