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

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// TestKilledAtEveryStageTheBytesAreTheSame ingests and publishes a list of over 128 MiB, which has
// two splits and shuffle files, and compares the objects with those of the list undisturbed: all
// but registries, versions and the manifest. It kills the worker, and at one stage Temporal, when
// the first object of each stage exists. Most of the time passes until Temporal notices the dead
// workers. A list of one activity or of one split has fewer stages; TestKilledOnceAStep kills
// within each.
func TestKilledAtEveryStageTheBytesAreTheSame(t *testing.T) {
	t.Parallel()
	stages := []string{ // patterns of keys
		"staging/*/plan.json", "staging/*/shuffle/*/*", "staging/*/splits/*", "staging/*/merged/*.json",
		"batches/*/*/postings-*", "index/segments/*/domains.txt.zst", "index/segments/*/segment.json",
	}
	path, want := undisturbed(t)
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir), nil)
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
			// A stage that began and ended between two ticks is skipped.
			at := slices.IndexFunc(stages[next:], func(pattern string) bool {
				found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
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
		t.Errorf("the worker was killed %d times, want at least 4", n)
	} else {
		t.Logf("killed %d times", n)
	}
	if diff := gocmp.Diff(want, objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
}

// TestFourWorkersOverS3LeaveTheBytesOfOneOverFiles ingests a list of several splits and tasks.
func TestFourWorkersOverS3LeaveTheBytesOfOneOverFiles(t *testing.T) {
	t.Parallel()
	root := testenv.NewS3Server(t).NewBucketURL(t)
	path, want := undisturbed(t)
	four := start(t, root+"/lake", [][]string{allPools, allPools, allPools, allPools})
	four.ingestAndPublish(t, path)
	if diff := gocmp.Diff(want, objects(t, four.lake)); diff != "" {
		t.Errorf("objects (-one +four):\n%s", diff)
	}
}

var allPools = activities.Pools

// list is a list of URLs and the objects that its ingest and publish leave in a folder, by one
// worker and with nothing in its way.
type list struct {
	path    string
	objects map[string]string // digests by key
}

var undisturbedList shared[list]

// severalSplits is how many lines of siteList make two splits and three merge tasks.
const severalSplits = 140_000

// undisturbed returns the path of a list of several splits, and the digests of the objects of its
// undisturbed ingest and publish.
func undisturbed(t *testing.T) (path string, objectsByKey map[string]string) {
	t.Helper()
	l := undisturbedList.get(func() list {
		dir, err := common()
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, dir, "list.txt", siteList(severalSplits))
		u := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
		u.ingestAndPublish(t, path)
		return list{path, objects(t, u.lake)}
	})
	return l.path, l.objects
}

// sites writes a list of URLs and returns its path.
func sites(t *testing.T, lines int) string {
	t.Helper()
	return write(t, t.TempDir(), "list.txt", siteList(lines))
}

// siteList is a list of URLs of about 1 KiB each: work is divided by bytes, and its time goes with
// the rows.
func siteList(lines int) string {
	var list bytes.Buffer
	path := strings.Repeat("directory/", 97)
	for i := range lines {
		fmt.Fprintf(&list, "http://www.site-%d.example/%d/%s/page?id=%d\n", i*i%5003, i%17, path, i)
	}
	return list.String()
}

// ingestAndPublish ingests a file as one batch and publishes it.
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
		t.Error("nothing was published")
	}
}

// objects returns the digests, by key, of the objects that depend only on the content of the lake.
// Versions, with their pieces, and what waits for one have the times at which ingests began.
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
		if strings.HasPrefix(info.Key, "registry/") || strings.HasPrefix(info.Key, "index/versions/") ||
			strings.HasPrefix(info.Key, "index/pieces/") || strings.HasPrefix(info.Key, catalog.PendingRoot) ||
			info.Key == catalog.ManifestKey || info.Key == "staging/sweep.json" {
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
