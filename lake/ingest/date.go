package ingest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // so that zones are known alike on machines without a time zone database
)

// ScheduledDate is the date of an ingest that takes it from its schedule: the time at which the
// schedule was due, which is not that at which the ingest starts.
const ScheduledDate = "scheduled"

// A Date is the date, and the hour, that names are made of.
type Date struct {
	t time.Time
	// hour tells that the hour is known.
	hour bool
}

// dateLayouts are how a person writes a date. Only the second says an hour.
var dateLayouts = []string{time.DateOnly, "2006-01-02T15"}

// DateOf returns the date that text says: 2026-11-20, or 2026-11-20T03 with an hour, as it is
// written; or a time of RFC 3339, to which the offset is added, as it is in the zone. "" is UTC.
func DateOf(text, zone, offset string) (Date, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return parseDate(text)
	}
	location, err := DateZone(zone)
	if err != nil {
		return Date{}, err
	}
	o, err := ParseDateOffset(offset)
	if err != nil {
		return Date{}, err
	}
	return Date{o.after(at.In(location)), true}, nil
}

// parseDate returns the date that a person writes: 2026-11-20, or 2026-11-20T03 with an hour.
func parseDate(text string) (Date, error) {
	for i, layout := range dateLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return Date{t, i > 0}, nil
		}
	}
	return Date{}, fmt.Errorf("date %q: use one such as 2026-11-20, or 2026-11-20T03 with an hour", text)
}

// ParseDateRange returns the first and the last date of a range, as parseDate reads them; a month,
// such as 2026-11, or a year stands for its first day in first, and for its last in last.
func ParseDateRange(first, last string) (a, b Date, err error) {
	whole := func(text string, end bool) (Date, error) {
		for _, p := range []struct {
			layout        string
			years, months int
		}{{"2006-01", 0, 1}, {"2006", 1, 0}} {
			t, err := time.Parse(p.layout, text)
			if err != nil {
				continue
			}
			if end {
				t = t.AddDate(p.years, p.months, -1)
			}
			return Date{t: t}, nil
		}
		return parseDate(text)
	}
	if a, err = whole(first, false); err == nil {
		b, err = whole(last, true)
	}
	if err == nil && b.Compare(a) < 0 {
		err = fmt.Errorf("the first date, %s, is after the last, %s", a, b)
	}
	return a, b, err
}

// DateZone returns the time zone of that name, UTC for "". The zone of the machine is none: it
// would differ from worker to worker.
func DateZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("%q: unknown time zone; use e.g. Europe/Berlin or UTC", name)
	}
	return location, nil
}

// A DateOffset is a number of days of the calendar and of hours, which may be negative. A day of
// the calendar has 23 or 25 hours where clocks change.
type DateOffset struct {
	days int
	rest time.Duration
}

// maxDateOffset is the largest offset. Data that is later than that is not scheduled.
const maxDateOffset = 10 * 366 * 24 * time.Hour

// ParseDateOffset returns the offset that s stands for: a number of days such as -1d, a duration of
// Go such as -24h or -90m, or "" for none. Whole days of a duration are days of the calendar.
func ParseDateOffset(s string) (DateOffset, error) {
	if s == "" {
		return DateOffset{}, nil
	}
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		if n = min(max(n, -4000), 4000); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d.Abs() > maxDateOffset {
		return DateOffset{}, fmt.Errorf("offset %q: use days or hours, such as -1d or -6h, at most 3660d", s)
	}
	return DateOffset{int(d / (24 * time.Hour)), d % (24 * time.Hour)}, nil
}

// after returns the time that is o after t, in the zone of t.
func (o DateOffset) after(t time.Time) time.Time { return t.AddDate(0, 0, o.days).Add(o.rest) }

// Ticks returns the times between which a schedule is due whose date, with the offset, is from
// first to last, as DateOf reads them. A last without an hour is the whole day. The range is some
// hours wider at both ends; the caller compares dates.
func (o DateOffset) Ticks(first, last Date, location *time.Location) (from, to time.Time) {
	local := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, location)
	}
	opposite := DateOffset{-o.days, -o.rest}
	end := last.t.Add(time.Hour)
	if !last.hour {
		end = last.t.AddDate(0, 0, 1)
	}
	const margin = 3 * time.Hour // clocks change by an hour or two
	return opposite.after(local(first.t)).Add(-margin), opposite.after(local(end)).Add(margin)
}

