package ingest

import (
	"strings"
	"testing"
	"time"
)

func TestDatesOfTicks(t *testing.T) {
	for _, c := range []struct{ tick, zone, offset, date string }{
		{"2026-11-20T03:00:00Z", "", "", "2026-11-20T03"},
		{"2026-11-20T03:00:00Z", "UTC", "-24h", "2026-11-19T03"},
		{"2026-11-20T03:00:00Z", "", "-1d", "2026-11-19T03"},
		{"2026-03-01T00:10:00Z", "", "-1h", "2026-02-28T23"},
		{"2026-11-20T23:30:00Z", "Europe/Berlin", "", "2026-11-21T00"},
		{"2026-11-20T03:00:00Z", "America/New_York", "", "2026-11-19T22"},
		// Clocks go forward on 2026-03-29: that day has 23 hours. Half past midnight of the next
		// day is for it, also with -24h.
		{"2026-03-29T22:30:00Z", "Europe/Berlin", "-1d", "2026-03-29T00"},
		{"2026-03-29T22:30:00Z", "Europe/Berlin", "-24h", "2026-03-29T00"},
		// They go back on 2026-10-25, which has 25 hours.
		{"2026-10-25T23:30:00Z", "Europe/Berlin", "-24h", "2026-10-25T00"},
		{"2026-01-01T02:00:00Z", "", "-25h", "2025-12-31T01"},
		{"2026-01-01T02:00:00+05:30", "Asia/Kolkata", "", "2026-01-01T02"},
	} {
		d, err := DateOf(c.tick, c.zone, c.offset)
		if err != nil || d.String() != c.date {
			t.Errorf("%+v: %v, %v", c, d, err)
		}
	}
	// What a person writes is the date itself, whatever the zone and the offset.
	for _, text := range []string{"2026-11-20", "2026-11-20T03"} {
		if d, err := DateOf(text, "Asia/Tokyo", "-1d"); err != nil || d.String() != text {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	for _, c := range [][4]string{
		{"2026-11-31", "", "", "2026-11-20"}, {"20261120", "", "", "2026-11-20"}, {"", "", "", "2026-11-20"},
		{"2026-11-20T03:00:00Z", "Middle/Earth", "", "Europe/Berlin"}, {"2026-11-20T03:00:00Z", "Local", "", "Europe/Berlin"},
		{"2026-11-20T03:00:00Z", "", "yesterday", "-1d"}, {"2026-11-20T03:00:00Z", "", "1.5d", "-1d"},
		{"2026-11-20T03:00:00Z", "", "-9999999d", "3660d"},
	} {
		if d, err := DateOf(c[0], c[1], c[2]); err == nil || !strings.Contains(err.Error(), c[3]) {
			t.Errorf("%q: %v, %v; want an error with %q", c, d, err, c[3])
		}
	}
}

func TestNames(t *testing.T) {
	hourly, err := DateOf("2026-01-02T03:04:05Z", "", "")
	if err != nil {
		t.Fatal(err)
	}
	daily, err := DateOf("2026-01-02", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, hourly, daily, batch string }{
		{"s3://raw/{date}/", "s3://raw/2026-01-02/", "s3://raw/2026-01-02/", "2026-01-02"},
		{"/in/{yyyy}/{mm}/{dd}/*.gz", "/in/2026/01/02/*.gz", "/in/2026/01/02/*.gz", "2026-01-02"},
		{"x-{yyyy}{mm}", "x-202601", "x-202601", "2026-01"},
		{"x-{yyyy}", "x-2026", "x-2026", "2026"},
		{"{date}/{hh}", "2026-01-02/03", "", "2026-01-02T03"},
		{"latest{ok?}/{}", "latest{ok?}/{}", "latest{ok?}/{}", "2026-01-02"},
		{"{day}", "", "", ""},
		{"{yyy}-{mm}", "", "", ""},
	} {
		for _, d := range []struct {
			Date
			want string
		}{{hourly, c.hourly}, {daily, c.daily}} {
			got, err := d.expand(c.name)
			if (err == nil) != (d.want != "") || err == nil && got != d.want {
				t.Errorf("%s on %s: %q, %v; want %q", c.name, d, got, err, d.want)
			}
		}
		if c.batch != "" {
			if got := hourly.batch("fixed", c.name); got != c.batch {
				t.Errorf("%s: batch %s, want %s", c.name, got, c.batch)
			}
		}
	}
	if HasDate("{day}/{}") || !HasDate("a{mm}") || HasHours("{date}") || !HasHours("a", "{hh}") {
		t.Error("placeholders are not found")
	}
}

// TestTicks compares the range with the dates of every tick of some weeks in which clocks change.
func TestTicks(t *testing.T) {
	for _, zone := range []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"} {
		location, err := DateZone(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, offset := range []string{"", "-1d", "-24h", "-6h", "12h", "-30h"} {
			o, err := ParseDateOffset(offset)
			if err != nil {
				t.Fatal(err)
			}
			for _, months := range []time.Month{time.March, time.October} {
				begin := time.Date(2026, months, 1, 0, 0, 0, 0, time.UTC)
				first, _ := DateOf(begin.AddDate(0, 0, 10).Format(time.DateOnly), "", "")
				last, _ := DateOf(begin.AddDate(0, 0, 28).Format(time.DateOnly), "", "")
				from, to := o.Ticks(first, last, location)
				found := 0
				for at := begin; at.Before(begin.AddDate(0, 2, 0)); at = at.Add(30 * time.Minute) {
					d, err := DateOf(at.Format(time.RFC3339), zone, offset)
					if err != nil {
						t.Fatal(err)
					}
					inside := d.Compare(first) >= 0 && d.Compare(last) <= 0
					if inside {
						found++
					}
					if inside && (at.Before(from) || at.After(to)) {
						t.Errorf("%q %q: %s is for %s, but not from %s to %s", zone, offset, at, d, from, to)
					}
				}
				if found < 18*48 {
					t.Errorf("%q %q: %d ticks", zone, offset, found)
				}
			}
		}
	}
}

func TestRanges(t *testing.T) {
	for _, c := range [][4]string{
		{"2026-11-01", "2026-11-03", "2026-11-01", "2026-11-03"},
		{"2026-02", "2026-02", "2026-02-01", "2026-02-28"},
		{"2024", "2024-02", "2024-01-01", "2024-02-29"},
		{"2026-11-01T22", "2026-11-02", "2026-11-01T22", "2026-11-02"},
		{"2026-11-01T22", "2026-11-01", "2026-11-01T22", "2026-11-01"},
		{"2026-11-02", "2026-11-01", "", ""}, {"2026-12", "2026-11-30", "", ""}, {"x", "2026", "", ""}, {"2026", "1.1.2027", "", ""},
	} {
		a, b, err := ParseDateRange(c[0], c[1])
		if (err == nil) != (c[2] != "") || err == nil && (a.String() != c[2] || b.String() != c[3]) {
			t.Errorf("%v: %s to %s, %v", c, a, b, err)
		}
	}
}
