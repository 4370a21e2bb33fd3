package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestMain lets the test binary be a child process of a comparison.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestComparisonOfFewRows runs all contestants on few rows. The program itself checks that they
// give the same answers.
func TestComparisonOfFewRows(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Missing(t, "Linux, whose /proc tells a process's memory")
	}
	dir := t.TempDir()
	for name, value := range map[string]string{
		"BENCH_ROWS": "20000", "BENCH_LISTS": "4", "BENCH_ROUNDS": "1", "BENCH_SECONDS": "1", "BENCH_CLIENTS": "4", "BENCH_DIR": dir,
	} {
		t.Setenv(name, value)
	}
	if err := run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("%d files were left behind", len(left))
	}
}
