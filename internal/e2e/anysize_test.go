//go:build soak

package e2e

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// The tests named TestAnySize ingest something that is large in one way or another, through the
// programs, and log the time and memory it took. URLAKE_SOAK_SCALE, 1 by default, multiplies the
// sizes; use 0.01 for a quick run.

// largeAnswer is what "ingest --wait --json" prints, as far as these tests need it.
type largeAnswer struct {
	Records, Rows, Merged, Domains int64
	PartBytes                      int64 `json:"part_bytes"`
	Version                        string
}

// writeList writes a file of n lines. The function line appends line i to b, without a line end.
func writeList(t *testing.T, dir, name string, n int, line func(b []byte, i int) []byte) (path string, bytes int64) {
	t.Helper()
	path = filepath.Join(dir, name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	var b []byte
	for i := range n {
		b = append(line(b[:0], i), '\n')
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		bytes += int64(len(b))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return path, bytes
}

// permutation is a pseudo-random order of the numbers 0 to n-1: x → x·a mod n, where a and n have
// no common factor.
type permutation struct{ n, a int }

func newPermutation(n int) permutation {
	gcd := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	a := n*5/8 | 1
	for gcd(a, n) != 1 {
		a += 2
	}
	return permutation{n, a}
}

func (p permutation) at(i int) int { return int(uint64(i) * uint64(p.a) % uint64(p.n)) }

// worker starts one worker of all pools.
func (u *urlake) worker(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return u.run(t, "worker", filepath.Join(u.bin, "worker"), append([]string{"--lake", u.lake}, args...)...)
}

// memory returns a size in bytes from /proc: VmHWM, the peak of a process's resident memory, VmRSS,
// its resident memory, or RssAnon, its resident memory without mapped files. It returns -1 if there
// is no /proc.
func memory(t *testing.T, cmd *exec.Cmd, field string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("/proc has no %s of process %d", field, cmd.Process.Pid)
	return 0
}

func mb(n int64) string {
	if n < 0 {
		return "? MB"
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}

// checkMemory fails the test if a process used more memory than it may.
func checkMemory(t *testing.T, what string, got, limit int64) {
	t.Helper()
	if got > limit {
		t.Errorf("%s used %s, want at most %s", what, mb(got), mb(limit))
	}
}

const (
	// maxWorkerMemory and maxServeMemory are the memory in bytes that a worker with default
	// settings and a server may use.
	maxWorkerMemory = 2 << 30
	maxServeMemory  = 300 << 20
)

// batchRecords reads the records of all finished batches of a dataset.
func batchRecords(t *testing.T, lakeURL string, dataset uint32) []*lake.Batch {
	t.Helper()
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	current := testlake.Batches(t, store, dataset)
	var records []*lake.Batch
	for name, digest := range current {
		key := lake.BatchKey(dataset, name, digest)
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		b, err := lake.DecodeBatch(data, key)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, b)
	}
	return records
}

// loneURL returns domain i of TestAnySizeAMillionDomainsOfOneURLEach and its only URL.
func loneURL(i int) (domain, url string) {
	suffix := []string{"com", "org", "net", "co.uk", "example", "com.au", "io"}[i%7]
	domain = fmt.Sprintf("site-%x-%d.%s", i*2654435761&0xffffff, i, suffix)
	return domain, fmt.Sprintf("https://www.%s/%d", domain, i%13)
}

func TestAnySizeAMillionDomainsOfOneURLEach(t *testing.T) {
	n := testenv.Scaled(t, 1_000_000, 1000)
	order := newPermutation(n)
	path, size := writeList(t, t.TempDir(), "list.txt", n, func(b []byte, i int) []byte {
		_, url := loneURL(order.at(i))
		return append(b, url...)
	})
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir), nil)
	worker := u.worker(t, "--temp-dir", t.TempDir())
	started := time.Now()
	var res largeAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "lone", "--batch", "b", "--wait", "--json", path)
	took := time.Since(started)
	if res.Rows != int64(n) || res.Domains != int64(n) || res.Merged != 0 || res.Version == "" {
		t.Fatalf("%d lines ended as %+v", n, res)
	}
	peak := memory(t, worker, "VmHWM")
	t.Logf("ingest and publish: %.1f s, %.0f URLs/s, %s of text, %.1f bytes a row of Parquet, worker at most %s",
		took.Seconds(), float64(n)/took.Seconds(), mb(size), float64(res.PartBytes)/float64(n), mb(peak))
	checkMemory(t, "the worker", peak, maxWorkerMemory)

	server := u.serve(t)
	rng := rand.New(rand.NewPCG(3, 5))
	started = time.Now()
	for range 200 {
		domain, url := loneURL(rng.IntN(n))
		if rows := u.compare(t, domain, map[string][]item{"lone": {{URL: url}}}); rows != 1 {
			t.Errorf("%s has %d rows", domain, rows)
		}
	}
	for range 50 {
		domain, _ := loneURL(n + rng.IntN(n))
		u.compare(t, domain, nil)
	}
	t.Logf("250 domains, 200 of them in the lake, and a page of each: %.1f ms; serve resident %s, %s without mapped files",
		time.Since(started).Seconds()*1e3, mb(memory(t, server, "VmRSS")), mb(memory(t, server, "RssAnon")))
	checkMemory(t, "serve", memory(t, server, "RssAnon"), maxServeMemory)
}

