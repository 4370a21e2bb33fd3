package lakecheck_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
)

// wholeLake is set by the build tag soak: TestAnyDamage then damages every object in every way.
var wholeLake = false

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// ingested is a batch of the model, which is a list of everything that was ingested.
type ingested struct {
	dataset, batch string
	urls           []string
	// replaced: a later ingest of the batch took its place.
	replaced bool
}

func (b ingested) records() []testlake.Record {
	var list []testlake.Record
	for _, u := range b.urls {
		list = append(list, testlake.Record{URL: u})
	}
	return list
}

// makeBatch makes a batch with domains of its own and some that all batches share. With bad, some
// of its records are rejected.
func makeBatch(dataset, batch, tag string, n int, bad bool) ingested {
	b := ingested{dataset: dataset, batch: batch}
	for i := range n {
		b.urls = append(b.urls, fmt.Sprintf("https://shared%d.test/%s/%d", i%5, tag, i),
			fmt.Sprintf("http://www.%s%d.example/%d", tag, i%3, i))
	}
	if bad {
		b.urls = append(b.urls, "http://", "no url", "http://[::1")
	}
	return b
}

// answersOf scans the model: domain and dataset to sorted URLs.
func answersOf(model []ingested) map[string][]string {
	out := map[string][]string{}
	for _, b := range model {
		if b.replaced {
			continue
		}
		for _, raw := range b.urls {
			u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), raw)
			if err != nil {
				continue
			}
			key := u.Domain + " " + b.dataset
			out[key] = append(out[key], u.String())
		}
	}
	for key, urls := range out {
		slices.Sort(urls)
		out[key] = slices.Compact(urls)
	}
	return out
}

// domainsOf returns the domains of answers.
func domainsOf(answers map[string][]string) []string {
	domains := map[string]bool{}
	for key := range answers {
		domain, _, _ := strings.Cut(key, " ")
		domains[domain] = true
	}
	return slices.Sorted(maps.Keys(domains))
}

// serve asks a new server about domains. Answers that are errors about damage are in failed, by
// domain and dataset; "" stands for the dataset if the domain itself cannot be looked up.
func serve(t *testing.T, store blob.Store, domains []string) (answers map[string][]string, failed map[string]error) {
	t.Helper()
	s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir()})
	defer s.Close()
	answers, failed = map[string][]string{}, map[string]error{}
	note := func(key string, err error) {
		if !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%s: %v, want an answer or an error about damage", key, err)
		}
		failed[key] = err
	}
	if err := s.Refresh(t.Context()); err != nil {
		note("", err)
		return answers, failed
	}
	snap, err := s.Acquire(t.Context(), "")
	if err != nil {
		note("", err)
		return answers, failed
	}
	defer snap.Release()
	for _, domain := range domains {
		target, err := lookup.ParseTarget("http://" + domain + "/")
		if err != nil {
			t.Fatal(err)
		}
		page, err := snap.Domain(t.Context(), target, "")
		if err != nil {
			note(domain, err)
			continue
		}
		for _, d := range page.Datasets {
			key := domain + " " + d.Name
			urls, err := snap.URLs(t.Context(), lookup.URLsQuery{Target: target, Dataset: d.ID, Limit: 1000})
			if err != nil {
				note(key, err)
				continue
			}
			list := []string{}
			for i := range urls.Len() {
				list = append(list, string(urls.URL(i)))
			}
			if int64(len(list)) != urls.Total {
				t.Errorf("%s: %d URLs of %d", key, len(list), urls.Total)
			}
			slices.Sort(list)
			answers[key] = list
		}
	}
	return answers, failed
}

