package timestamp

import (
	"strconv"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const day = "2024-05-06T00:00:00Z"
	for _, tc := range []struct{ in, want string }{
		{"2024-05-06", day},
		{"2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"},
		{"2024-05-06t07:08:09z", "2024-05-06T07:08:09Z"},
		{" 2024-05-06 07:08:09\n", "2024-05-06T07:08:09Z"},
		{"2024-05-06 07:08", "2024-05-06T07:08:00Z"},
		{"2024-05-06T07:08:09.1239999Z", "2024-05-06T07:08:09.123Z"},
		{"2024-05-06T07:08:09,5", "2024-05-06T07:08:09.5Z"},
		{"2024-05-06T07:08:09+01:30", "2024-05-06T05:38:09Z"},
		{"2024-05-06T07:08:09-0130", "2024-05-06T08:38:09Z"},
		{"2024-05-06 07:08:09.5 +02", "2024-05-06T05:08:09.5Z"},
		{"2024-05-06 07:08:09 UTC", "2024-05-06T07:08:09Z"},
		{"2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"},
		{"2024-02-29", "2024-02-29T00:00:00Z"},
		{"0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		{"20240506070809", "2024-05-06T07:08:09Z"},
		{"20240506070809123", "2024-05-06T07:08:09.123Z"},
		{"20240506", day},
		{"1714953600", day},
		{"1714953600000", day},
		{"1714953600000000", day},
		{"1714953600000000000", day},
		{"1714953600.283", "2024-05-06T00:00:00.283Z"},
		{"1714953600.2839", "2024-05-06T00:00:00.283Z"},
		{"1.7149536e9", day},
		{"1.7149536e12", day},
		{"-1.0005", "1969-12-31T23:59:58.999Z"},
		{"1714953600.", day},
		{"+1714953600", day},
		{"-1.5", "1969-12-31T23:59:58.5Z"},
		{"-86400", "1969-12-31T00:00:00Z"},
		{"0", "1970-01-01T00:00:00Z"},
		{"12345678", "1970-05-23T21:21:18Z"}, // no date of this century
		{"99999999999999", "5138-11-16T09:46:39.999Z"},
	} {
		want, err := time.Parse(time.RFC3339Nano, tc.want)
		if err != nil {
			t.Fatal(err)
		}
		ms, ok := Parse([]byte(tc.in))
		if !ok || ms != want.UnixMilli() {
			t.Errorf("%q is %s (%v), want %s", tc.in, time.UnixMilli(ms).UTC(), ok, tc.want)
		}
	}
	for _, in := range []string{
		"", " ", "soon", "x2024-05-06", "2024-5-6", "2024-13-01", "2024-02-30", "2023-02-29", "2024-05-06T",
		"2024-05-06T07", "2024-05-06T24:00:00Z", "2024-05-06T07:60:00Z", "2024-05-06T07:08:61Z",
		"2024-05-06T07:08:09.Z", "2024-05-06T07:08:09+1", "2024-05-06T07:08:09+24:00",
		"2024-05-06T07:08:09 CEST", "2024-05-06x", "\u00a02024-05-06", "0x10", "1_000", "Inf", "NaN", "1e999", "1e30", "--1", "+", ".", "e",
	} {
		if ms, ok := Parse([]byte(in)); ok {
			t.Errorf("%q is %s, want none", in, time.UnixMilli(ms).UTC())
		}
	}
}

func TestParseAgreesWithTimeParse(t *testing.T) {
	for i := range 20_000 {
		at := time.UnixMilli(int64(i)*5_123_456_789 - 30_000_000_000_000).UTC()
		const layout = "2006-01-02T15:04:05.000Z07:00"
		zone := time.FixedZone("", 3600*(i%24)-43200)
		for _, in := range []string{at.Format(layout), at.In(zone).Format(layout)} {
			if ms, ok := Parse([]byte(in)); !ok || ms != at.UnixMilli() {
				t.Fatalf("%s is %d (%v), want %d", in, ms, ok, at.UnixMilli())
			}
		}
		ms, ok := Parse([]byte(at.Format("20060102150405")))
		if !ok || ms != at.Truncate(time.Second).UnixMilli() {
			t.Fatalf("%s as 14 digits is %d (%v)", at, ms, ok)
		}
		ms, ok = Parse([]byte(strconv.FormatFloat(float64(at.UnixMilli())/1e3, 'f', 3, 64)))
		if !ok || ms != at.UnixMilli() {
			t.Fatalf("%s as seconds is %d (%v)", at, ms, ok)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, tc := range []struct{ format, in, want string }{
		{"%m/%d/%Y %H:%M", "8/4/2016 11:52", "2016-08-04T11:52:00Z"},
		{"%m/%d/%Y %H:%M", "12/14/2016  1:02", "2016-12-14T01:02:00Z"},
		{"%d.%m.%y", "31.12.99", "1999-12-31T00:00:00Z"},
		{"%d.%m.%y", "1.1.24", "2024-01-01T00:00:00Z"},
		{"%d/%b/%Y:%H:%M:%S %z", "17/May/2015:10:05:03 +0200", "2015-05-17T08:05:03Z"},
		{"%A, %d %B %Y %I:%M %p", "Sunday, 17 May 2015 12:05 am", "2015-05-17T00:05:00Z"},
		{"%a, %d %b %Y %T %Z", "Sun, 17 May 2015 12:05:06 GMT", "2015-05-17T12:05:06Z"},
		{"%FT%T.%f%z", "2015-05-17T12:05:06.789Z", "2015-05-17T12:05:06.789Z"},
		{"%Y%j", "2024366", "2024-12-31T00:00:00Z"},
		{"%D %R", "05/17/15 23:59", "2015-05-17T23:59:00Z"},
		{"%s.%f", "1714953600.5", "2024-05-06T00:00:00.5Z"},
		{"%Y", "2015", "2015-01-01T00:00:00Z"},
		{"100%% %Y", "100% 2015", "2015-01-01T00:00:00Z"},
		{"Jan 2, 2006", "May 17, 2015", "2015-05-17T00:00:00Z"},
		{"02/01/2006 15:04:05", "17/05/2015 10:05:03", "2015-05-17T10:05:03Z"},
	} {
		f, err := NewFormat(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		want, err := time.Parse(time.RFC3339Nano, tc.want)
		if err != nil {
			t.Fatal(err)
		}
		if ms, ok := f.Parse([]byte(tc.in)); !ok || ms != want.UnixMilli() {
			t.Errorf("%q by %q is %s (%v), want %s", tc.in, tc.format, time.UnixMilli(ms).UTC(), ok, tc.want)
		}
	}
	for _, tc := range []struct{ format, in string }{
		{"%m/%d/%Y", "8/4/2016 11:52"}, {"%m/%d/%Y", "13/1/2016"}, {"%m/%d/%Y", "8/4"}, {"%b", "Mai"},
		{"%I", "13"}, {"%Y%j", "2023366"}, {"%z", " "}, {"%Z", "CET"}, {"%f", "x"}, {"%p", "x"}, {"%%", "x"}, {"Jan 2, 2006", "x"},
	} {
		f, err := NewFormat(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		if ms, ok := f.Parse([]byte(tc.in)); ok {
			t.Errorf("%q by %q is %s, want none", tc.in, tc.format, time.UnixMilli(ms).UTC())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2024-05-06T07:08:09.5+01:00", "%m/%d/%Y %H:%M")
	f.Add("1714953600.5", "Jan 2, 2006")
	f.Fuzz(func(t *testing.T, value, format string) {
		if ms, ok := Parse([]byte(value)); ok {
			if again, ok := Parse([]byte(" " + value + "\n")); !ok || again != ms {
				t.Fatalf("%q is %d, with space around it %d (%v)", value, ms, again, ok)
			}
		}
		if tf, err := NewFormat(format); err == nil && value != "" {
			tf.Parse([]byte(value))
		}
	})
}