// deepURL returns row i of the only domain in TestAnySizeTenMillionURLsOfOneDomain. The rows are
// listed by path, which is the order of i.
func deepURL(i int) string { return fmt.Sprintf("https://one.example/a/%09d/page", i) }

func TestAnySizeTenMillionURLsOfOneDomain(t *testing.T) {
	n := testenv.Scaled(t, 10_000_000, 10_000)
	order := newPermutation(n)
	path, size := writeList(t, t.TempDir(), "list.txt", n, func(b []byte, i int) []byte {
		b = append(b, "https://one.example/a/"...)
		return append(fmt.Appendf(b, "%09d", order.at(i)), "/page"...)
	})
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir), nil)
	worker := u.worker(t, "--temp-dir", t.TempDir())
	started := time.Now()
	var res largeAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "one", "--batch", "b", "--wait", "--json", path)
	took := time.Since(started)
	if res.Rows != int64(n) || res.Domains != 1 || res.Merged != 0 || res.Version == "" {
		t.Fatalf("%d lines ended as %+v", n, res)
	}
	peak := memory(t, worker, "VmHWM")
	var boundaries []int
	at := 0
	for _, b := range batchRecords(t, u.lake, 1) {
		for _, p := range b.Parts {
			at += int(p.Rows)
			boundaries = append(boundaries, at)
		}
	}
	t.Logf("ingest and publish: %.1f s, %.0f URLs/s, %s of text, %d parts, %.1f bytes a row, worker at most %s",
		took.Seconds(), float64(n)/took.Seconds(), mb(size), len(boundaries), float64(res.PartBytes)/float64(n), mb(peak))
	checkMemory(t, "the worker", peak, maxWorkerMemory)
	if at != n {
		t.Fatalf("parts hold %d rows of %d", at, n)
	}
	// A row has about 100 bytes before compression, so a part of full size has five million rows.
	if most := 1 + n/2_000_000; len(boundaries) > most {
		t.Errorf("%d parts of one domain with %d URLs, want at most %d", len(boundaries), n, most)
	}

	server := u.serve(t)
	d := u.domain(t, "one.example", "")
	if len(d.Datasets) != 1 || d.Datasets[0].Rows != int64(n) {
		t.Fatalf("the domain has %+v, want %d URLs", d.Datasets, n)
	}
	// first returns the first page of a list.
	first := func(opt client.URLsOptions) *client.URLPage {
		t.Helper()
		for p, err := range u.client(t).URLPages(t.Context(), "one.example", d.Datasets[0].Name, opt) {
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return nil
	}
	// page reads up to limit rows from offset off on, which is where opt begins, and compares them
	// with deepURL. It returns where the next page begins, and false after the last.
	var slowest time.Duration
	var most struct{ requests, bytes, parts int }
	page := func(opt client.URLsOptions, off, limit int) (next client.URLsOptions, ok bool) {
		t.Helper()
		began := time.Now()
		opt.Explain, opt.PageSize = true, int64(limit)
		p := first(opt)
		slowest = max(slowest, time.Since(began))
		want := min(limit, n-off)
		if *p.Total != int64(n) || p.StoppedBy == "" && len(p.Items) != want || len(p.Items) == 0 {
			t.Fatalf("%d rows from offset %d: total %d, %d items, stopped by %q", limit, off, *p.Total, len(p.Items), p.StoppedBy)
		}
		got, rows := make([]string, len(p.Items)), make([]string, len(p.Items))
		for i, it := range p.Items {
			got[i], rows[i] = it.URL, deepURL(off+i)
		}
		if diff := gocmp.Diff(rows, got); diff != "" {
			t.Fatalf("%d rows from offset %d (-want +served):\n%.2000s", limit, off, diff)
		}
		parts := map[string]bool{}
		for _, r := range p.Explain.Reads {
			if strings.HasSuffix(r.Object, ".parquet") {
				parts[r.Object] = true
			}
		}
		most.requests = max(most.requests, int(p.Explain.Requests))
		most.bytes = max(most.bytes, int(p.Explain.Bytes))
		most.parts = max(most.parts, len(parts))
		// docs/api.md allows seven requests for each part. Across the border of two row groups the
		// four column ranges are read twice.
		if limit <= 100 && int(p.Explain.Requests) > 11*max(len(parts), 1) {
			t.Errorf("%d rows from offset %d took %d requests in %d parts: %+v",
				limit, off, p.Explain.Requests, len(parts), p.Explain.Reads)
		}
		if p.NextCursor == "" && off+len(p.Items) != n {
			t.Fatalf("the list ends at %d of %d", off+len(p.Items), n)
		}
		return client.URLsOptions{Query: client.Query{Version: p.Version, Cursor: p.NextCursor}}, p.NextCursor != ""
	}
	at = 0
	for opt := (client.URLsOptions{}); at < 1000; at += 100 {
		opt, _ = page(opt, at, 100)
	}
	rng := rand.New(rand.NewPCG(3, 5))
	offsets := []int{n - 100, n - 1, n / 2}
	for _, b := range boundaries[:len(boundaries)-1] {
		offsets = append(offsets, b-50, b)
	}
	for range 100 {
		offsets = append(offsets, rng.IntN(n-100))
	}
	for _, off := range offsets {
		// Read one page by offset, and the next by cursor.
		if next, ok := page(client.URLsOptions{Offset: int64(off)}, off, 100); ok {
			page(next, off+100, 100)
		}
	}
	t.Logf("%d pages of 100: at most %.1f ms, %d requests and %d bytes in %d parts",
		10+2*len(offsets), slowest.Seconds()*1e3, most.requests, most.bytes, most.parts)
	slowest = 0
	for range 5 {
		off := rng.IntN(max(1, n-10_000))
		page(client.URLsOptions{Offset: int64(off)}, off, 10_000)
	}
	t.Logf("5 pages of 10,000: at most %.1f ms; serve resident %s", slowest.Seconds()*1e3, mb(memory(t, server, "VmRSS")))
	checkMemory(t, "serve", memory(t, server, "RssAnon"), maxServeMemory)
	if past := first(client.URLsOptions{Offset: int64(n)}); *past.Total != int64(n) || len(past.Items) != 0 {
		t.Errorf("past the end: total %d, %d items", *past.Total, len(past.Items))
	}
}

// cpu returns the processor time in seconds that a process has used, or 0 if there is no /proc.
func cpu(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses is field 2, so f begins with field 3. Fields 14 and 15 are user and
	// system time in hundredths of a second.
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return float64(user+system) / 100
}
