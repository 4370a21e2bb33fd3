package lookup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
)

// naiveRule is a takedown as the oracle knows it: the text that a person typed, and conditions.
type naiveRule struct {
	id         string
	kind, text string
	dataset    string
	from, to   *int64
}

// hides compares texts alone.
func (n *naiveRule) hides(dataset string, r *row) bool {
	if n.dataset != "" && n.dataset != dataset {
		return false
	}
	if (n.from != nil || n.to != nil) && !r.HasTS || n.from != nil && r.TS < *n.from || n.to != nil && r.TS >= *n.to {
		return false
	}
	same := func(text string) bool {
		if n.kind == "prefix" {
			return strings.HasPrefix(r.URL, text)
		}
		return r.URL == text
	}
	switch n.kind {
	case "domain":
		return r.Host == n.text || strings.HasSuffix(r.Host, "."+n.text)
	case "host":
		return r.Host == n.text
	}
	if strings.Contains(n.text, "://") {
		return same(n.text)
	}
	return same("http://"+n.text) || same("https://"+n.text) || same("ftp://"+n.text)
}

// hide returns the oracle without the rows that rules hide.
func (o oracle) hide(rules []naiveRule) oracle {
	left := oracle{}
	for dataset, rows := range o {
		left[dataset] = slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
			return slices.ContainsFunc(rules, func(n naiveRule) bool { return n.hides(dataset, &r) })
		})
	}
	return left
}

// add adds a rule to a lake.
func (n *naiveRule) add(t testing.TB, store blob.Store, ids map[string]uint32) *suppress.Result {
	t.Helper()
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.TargetKind(n.kind), n.text)
	if err != nil {
		t.Fatal(err)
	}
	r := catalog.Takedown{
		ID: catalog.NewTakedownID(time.Now()), Target: target, DatasetID: ids[n.dataset], Dataset: n.dataset,
		From: n.from, To: n.to, Reason: "test", Created: time.Now().UTC(),
	}
	n.id = r.ID
	res, err := suppress.Add(t.Context(), store, r, suppress.Options{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// randomRule makes a rule that hides something of most lakes.
func randomRule(rng *rand.Rand, o oracle) naiveRule {
	var all []row
	var names []string
	for name, rows := range o {
		all, names = append(all, rows...), append(names, name)
	}
	slices.SortFunc(all, func(a, b row) int { return strings.Compare(a.URL, b.URL) })
	slices.Sort(names)
	var n naiveRule
	r := all[rng.IntN(len(all))]
	noScheme := r.URL[strings.Index(r.URL, "://")+3:]
	switch n.kind = []string{"domain", "host", "url", "prefix", "prefix"}[rng.IntN(5)]; n.kind {
	case "domain":
		n.text = r.Domain
		if _, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, r.Domain); err != nil {
			n.kind = "host" // a public suffix
		}
	case "host":
		n.text = r.Host
	case "url":
		n.text = r.URL
		if r.Port < 0 && rng.IntN(2) == 0 {
			n.text = noScheme
		}
	case "prefix":
		path := strings.Index(noScheme, "/") + 1
		end := path + rng.IntN(len(noScheme)-path+1)
		if noScheme[end-1] == '%' || end > 1 && noScheme[end-2] == '%' || noScheme[end-1] == '?' || noScheme[end-1] == '&' {
			end = path
		}
		n.text = noScheme[:end]
		if r.Port >= 0 || rng.IntN(2) == 0 {
			n.text = r.Scheme + "://" + n.text
		}
	}
	if rng.IntN(3) == 0 {
		n.dataset = names[rng.IntN(len(names))]
	}
	if rng.IntN(4) == 0 {
		from := int64(1_500_000_000_000) + int64(rng.IntN(5))*86_400_123
		n.from = &from
	}
	if rng.IntN(4) == 0 {
		to := int64(1_500_000_000_000) + int64(rng.IntN(6))*86_400_123
		if n.from == nil || to > *n.from {
			n.to = &to
		}
	}
	return n
}

// TestTakedownsEqualBruteForce adds and lifts random rules and publishes more batches. After each
// step one refresh of a server that was open before has to make every answer of every version that
// of a scan over the rows that no rule hides.
func TestTakedownsEqualBruteForce(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		h := build(t, store)
		s := serve(t, store, Options{KeepOpen: 8})
		for _, version := range h.versions {
			acquire(t, s, version) // stays open and pinned
		}
		ids := map[string]uint32{}
		page, err := acquire(t, s, "").Datasets(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Datasets {
			ids[d.Name] = d.ID
		}
		rng := rand.New(rand.NewPCG(11, 3))
		var rules []naiveRule
		epoch := uint64(0)
		steps := 14 / testenv.Every(2)
		hid := 0
		for step := range steps {
			switch {
			case step%5 == 3 && len(rules) > 1:
				i := rng.IntN(len(rules))
				if _, err := suppress.Lift(t.Context(), store, rules[i].id, "me", "again", suppress.Options{}); err != nil {
					t.Fatal(err)
				}
				rules = slices.Delete(rules, i, i+1)
				epoch++
			case step%5 == 4:
				o := h.oracles[len(h.oracles)-1].clone()
				records := randomRecords(rng, 300)
				testlake.Ingest(t, store, "beta", fmt.Sprintf("later%d", step), records)
				o.replace("beta", fmt.Sprintf("later%d", step), records)
				h.versions, h.oracles = append(h.versions, testlake.Publish(t, store).Version), append(h.oracles, o)
			default:
				n := randomRule(rng, h.oracles[len(h.oracles)-1])
				res := n.add(t, store, ids)
				epoch++
				// What it matches is what it alone would hide.
				last := len(h.oracles) - 1
				alone := h.oracles[last].hide([]naiveRule{n})
				if want := int64(h.oracles[last].rows1() - alone.rows1()); res.Current.Rows != want || res.Epoch != epoch {
					t.Fatalf("%+v matches %d rows in epoch %d, want %d in %d", n, res.Current.Rows, res.Epoch, want, epoch)
				}
				rules = append(rules, n)
			}
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, version := range h.versions {
				left := h.oracles[i].hide(rules)
				hid += h.oracles[i].rows1() - left.rows1()
				snap := acquire(t, s, version)
				left.check(t, snap, append(h.oracles[i].domains(), "no-such-domain.example"))
				checkCounts(t, snap, left, epoch)
				if i > 0 {
					before := h.oracles[i-1].hide(rules)
					got, _ := pagedDiff(t, acquire(t, s, h.versions[i-1]), snap, DiffQuery{Limit: 50})
					if diff := gocmp.Diff(before.diff(left), got); diff != "" {
						t.Fatalf("step %d, diff to version %d (-brute force +served):\n%.3000s", step, i, diff)
					}
				}
			}
			checkSummaries(t, s, h, rules)
		}
		if hid < 1000 {
			t.Fatalf("the rules hid %d rows in all", hid)
		}
	})
}