// Compare compares the days of two dates, and their hours if both have one.
func (d Date) Compare(o Date) int {
	layout := time.DateOnly
	if d.hour && o.hour {
		layout = dateLayouts[1]
	}
	return strings.Compare(d.t.Format(layout), o.t.Format(layout))
}

// datePlaceholder is what stands for a part of a date in a name. Other braces are themselves.
var datePlaceholder = regexp.MustCompile(`\{[a-z]+\}`)

// dateUnit is how finely a placeholder divides time.
type dateUnit int

const (
	year dateUnit = iota
	month
	day
	hour
)

// datePlaceholders are the known placeholders, with Go's layout.
var datePlaceholders = map[string]struct {
	layout string
	unit   dateUnit
}{
	"{date}": {time.DateOnly, day},
	"{yyyy}": {"2006", year},
	"{mm}":   {"01", month},
	"{dd}":   {"02", day},
	"{hh}":   {"15", hour},
}

// batchLayouts name a batch by unit.
var batchLayouts = [...]string{year: "2006", month: "2006-01", day: time.DateOnly, hour: dateLayouts[1]}

// HasDate reports whether a name has a known placeholder.
func HasDate(name string) bool {
	return slices.ContainsFunc(datePlaceholder.FindAllString(name, -1), func(p string) bool {
		_, ok := datePlaceholders[p]
		return ok
	})
}

// HasHours reports whether one of names differs from hour to hour.
func HasHours(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "{hh}") })
}

// expand replaces the placeholders of a name.
func (d Date) expand(name string) (string, error) {
	var err error
	out := datePlaceholder.ReplaceAllStringFunc(name, func(p string) string {
		known, ok := datePlaceholders[p]
		switch {
		case !ok:
			err = fmt.Errorf("%q: %s is no placeholder; there are {date}, {yyyy}, {mm}, {dd} and {hh}", name, p)
		case known.unit == hour && !d.hour:
			err = fmt.Errorf("%q needs an hour; use a date such as %sT03", name, d.t.Format(time.DateOnly))
		}
		return d.t.Format(known.layout)
	})
	return out, err
}

// batch names the batch of what names stand for on the date: a day, such as 2026-11-20, or what the
// finest placeholder in names divides time into.
func (d Date) batch(names ...string) string {
	finest, found := year, false
	for _, name := range names {
		for _, p := range datePlaceholder.FindAllString(name, -1) {
			if known, ok := datePlaceholders[p]; ok {
				finest, found = max(finest, known.unit), true
			}
		}
	}
	if !found {
		finest = day
	}
	return d.t.Format(batchLayouts[finest])
}

// String returns the date, with the hour if it is known.
func (d Date) String() string {
	if d.hour {
		return d.t.Format(dateLayouts[1])
	}
	return d.t.Format(dateLayouts[0])
}

// OnDate returns the spec with its date in the place of all placeholders, and without Date, so that
// it equals that of an ingest which names the inputs and the batch of that date itself. A batch
// without a name is named by the date. A Spec without a date is returned as it is.
func (s *Spec) OnDate() (Spec, error) {
	out := *s
	if s.Date == "" {
		return out, nil
	}
	fail := func(err error) (Spec, error) { return Spec{}, &InputError{Reason: err.Error(), Err: err} }
	if s.Date == ScheduledDate {
		return fail(fmt.Errorf("date is %q, and no schedule has started this; use a date such as 2026-11-20", s.Date))
	}
	d, err := DateOf(s.Date, s.DateZone, s.DateOffset)
	if err != nil {
		return fail(err)
	}
	out.Date, out.DateZone, out.DateOffset = "", "", ""
	var names []string
	for _, list := range []*[]string{&out.Inputs, &out.Manifests, &out.Include, &out.Exclude} {
		names = append(names, *list...)
		*list = slices.Clone(*list)
		for i, name := range *list {
			if (*list)[i], err = d.expand(name); err != nil {
				return fail(err)
			}
		}
	}
	if out.Batch == "" {
		out.Batch = d.batch(names...)
		return out, nil
	}
	if out.Batch, err = d.expand(out.Batch); err != nil {
		return fail(err)
	}
	return out, nil
}
