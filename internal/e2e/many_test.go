package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/workflows"
)

// collection is a folder of lists, with what a scan of them finds: by domain and dataset.
type collection struct {
	dir   string
	lists map[string][]string // URLs by the path below dir, each of which is a file
}

// manyLists makes n lists of URLs of domains that they share, of which there are so many.
func manyLists(t *testing.T, seed uint64, name string, n, domains int) *collection {
	t.Helper()
	c := &collection{t.TempDir(), map[string][]string{}}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		var urls []string
		for range 1 + r.IntN(15) {
			urls = append(urls, fmt.Sprintf("http://www.site%d.example/%s/%d", r.IntN(domains), "page", r.IntN(1000)))
		}
		c.write(t, fmt.Sprintf(name, i), urls)
	}
	return c
}

func (c *collection) write(t *testing.T, name string, urls []string) {
	t.Helper()
	c.lists[name] = urls
	path := filepath.Join(c.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(urls, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}

// truth scans the lists. Dataset names them.
func (c *collection) truth(dataset func(path string) string) map[string]map[string][]item {
	found := map[string]map[string]map[string]bool{}
	for path, urls := range c.lists {
		name := dataset(path)
		for _, u := range urls {
			host := strings.Split(u, "/")[2]
			domain := strings.TrimPrefix(host, "www.")
			if found[domain] == nil {
				found[domain] = map[string]map[string]bool{}
			}
			if found[domain][name] == nil {
				found[domain][name] = map[string]bool{}
			}
			found[domain][name][u] = true
		}
	}
	all := map[string]map[string][]item{}
	for domain, sets := range found {
		all[domain] = map[string][]item{}
		for name, urls := range sets {
			for _, u := range slices.Sorted(maps.Keys(urls)) {
				all[domain][name] = append(all[domain][name], item{URL: u})
			}
		}
	}
	return all
}

func (u *urlake) compareAll(t *testing.T, truth map[string]map[string][]item) {
	t.Helper()
	u.compareSome(t, truth, len(truth))
}

// compareSome compares about n of the domains, at equal distances, and fails if there are fewer.
func (u *urlake) compareSome(t *testing.T, truth map[string]map[string][]item, n int) {
	t.Helper()
	u.serve(t)
	domains := slices.Sorted(maps.Keys(truth))
	if len(domains) < n {
		t.Fatalf("%d domains, want %d", len(domains), n)
	}
	for i := range n {
		domain := domains[i*len(domains)/n]
		u.compare(t, domain, truth[domain])
	}
}

// manyResult is what starter prints with --json.
type manyResult struct {
	workflows.IngestManyResult
	Lists []many.Outcome `json:"lists"`
}

// TestManyDatasetsEqualBruteForce is manyDatasets for some hundred files, with all of their
// domains.
func TestManyDatasetsEqualBruteForce(t *testing.T) {
	t.Parallel()
	manyDatasets(t, 300, 150, 150)
}

// manyDatasets ingests n files as datasets by one command, one more that is broken, all again
// unchanged, and again with one of them changed. It compares some of the domains with a scan of the
// files.
func manyDatasets(t *testing.T, n, domains, compared int) {
	t.Helper()
	u := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
	c := manyLists(t, 1, "list-%03d.txt", n, domains)
	broken := filepath.Join(c.dir, "broken.csv")
	if err := os.WriteFile(broken, []byte(strings.Repeat("\x00\x01\x02\x03", 5000)), 0o666); err != nil {
		t.Fatal(err)
	}
	name := func(path string) string { return strings.TrimSuffix(path, ".txt") }
	ingest := func(wantCode int) (r manyResult) {
		t.Helper()
		out, errs, code := u.starter(t, "ingest", "--lake", u.lake, "--datasets-from", "files", "--wait", "--json", c.dir)
		if code != wantCode {
			t.Fatalf("exit %d, want %d\n%s", code, wantCode, errs)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return r
	}
	r := ingest(1)
	if r.Datasets != n+1 || r.Ingested != n || r.Failed != 1 || r.Unchanged != 0 || len(r.Lists) != n+1 || r.Version == "" {
		t.Errorf("%+v", r.IngestManyResult)
	}
	for _, o := range r.Lists {
		if (o.Dataset == "broken") != (o.Error != "") || o.Error != "" && !strings.Contains(o.Error, "broken.csv") {
			t.Errorf("%+v", o)
		}
	}
	u.compareSome(t, c.truth(name), compared)

	if r = ingest(1); r.Unchanged != n || r.Ingested != 0 || r.Failed != 1 || r.Version != "" {
		t.Errorf("again: %+v", r.IngestManyResult)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	c.write(t, "list-007.txt", []string{"http://changed.example/1", "http://www.site1.example/new"})
	if r = ingest(0); r.Unchanged != n-1 || r.Ingested != 1 || len(r.Lists) != 1 || r.Lists[0].Dataset != "list-007" {
		t.Errorf("after a change: %+v", r.IngestManyResult)
	}
	u.compareSome(t, c.truth(name), compared)
	if r = ingest(0); r.Unchanged != n || r.Version != "" {
		t.Errorf("unchanged: %+v", r.IngestManyResult)
	}
}

// TestFoldersAreDatasets ingests folders, one of which has so many files that its steps are those
// of a large ingest, and watches the workflow.
func TestFoldersAreDatasets(t *testing.T) {
	t.Parallel()
	u := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
	c := manyLists(t, 2, "folder/%d.txt", 20, 150)
	for i := range 2100 { // each counts 64 KiB, so that they make two splits
		c.write(t, fmt.Sprintf("large/%d/%d.txt", i%7, i), []string{fmt.Sprintf("http://www.site%d.example/large/%d", i%150, i)})
	}
	name := func(path string) string { folder, _, _ := strings.Cut(path, "/"); return folder }
	out, errs, code := u.starter(t, "ingest", "--lake", u.lake, "--datasets-from", "folders", c.dir)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	id := strings.Split(out, "'")[1] // To watch it: starter watch 'id'
	var r manyResult
	u.starterJSON(t, &r, "watch", "--json", id)
	if r.Datasets != 2 || r.Ingested != 2 || r.Records < 2100 || r.Failed != 0 {
		t.Errorf("%+v", r.IngestManyResult)
	}
	u.compareAll(t, c.truth(name))
	out, errs, code = u.starter(t, "ingest", "--lake", u.lake, "--datasets-from", "folders", "--wait", c.dir)
	if code != 0 || !strings.Contains(out, "2 datasets: 0 ingested, 2 unchanged, 0 failed") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for path := range c.lists {
		if strings.HasPrefix(path, "large/") {
			c.write(t, path, []string{"http://changed.example/" + path})
			break
		}
	}
	u.starterJSON(t, &r, "ingest", "--lake", u.lake, "--datasets-from", "folders", "--wait", "--json", c.dir)
	if r.Unchanged != 1 || r.Ingested != 1 {
		t.Errorf("after a change: %+v", r.IngestManyResult)
	}
	u.compareAll(t, c.truth(name))
}
