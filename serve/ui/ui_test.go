package ui

import "testing"

func TestFormatCount(t *testing.T) {
	for want, n := range map[string]any{
		"0": 0, "999": int64(999), "1 000": 1000, "12 345": uint32(12345), "9 223 372 036 854 775 807": int64(1<<63 - 1),
	} {
		got := []rune(formatCount(n))
		for i, r := range got {
			if r == '\u202f' {
				got[i] = ' '
			}
		}
		if string(got) != want {
			t.Errorf("%v: %q, want %q", n, string(got), want)
		}
	}
}

func TestDayAndTime(t *testing.T) {
	if got := Day(0, false) + Time(0, false); got != "" {
		t.Errorf("without a time: %q", got)
	}
	day, time := Day(1_700_000_000_123, true), Time(1_700_000_000_123, true)
	if day != "2023-11-14" || time != "2023-11-14 22:13:20" {
		t.Errorf("%q %q", day, time)
	}
}
