// Package timestamp parses the timestamps of datasets: ISO 8601 dates, digits as in CDX, numbers
// since the Unix epoch, and the forms that a strftime pattern or a layout of Go's time package
// describes.
//
// The value of a text depends on nothing but the text and the format: a text without a zone is UTC.
// Packages lake/raw/text and lake/raw/parquetin parse the timestamps of records with it, and
// lake/raw/detect tells timestamps from other values.
package timestamp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// space is the white space that may surround timestamps.
const space = " \t\n\v\f\r"

// Parse parses a timestamp in one of the forms datasets use. It returns milliseconds since the Unix
// epoch, rounded down. White space around the timestamp is ignored. The forms are:
//
//   - RFC 3339 and similar, at any precision (https://www.w3.org/TR/NOTE-datetime): 2006, 2006-01,
//     or 2006-01-02, then optionally T or a space and 15, 15:04, 15:04:05 or 15:04:05.999, then
//     optionally a zone (Z, UTC, GMT, +01:00, +0100, +01). Without a zone it is UTC. The date may
//     also be 8 digits before a T, and the time after it 2, 4 or 6.
//   - Digits as in CDX, 20060102150405, 17 with milliseconds, or fewer: 4 are a year, 6 a month and
//     8 a day from 1000 to 2999, 12 a minute from 1990 to 2099. A fraction of zeros may follow, as
//     columns of floating point have it.
//   - A number of seconds, milliseconds, microseconds or nanoseconds since the Unix epoch, with an
//     optional sign, fraction and exponent. Its magnitude decides the unit: a number below 10^11 is
//     in seconds, and each further unit takes a thousandfold range. Numbers of seconds below 10^8,
//     up to March 1973, are no time: they are counts, ids, and 0 and -1 for none.
//
// A time of less precision is the start of its period. As many digits as a date has are a date, or
// no time: as milliseconds they would be beyond the year 2280 or, of 12 digits, before 1977. Ten
// digits are seconds.
func Parse(b []byte) (ms int64, ok bool) {
	b = trimSpace(b)
	if len(b) == 0 {
		return 0, false
	}
	digits := 0
	for digits < len(b) && IsDigit(b[digits]) {
		digits++
	}
	switch {
	case digits == 4 && len(b) > 4 && b[4] == '-', digits == 8 && len(b) > 8 && b[8]|0x20 == 't':
		return parseDate(b, digits)
	case digits == len(b) || b[digits] == '.' && len(bytes.Trim(b[digits+1:], "0")) == 0:
		if isCalendar(b[:digits]) {
			return ParseDigits(b[:digits])
		}
	}
	ms, ok = parseUnix(b)
	return ms, ok && (ms >= minUnix || ms <= -minUnix)
}

// minUnix is the least time in milliseconds since the Unix epoch that a number can be.
const minUnix = 1e11

// isCalendar reports whether digits are no number since the Unix epoch but a date, which may be one
// that there is not: February 30.
func isCalendar(b []byte) bool {
	switch len(b) {
	case 4, 6, 8:
		return b[0] == '1' || b[0] == '2'
	case 12:
		year := atoi(b[:4])
		return year >= 1990 && year < 2100
	case 14, 17:
		return true
	}
	return false
}

