package testenv

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble runs f in a bubble of testing/synctest, in whose time a test waits as long as it likes.
// Afterwards it empties every sync.Pool: f may have put decoders there, and their channels are of
// no use outside of the bubble. The test must not run in parallel with others.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	// A pool keeps what it has for one more collection.
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, f)
}
