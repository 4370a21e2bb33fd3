package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

func TestTree(t *testing.T) {
	url := urlsLake(t)
	ask := func(args ...string) string {
		t.Helper()
		stdout, stderr, code := starter(t, append([]string{"tree", "--lake", url}, args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%q: exit %d: %s", args, code, stderr)
		}
		return stdout
	}
	want := `{"level":0,"name":"","path":"","rows":12,"direct_rows":0,"size":66,"children":2}
{"level":1,"name":"a.example.com/","path":"a.example.com/","rows":6,"direct_rows":0,"size":30,"children":1}
{"level":2,"name":"p/","path":"a.example.com/p/","rows":6,"direct_rows":6,"size":30,"children":0}
{"level":1,"name":"b.example.com/","path":"b.example.com/","rows":6,"direct_rows":0,"size":36,"children":1}
{"level":2,"name":"p/","path":"b.example.com/p/","rows":6,"direct_rows":6,"size":36,"children":0}
`
	document := `{"domain":"example.com","name":"p/","path":"b.example.com/p/","rows":6,"direct_rows":6,"size":36,"total_children":0,"children":[]}`
	check := func() {
		t.Helper()
		if diff := cmp.Diff(want, ask("example.com", "--depth", "2")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, target := range []string{"b.example.com/p", "https://b.example.com/p/", "B.example.com/p/"} {
			var got map[string]any
			if err := json.Unmarshal([]byte(ask(target, "--json", "--dataset", "news")), &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "version")
			var want map[string]any
			if err := json.Unmarshal([]byte(document), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", target, diff)
			}
		}
		if got := ask("example.com", "--top", "1", "--sort", "size"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "b.example.com/") {
			t.Errorf("the largest: %s", got)
		}
		if got := ask("a.example.com", "--min-count", "7"); strings.Count(got, "\n") != 1 {
			t.Errorf("none so large: %s", got)
		}
	}
	check()
	stdout, _, code := starter(t, "tree", "build", "--lake", url, "--always", "--json")
	if code != 0 || strings.Count(stdout, `"reason":"missing"`) != 1 || !strings.Contains(stdout, `"always":true`) {
		t.Fatalf("exit %d: %s", code, stdout)
	}
	check()
	stdout, _, _ = starter(t, "tree", "build", "--lake", url, "--never")
	if !strings.Contains(stdout, "build no index of trees") {
		t.Errorf("%s", stdout)
	}
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, "tree.json") {
			if _, err := store.Put(t.Context(), info.Key, []byte("{}"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, stderr, code := starter(t, "tree", "example.com", "--lake", url); code != 1 || !strings.Contains(stderr, "starter tree build --lake") {
		t.Errorf("damaged: exit %d: %s", code, stderr)
	}
	if stdout, stderr, code := starter(t, "tree", "build", "--lake", url); code != 0 || !strings.Contains(stdout, "(damaged)") || !strings.Contains(stderr, "is damaged and is built again") {
		t.Errorf("mending: exit %d: %s%s", code, stdout, stderr)
	}
	check()
}

// A damaged setting is named with what writes it again; a damaged part leaves its segment without
// an index, and others get theirs.
func TestTreeBuildGoesOnOverDamage(t *testing.T) {
	url := urlsLake(t)
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "more", "b", []testlake.Record{{URL: "https://other.test/x/"}})
	testlake.Publish(t, store)
	put := func(key, text string) {
		t.Helper()
		if _, err := store.Put(t.Context(), key, []byte(text), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("index/trees.json", "damaged")
	for _, args := range [][]string{{"tree", "build"}, {"verify"}} {
		stdout, stderr, code := starter(t, append(args, "--lake", url)...)
		want := "starter tree build --lake " + url + " --always, or --never"
		if code == 0 || !strings.Contains(stdout+stderr, want) || !strings.Contains(stdout+stderr, "index/trees.json") {
			t.Errorf("%q: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
	if stdout, _, code := starter(t, "tree", "build", "--lake", url, "--never"); code != 0 {
		t.Errorf("exit %d: %s", code, stdout)
	}
	part := ""
	for info, err := range store.List(t.Context(), "urls/") {
		if err != nil {
			t.Fatal(err)
		}
		if part == "" || strings.Contains(info.Key, "/part-b-") {
			part = info.Key
		}
	}
	put(part, "damaged")
	stdout, stderr, code := starter(t, "tree", "build", "--lake", url)
	if code != 1 || strings.Count(stdout, "built in ") != 1 || strings.Count(stdout, "not built: damage") != 1 ||
		!strings.Contains(stderr, part) || !strings.Contains(stderr, "1 of 2 segments have no index") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	stdout, _, code = starter(t, "tree", "build", "--lake", url, "--json")
	if code != 1 || strings.Count(stdout, `"error":`) != 1 || strings.Contains(stdout, `"built":true`) {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

func TestTreeMistakes(t *testing.T) {
	url := urlsLake(t)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a.com,b.com"}, 2, "character ','; ask for one domain at a time"},
		{[]string{"a.com\nb.com/x"}, 2, "character 6 is a line break"},
		{[]string{"mailto:x"}, 2, "mailto"},
		{[]string{"example.com/?x"}, 2, "a query or a fragment"},
		{[]string{"example.com", "--depth", "0"}, 2, "use 1 to 16"},
		{[]string{"example.com", "--top", "-1"}, 2, "--top is -1"},
		{[]string{"example.com", "--min-count", "-1"}, 2, "at least 0"},
		{[]string{"example.com", "--sort", "age"}, 2, "--sort is name, rows or size"},
		{[]string{"example.com", "--dataset", "new"}, 1, `did you mean "news"?`},
		{[]string{"build", "--always", "--never"}, 2, "contradict"},
		{[]string{"example.net"}, 0, "the lake has no such rows"},
	} {
		_, stderr, code := starter(t, append([]string{"tree", "--lake", url}, tc.args...)...)
		if code != tc.code || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit %d: %s", tc.args, code, stderr)
		}
	}
}