// parseUnix parses a number of units since the Unix epoch. b is not empty.
func parseUnix(b []byte) (int64, bool) {
	num, negative := b, b[0] == '-'
	if negative || b[0] == '+' {
		num = b[1:]
	}
	whole, frac, _ := bytes.Cut(num, []byte{'.'})
	if len(whole) > 0 && len(whole) <= 18 && AllDigits(whole) && AllDigits(frac) {
		// As decimals: in floating point 1.283 s would become a little less than 1283 ms.
		n := int64(atoi(whole))
		unit := int64(1) // a millisecond
		switch {
		case n >= 1e17:
			unit = 1e6
		case n >= 1e14:
			unit = 1e3
		}
		if n >= 1e11 {
			if negative {
				return -((n + unit - 1) / unit), true
			}
			return n / unit, true
		}
		milli, _ := parseMilli(frac)
		n = n*1000 + int64(milli)
		if negative {
			n = -n
			if len(frac) > 3 && len(bytes.Trim(frac[3:], "0")) > 0 {
				n--
			}
		}
		return n, true
	}
	// strconv.ParseFloat also accepts hexadecimal digits, Inf and NaN.
	for _, c := range b {
		if !IsDigit(c) && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
	if err != nil || math.Abs(f) >= 1e20 {
		return 0, false
	}
	switch a := math.Abs(f); {
	case a < 1e11:
		f *= 1e3
	case a < 1e14:
	case a < 1e17:
		f /= 1e3
	default:
		f /= 1e6
	}
	return int64(math.Floor(f)), true
}

// parseCDXTime parses the timestamps of archive indexes: those of Parse, and digits truncated after
// the year, month, day, hour or minute.
func parseCDXTime(b []byte) (ms int64, ok bool) {
	b = trimSpace(b)
	for _, c := range b {
		if !IsDigit(c) {
			return Parse(b)
		}
	}
	return ParseDigits(b)
}

// ParseDigits parses YYYY[MM[DD[hh[mm[ss[mmm]]]]]] and returns milliseconds since the Unix epoch. b
// must be digits only.
func ParseDigits(b []byte) (int64, bool) {
	switch len(b) {
	case 4, 6, 8, 10, 12, 14, 17:
	default:
		return 0, false
	}
	f := [6]int{0, 1, 1}
	f[0] = atoi(b[:4])
	for i := 1; i < 6 && len(b) >= 4+2*i; i++ {
		f[i] = atoi(b[2+2*i : 4+2*i])
	}
	milli := 0
	if len(b) == 17 {
		milli = atoi(b[14:])
	}
	return civil(f, milli, 0)
}

// parseDate parses the forms that begin with YYYY-, or with YYYYMMDDT; digits is 4 or 8.
func parseDate(b []byte, digits int) (int64, bool) {
	if f, ok := parseWhole(b); ok {
		if b = b[19:]; len(b) == 0 || len(b) == 1 && b[0] == 'Z' {
			return civil(f, 0, 0)
		}
		return parseRest(b, f)
	}
	f := [6]int{atoi(b[:4]), 1, 1}
	colon := digits == 4
	if !colon {
		f[1], f[2], b = atoi(b[4:6]), atoi(b[6:8]), b[8:]
	} else {
		b = b[4:]
		i := 1
		for ; i <= 2 && len(b) > 0 && b[0] == '-'; i++ {
			if len(b) < 3 || !AllDigits(b[1:3]) {
				return 0, false
			}
			f[i], b = atoi(b[1:3]), b[3:]
		}
		if i <= 2 && len(b) > 0 && b[0] == ' ' {
			return 0, false // a month and another number
		}
	}
	if len(b) == 0 {
		return civil(f, 0, 0)
	}
	if b[0]|0x20 != 't' && b[0] != ' ' || len(b) < 3 {
		return 0, false
	}
	b = b[1:]
	for i := 3; i <= 5 && len(b) >= 2 && AllDigits(b[:2]); i++ {
		f[i], b = atoi(b[:2]), b[2:]
		switch {
		case i == 5:
			return parseRest(b, f)
		case colon && len(b) > 0 && b[0] == ':':
			if b = b[1:]; len(b) < 2 || !AllDigits(b[:2]) {
				return 0, false
			}
		case colon:
			i = 5
		}
	}
	zone, ok := parseZone(b)
	if !ok {
		return 0, false
	}
	return civil(f, 0, zone)
}

// parseWhole parses YYYY-MM-DDThh:mm:ss at the beginning of b, perhaps with a space for the T. The
// caller has found the digits of the year.
func parseWhole(b []byte) (f [6]int, ok bool) {
	if len(b) < 19 || b[4] != '-' || b[7] != '-' || b[10] != 'T' && b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return f, false
	}
	f = [6]int{pair(b[0], b[1])*100 + pair(b[2], b[3]), pair(b[5], b[6]), pair(b[8], b[9]),
		pair(b[11], b[12]), pair(b[14], b[15]), pair(b[17], b[18])}
	return f, f[1]|f[2]|f[3]|f[4]|f[5] >= 0
}

