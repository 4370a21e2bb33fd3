package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/workflows"
)

// ingestAnswer is what "ingest --wait --json" prints.
type ingestAnswer struct {
	Batch      string
	Digest     string
	Records    int64
	Rows       int64
	Merged     int64
	Rejected   map[string]int64
	RejectsKey string `json:"rejects_key"`
	Unchanged  bool
	Version    string
}

// register registers a dataset with a licence.
func register(t *testing.T, lakeURL, name, licence string) {
	t.Helper()
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.RegisterDataset(t.Context(), store, lake.Dataset{Name: name, Licence: licence}); err != nil {
		t.Fatal(err)
	}
}

// write writes a file and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVerbs runs the verbs of starter in the order in which a user of one small lake would.
func TestVerbs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lake := "file://" + filepath.ToSlash(dir) + "/lake"
	in := t.TempDir()
	list := write(t, in, "list.txt", "http://example.com/a\nhttps://EXAMPLE.com:443/b?z=1&y=2#x\nhttp://example.com/a\n"+
		"example.org\nmailto:someone@example.com\n")
	u := start(t, lake, [][]string{allPools})

	var first, again ingestAnswer
	var versions struct {
		CurrentVersion string `json:"current_version"`
		Generation     int
	}
	ingest := []string{"ingest", "--lake", lake, "--dataset", "lists", "--batch", "2026-11-20", "--wait", "--json", list}
	u.starterJSON(t, &first, ingest...)
	want := ingestAnswer{
		Batch: "2026-11-20", Digest: first.Digest, Records: 5, Rows: 3, Merged: 1,
		Rejected: map[string]int64{"scheme": 1}, RejectsKey: first.RejectsKey, Version: first.Version,
	}
	if diff := gocmp.Diff(want, first); diff != "" || first.Version == "" || first.RejectsKey == "" {
		t.Fatalf("first ingest (-want +got):\n%s", diff)
	}

	t.Run("the same batch again is reported as unchanged", func(t *testing.T) {
		u.starterJSON(t, &again, ingest...)
		if !again.Unchanged || again.Version != first.Version || again.Digest != first.Digest {
			t.Errorf("again: %+v", again)
		}
		out, _, code := u.starter(t, "ingest", "--lake", lake, "--dataset", "lists", "--batch", "2026-11-20", "--wait", list)
		if code != 0 || !strings.Contains(out, "is unchanged") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		u.starterJSON(t, &versions, "versions", "--lake", lake, "--json")
		if versions.CurrentVersion != first.Version || versions.Generation != 1 {
			t.Errorf("versions: %+v, want only %s", versions, first.Version)
		}
	})

	t.Run("broken input is named and not published", func(t *testing.T) {
		broken := write(t, in, "broken.txt", "no url here\nnor://here\nnone\n")
		_, errs, code := u.starter(t, "ingest", "--lake", lake, "--dataset", "broken", "--wait", broken)
		if code != 1 {
			t.Errorf("exit %d, want 1", code)
		}
		for _, part := range []string{"broken.txt", "line 1", "no_host"} {
			if !strings.Contains(errs, part) {
				t.Errorf("the message lacks %q: %s", part, errs)
			}
		}
		u.starterJSON(t, &versions, "versions", "--lake", lake, "--json")
		if versions.CurrentVersion != first.Version {
			t.Errorf("version %s was published", versions.CurrentVersion)
		}
		u.awaitTidied(t) // of the first ingest
		if left, _ := filepath.Glob(filepath.Join(dir, "lake", "staging", "*", "*")); len(left) > 0 {
			t.Errorf("staging was left behind: %v", left)
		}
	})

	t.Run("a missing input is named", func(t *testing.T) {
		_, errs, code := u.starter(t, "ingest", "--lake", lake, "--dataset", "absent", "--wait", filepath.Join(in, "absent.txt"))
		if code != 1 || !strings.Contains(errs, "absent.txt") {
			t.Errorf("exit %d: %s", code, errs)
		}
	})

	t.Run("publish adds the batches of no-publish", func(t *testing.T) {
		more := write(t, in, "more.txt", "http://example.com/c\n")
		var res ingestAnswer
		u.starterJSON(t, &res, "ingest", "--lake", lake, "--dataset", "more", "--no-publish", "--wait", "--json", more)
		var status struct {
			Version     string
			Unpublished []struct{ Dataset string }
		}
		u.starterJSON(t, &status, "status", "--lake", lake, "--json")
		if res.Version != "" || status.Version != first.Version ||
			len(status.Unpublished) != 1 || status.Unpublished[0].Dataset != "more" {
			t.Errorf("ingest %+v, status %+v", res, status)
		}
		var published struct {
			Version string
			Batches int
		}
		u.starterJSON(t, &published, "publish", "--lake", lake, "--json")
		if published.Batches != 1 || published.Version <= first.Version {
			t.Errorf("published %+v", published)
		}
		out, _, _ := u.starter(t, "publish", "--lake", lake)
		if !strings.Contains(out, "Nothing new") {
			t.Errorf("publish again: %s", out)
		}
	})

	t.Run("a batch is replaced and old versions still answer", func(t *testing.T) {
		write(t, in, "list.txt", "http://example.com/new\n")
		var replaced ingestAnswer
		u.starterJSON(t, &replaced, ingest...)
		if replaced.Unchanged || replaced.Digest == first.Digest {
			t.Errorf("replaced: %+v", replaced)
		}
		u.serve(t)
		want := map[string][]item{"lists": {{URL: "http://example.com/new"}}, "more": {{URL: "http://example.com/c"}}}
		if rows := u.compare(t, "example.com", want); rows != 2 {
			t.Errorf("%d rows", rows)
		}
		u.compare(t, "example.org", nil)
		if old := u.domain(t, "example.com", first.Version); len(old.Datasets) != 1 || old.Datasets[0].Rows != 2 {
			t.Errorf("the first version answers %+v", old)
		}
	})

	t.Run("verify finds a flipped bit", func(t *testing.T) {
		out, errs, code := u.starter(t, "verify", "--lake", lake, "--deep")
		if code != 0 || !strings.Contains(out, "No problems found") {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
		parts, err := filepath.Glob(filepath.Join(dir, "lake", "urls", "dataset_id=*", "*", "*.parquet"))
		if err != nil || len(parts) == 0 {
			t.Fatalf("parts %v, %v", parts, err)
		}
		var live []string
		u.starterJSON(t, &live, "versions", "--lake", lake, "--parts", "--json")
		if len(live) != 2 || len(parts) != 3 {
			t.Fatalf("the version has %d of %d parts in the lake, want 2 of 3, since one was replaced", len(live), len(parts))
		}
		data, err := os.ReadFile(live[0])
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 4
		if err := os.WriteFile(live[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, _, code = u.starter(t, "verify", "--lake", lake, "--deep")
		if code != 1 || !strings.Contains(out, filepath.Base(live[0])) {
			t.Errorf("exit %d after a flipped bit: %s", code, out)
		}
	})

	t.Run("datasets", func(t *testing.T) {
		next := write(t, in, "next.txt", "http://example.com/d\n")
		var res ingestAnswer
		u.starterJSON(t, &res, "ingest", "--lake", lake, "--dataset", "next", "--no-publish", "--wait", "--json", next)
		type row struct {
			Rows  int
			State string
		}
		var sets []struct {
			Name string
			row
		}
		u.starterJSON(t, &sets, "datasets", "--lake", lake, "--json")
		got := map[string]row{}
		for _, s := range sets {
			got[s.Name] = s.row
		}
		// "broken", whose first ingest has failed, is none.
		want := map[string]row{"lists": {1, "published"}, "more": {1, "published"}, "next": {0, "waiting"}}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("datasets (-want +got):\n%s", diff)
		}
	})

	t.Run("a worker rejects a lake in a folder that does not exist", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(u.bin, "worker"), "--lake", filepath.Join(dir, "nothere", "lake"))
		cmd.Env = u.env
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "no lake at file://") {
			t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
		}
	})

	t.Run("the progress query reports what is done", func(t *testing.T) {
		cmd := exec.Command(testenv.Program(t, "temporal"), "workflow", "query", "--type", "progress", "-o", "json",
			"--workflow-id", "ingest:lists:2026-11-20@"+lake)
		cmd.Env = u.env
		out, err := cmd.Output()
		var answer struct {
			QueryResult []workflows.IngestProgress `json:"queryResult"`
		}
		if err != nil || json.Unmarshal(out, &answer) != nil || len(answer.QueryResult) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		p := answer.QueryResult[0]
		if p.Stage != workflows.StageDone || p.BytesDone != p.BytesTotal || p.BytesTotal == 0 ||
			p.Records != 1 || p.Rows != 1 || p.ReadSeconds <= 0 || p.Updated.IsZero() {
			t.Errorf("%+v", p)
		}
	})

	t.Run("names from inputs reach the terminal escaped", func(t *testing.T) {
		const (
			hostile = "red\x1b[31m\nEverything is fine\u009b2J\u202e"
			escaped = `red\x1b[31m\nEverything is fine\u009b2J\u202e`
		)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for name, text := range map[string]string{"list.txt": "https://example.com/\n", hostile + ".jpg": "left out"} {
			err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))})
			if err == nil {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		args := []string{
			"ingest", "--lake", lake, "--dataset", "hostile", "--no-publish", "--wait",
			write(t, in, "hostile.tar", archive.String()),
		}
		if _, errs, code := u.starter(t, append(args, "--licence", hostile)...); code != 2 || !strings.Contains(errs, escaped) {
			t.Errorf("a licence that does not print: exit %d: %q", code, errs)
		}
		// An earlier build has taken such a licence.
		register(t, lake, "hostile", hostile)
		report, errs, code := u.starter(t, args...)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, errs)
		}
		table, _, _ := u.starter(t, "datasets", "--lake", lake)
		for _, out := range []string{report, table} {
			if !strings.Contains(out, escaped) || strings.ContainsAny(out, "\x1b\u009b\u202e") ||
				strings.Contains(out, "\nEverything") {
				t.Errorf("%q", out)
			}
		}
	})

	t.Run("a retired batch leaves the lake, and comes back", func(t *testing.T) {
		var counts struct {
			Version string
			Counts  struct{ Batches, Rows int64 }
		}
		u.starterJSON(t, new(ingestAnswer), "ingest", "--lake", lake, "--dataset", "gone", "--batch", "b", "--wait", "--json",
			write(t, in, "gone.txt", "http://a.test/\nhttp://b.test/\nhttp://c.test/\n"))
		u.starterJSON(t, &counts, "status", "--lake", lake, "--json")
		before := counts
		var res struct {
			Dataset, Version string
			Batches          []struct{ Batch string }
			Rows             int64
		}
		args := []string{"--lake", lake, "--dataset", "gone", "--wait"}
		u.starterJSON(t, &res, append([]string{"retire", "--json"}, args...)...)
		u.starterJSON(t, &counts, "status", "--lake", lake, "--json")
		if res.Dataset != "gone" || res.Rows != 3 || len(res.Batches) != 1 || res.Version == "" || res.Version != counts.Version ||
			counts.Version == before.Version || counts.Counts.Batches != before.Counts.Batches-1 || counts.Counts.Rows != before.Counts.Rows-3 {
			t.Errorf("%+v, status %+v after %+v", res, counts, before)
		}
		out, errs, code := u.starter(t, append([]string{"restore"}, args...)...)
		if code != 0 || !strings.Contains(out, "Restored 1 batch of gone: 3 rows") || !strings.Contains(out, "In version ") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
		u.starterJSON(t, &counts, "status", "--lake", lake, "--json")
		if counts.Counts != before.Counts {
			t.Errorf("%+v, before %+v", counts, before)
		}
	})

	t.Run("the result says what an ingest did", func(t *testing.T) {
		file := write(t, in, "twice.txt", "http://a.test/\nhttp://b.test/\n")
		run := func(want string, args ...string) string {
			t.Helper()
			out, errs, code := u.starter(t, append(append([]string{"ingest", "--lake", lake, "--dataset", "twice", "--wait"}, args...), file)...)
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("exit %d, no %q in %s%s", code, want, out, errs)
			}
			return out
		}
		run("The batch is new; the dataset has no other batch.\n", "--batch", "one", "--no-publish")
		out := run("The batch is new; the dataset has 2 rows in 1 other batch.\n", "--batch", "two")
		if want := "Warning: batch one was made from 1 input of the same name and size"; !strings.Contains(out, want) ||
			!strings.Contains(out, "retire --dataset twice --batch one") {
			t.Errorf("no %q in %s", want, out)
		}
		write(t, in, "twice.txt", "http://a.test/\nhttp://b.test/\nhttp://c.test/\n")
		out = run("It replaces an earlier ingest of the batch with 2 rows; the dataset has 2 rows in 1 other batch.\n", "--batch", "two")
		if strings.Contains(out, "Warning") {
			t.Errorf("a file of another size is not the same: %s", out)
		}
		for _, batch := range []string{"one", "two"} {
			if _, errs, code := u.starter(t, "retire", "--lake", lake, "--dataset", "twice", "--batch", batch, "--wait"); code != 0 {
				t.Error(errs)
			}
		}
		run("The batch was retired, and is back; the dataset has no other batch.\n", "--batch", "two")
		run("It replaces the dataset: 1 other batch with 3 rows retired with it.\n", "--batch", "three", "--replace")
		if out := run("Nothing is new: other batches of twice have read 1 object of these names and sizes\n", "--new-only"); strings.Contains(out, "In version") {
			t.Error(out)
		}
		var datasets []struct {
			Name    string
			Batches int
		}
		u.starterJSON(t, &datasets, "datasets", "--lake", lake, "--json")
		for _, d := range datasets {
			if d.Name == "twice" && d.Batches != 1 {
				t.Errorf("%+v", d)
			}
		}
	})

	t.Run("gc drops old versions and deletes what they had", func(t *testing.T) {
		files := func() (n int) {
			for _, folder := range []string{"urls", "batches", "index/versions", "index/segments"} {
				err := filepath.WalkDir(filepath.Join(dir, "lake", filepath.FromSlash(folder)), func(_ string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						n++
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		type sums []struct {
			Name          string
			Batches, Rows int64
		}
		var before, after sums
		u.starterJSON(t, &before, "datasets", "--lake", lake, "--json")
		out, errs, code := u.starter(t, "compact", "--lake", lake, "--full")
		if code != 0 || !strings.Contains(out, "Merged ") || !strings.Contains(out, "Version: ") {
			t.Errorf("compact: exit %d\n%s%s", code, out, errs)
		}
		u.starterJSON(t, &after, "datasets", "--lake", lake, "--json")
		if diff := gocmp.Diff(before, after); diff != "" || len(before) == 0 {
			t.Errorf("%d datasets (-before +after the compaction):\n%s", len(before), diff)
		}
		if out, _, code := u.starter(t, "compact", "--lake", lake); code != 0 || !strings.Contains(out, "Nothing to compact") {
			t.Errorf("compact again: exit %d\n%s", code, out)
		}
		type amounts map[string]struct{ Objects, Bytes int64 }
		var said, did, again struct {
			DryRun  bool     `json:"dry_run"`
			Dropped []string `json:"dropped_versions"`
			Kept    int      `json:"kept_versions"`
			Found   amounts
			Deleted amounts
		}
		had := files()
		gc := []string{"gc", "--lake", lake, "--keep", "1", "--grace", "0s", "--json"}
		u.starterJSON(t, &said, append(gc, "--dry-run")...)
		if n := files(); n != had || !said.DryRun || len(said.Dropped) == 0 {
			t.Errorf("a dry run leaves %d of %d files: %+v", n, had, said)
		}
		u.starterJSON(t, &did, gc...)
		said.DryRun = false
		if diff := gocmp.Diff(said, did); diff != "" || did.Kept != 1 {
			t.Errorf("what a dry run says and gc does:\n%s", diff)
		}
		gone := int64(0)
		for _, kind := range []string{"parts", "batch records", "postings", "versions", "segments", "segment files", "marks"} {
			gone += did.Deleted[kind].Objects
		}
		if n := files(); int64(had-n) != gone || gone == 0 {
			t.Errorf("%d of %d files are left, gc says that it deleted %d", n, had, gone)
		}
		out, errs, code = u.starter(t, "gc", "--lake", lake, "--keep", "1", "--grace", "0s")
		if code != 0 || !strings.Contains(out, "Dropped 0 versions, kept 1 version") || !strings.Contains(out, "Deleted nothing") {
			t.Errorf("exit %d\n%s%s", code, out, errs)
		}
		u.starterJSON(t, &again, "ingest", "--lake", lake, "--dataset", "lists", "--batch", "after-gc", "--wait", "--json", list)
		if _, _, code := u.starter(t, "watch", "gc@"+lake); code != 0 {
			t.Errorf("watch: exit %d", code)
		}
	})

	t.Run("wrong usage exits 2", func(t *testing.T) {
		for _, args := range [][]string{{"ingest"}, {"ingest", "--lake", lake, list}, {"status"}, {"nonsense"}, {"ingest", "--nonsense"},
			{"ingest", "--lake", lake, "--dataset", "a/b", list}, {"ingest", "--lake", lake, "--dataset", "a", "--batch", "..", list}} {
			if _, errs, code := u.starter(t, args...); code != 2 || errs == "" {
				t.Errorf("starter %s: exit %d, %q", strings.Join(args, " "), code, errs)
			}
		}
	})
}

func TestIngestWarnsOfPoolsWithoutWorkers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir)+"/lake", nil)
	list := write(t, dir, "list.txt", "http://example.com/\n")
	out, errs, code := u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", list)
	if code != 0 || !strings.Contains(out, "Started ingest:d:") ||
		!strings.Contains(errs, "No worker polls control, normalize, write, index, publish, background") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	until(t, "status counts the ingest that waits", func(context.Context) error {
		out, errs, code := u.starter(t, "status", "--lake", u.lake)
		if code != 0 || !strings.Contains(out, "Running     1 workflow, of which 1 waits\n") ||
			!strings.Contains(out, "Workers     none for control, normalize, write, index, publish, background; to start one: worker --lake file://") {
			return fmt.Errorf("exit %d\n%s%s", code, out, errs)
		}
		return nil
	})
	// With --wait the same is said by whoever watches, at once, and then the wait goes on.
	var watched syncBuffer
	watch := exec.Command(filepath.Join(u.bin, "starter"), "ingest", "--lake", u.lake, "--dataset", "e", "--wait", list)
	watch.Env, watch.Stdout, watch.Stderr = u.env, &watched, &watched
	watch.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { watch.Process.Kill(); watch.Wait() }()
	until(t, "the watcher says that no worker is there", func(context.Context) error {
		if !strings.Contains(watched.String(), "No worker polls control") {
			return errors.New(watched.String())
		}
		return nil
	})
	u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	if err := watch.Wait(); err != nil || !strings.Contains(watched.String(), "In version") {
		t.Errorf("%v\n%s", err, watched.String())
	}
	if out, _, _ := u.starter(t, "status", "--lake", u.lake); strings.Contains(out, "\nWorkers ") {
		t.Errorf("a worker runs, and status says\n%s", out)
	}
	u.temporalServer.Process.Signal(syscall.SIGKILL)
	u.temporalServer.Wait()
	if out, errs, code := u.starter(t, "status", "--lake", u.lake); code != 0 ||
		!strings.Contains(out, "Running     not known: no Temporal at "+u.temporal) {
		t.Errorf("without Temporal: exit %d\n%s%s", code, out, errs)
	}
}