// rows1 counts all rows.
func (o oracle) rows1() (n int) {
	for _, rows := range o {
		n += len(rows)
	}
	return n
}

// checkCounts compares the list of datasets with the oracle.
func checkCounts(t *testing.T, snap *Snapshot, left oracle, epoch uint64) {
	t.Helper()
	page, err := snap.Datasets(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]int64{}, map[string]int64{}
	for name, rows := range left {
		want[name] = int64(len(rows))
	}
	for _, d := range page.Datasets {
		got[d.Name] = d.Rows
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("datasets (-brute force +served):\n%s", diff)
	}
	if page.Rows != int64(left.rows1()) || page.TakedownEpoch != epoch {
		t.Fatalf("%d rows of epoch %d, want %d of %d", page.Rows, page.TakedownEpoch, left.rows1(), epoch)
	}
}

// checkSummaries compares the list of versions with the oracles.
func checkSummaries(t *testing.T, s *Server, h *history, rules []naiveRule) {
	t.Helper()
	page, err := s.Versions(t.Context(), MaxVersions, "")
	if err != nil {
		t.Fatal(err)
	}
	before := int64(0)
	for i := range h.versions {
		sum := page.Versions[len(h.versions)-1-i]
		rows := int64(h.oracles[i].hide(rules).rows1())
		if sum.ID != h.versions[i] || sum.Counts.Rows != rows || sum.Change.Rows != rows-before {
			t.Fatalf("version %d: %d rows, %+d; want %d, %+d", i, sum.Counts.Rows, sum.Change.Rows, rows, rows-before)
		}
		before = rows
	}
}