// pair returns the value of two digits, a negative number if they are none.
func pair(tens, ones byte) int {
	if tens -= '0'; tens > 9 {
		return -1
	}
	if ones -= '0'; ones > 9 {
		return -1
	}
	return int(tens)*10 + int(ones)
}

// parseRest parses what follows the seconds: a fraction and a zone, or either, or nothing.
func parseRest(b []byte, f [6]int) (int64, bool) {
	milli := 0
	if len(b) > 1 && (b[0] == '.' || b[0] == ',') && IsDigit(b[1]) {
		milli, b = parseMilli(b[1:])
	}
	zone, ok := parseZone(b)
	if !ok {
		return 0, false
	}
	return civil(f, milli, zone)
}

// parseMilli parses the digits of a fraction as milliseconds, rounded down. It returns what
// follows.
func parseMilli(b []byte) (int, []byte) {
	milli, i := 0, 0
	for ; i < len(b) && IsDigit(b[i]); i++ {
		if i < 3 {
			milli = milli*10 + int(b[i]-'0')
		}
	}
	for j := i; j < 3; j++ {
		milli *= 10
	}
	return milli, b[i:]
}

// parseZone parses a zone and returns its offset from UTC in seconds.
func parseZone(b []byte) (int, bool) {
	b = trimSpace(b)
	if len(b) == 0 || len(b) == 1 && (b[0] == 'Z' || b[0] == 'z') || string(b) == "UTC" || string(b) == "GMT" {
		return 0, true
	}
	sign := 1
	if b[0] == '-' {
		sign = -1
	} else if b[0] != '+' {
		return 0, false
	}
	b = b[1:]
	if len(b) < 2 || !AllDigits(b[:2]) {
		return 0, false
	}
	h, m := atoi(b[:2]), 0
	b = b[2:]
	if len(b) == 3 && b[0] == ':' {
		b = b[1:]
	}
	if len(b) > 0 {
		if len(b) != 2 || !AllDigits(b) {
			return 0, false
		}
		m = atoi(b)
	}
	if h > 23 || m > 59 {
		return 0, false
	}
	return sign * (h*3600 + m*60), true
}

// civil returns the instant of f, which is year, month, day, hour, minute and second, in
// milliseconds. zone is in seconds. Second 60, a leap second, becomes the first of the next minute.
func civil(f [6]int, milli, zone int) (int64, bool) {
	y, mo, d, h, mi, s := f[0], f[1], f[2], f[3], f[4], f[5]
	if mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || s > 60 {
		return 0, false
	}
	if d > 28 && d > time.Date(y, time.Month(mo)+1, 0, 0, 0, 0, 0, time.UTC).Day() {
		return 0, false
	}
	// The Julian day number, of a year that begins in March: 1970 began on day 2440588.
	a := (14 - mo) / 12
	y, mo = y+4800-a, mo+12*a-3
	day := d + (153*mo+2)/5 + 365*y + y/4 - y/100 + y/400 - 32045 - 2440588
	return int64(day*86400+h*3600+mi*60+s-zone)*1000 + int64(milli), true
}

// IsDigit reports whether c is an ASCII digit.
func IsDigit(c byte) bool { return c-'0' <= 9 }

// AllDigits reports whether b has nothing but ASCII digits; it is true of an empty b.
func AllDigits(b []byte) bool {
	for _, c := range b {
		if !IsDigit(c) {
			return false
		}
	}
	return true
}

