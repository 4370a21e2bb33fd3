// Package testenv gives tests what they need besides the module: the folder of shared real data and
// vectors, the helper programs in bin/, an S3 server, and guarded memory. Only tests import it.
//
// If something is missing, the test is skipped and the log says what it needs. With
// URLAKE_REQUIRE_SERVICES=1, as in CI, the test fails instead. So a bare clone passes, and a
// misconfigured CI does not pass by testing nothing.
package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/urlake/urlake/internal/addresses"
)

// Every returns n, or 1 with the build tag soak. A test that goes through all places of a crash or
// of damage, or through very many questions, looks at one of Every(n): all kinds of work, and with
// `make places` all of them.
func Every(n int) int {
	if soak {
		return 1
	}
	return n
}

// Scaled returns n times URLAKE_SOAK_SCALE, which is 1 by default, but at least minimum.
func Scaled(tb testing.TB, n, minimum int) int {
	tb.Helper()
	scale := 1.0
	if s := os.Getenv("URLAKE_SOAK_SCALE"); s != "" {
		var err error
		if scale, err = strconv.ParseFloat(s, 64); err != nil || scale <= 0 {
			tb.Fatalf("URLAKE_SOAK_SCALE=%q is not a positive number", s)
		}
	}
	return max(minimum, int(float64(n)*scale))
}

// Root returns the root folder of the project, which has a Makefile besides its go.mod, unlike the
// folder of the module bench.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := root()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, noMod := os.Stat(filepath.Join(dir, "go.mod"))
		if _, noMakefile := os.Stat(filepath.Join(dir, "Makefile")); noMod == nil && noMakefile == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no Makefile and go.mod above the working directory")
		}
		dir = parent
	}
}

// Shared returns the path of elem in the folder shared, which is next to the checkout of the
// project.
func Shared(tb testing.TB, elem ...string) string {
	tb.Helper()
	p := filepath.Join(append([]string{Root(tb), "..", "shared"}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		Missing(tb, "shared data "+filepath.Join(elem...))
	}
	return p
}

// Program returns the path of a helper program in bin/, where "make tools" builds it.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	p := filepath.Join(Root(tb), "bin", name)
	if _, err := os.Stat(p); err != nil {
		Missing(tb, "bin/"+name+" (make tools)")
	}
	return p
}

// Missing skips the test because what is missing, or fails it if URLAKE_REQUIRE_SERVICES is 1.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("URLAKE_REQUIRE_SERVICES") == "1" {
		tb.Fatalf("missing: %s (URLAKE_REQUIRE_SERVICES is 1)", what)
	}
	tb.Skipf("skipped: needs %s", what)
}

// Installed returns the path of a program of the system. If it is not installed, ok is false and
// the test leaves out what needs it, or fails if URLAKE_REQUIRE_SERVICES is 1.
func Installed(tb testing.TB, name string) (path string, ok bool) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path, true
	}
	if os.Getenv("URLAKE_REQUIRE_SERVICES") == "1" {
		tb.Fatalf("missing: the program %s (URLAKE_REQUIRE_SERVICES is 1)", name)
	}
	tb.Logf("left out: a comparison with the program %s", name)
	return "", false
}

// FreeAddress returns an address of this machine on which nobody listens, for a program that
// cannot listen on port 0. No other test is given it before this one ends.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	var a addresses.Set
	tb.Cleanup(a.Release)
	address, err := a.Free()
	if err != nil {
		tb.Fatal(err)
	}
	return address
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

// Places returns the numbers from first to before end at which a test cuts or damages something:
// every nth, the first and the last ten, and those around borders. With the tag soak it returns
// all.
func Places(first, end, n int, borders ...int) (at []int) {
	near := func(i, of int) bool { return of-3 <= i && i <= of+3 }
	for i := first; i < end; i++ {
		around := slices.ContainsFunc(borders, func(b int) bool { return near(i, b) })
		if (i-first)%Every(n) == 0 || i < first+10 || i >= end-10 || around {
			at = append(at, i)
		}
	}
	return at
}