// wholesomeLake is a lake with everything that a lake has, and its model.
func wholesomeLake(t *testing.T) (*blob.Memory, []ingested) {
	t.Helper()
	store := blob.NewMemory()
	model := []ingested{}
	add := func(b ingested) {
		t.Helper()
		for i := range model {
			if model[i].dataset == b.dataset && model[i].batch == b.batch {
				model[i].replaced = true
			}
		}
		testlake.Ingest(t, store, b.dataset, b.batch, b.records())
		model = append(model, b)
	}
	add(makeBatch("alpha", "b-1", "one", 9, false))
	add(makeBatch("beta", "b-1", "two", 7, false))
	testlake.Publish(t, store)
	add(makeBatch("gamma", "b-1", "three", 8, true))
	testlake.Publish(t, store)
	add(makeBatch("alpha", "b-2", "four", 5, false))
	testlake.Publish(t, store)
	add(makeBatch("beta", "b-1", "five", 6, true))
	testlake.Publish(t, store)
	add(makeBatch("delta", "b-1", "six", 6, true)) // not published
	// A publish of it died before its commit, and left a segment.
	run := testlake.Run()
	plan, err := publish.Plan(t.Context(), store, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publish.Build(t.Context(), store, plan.PlanKey, 0, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := lake.DeleteStaging(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	return store, model
}

// kinds are the kinds of objects, by the form of their keys. Unnamed says why verify need not name
// some damage to an object of a kind.
var kinds = []struct{ name, form, unnamed string }{
	{"registry of datasets", `^registry/datasets\.json$`, ""},
	{"copy of the registry", `^registry/datasets\.copy\.json$`,
		"a lake of an earlier build has none; a rebuild and the next new dataset write it"},
	{"piece of the registry", `^registry/pieces/`, ""},
	{"public suffix list", `^rules/`, "this program's list is not read from the lake; an ingest writes it"},
	{"batch record", `^batches/.*\.json$`, ""},
	{"postings", `^batches/.*/postings-`, ""},
	{"part", `^urls/`, ""},
	{"list of rejects", `^rejects/`, ""},
	{"manifest", `^index/manifest\.json$`, ""},
	{"version", `^index/versions/`, ""},
	{"piece of a version", `^index/pieces/`, ""},
	{"segment.json", `^index/segments/.*/segment\.json$`, ""},
	{"file of a segment", `^index/segments/`, ""},
	{"what waits", `^pending/`, "what is missing is not known, and what is published is not needed"},
	{"probe", `^index/probe`, "a store is probed with it once, and its bytes are not read"},
}

func kindOf(t *testing.T, key string) (name, unnamed string) {
	t.Helper()
	for _, k := range kinds {
		if regexp.MustCompile(k.form).MatchString(key) {
			return k.name, k.unnamed
		}
	}
	t.Fatalf("%s: an object of no kind", key)
	return "", ""
}

// harm is one way to damage an object. It returns nil for an object that is deleted.
type harm struct {
	name, group string
	do          func(data []byte) []byte
}

func harms(size int) []harm {
	all := []harm{{"deleted", "deleted", func([]byte) []byte { return nil }}}
	for _, n := range []int{0, 1, size / 3, size / 2, size - 1} {
		if n >= 0 && n < size {
			all = append(all, harm{fmt.Sprintf("truncated to %d", n), "truncated", func(d []byte) []byte { return d[:n:n] }})
		}
	}
	for i, at := range []int{0, size / 4, size / 2, size * 3 / 4, size - 1} {
		if at >= 0 && at < size {
			all = append(all, harm{fmt.Sprintf("byte %d flipped", at), "flipped", func(d []byte) []byte {
				bad := bytes.Clone(d)
				bad[at] ^= 1 << (i + 1)
				return bad
			}})
		}
	}
	return all
}

func objectsOf(t *testing.T, store blob.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

func storeOf(t *testing.T, objects map[string][]byte) *blob.Memory {
	t.Helper()
	store := blob.NewMemory()
	for key, data := range objects {
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func check(t *testing.T, store blob.Store) *lakecheck.Report {
	t.Helper()
	r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return r
}

func names(lines []string, key string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, key) })
}

// TestAnyDamage damages any single object of a lake in many ways. Verify names it. A new batch is
// published and answered correctly, without a rebuild unless the registry is lost, and after one.
// All other answers are those of the model, or the loss is named. What a rebuild names as lost,
// another ingest of the batch brings back.
func TestAnyDamage(t *testing.T) {
	pristine, model := wholesomeLake(t)
	testlake.DropOldPieces(t, pristine)
	objects := objectsOf(t, pristine)
	if r := check(t, pristine); len(r.Problems) > 0 || r.Unpublished != 1 {
		t.Fatalf("before: %+v", r)
	}
	tables := map[string]map[string]int{} // outcomes by kind and damage
	places, sampled := 0, map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		kind, unnamed := kindOf(t, key)
		all := harms(len(objects[key]))
		if !wholeLake {
			// One damage to each of the first two objects of a kind, each time another.
			if sampled[kind] == 2 {
				continue
			}
			all = all[(len(sampled)+sampled[kind]*5)%len(all):][:1]
			sampled[kind]++
		}
		for _, h := range all {
			if strings.HasPrefix(key, catalog.PendingRoot) && h.group == "deleted" {
				continue // published.Find tells the ingest that waits
			}
			c := &damageCase{T: t, key: key, what: key + " " + h.name, objects: objects, model: model}
			outcome := c.run(h, unnamed)
			places++
			row := kind + ", " + h.group
			if tables[row] == nil {
				tables[row] = map[string]int{}
			}
			tables[row][outcome]++
			if t.Failed() && !wholeLake {
				return
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(tables)) {
		t.Logf("%-40s %v", row, tables[row])
	}
	t.Logf("%d places of %d objects", places, len(objects))
}

// needed are the keys of objects that belong to versions or batches.
var needed = regexp.MustCompile(`^(urls|batches|rejects|index/(segments|pieces|dead))/`)

// damageCase is one damage to one object.
type damageCase struct {
	*testing.T
	key, what string
	objects   map[string][]byte
	model     []ingested
	rebuilt   bool // no damage may keep the new batch from being answered
}

func (c *damageCase) run(h harm, unnamed string) (outcome string) {
	t := c.T
	store := storeOf(t, c.objects)
	if bad := h.do(c.objects[c.key]); bad == nil {
		if err := store.Delete(t.Context(), c.key); err != nil {
			t.Fatal(err)
		}
	} else if _, err := store.Put(t.Context(), c.key, bad, blob.Condition{}); err != nil {
		t.Fatal(err)
	}

	before := check(t, store)
	named := names(before.Problems, c.key)
	for _, p := range before.Problems {
		if !strings.Contains(p, "starter ") {
			t.Errorf("%s: no command: %s", c.what, p)
		}
		if key, _, _ := strings.Cut(p, ": "); needed.MatchString(key) && !strings.Contains(p, "; needed by ") {
			t.Errorf("%s: nothing that depends on it: %s", c.what, p)
		}
	}
	c.plain(storeOf(t, objectsOf(t, store)), before.Problems)
	reported := slices.Clone(before.Problems)
	rebuilt, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	c.rebuilt = true
	if err != nil {
		t.Errorf("%s: rebuild: %v", c.what, err)
		return "failed"
	}
	reported = append(reported, rebuilt.Lost...)
	fresh := makeBatch("epsilon", "b-1", "seven", 4, false)
	if _, err := c.publish(store, fresh, &reported); err != nil {
		t.Errorf("%s: after a rebuild: %v", c.what, err)
		return "failed"
	}
	model := append(slices.Clone(c.model), fresh)
	right := c.answers(store, model, fresh)
	after := check(t, store)
	switch {
	case right && len(after.Problems) == 0:
		if !named {
			switch {
			case c.unpublishedSegment():
				return "in no version yet, built again"
			case unnamed == "":
				t.Errorf("%s: verify has not named it", c.what)
			}
			return "irrelevant: " + unnamed
		}
		return "mended"
	case !names(reported, c.key):
		t.Errorf("%s: right answers: %v; neither verify, rebuild nor publish name it:\n%s\nafter: %s", c.what, right,
			strings.Join(reported, "\n"), strings.Join(after.Problems, "\n"))
		return "failed"
	}
	return c.again(store, model)
}

// plain publishes a new batch in the damaged lake as it is. Only a lake that has lost the registry
// refuses that, and names it.
func (c *damageCase) plain(store blob.Store, reported []string) {
	t := c.T
	fresh := makeBatch("epsilon", "b-1", "seven", 4, false)
	refused, err := c.publish(store, fresh, &reported)
	switch {
	case err == nil && !refused:
		c.answers(store, append(slices.Clone(c.model), fresh), fresh)
	case !strings.HasPrefix(c.key, "registry/") || !names(append(reported, fmt.Sprint(err)), c.key):
		t.Errorf("%s: a plain publish: %v, %v, %q", c.what, refused, err, reported)
	}
}

// publish ingests a new batch and publishes. Refused tells that the batch was left out.
func (c *damageCase) publish(store blob.Store, fresh ingested, reported *[]string) (refused bool, err error) {
	t := c.T
	spec := testlake.Spec(t, store, fresh.dataset, fresh.batch, fresh.records())
	if _, err := testlake.Steps(t.Context(), store, spec, t.TempDir()); err != nil {
		return false, err
	}
	done, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir())
	for _, s := range done.Skipped {
		*reported = append(*reported, s.Reason)
		refused = refused || s.Dataset == fresh.dataset
	}
	return refused, err
}

// answers compares a new server with the model. Answers may be errors about damage, or lack the
// batches whose loss was reported; nothing else may differ, and the fresh batch must be right.
func (c *damageCase) answers(store blob.Store, model []ingested, fresh ingested) bool {
	t := c.T
	want := answersOf(model)
	got, failed := serve(t, store, domainsOf(want))
	freshOnly := answersOf([]ingested{fresh})
	right := true
	for _, key := range slices.Sorted(maps.Keys(want)) {
		domain, dataset, _ := strings.Cut(key, " ")
		if slices.Equal(want[key], got[key]) {
			continue
		}
		right = false
		_, isFresh := freshOnly[key]
		ownDomain := isFresh && strings.HasSuffix(domain, ".example")
		if failed[""] != nil || failed[domain] != nil || failed[key] != nil {
			err := errors.Join(failed[""], failed[domain], failed[key])
			if ownDomain && (c.rebuilt || !strings.Contains(err.Error(), c.key)) {
				t.Errorf("%s: the new batch: %s: %v", c.what, key, err)
			}
			continue
		}
		if isFresh {
			t.Errorf("%s: the new batch: %s: %s", c.what, key, cmp.Diff(want[key], got[key]))
		}
		// What is left of the dataset without one batch.
		explained := false
		for i, b := range model {
			if b.dataset == dataset && !b.replaced {
				less := append(slices.Clone(model[:i]), model[i+1:]...)
				explained = explained || slices.Equal(answersOf(less)[key], got[key])
			}
		}
		if !explained {
			t.Errorf("%s: %s: %s", c.what, key, cmp.Diff(want[key], got[key]))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: an answer about %s: %v", c.what, key, got[key])
		}
	}
	return right
}

// again does what the report says: it ingests lost batches again, and restores a batch that waited.
// Then everything is right.
func (c *damageCase) again(store blob.Store, model []ingested) string {
	t := c.T
	ids := map[string]string{}
	for i, name := range []string{"alpha", "beta", "gamma", "delta", "epsilon"} {
		ids[fmt.Sprintf("dataset_id=%d/", i+1)] = name
	}
	for _, b := range model {
		for id, name := range ids {
			ofIt := strings.Contains(c.key, id) && strings.Contains(c.key, b.batch) || strings.HasPrefix(c.key, "pending/4/") && b.dataset == "delta"
			if b.dataset == name && !b.replaced && ofIt {
				testlake.Ingest(t, store, b.dataset, b.batch, b.records())
			}
		}
	}
	if _, err := publish.All(t.Context(), store, testlake.Run(), t.TempDir()); err != nil {
		t.Errorf("%s: publish of the batch that was ingested again: %v", c.what, err)
	}
	want := answersOf(model)
	got, failed := serve(t, store, domainsOf(want))
	if d := cmp.Diff(want, got); d != "" || len(failed) > 0 {
		t.Errorf("%s: after the batch was ingested again: %s, %v", c.what, d, failed)
		return "failed"
	}
	if r := check(t, store); len(r.Problems) > 0 {
		return "named as lost to older versions"
	}
	return "named as lost, mended by another ingest"
}

// unpublishedSegment reports whether the object belongs to a segment that no version has.
func (c *damageCase) unpublishedSegment() bool {
	id, ok := strings.CutPrefix(c.key, "index/segments/")
	if !ok {
		return false
	}
	id, _, _ = strings.Cut(id, "/")
	for key, data := range c.objects {
		if strings.HasPrefix(key, "index/versions/") && bytes.Contains(data, []byte(id)) {
			return false
		}
	}
	return true
}

// TestCheckGoesOnWithoutAManifest damages a file of a segment of a lake whose manifest is lost.
// Both are named, and nothing is written.
func TestCheckGoesOnWithoutAManifest(t *testing.T) {
	pristine, _ := wholesomeLake(t)
	objects := objectsOf(t, pristine)
	current := check(t, pristine).Version
	for _, lost := range []string{"missing", "damaged"} {
		store := storeOf(t, objects)
		if err := store.Delete(t.Context(), catalog.ManifestKey); err != nil {
			t.Fatal(err)
		}
		if lost == "damaged" {
			if _, err := store.Put(t.Context(), catalog.ManifestKey, []byte("{}"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		record := ""
		for key := range objects {
			if strings.HasPrefix(key, "batches/dataset_id=3/") && strings.HasSuffix(key, ".json") {
				record = key
			}
		}
		if err := store.Delete(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		before := objectsOf(t, store)
		r := check(t, store)
		if !names(r.Problems, catalog.ManifestKey) || !names(r.Problems, record) || r.Version != current {
			t.Errorf("manifest %s: version %s: %q", lost, r.Version, r.Problems)
		}
		if d := cmp.Diff(before, objectsOf(t, store)); d != "" {
			t.Errorf("manifest %s: the check has written: %s", lost, d)
		}
	}
}