// atoi returns the value of up to 18 digits.
func atoi(b []byte) int {
	n := 0
	for _, c := range b {
		n = n*10 + int(c-'0')
	}
	return n
}

// Format parses timestamps that are all written alike. The zero Format parses what [Parse] does.
type Format struct {
	// CDX also accepts, if no format was given, digits truncated after the year, month, day, hour
	// or minute, as archive indexes have them.
	CDX bool

	strftime, layout string // at most one is set
}

// strftimeVerbs are the conversions of strptime(3) that Format supports, with f for a fraction of a
// second as in Python and s for Unix seconds as in GNU date.
const strftimeVerbs = "YymdeHIMSfpbBhaAjzZsTDFRnt%"

// NewFormat returns the Format that a strftime pattern, such as %m/%d/%Y %H:%M, or a layout of Go's
// time package describes. An empty format is the zero Format.
func NewFormat(format string) (Format, error) {
	if format == "" {
		return Format{}, nil
	}
	if !strings.Contains(format, "%") {
		// A layout without any reference value cannot parse a timestamp.
		if time.Unix(0, 0).UTC().Format(format) == format {
			return Format{}, fmt.Errorf("timestamp format %q is neither a strftime pattern nor a Go layout", format)
		}
		return Format{layout: format}, nil
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		i++
		if i < len(format) && format[i] == '-' {
			i++
		}
		if i == len(format) || strings.IndexByte(strftimeVerbs, format[i]) < 0 {
			return Format{}, fmt.Errorf("timestamp format %q: %q is no conversion urlake knows",
				format, format[max(0, i-1):min(i+1, len(format))])
		}
	}
	return Format{strftime: format}, nil
}

// Parse returns the milliseconds since the Unix epoch of b, which must not be empty.
func (f Format) Parse(b []byte) (int64, bool) {
	switch {
	case f.strftime != "":
		var p strptime
		rest, ok := p.parse(f.strftime, b)
		if !ok || len(rest) > 0 {
			return 0, false
		}
		return p.instant()
	case f.layout != "":
		t, err := time.Parse(f.layout, unsafe.String(&b[0], len(b)))
		if err != nil {
			return 0, false
		}
		return t.UnixMilli(), true
	case f.CDX:
		return parseCDXTime(b)
	}
	return Parse(b)
}

// strptime collects the fields of a timestamp while its pattern is matched.
type strptime struct {
	year, month, day, hour, minute, second int
	milli, zone, yearDay                   int
	unix                                   int64
	hasUnix, hasHour12, pm                 bool
}

var monthNames = []string{"january", "february", "march", "april", "may", "june", "july", "august",
	"september", "october", "november", "december"}

