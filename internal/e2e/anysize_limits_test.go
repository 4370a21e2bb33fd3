//go:build soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
)

// mixedURL appends line i of a list of n lines to b. Every fourth line belongs to one domain, the
// others to n/10 domains.
func mixedURL(b []byte, i, n int) []byte {
	h := uint64(i) * 0x9e3779b97f4a7c15 >> 8
	if i%4 == 0 {
		return fmt.Appendf(b, "https://large.example/articles/%d/%02d/%x/the-%x-of-%x?page=%d", 1990+h%37, h>>6%12+1, h, h>>9&0xffff, h>>25&0xffff, h%9)
	}
	return fmt.Appendf(b, "https://www.site-%d.example/%x/item-%x/index.html?id=%d", h%uint64(max(n/10, 1)), h>>20&0xfff, h>>7&0xfffff, i)
}

// checkMixed compares the answers about some domains of the list with mixedURL.
func (u *urlake) checkMixed(t *testing.T, n int) {
	t.Helper()
	want := map[string]int{"large.example": 0}
	for k := range 40 {
		want[fmt.Sprintf("site-%d.example", k*97%max(n/10, 1))] = 0
	}
	lines := map[string]map[string]bool{}
	var b []byte
	for i := range n {
		b = mixedURL(b[:0], i, n)
		from := len("https://")
		if i%4 != 0 {
			from += len("www.")
		}
		to := from
		for b[to] != '/' {
			to++
		}
		domain := string(b[from:to])
		if _, ok := want[domain]; !ok {
			continue
		}
		want[domain]++
		if domain != "large.example" {
			if lines[domain] == nil {
				lines[domain] = map[string]bool{}
			}
			lines[domain][string(b)] = true
		}
	}
	for domain, count := range want {
		d := u.domain(t, domain, "")
		if count == 0 {
			if len(d.Datasets) != 0 {
				t.Errorf("%s: %+v, want none", domain, d.Datasets)
			}
			continue
		}
		if len(d.Datasets) != 1 || d.Datasets[0].Rows != int64(count) {
			t.Errorf("%s: %+v, want %d URLs", domain, d.Datasets, count)
			continue
		}
		if domain == "large.example" {
			continue
		}
		items := u.urls(t, domain, d.Datasets[0].Name, client.URLsOptions{PageSize: 10000})
		if len(items) != count {
			t.Errorf("%s: %d URLs of %d", domain, len(items), count)
		}
		for _, it := range items {
			if !lines[domain][it.URL] {
				t.Errorf("%s: %s is not in the list", domain, it.URL)
			}
		}
	}
}

// smallDisk is the size in bytes of the only folder that the worker of
// TestAnySizeBatchLargerThanTheLocalDisk may write to.
const smallDisk = 128 << 20

