package testenv

import "testing"

// NeedCPU skips a test of code that the processor cannot run. has says whether the processor has
// the feature; the skip names it.
func NeedCPU(tb testing.TB, has bool, feature string) {
	tb.Helper()
	if !has {
		tb.Skipf("left out: this processor has no %s", feature)
	}
}
