package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
)

// TestKilledAtEveryStageTheBytesAreTheSame ingests one input twice: undisturbed, and with every process
// killed whenever the next stage has left its first object. All objects but registry, versions and manifest
// have to be the same.
func TestKilledAtEveryStageTheBytesAreTheSame(t *testing.T) {
	t.Parallel() // it mostly waits until Temporal misses the dead
	// The first object of each step, in order.
	publish := []string{"batches/*/*/postings-*", "index/segments/*/domains.txt.zst", "index/segments/*/segment.json"}
	for _, c := range []struct {
		name   string
		lines  int
		stages []string
	}{
		// One split, which is merged where it is read.
		{"small", 50_000, append([]string{"staging/*/plan.json", "staging/*/merged/*.json", "staging/*/splits/*"}, publish...)},
		// Over 64 MiB: two splits, with runs.
		{"large", 600_000, append([]string{"staging/*/plan.json", "staging/*/runs/*/*", "staging/*/splits/*", "staging/*/merged/*.json"}, publish...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			killed(t, c.lines, c.stages)
		})
	}
}

func killed(t *testing.T, lines int, stages []string) {
	in := t.TempDir()
	var list bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&list, "http://www.site-%d.example/%d/%s/page?id=%d\n", i*i%5003, i%17, strings.Repeat("directory/", 7), i)
	}
	path := write(t, in, "list.txt", list.String())
	pools := []string{"control", "normalize", "write", "index", "publish"}
	run := func(u *urlake) {
		var res ingestAnswer
		u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--no-publish", "--wait", "--json", path)
		if res.Rows == 0 || res.Rows+res.Merged != res.Records {
			t.Errorf("ingest ended with %+v", res)
		}
		var published struct{ Version string }
		u.starterJSON(t, &published, "publish", "--lake", u.lake, "--json")
		if published.Version == "" {
			t.Errorf("nothing was published")
		}
	}

	calm := t.TempDir()
	run(start(t, "file://"+filepath.ToSlash(calm), [][]string{pools}))

	wild := t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(wild), nil)
	worker := func() *exec.Cmd {
		return u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	}
	running := worker()
	finished := make(chan struct{})
	kills := make(chan int, 1)
	go func() {
		killed := 0
		defer func() { kills <- killed }()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for next := 0; next < len(stages); {
			select {
			case <-finished:
				return
			case <-tick.C:
			}
			// A stage that was over between two looks is left out.
			at := slices.IndexFunc(stages[next:], func(pattern string) bool {
				found, err := filepath.Glob(filepath.Join(wild, filepath.FromSlash(pattern)))
				return err == nil && len(found) > 0
			})
			if at < 0 {
				continue
			}
			stage := stages[next+at]
			running.Process.Signal(syscall.SIGKILL)
			running.Wait()
			killed++
			if strings.HasPrefix(stage, "batches/") {
				u.restartTemporal(t)
			}
			running = worker()
			next += at + 1
		}
	}()
	run(u)
	close(finished)
	if n := <-kills; n < 4 {
		t.Errorf("the worker was killed %d times, which shows little", n)
	} else {
		t.Logf("killed %d times", n)
	}
	if diff := gocmp.Diff(objects(t, calm), objects(t, wild)); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
}

// objects lists a lake's objects that depend on content alone, with the digest of each.
func objects(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		rel = filepath.ToSlash(rel)
		for _, mutable := range []string{".tmp/", "registry/", "index/manifest.json", "index/versions/"} {
			if strings.HasPrefix(rel, mutable) {
				return nil
			}
		}
		data, err := os.ReadFile(path)
		found[rel] = lake.Digest(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("%s holds only %v", dir, found)
	}
	return found
}