// TestCursorsSkipWhatIsTakenDown takes rows down between any two pages of a list. The pages
// afterwards have the rest of what is left, and offsets that count what is left.
func TestCursorsSkipWhatIsTakenDown(t *testing.T) {
	store := blob.NewMemory()
	o := oracle{}
	for b := range 3 {
		var records []testlake.Record
		for i := range 40 {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://h%d.example.com/%d/%d", i%4, i%5, i+100*b)})
		}
		batch := fmt.Sprint("b", b)
		testlake.Ingest(t, store, "d", batch, records)
		o.replace("d", batch, records)
		testlake.Publish(t, store)
	}
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	tg := target(t, "example.com")
	list := func() (urls []string) {
		all, err := wholeList(t.Context(), snap, tg, 1, func() int { return MaxLimit })
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range all {
			urls = append(urls, it.URL)
		}
		return urls
	}
	whole := list()
	for _, rule := range []naiveRule{
		{kind: "prefix", text: "https://h1.example.com/1/"}, {kind: "host", text: "h2.example.com"},
		{kind: "url", text: whole[0]}, {kind: "url", text: whole[19]}, {kind: "url", text: whole[20]},
		{kind: "url", text: whole[119]}, {kind: "domain", text: "example.com"},
	} {
		cursors := map[int]string{}
		q := URLsQuery{Target: tg, Dataset: 1, Limit: 1}
		for at := 1; at < len(whole); at++ {
			p, err := snap.URLs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			cursors[at], q.Cursor = p.Cursor, p.Cursor
		}
		rule.add(t, store, nil)
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		snap = acquire(t, s, "")
		hidden := func(url string) bool { return rule.hides("d", &row{URL: url, Host: target(t, url).Host}) }
		left := list()
		if want := slices.DeleteFunc(slices.Clone(whole), hidden); !slices.Equal(left, want) {
			t.Fatalf("%+v leaves %d rows, want %d", rule, len(left), len(want))
		}
		for at, cursor := range cursors {
			before := 0
			for _, url := range whole[:at] {
				if !hidden(url) {
					before++
				}
			}
			p, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: MaxLimit, Cursor: cursor})
			if err != nil {
				t.Fatalf("%+v, cursor after %d rows: %v", rule, at, err)
			}
			var got []string
			for i := range p.Len() {
				got = append(got, string(p.URL(i)))
			}
			if !slices.Equal(got, left[before:]) || p.Offset != int64(before) || p.Total != int64(len(left)) || p.TakedownEpoch == 0 {
				t.Fatalf("%+v, cursor after %d rows: offset %d of %d with %d rows, want %d of %d",
					rule, at, p.Offset, p.Total, len(got), before, len(left))
			}
		}
		if _, err := suppress.Lift(t.Context(), store, mustRules(t, store)[0].ID, "", "", suppress.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if snap = acquire(t, s, ""); !slices.Equal(list(), whole) {
			t.Fatal("lifting does not bring all rows back")
		}
	}
}

// mustRules returns the rules in force.
func mustRules(t testing.TB, store blob.Store) []catalog.Takedown {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := catalog.ReadTakedowns(t.Context(), store, m.Takedowns)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := doc.Rules(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return rules.All()
}

// TestManyRunsOfOneRowGroup hides every second row, so that one row group has more runs than a page
// may have row groups.
func TestManyRunsOfOneRowGroup(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 3000 {
		scheme := []string{"http", "https"}[i%2]
		records = append(records, testlake.Record{URL: fmt.Sprintf("%s://example.com/%05d", scheme, i/2)})
	}
	testlake.Ingest(t, store, "d", "b", records)
	testlake.Publish(t, store)
	n := naiveRule{kind: "prefix", text: "http://example.com/"}
	if res := n.add(t, store, nil); res.Current.Rows != 1500 {
		t.Fatalf("%+v", res)
	}
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	p, err := snap.URLs(t.Context(), URLsQuery{Target: target(t, "example.com"), Dataset: 1, Limit: 1000, Offset: 200})
	if err != nil {
		t.Fatal(err)
	}
	if p.Len() != 1000 || p.Total != 1500 || p.StoppedBy != "" {
		t.Fatalf("%d rows of %d, stopped by %q", p.Len(), p.Total, p.StoppedBy)
	}
	for i := range p.Len() {
		if want := fmt.Sprintf("https://example.com/%05d", 200+i); string(p.URL(i)) != want {
			t.Fatalf("row %d is %s, want %s", i, p.URL(i), want)
		}
	}
}

// The takedowns of a manifest do not cover a version that it no longer lists, so a server that has
// it open must not answer from it.
func TestDroppedVersionIsGoneAfterATakedown(t *testing.T) {
	store := blob.NewMemory()
	for b := range 2 {
		testlake.Ingest(t, store, "d", fmt.Sprint("b", b), []testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", b)}})
		testlake.Publish(t, store)
		if b == 0 {
			testlake.Replace(t, store, "d", "b0", []testlake.Record{{URL: "https://example.com/other"}})
		}
	}
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, store, Options{})
	old := acquire(t, s, m.Versions[0].ID)
	first := naiveRule{kind: "url", text: "https://nowhere.example/"}
	first.add(t, store, nil)
	if _, _, err := catalog.DropExpired(t.Context(), store, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.as(t.Context(), Reader{}); err != nil {
		t.Fatalf("the rules are those that the version was covered by: %v", err)
	}
	second := naiveRule{kind: "domain", text: "example.com"}
	second.add(t, store, nil)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.as(t.Context(), Reader{}); !errors.Is(err, ErrGone) {
		t.Fatalf("a version without its takedowns answers: %v", err)
	}
	if page, err := old.Domain(t.Context(), target(t, "example.com"), ""); err != nil || page.TakedownEpoch != 0 || page.Total != 1 {
		t.Fatalf("a request that has begun goes by the rules that it began with: %+v, %v", page, err)
	}
	page, err := acquire(t, s, "").Domain(t.Context(), target(t, "example.com"), "")
	if err != nil || page.Total != 0 {
		t.Fatalf("%+v, %v", page, err)
	}
}
