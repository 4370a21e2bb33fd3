package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
)

// listFile writes a public suffix list to a file.
func listFile(t *testing.T, rules string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.dat")
	if err := os.WriteFile(path, []byte("// a list\r\n"+strings.Join(strings.Fields(rules), "\r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func local(t *testing.T) (dir string, store blob.Store) {
	t.Helper()
	dir = t.TempDir()
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	return dir, store
}

// starterJSON decodes what a verb prints.
func starterJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	out, errs, code := starter(t, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("%v: exit %d, %s%s", args, code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%v: %v in %s", args, err, out)
	}
}

func TestRulesOfALake(t *testing.T) {
	dir, store := local(t)
	own := urlnorm.BuiltinSuffixes()
	a := testlake.SetList(t, store, "com uk example.com")
	testlake.Ingest(t, store, "d", "b", []testlake.Record{{URL: "http://a.example.com/"}})
	first := testlake.Publish(t, store).Version
	var got lakeRules
	starterJSON(t, &got, "rules", "--lake", dir)
	added, removed := own.Rules()-2, 1 // com and uk are rules of both
	want := lakeRules{
		Lake:    ruleSet{Rules: lake.RulesOf(a), Count: 3, Object: lake.SuffixListKey(a.Identity()), Present: true},
		Program: ruleSet{Rules: lake.CurrentRules(), Count: own.Rules(), Object: lake.SuffixListKey(own.Identity())},
		Added:   &added, Removed: &removed, Versions: []versionRules{},
	}
	exported := gocmp.Comparer(func(a, b *urlnorm.SuffixList) bool { return true })
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(ruleSet{}), exported); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	out, _, code := starter(t, "rules", "--lake", dir)
	for _, part := range []string{a.Identity(), "3 rules; canonical form urlake-1", own.Identity(), "more and 1 fewer"} {
		if code != 0 || !strings.Contains(out, part) {
			t.Errorf("exit %d, without %q:\n%s", code, part, out)
		}
	}

	// Rows are made by another list from now on; the version still follows the old one.
	b := testlake.SetList(t, store, "com co.uk")
	got = lakeRules{}
	starterJSON(t, &got, "rules", "--lake", dir)
	if got.Lake.PublicSuffix != b.Identity() || len(got.Versions) != 1 || got.Versions[0].Version != first ||
		!got.Versions[0].Current || got.Versions[0].PublicSuffix != a.Identity() || !got.Versions[0].Present {
		t.Errorf("%+v", got)
	}
	testlake.LoseList(t, store, a)
	out, _, code = starter(t, "rules", "--lake", dir)
	for _, part := range []string{b.Identity(), first, "the next publish moves it", "rules not known; not in the lake, and not this program's"} {
		if code != 0 || !strings.Contains(out, part) {
			t.Errorf("exit %d, without %q:\n%s", code, part, out)
		}
	}
	if out, errs, code := starter(t, "rules", "--lake", t.TempDir()); code != cli.ExitFailed || !strings.Contains(errs, "no lake") {
		t.Errorf("no lake: exit %d, %s%s", code, out, errs)
	}
}

// A dry run finds what a naive comparison of all hosts finds, whether or not the old list is known.
func TestDryRunOfRules(t *testing.T) {
	dir, store := local(t)
	const before = "com io uk co.uk *.ck !www.ck old.com"
	from := testlake.SetList(t, store, before)
	rng := rand.New(rand.NewPCG(7, 8))
	hosts := map[string]int64{}
	for i, batch := range []string{"b1", "b2", "b3"} {
		var records []testlake.Record
		for n := range 200 {
			name := []string{"com", "io", "github.io", "old.com", "uk", "co.uk", "ck", "www.ck", "a.ck", "org", "ac.uk"}[rng.IntN(11)]
			host := fmt.Sprintf("%s%d.%s", []string{"", "www.", "x.y."}[rng.IntN(3)]+"n", rng.IntN(4), name)
			hosts[host]++
			records = append(records, testlake.Record{URL: fmt.Sprintf("http://%s/%s/%d", host, batch, n)})
		}
		testlake.Ingest(t, store, fmt.Sprint("d", i%2), batch, records)
		if i == 1 {
			testlake.Publish(t, store) // the last batch is in no version
		}
	}
	path := listFile(t, "com io uk co.uk *.ck github.io *.ac.uk old.com.x")
	to, err := readListFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := rulesPlan{
		From: lake.RulesOf(from), To: lake.RulesOf(to), Batches: 3,
		Added: []string{"*.ac.uk", "github.io", "old.com.x"}, Removed: []string{"!www.ck", "old.com"},
	}
	type pair struct{ from, to string }
	domains := map[pair]moved{}
	rules := map[string]moved{}
	for host, rows := range hosts {
		p := pair{from.Domain(host), to.Domain(host)}
		if p.from == p.to {
			continue
		}
		rule := ""
		for name, r := range map[string]string{".ac.uk": "*.ac.uk", ".github.io": "github.io", ".www.ck": "!www.ck", ".old.com": "old.com"} {
			if strings.HasSuffix(host, name) {
				rule = r
			}
		}
		for _, sum := range []func(moved){
			func(m moved) { want.moved.Hosts += m.Hosts; want.moved.Rows += m.Rows },
			func(m moved) { domains[p] = moved{domains[p].Hosts + m.Hosts, domains[p].Rows + m.Rows} },
			func(m moved) { rules[rule] = moved{rules[rule].Hosts + m.Hosts, rules[rule].Rows + m.Rows} },
		} {
			sum(moved{1, rows})
		}
	}
	for p, m := range domains {
		want.Domains = append(want.Domains, movedDomain{p.from, p.to, m})
	}
	for rule, m := range rules {
		change := "added"
		if slices.Contains(want.Removed, rule) {
			change = "removed"
		}
		want.Rules = append(want.Rules, movedByRule{rule, change, m})
	}
	slices.SortFunc(want.Domains, func(a, b movedDomain) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	slices.SortFunc(want.Rules, func(a, b movedByRule) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Rule, b.Rule))
	})
	if len(want.Rules) != 4 || len(want.Domains) <= shownMoves {
		t.Fatalf("the example has %d rules and %d domains", len(want.Rules), len(want.Domains))
	}
	allow := gocmp.AllowUnexported(rulesPlan{}, movedDomain{}, movedByRule{})
	args := []string{"rules", "update", "--dry-run", "--lake", dir, "--psl", path}
	var got rulesPlan
	starterJSON(t, &got, args...)
	if diff := gocmp.Diff(want, got, allow); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	out, errs, code := starter(t, args...)
	for _, part := range []string{
		"3 added, 2 removed", fmt.Sprintf("%d hosts with %d rows", want.Hosts, want.Rows), "*.ac.uk", want.Domains[0].To,
		fmt.Sprintf("… and %d more", len(want.Domains)-shownMoves),
	} {
		if code != 0 || !strings.Contains(out, part) {
			t.Errorf("exit %d, without %q:\n%s%s", code, part, out, errs)
		}
	}
	_, shown, _ := strings.Cut(out, "DOMAIN ")
	if n := strings.Count(shown, "\n"); n != shownMoves+2 { // the header, and how many more there are
		t.Errorf("%d lines of domains:\n%s", n, out)
	}
	if r, err := catalog.ReadRules(t.Context(), store); err != nil || r != want.From {
		t.Errorf("a dry run has changed the rules to %+v, %v", r, err)
	}

	testlake.LoseList(t, store, from)
	want.Added, want.Removed, want.Rules = nil, nil, nil
	got = rulesPlan{}
	starterJSON(t, &got, args...)
	if diff := gocmp.Diff(want, got, allow); diff != "" {
		t.Errorf("without the old list, differs (-want +got):\n%s", diff)
	}
}