var dayNames = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// parse matches b against the pattern and returns what follows the match. Numbers may have fewer
// digits than their conversion writes: 8/4/2016 matches %m/%d/%Y.
func (p *strptime) parse(pattern string, b []byte) ([]byte, bool) {
	ok := true
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c != '%' {
			if strings.IndexByte(space, c) >= 0 {
				b = bytes.TrimLeft(b, space)
				continue
			}
			if len(b) == 0 || b[0] != c {
				return nil, false
			}
			b = b[1:]
			continue
		}
		i++
		if pattern[i] == '-' {
			i++
		}
		switch pattern[i] {
		case 'Y':
			p.year, b, ok = number(b, 4)
		case 'y':
			// POSIX: 69 to 99 mean 1969 to 1999.
			if p.year, b, ok = number(b, 2); p.year < 69 {
				p.year += 2000
			} else {
				p.year += 1900
			}
		case 'm':
			p.month, b, ok = number(b, 2)
		case 'd', 'e':
			p.day, b, ok = number(bytes.TrimLeft(b, space), 2)
		case 'H':
			p.hour, b, ok = number(b, 2)
		case 'I':
			p.hour, b, ok = number(b, 2)
			p.hasHour12 = true
			ok = ok && p.hour >= 1 && p.hour <= 12
		case 'M':
			p.minute, b, ok = number(b, 2)
		case 'S':
			p.second, b, ok = number(b, 2)
		case 'f':
			if ok = len(b) > 0 && IsDigit(b[0]); ok {
				p.milli, b = parseMilli(b)
			}
		case 'p':
			if ok = len(b) >= 2 && (b[0]|0x20 == 'a' || b[0]|0x20 == 'p') && b[1]|0x20 == 'm'; ok {
				p.pm = b[0]|0x20 == 'p'
				b = b[2:]
			}
		case 'b', 'B', 'h':
			p.month, b, ok = name(b, monthNames)
		case 'a', 'A':
			_, b, ok = name(b, dayNames)
		case 'j':
			p.yearDay, b, ok = number(b, 3)
		case 'z':
			n := 0
			for n < len(b) && (IsDigit(b[n]) || b[n] == '+' || b[n] == '-' || b[n] == ':' || b[n] == 'Z' || b[n] == 'z') {
				n++
			}
			p.zone, ok = parseZone(b[:n])
			ok = ok && n > 0
			b = b[n:]
		case 'Z':
			// The only zone names with the same offset everywhere.
			if ok = bytes.HasPrefix(b, []byte("UTC")) || bytes.HasPrefix(b, []byte("GMT")); ok {
				b = b[3:]
			} else if ok = len(b) > 0 && (b[0] == 'Z' || b[0] == 'z'); ok {
				b = b[1:]
			}
		case 's':
			var n int
			n, b, ok = number(b, 18)
			p.unix, p.hasUnix = int64(n), true
		case 'T':
			b, ok = p.parse("%H:%M:%S", b)
		case 'D':
			b, ok = p.parse("%m/%d/%y", b)
		case 'F':
			b, ok = p.parse("%Y-%m-%d", b)
		case 'R':
			b, ok = p.parse("%H:%M", b)
		case 'n', 't':
			b = bytes.TrimLeft(b, space)
		case '%':
			if ok = len(b) > 0 && b[0] == '%'; ok {
				b = b[1:]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return b, true
}

// instant returns the collected fields as milliseconds since the Unix epoch.
func (p *strptime) instant() (int64, bool) {
	if p.hasUnix {
		if p.unix > 1e14 { // three million years
			return 0, false
		}
		return p.unix*1000 + int64(p.milli), true
	}
	if p.hasHour12 {
		p.hour %= 12
		if p.pm {
			p.hour += 12
		}
	}
	if p.yearDay > 0 {
		t := time.Date(p.year, 1, p.yearDay, 0, 0, 0, 0, time.UTC)
		if t.Year() != p.year {
			return 0, false
		}
		p.month, p.day = int(t.Month()), t.Day()
	}
	return civil([6]int{p.year, max(p.month, 1), max(p.day, 1), p.hour, p.minute, p.second}, p.milli, p.zone)
}

// trimSpace returns b without the white space around it.
func trimSpace(b []byte) []byte {
	if len(b) > 0 && b[0] > ' ' && b[len(b)-1] > ' ' {
		return b // as nearly always
	}
	return bytes.Trim(b, space)
}

// number parses one to width digits and returns what follows.
func number(b []byte, width int) (int, []byte, bool) {
	n := 0
	for n < len(b) && n < width && IsDigit(b[n]) {
		n++
	}
	return atoi(b[:n]), b[n:], n > 0
}

// name parses an English name, whole or its first three letters, in any case. It returns its number
// in names, from 1, and what follows.
func name(b []byte, names []string) (int, []byte, bool) {
	for i, s := range names {
		for _, s := range []string{s, s[:3]} {
			if len(b) >= len(s) && strings.EqualFold(unsafe.String(&b[0], len(s)), s) {
				return i + 1, b[len(s):], true
			}
		}
	}
	return 0, nil, false
}