// TestAnySizeBatchLargerThanTheLocalDisk ingests from S3 into S3 with a worker whose temporary
// folder is a file system of a fifth of the batch's size. If the test cannot mount one, as in most
// containers, it limits the size of each file of the worker instead.
func TestAnySizeBatchLargerThanTheLocalDisk(t *testing.T) {
	mounts := exec.Command("unshare", "--map-root-user", "--mount", "sh", "-c",
		`mount -t tmpfs -o size=1m tmpfs "$0"`, t.TempDir()).Run() == nil
	n := testenv.Scaled(t, 10_000_000, 50_000)
	root := testenv.S3(t)
	raw, err := blob.Open(t.Context(), root+"/raw")
	if err != nil {
		t.Fatal(err)
	}
	out, err := raw.Create(t.Context(), "list.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Abort()
	var size int64
	var b []byte
	for i := range n {
		b = append(mixedURL(b, i, n), '\n')
		if len(b) > 1<<20 || i == n-1 {
			if _, err := out.Write(b); err != nil {
				t.Fatal(err)
			}
			size += int64(len(b))
			b = b[:0]
		}
	}
	if _, err := out.Finish(); err != nil {
		t.Fatal(err)
	}

	u := startAlone(t, root+"/lake", nil)
	disk := t.TempDir()
	program := []string{filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", disk}
	with := *u
	with.env = append(with.env, "TMPDIR="+disk)
	var worker *exec.Cmd
	var onDisk func() int64
	if mounts {
		// Only the worker sees the mount, which ends with it.
		script := fmt.Sprintf(`mount -t tmpfs -o size=%d tmpfs "$0" && exec "$@"`, smallDisk)
		worker = with.run(t, "worker", "unshare", append([]string{"--map-root-user", "--mount", "sh", "-c", script, disk}, program...)...)
		seen := filepath.Join("/proc", strconv.Itoa(worker.Process.Pid), "root", disk)
		until(t, "the worker has its disk", func(context.Context) error {
			var s syscall.Statfs_t
			if err := syscall.Statfs(seen, &s); err != nil {
				return err
			}
			if got := int64(s.Blocks) * s.Bsize; got != smallDisk {
				return fmt.Errorf("%s has %d bytes", seen, got)
			}
			return nil
		})
		onDisk = func() int64 {
			var s syscall.Statfs_t
			if syscall.Statfs(seen, &s) != nil {
				return 0
			}
			return int64(s.Blocks-s.Bfree) * s.Bsize
		}
	} else {
		worker = with.run(t, "worker", "prlimit", append([]string{fmt.Sprintf("--fsize=%d", smallDisk)}, program...)...)
		onDisk = func() int64 { return openBytes(worker.Process.Pid, disk) }
	}
	peak := watchPeak(onDisk)
	started := time.Now()
	var res largeAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "mixed", "--batch", "b",
		"--no-publish", "--wait", "--json", root+"/raw/list.txt")
	took := time.Since(started)
	if res.Records != int64(n) || res.Rows+res.Merged != res.Records {
		t.Fatalf("%d lines ended as %+v", n, res)
	}
	t.Logf("ingest over S3: %.1f s, %.0f URLs/s; %s of text and %s of Parquet with a disk of %s, "+
		"of which at most %s were used; worker at most %s",
		took.Seconds(), float64(n)/took.Seconds(),
		mb(size), mb(res.PartBytes), mb(smallDisk), mb(peak()), mb(memory(t, worker, "VmHWM")))
	peak = watchPeak(onDisk)
	started = time.Now()
	var published struct{ Batches int }
	u.starterJSON(t, &published, "publish", "--lake", u.lake, "--json")
	if published.Batches != 1 {
		t.Fatalf("%d batches were published", published.Batches)
	}
	most := peak()
	checkMemory(t, "the worker's disk", most, smallDisk)
	t.Logf("publish over S3: %.1f s; at most %s of the disk, %.1f bytes for each of %d domains; worker at most %s",
		time.Since(started).Seconds(), mb(most), float64(most)/float64(res.Domains), res.Domains, mb(memory(t, worker, "VmHWM")))
	checkMemory(t, "the worker", memory(t, worker, "VmHWM"), maxWorkerMemory)
	u.serve(t)
	u.checkMixed(t, n)
}

// openBytes returns the size of the files below dir that a process has open, including unlinked
// files.
func openBytes(pid int, dir string) (sum int64) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, dir) {
			if info, err := os.Stat(link); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum
}

// watchPeak calls measure every few milliseconds until peak is called, which returns the largest
// value.
func watchPeak(measure func() int64) (peak func() int64) {
	done, ended := make(chan struct{}), make(chan struct{})
	var most int64
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, measure())
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		<-ended
		return most
	}
}

// TestAnySizeListLargerThanTheMemory ingests a list that is several times as large as the worker's
// memory limit: as plain text, which is split, and as one compressed stream, which cannot be split
// and so fills the row buffer of one step.
func TestAnySizeListLargerThanTheMemory(t *testing.T) {
	const limit = 768 // MiB
	n := testenv.Scaled(t, 20_000_000, 50_000)
	in := t.TempDir()
	plain, size := writeList(t, in, "list.txt", n, func(b []byte, i int) []byte { return mixedURL(b, i, n) })
	compressed := filepath.Join(in, "list.txt.zst")
	if err := compress(plain, compressed); err != nil {
		t.Fatal(err)
	}
	u := startAlone(t, "file://"+filepath.ToSlash(t.TempDir()), nil)
	for _, c := range []struct{ dataset, path string }{{"splits", plain}, {"stream", compressed}} {
		t.Run(c.dataset, func(t *testing.T) {
			worker := u.worker(t, "--temp-dir", t.TempDir(), "--memory-limit", strconv.Itoa(limit))
			started := time.Now()
			var res largeAnswer
			u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", c.dataset, "--batch", "b",
				"--no-publish", "--wait", "--json", c.path)
			took := time.Since(started)
			if res.Records != int64(n) || res.Rows+res.Merged != res.Records {
				t.Fatalf("%d lines ended as %+v", n, res)
			}
			peak := memory(t, worker, "VmHWM")
			t.Logf("%s of text with a memory limit of %d MiB: %.1f s, %.0f URLs/s, worker at most %s",
				mb(size), limit, took.Seconds(), float64(n)/took.Seconds(), mb(peak))
			// The limit is that of the Go heap. Code, stacks and freed memory that is not yet
			// returned to the system add to it.
			checkMemory(t, "the worker", peak, (limit+128)<<20)
		})
	}
}

// compress writes a zstd copy of a file.
func compress(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	w, err := zstd.NewWriter(dst, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	if _, err := w.ReadFrom(src); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return dst.Close()
}
