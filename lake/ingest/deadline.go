package ingest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// defaultDeadline is how long an ingest or a publish may take if nothing else is said. An outage
// over a weekend, and a Monday to mend it, fit.
const defaultDeadline = 7 * 24 * time.Hour

// ParseDeadline is ParseDuration of how long an ingest, a publish or a garbage collection may take,
// which is more than 0. Empty is defaultDeadline.
func ParseDeadline(s string) (time.Duration, error) {
	if s == "" {
		return defaultDeadline, nil
	}
	d, err := ParseDuration(s)
	if err != nil || d == 0 {
		return 0, fmt.Errorf("deadline %q: use a duration such as 90m, 36h or 7d, at most 36500d", s)
	}
	return d, nil
}

// ParseDuration returns the duration that s stands for: one of Go's, such as 90m or 36h, or whole
// days, such as 7d. Negative ones are an error.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
		if n > 36500 {
			d = -1
		}
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration %q: use one such as 90m, 36h or 7d, at most 36500d", s)
	}
	return d, nil
}
