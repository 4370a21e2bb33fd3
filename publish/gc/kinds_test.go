package gc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish/gc"
)

// planted has keys of every kind that nothing refers to, by the name of the kind.
func planted() map[string][]string {
	digest := strings.Repeat("0123456789abcdef", 2)
	piece := "01/" + digest
	return map[string][]string{
		"versions":                   {catalog.VersionKey("20200102T030405.678Z-01234567")},
		"segments":                   {"index/segments/" + digest + "/segment.json"},
		"segment files":              {"index/segments/" + digest + "/domains.idx", "index/segments/" + digest + "/built-by/x"},
		"version pieces":             {catalog.VersionPiecesRoot + piece},
		"takedowns":                  {catalog.TakedownDocumentRoot + "000000000001-" + digest + ".json"},
		"takedown pieces":            {catalog.TakedownPiecesRoot + piece},
		"deletion tables":            {lake.DeletionKey(digest, digest)},
		"batch records":              {lake.BatchKey(77, "b", digest)},
		"postings":                   {lake.PostingsKey(77, "b", digest)},
		"rejects":                    {lake.RejectsKey(77, "b", digest)},
		"parts":                      {lake.PartKey(77, "ab", "b", digest, 0)},
		"registry pieces":            {catalog.RegistryPiecesRoot + piece},
		"pieces of inputs":           {many.TakenRoot + piece},
		"pieces of domain64 numbers": {numbers.PiecesRoot + piece},
		"reports":                    {many.ReportPrefix("dead") + "000000.ndjson.zst"},
		"probes":                     {catalog.ProbeRoot + "20260102T020404Z-ISW2VIDF2X4QIPLWQXTORRFUY5"},
	}
}

// Every kind has a rule: what nothing refers to goes, of each of them.
func TestEveryKindIsCollected(t *testing.T) {
	store := blob.NewMemory()
	want := used(t, store)
	all := planted()
	for _, name := range gc.KindNames {
		if len(all[name]) == 0 {
			t.Errorf("no example of the kind %q", name)
		}
		for _, key := range all[name] {
			if got, _, ok := gc.KindOf(key); !ok || got != name {
				t.Errorf("%s is of kind %q, want %q", key, got, name)
			}
			if _, err := store.Put(t.Context(), key, []byte("planted"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	collect(t, store, now())
	later := func() time.Time { return time.Now().Add(gc.ReportLife + time.Hour) }
	collect(t, store, gc.Options{Keep: 1, Now: later})
	for name, keys := range all {
		for _, key := range keys {
			if _, err := store.Stat(t.Context(), key); err == nil {
				t.Errorf("%s: %s is still there", name, key)
			}
		}
	}
	expect(t, store, want)
	known(t, store)
}

// known fails for a key that no kind knows.
func known(t testing.TB, store blob.Store) {
	t.Helper()
	for key := range objects(t, store, "") {
		if _, _, ok := gc.KindOf(key); !ok {
			t.Errorf("%s is of no kind that package gc knows", key)
		}
	}
}

// The report of a run stays for reportLife after a collection has found the run over, whatever the
// time of grace is, and that of a run that can go on stays in any case.
func TestReportsHaveABoundedLife(t *testing.T) {
	store := blob.NewMemory()
	used(t, store)
	put := func(key string) string {
		if _, err := store.Put(t.Context(), key, []byte("report"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	over := put(many.ReportPrefix("over") + "000000.ndjson.zst")
	running := put(many.ReportPrefix("running") + "000000.ndjson.zst")
	put("index/segments/" + strings.Repeat("0", 32) + "/domains.idx") // in the same list
	plan := put(lake.StagingPrefix("running") + "many.json")
	begin := time.Now()
	at := func(age time.Duration) gc.Result {
		return collect(t, store, gc.Options{Keep: 1, Now: func() time.Time { return begin.Add(age) }})
	}
	left := func() []string {
		var keys []string
		for key := range objects(t, store, many.ReportRoot, "index/segments/"+strings.Repeat("0", 32)) {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		return keys
	}
	for _, age := range []time.Duration{0, time.Hour, gc.ReportLife - time.Minute} {
		res := at(age)
		if want := []string{over, running}; !slices.Equal(left(), want) {
			t.Fatalf("after %v: %q are left, want %q", age, left(), want)
		}
		if res.Waiting.Objects != 1 || res.Next == nil || res.Next.Sub(begin).Round(time.Minute) != gc.ReportLife {
			t.Errorf("after %v: %+v waits until %v", age, res.Waiting, res.Next)
		}
	}
	if res := at(gc.ReportLife); res.Deleted["reports"].Objects != 1 || !slices.Equal(left(), []string{running}) {
		t.Errorf("deleted %+v, left %q", res.Deleted, left())
	}
	if err := store.Delete(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	at(gc.ReportLife)
	at(2 * gc.ReportLife)
	if len(left()) > 0 {
		t.Errorf("left %q", left())
	}
}
