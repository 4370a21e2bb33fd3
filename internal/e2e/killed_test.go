package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
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
		// One step up to its record.
		{"small", 50_000, append([]string{"staging/*/plan.json", "urls/*/*/*", "staging/*/small.json"}, publish...)},
		// Over 32 MiB: one split, which is merged where it is read.
		{"one split", 300_000, append([]string{"staging/*/plan.json", "staging/*/merged/*.json", "staging/*/splits/*"}, publish...)},
		// Over 64 MiB: two splits, with runs.
		{"large", 600_000, append([]string{"staging/*/plan.json", "staging/*/shuffle/*/*", "staging/*/splits/*", "staging/*/merged/*.json"}, publish...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			killed(t, c.lines, c.stages)
		})
	}
}

func killed(t *testing.T, lines int, stages []string) {
	path := sites(t, lines)
	calm := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
	calm.ingestAndPublish(t, path)

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
	u.ingestAndPublish(t, path)
	close(finished)
	if n := <-kills; n < 4 {
		t.Errorf("the worker was killed %d times, which shows little", n)
	} else {
		t.Logf("killed %d times", n)
	}
	if diff := gocmp.Diff(objects(t, calm.lake), objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
}

// TestFourWorkersOverS3LeaveTheBytesOfOneOverFiles ingests what is cut into several splits and tasks.
func TestFourWorkersOverS3LeaveTheBytesOfOneOverFiles(t *testing.T) {
	root := testenv.S3(t) // and its environment, which the programs inherit
	path := sites(t, 600_000)
	one := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
	one.ingestAndPublish(t, path)
	four := start(t, root+"/lake", [][]string{allPools, allPools, allPools, allPools})
	four.ingestAndPublish(t, path)
	if diff := gocmp.Diff(objects(t, one.lake), objects(t, four.lake)); diff != "" {
		t.Errorf("objects (-one +four):\n%s", diff)
	}
}

var allPools = []string{"control", "normalize", "write", "index", "publish"}

// sites writes a list of that many URLs and returns its path.
func sites(t *testing.T, lines int) string {
	var list bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&list, "http://www.site-%d.example/%d/%s/page?id=%d\n", i*i%5003, i%17, strings.Repeat("directory/", 7), i)
	}
	return write(t, t.TempDir(), "list.txt", list.String())
}

func (u *urlake) ingestAndPublish(t *testing.T, path string) {
	t.Helper()
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

// objects lists a lake's objects that depend on content alone, with the digest of each.
func objects(t *testing.T, lakeURL string) map[string]string {
	t.Helper()
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		mutable := slices.ContainsFunc([]string{"registry/", "index/manifest.json", "index/versions/"}, func(prefix string) bool { return strings.HasPrefix(info.Key, prefix) })
		if mutable {
			continue
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		found[info.Key] = lake.Digest(data)
	}
	if len(found) < 8 {
		t.Fatalf("%s holds only %v", lakeURL, found)
	}
	return found
}
