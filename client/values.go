package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID is a 64-bit hash of a domain or a URL, written as 16 hex digits.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("id %q is not 16 hex digits", text)
	}
	*id = ID(v)
	return nil
}

// Time is a time in UTC, to the millisecond. Unlike time.Time it decodes the years before 0 and
// after 9999 too, which records of raw data can have.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC().Format(timeLayout))
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	negative := strings.HasPrefix(text, "-")
	digits, rest, _ := strings.Cut(strings.TrimPrefix(text, "-"), "-")
	year, err := strconv.ParseUint(digits, 10, 31)
	if err == nil {
		// The Gregorian calendar repeats after 400 years, so a leap year stays one.
		var within time.Time
		within, err = time.Parse(timeLayout, fmt.Sprintf("%04d-%s", 2000+leap(int(year), negative), rest))
		if err == nil {
			y := int(year)
			if negative {
				y = -y
			}
			*t = Time{time.Date(y, within.Month(), within.Day(), within.Hour(), within.Minute(), within.Second(),
				within.Nanosecond(), time.UTC)}
			return nil
		}
	}
	return fmt.Errorf("time %q is not RFC 3339 in UTC", text)
}

// leap is year modulo 400, not negative.
func leap(year int, negative bool) int {
	if negative {
		year = -year
	}
	return (year%400 + 400) % 400
}
