package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestRulesUpdate makes a lake by another public suffix list than that of the programs, and moves
// it to theirs. Before and after, it answers as a lake made by that list.
func TestRulesUpdate(t *testing.T) {
	t.Parallel()
	dir, in := t.TempDir(), t.TempDir()
	lake := "file://" + filepath.ToSlash(dir) + "/lake"
	// co.uk and github.io are no suffixes here, and example.com is one.
	psl := write(t, in, "list.dat", "com\nuk\nio\nexample.com\n")
	urls := []string{"http://a.b.co.uk/1", "http://c.co.uk/2", "http://x.github.io/3", "http://www.a.example.com/4", "http://same.com/5"}
	list := write(t, in, "list.txt", strings.Join(urls, "\n"))
	u := start(t, lake, [][]string{allPools})
	if out, errs, code := u.starter(t, "rules", "update", "--lake", lake, "--psl", psl); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	var first ingestAnswer
	u.starterJSON(t, &first, "ingest", "--lake", lake, "--dataset", "d", "--batch", "b", "--wait", "--json", list)
	// Workers find domains by the lake's list, not by theirs.
	var rules struct {
		Lake, Program struct {
			List string `json:"public_suffix_list"`
		}
		Versions []struct{ Version string }
	}
	u.starterJSON(t, &rules, "rules", "--lake", lake, "--json")
	if first.Rows != 5 || rules.Lake.List == rules.Program.List || len(rules.Versions) != 0 {
		t.Fatalf("%+v, %+v", first, rules)
	}
	u.serve(t)
	answers := func(version string) map[string]int64 {
		t.Helper()
		got := map[string]int64{}
		for _, host := range []string{"a.b.co.uk", "c.co.uk", "x.github.io", "www.a.example.com", "same.com"} {
			a := u.domain(t, host, version)
			if len(a.Datasets) != 1 {
				t.Fatalf("%s: %+v", host, a)
			}
			got[a.Domain] = a.Datasets[0].Rows
		}
		return got
	}
	before := map[string]int64{"co.uk": 2, "github.io": 1, "a.example.com": 1, "same.com": 1}
	after := map[string]int64{"b.co.uk": 1, "c.co.uk": 1, "x.github.io": 1, "example.com": 1, "same.com": 1}
	if diff := gocmp.Diff(before, answers("")); diff != "" {
		t.Errorf("by the lake's list (-want +got):\n%s", diff)
	}

	var dry struct {
		Hosts, Rows int64
		Domains     []struct{ From, To string }
	}
	u.starterJSON(t, &dry, "rules", "update", "--lake", lake, "--dry-run", "--json")
	if dry.Hosts != 4 || dry.Rows != 4 || len(dry.Domains) != 4 {
		t.Errorf("dry run: %+v", dry)
	}
	out, errs, code := u.starter(t, "rules", "update", "--lake", lake)
	if code != 0 || !strings.Contains(out, "Moved 4 rows to other domains: rewrote 1 of 1 batch") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	u.starterJSON(t, &rules, "rules", "--lake", lake, "--json")
	if rules.Lake.List != rules.Program.List || len(rules.Versions) != 1 || rules.Versions[0].Version != first.Version {
		t.Errorf("%+v", rules)
	}
	var versions struct {
		CurrentVersion string `json:"current_version"`
	}
	u.starterJSON(t, &versions, "versions", "--lake", lake, "--json")
	if versions.CurrentVersion == first.Version {
		t.Fatal("no version was published")
	}
	if diff := gocmp.Diff(after, answers(versions.CurrentVersion)); diff != "" {
		t.Errorf("by the new list (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(before, answers(first.Version)); diff != "" {
		t.Errorf("the first version (-want +got):\n%s", diff)
	}
	if out, errs, code := u.starter(t, "verify", "--lake", lake, "--deep"); code != 0 {
		t.Errorf("verify: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := u.starter(t, "rules", "update", "--lake", lake); code != 0 || !strings.Contains(out, "Nothing to do") {
		t.Errorf("again: exit %d: %s%s", code, out, errs)
	}
	// The same input again follows the new list, and makes what the move made of it or an equal
	// batch.
	var again ingestAnswer
	u.starterJSON(t, &again, "ingest", "--lake", lake, "--dataset", "d", "--batch", "b", "--wait", "--json", list)
	if diff := gocmp.Diff(after, answers(again.Version)); diff != "" {
		t.Errorf("ingested again (-want +got):\n%s", diff)
	}
}
