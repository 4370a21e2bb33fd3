package testenv

import (
	"testing"
	"time"
)

// Until calls holds again and again until it returns true, for at most a minute. What says in a
// failed test what did not come about.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-limit.C:
			tb.Fatalf("%s: not within a minute", what)
		case <-again.C:
		}
	}
}
