// Package testenv finds what tests need outside the module: the folder of shared
// real data and vectors, and the helper programs built into bin/.
//
// Something missing is a failure where URLAKE_REQUIRE_SERVICES=1 (as in CI) and a
// skip with one line saying what was left out elsewhere, so that a bare clone passes
// and a misconfigured CI does not pass by testing nothing.
package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Root returns the module's root folder.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}

// Shared returns the path of elem below the shared folder that stands beside a
// checkout of the project.
func Shared(tb testing.TB, elem ...string) string {
	tb.Helper()
	p := filepath.Join(append([]string{Root(tb), "..", "shared"}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		Missing(tb, "shared data "+filepath.Join(elem...))
	}
	return p
}

// Program returns the path of a helper program that `make tools` builds into bin/.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	p := filepath.Join(Root(tb), "bin", name)
	if _, err := os.Stat(p); err != nil {
		Missing(tb, "bin/"+name+" (make tools)")
	}
	return p
}

// Missing fails the test where services are required and skips it elsewhere.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("URLAKE_REQUIRE_SERVICES") == "1" {
		tb.Fatalf("missing: %s", what)
	}
	tb.Skipf("left out: needs %s", what)
}

// NeedsCPU skips the test where the processor lacks the instructions that it compares with plain
// Go: it would compare plain Go with itself. `make levels` says at which levels the tests of a
// machine ran.
func NeedsCPU(tb testing.TB, has bool, what string) {
	tb.Helper()
	if !has {
		tb.Skipf("left out: this processor, or this CPU level, has no %s", what)
	}
}