// There is no Temporal to connect to.
func TestUpdateOfRules(t *testing.T) {
	dir, store := local(t)
	rulesAre := func(want lake.Rules) {
		t.Helper()
		if got, err := catalog.ReadRules(t.Context(), store); err != nil || got != want {
			t.Errorf("the lake has the rules %+v, %v; want %+v", got, err, want)
		}
	}
	a := listFile(t, "com uk")
	listA, err := readListFile(a)
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, code := starter(t, "rules", "update", "--dry-run", "--lake", dir, "--psl", a); code != 0 ||
		!strings.Contains(out, "the lake is new") {
		t.Errorf("dry run of a new lake: exit %d, %s%s", code, out, errs)
	}
	rulesAre(lake.Rules{})
	for _, want := range []string{"no batches to move", "follows this list"} {
		out, errs, code := starter(t, "rules", "update", "--lake", dir, "--psl", a)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, without %q: %s%s", code, want, out, errs)
		}
		rulesAre(lake.RulesOf(listA))
	}
	testlake.Ingest(t, store, "d", "b", []testlake.Record{{URL: "http://a.co.uk/"}})
	testlake.Publish(t, store)
	var done rulesUpdated
	starterJSON(t, &done, "rules", "update", "--lake", dir, "--psl", listFile(t, "UK com"))
	if done.From != done.To || done.Publish != nil {
		t.Errorf("%+v", done)
	}
	rulesAre(lake.RulesOf(listA))
	// The same rules with the version in the file's comment have another name.
	versioned := filepath.Join(t.TempDir(), "list.dat")
	if err := os.WriteFile(versioned, []byte("// VERSION: 1\nuk\ncom\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := starter(t, "rules", "update", "--lake", dir, "--psl", versioned)
	if code != 0 || !strings.Contains(out, "the same rules") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	rulesAre(lake.RulesOf(listA))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	cmd := New()
	cmd.SetArgs([]string{"rules", "update", "--lake", dir, "--psl", listFile(t, "com co.uk")})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(ctx); err == nil {
		t.Error("without Temporal: no error")
	}
	rulesAre(lake.RulesOf(listA))
	for _, dat := range []string{listFile(t, "com a..b"), filepath.Join(t.TempDir(), "absent.dat")} {
		out, errs, code := starter(t, "rules", "update", "--lake", dir, "--psl", dat)
		if code != cli.ExitFailed || !strings.Contains(errs, dat) {
			t.Errorf("%s: exit %d, %s%s", dat, code, out, errs)
		}
	}
}

// To open a FIFO would wait for a writer, without an end.
func TestListIsAFile(t *testing.T) {
	_, errs, code := starter(t, "normalize", "--psl", t.TempDir(), "example.com")
	if code != cli.ExitUsage || !strings.Contains(errs, "not a folder or a pipe") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestNormalizeByAnotherList(t *testing.T) {
	dir, store := local(t)
	testlake.SetList(t, store, "com uk example.com")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "http://b.a.example.com/\texample.com\n"},
		{[]string{"--lake", dir}, "http://b.a.example.com/\ta.example.com\n"},
		{[]string{"--lake", t.TempDir()}, "http://b.a.example.com/\texample.com\n"},
		{[]string{"--psl", listFile(t, "a.example.com"), "--lake", dir}, "http://b.a.example.com/\tb.a.example.com\n"},
	} {
		out, errs, code := starter(t, append([]string{"normalize", "b.a.example.com"}, c.args...)...)
		if code != 0 || out != c.want {
			t.Errorf("%v: exit %d, %q, %s", c.args, code, out, errs)
		}
	}
}
