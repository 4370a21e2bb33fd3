package publish_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
)

// Damage that only an index of path trees needs holds up no publish. It is told, and the indexes of
// other segments are built.
func TestDamageOfTreesIsToldAndHoldsUpNothing(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "news", "a", []testlake.Record{{URL: "https://a.test/x/"}})
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "news", "b", []testlake.Record{{URL: "https://b.test/x/"}})
	testlake.Publish(t, store)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
	if err != nil || len(v.Segments) != 2 {
		t.Fatalf("%d segments: %v", len(v.Segments), err)
	}
	var refs []segment.Ref
	for i := range v.Segments {
		refs = append(refs, lakecheck.SegmentRef(v.Segments[i]))
	}
	verify := func() (warned []error) {
		t.Helper()
		err := publish.Verify(t.Context(), store, publish.Built{Segments: refs}, t.TempDir(), func(err error) {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%v is no damage", err)
			}
			warned = append(warned, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		return warned
	}
	states := func() (sound int) {
		t.Helper()
		for _, ref := range refs {
			s, _, _, err := treebuild.Inspect(t.Context(), store, ref.ID)
			if err != nil {
				t.Fatal(err)
			}
			if s == treebuild.Sound {
				sound++
			}
		}
		return sound
	}
	if err := treebuild.SetAlways(t.Context(), store, true); err != nil {
		t.Fatal(err)
	}
	// A setting that is damaged is known to nobody, so nothing is built.
	restore := damage(t, store, treebuild.SettingKey, "flipped")
	warned := verify()
	if len(warned) != 1 || states() != 0 {
		t.Fatalf("%v, %d indexes", warned, states())
	}
	text := lake.Explain("s3://b/l", warned[0])
	for _, want := range []string{treebuild.SettingKey, "starter tree build --lake s3://b/l --always", "--never"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s; want %s", text, want)
		}
	}
	report, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0], "--always") {
		t.Errorf("%q, %v", report.Problems, err)
	}
	rebuilt, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	if err != nil || rebuilt.Checked != 2 || len(rebuilt.Segments) > 0 {
		t.Errorf("%+v, %v", rebuilt, err)
	}
	restore()
	// Of one segment a part is lost.
	part := ""
	for key := range objectsBelow(t, store, "urls/") {
		if strings.Contains(key, "/part-a-") {
			part = key
		}
	}
	restore = damage(t, store, part, "missing")
	warned = verify()
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), part) || states() != 1 {
		t.Fatalf("%v, %d indexes", warned, states())
	}
	restore()
	if warned = verify(); len(warned) != 0 || states() != 2 {
		t.Fatalf("%v, %d indexes", warned, states())
	}
}

func objectsBelow(t testing.TB, store blob.Store, prefix string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.List(t.Context(), prefix) {
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

// A rebuild builds a damaged index of path trees again, also in a lake whose publishes build none.
func TestRebuildOfADamagedTree(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "d", "b", []testlake.Record{{URL: "http://www.a.example/1"}, {URL: "http://b.example/1"}})
	testlake.Publish(t, store)
	if err := treebuild.SetAlways(t.Context(), store, false); err != nil {
		t.Fatal(err)
	}
	ref := lakecheck.SegmentRef(current(t, store).Segments[0])
	if _, _, err := treebuild.Ensure(t.Context(), store, ref, treebuild.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	damage(t, store, "index/segments/"+ref.ID+"/tree.json", "flipped")
	if _, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if state, _, why, err := treebuild.Inspect(t.Context(), store, ref.ID); err != nil || state != treebuild.Sound {
		t.Errorf("state %d, %v, %v", state, why, err)
	}
}
