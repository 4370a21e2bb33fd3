package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestMain lets the test binary be the child process of a comparison.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestComparisonOfFewRows runs every measurement on few rows. The program itself checks that both
// systems keep every line, both hashes find every key, workers ingest every line and the server
// answers every request.
func TestComparisonOfFewRows(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Missing(t, "Linux, whose /proc tells a process's memory")
	}
	dir := t.TempDir()
	for name, value := range map[string]string{
		"BENCH_ROWS": "20000", "BENCH_LIST_ROWS": "20000", "BENCH_TINY_LISTS": "20", "BENCH_ROUNDS": "1", "BENCH_KEYS": "100000", "BENCH_GROWTH": "20000", "BENCH_WORKER_ROWS": "20000",
		"BENCH_SERVE_ROWS": "20000", "BENCH_SERVE_LISTS": "1", "BENCH_DIR": dir, "BENCH_PROFILE": "",
	} {
		t.Setenv(name, value)
	}
	args := os.Args
	os.Args = args[:1]
	defer func() { os.Args = args }()
	if err := run(t.Context()); err != nil {
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

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.in, got, c.want)
		}
	}
}