// TestWorkerWaitsForTemporal starts two workers before Temporal, as a script may. It stops one
// while it waits; the other has to work when Temporal serves.
func TestWorkerWaitsForTemporal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir)+"/lake", nil)
	u.temporalServer.Process.Signal(syscall.SIGKILL)
	u.temporalServer.Wait()
	worker := func() (*exec.Cmd, *syncBuffer) {
		var out syncBuffer
		cmd := exec.Command(filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
		cmd.Env, cmd.Stdout, cmd.Stderr = u.env, &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd, &out
	}
	has := func(out *syncBuffer, words string) {
		until(t, "the worker prints "+words, func(context.Context) error {
			if !strings.Contains(out.String(), words) {
				return errors.New(out.String())
			}
			return nil
		})
	}
	stopped, stoppedOut := worker()
	waiting, waitingOut := worker()
	for _, out := range []*syncBuffer{stoppedOut, waitingOut} {
		has(out, "waiting for Temporal at "+u.temporal)
	}
	stopped.Process.Signal(syscall.SIGTERM)
	if err := stopped.Wait(); err != nil {
		t.Errorf("stopped while it waited: %v\n%s", err, stoppedOut)
	}
	u.startTemporal(t)
	has(waitingOut, "pools control")
	if n := strings.Count(waitingOut.String(), "waiting for Temporal"); n != 1 {
		t.Errorf("the worker says %d times that it waits, want once", n)
	}
	list := write(t, dir, "list.txt", "http://example.com/\n")
	if _, errs, code := u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", "--wait", list); code != 0 {
		t.Errorf("exit %d\n%s", code, errs)
	}
	waiting.Process.Signal(syscall.SIGTERM)
	if err := waiting.Wait(); err != nil || !strings.Contains(waitingOut.String(), "worker: stopping") {
		t.Errorf("stopped: %v\n%s", err, waitingOut)
	}
}
