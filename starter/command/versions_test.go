package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// versionedLake returns a lake of four versions: a dataset of two batches, one of 1,500 rows, a
// batch replaced by a smaller one, and one replaced by one as large.
func versionedLake(t *testing.T) (dir string, store blob.Store) {
	t.Helper()
	dir = t.TempDir()
	store, err := blob.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	ingest := func(dataset, batch, path string, n int) {
		var records []testlake.Record
		for i := range n {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://example.com/%s/%d", path, i)})
		}
		testlake.Ingest(t, store, dataset, batch, records)
	}
	ingest("alpha", "b1", "1", 4)
	ingest("alpha", "b2", "2", 1)
	testlake.Publish(t, store)
	ingest("beta", "b1", "3", 1500)
	testlake.Publish(t, store)
	ingest("alpha", "b1", "4", 3)
	testlake.Publish(t, store)
	ingest("alpha", "b1", "5", 3)
	testlake.Publish(t, store)
	return dir, store
}

func TestVersionsSayWhatChanged(t *testing.T) {
	dir, store := versionedLake(t)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := catalog.SetTag(t.Context(), store, "release-1", m.Versions[1].ID, false); err != nil {
		t.Fatal(err)
	}
	if m, _, err = catalog.ReadManifest(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	var documents []*catalog.Version
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, v)
	}
	out, errs, code := starter(t, "versions", "--lake", dir)
	if code != cli.ExitDone {
		t.Fatal(code, errs)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if want := "VERSION                        DATASETS  BATCHES  SEGMENTS   ROWS  STATE"; lines[0] != want {
		t.Errorf("header %q, want %q", lines[0], want)
	}
	text := strings.Join(lines[1:], "\n") + "\n"
	for i, c := range []struct{ counts, changed string }{
		{"1        2         %d      5", "the first version"},
		{"2        3         %d  1,505", "+1 dataset, +1 batch, +1,500 rows since " + documents[0].ID},
		{"2        3         %d  1,504", "-1 row since " + documents[1].ID},
		{"2        3         %d  1,504  current", "as many datasets, batches and rows as " + documents[2].ID},
	} {
		want := documents[i].ID + "         " + fmt.Sprintf(c.counts, documents[i].Counts.Segments) + "\n  "
		if i == 1 {
			want += "tagged release-1\n  "
		}
		want += c.changed
		rest, ok := strings.CutPrefix(text, want)
		if !ok {
			t.Fatalf("version %d: want\n%s\ngot\n%s", i, want, out)
		}
		if rest, ok = strings.CutPrefix(strings.TrimLeft(rest, "\n; "), "built by "+documents[i].BuiltBy+"\n"); !ok {
			t.Fatalf("version %d: want built by %s, got\n%s", i, documents[i].BuiltBy, out)
		}
		text = rest
	}
	if text != "" {
		t.Errorf("after all versions: %q", text)
	}

	out, errs, code = starter(t, "versions", "--lake", dir, "--json")
	if code != cli.ExitDone {
		t.Fatal(code, errs)
	}
	var got document
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	versions := got.Versions
	got.Versions, m.Versions = nil, nil
	if diff := cmp.Diff(m, got.Manifest, cmpopts.IgnoreUnexported(catalog.Manifest{})); diff != "" {
		t.Errorf("the manifest (-want +got):\n%s", diff)
	}
	if len(versions) != len(documents) {
		t.Fatalf("%d versions", len(versions))
	}
	for i, change := range [][3]int{{1, 2, 5}, {1, 1, 1500}, {0, 0, -1}, {0, 0, 0}} {
		v, rows := documents[i], int64(change[2])
		want := version{
			VersionRef: versions[i].VersionRef, Current: i == 3, Tags: []string{}, Created: v.Created, BuiltBy: v.BuiltBy, Parent: &v.Parent,
			CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix, Counts: v.Counts,
			DatasetsAdded: &change[0], BatchesAdded: &change[1], RowsAdded: &rows,
		}
		want.ID, want.Commit, want.Object = v.ID, v.Commit, catalog.VersionKey(v.ID)
		if i == 0 {
			want.Parent = nil
		}
		if i == 1 {
			want.Tags = []string{"release-1"}
		}
		if diff := cmp.Diff(want, versions[i]); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", i, diff)
		}
	}
	if !strings.Contains(out, `"parent": null`) || !strings.Contains(out, `"xxh64"`) {
		t.Errorf("%s", out)
	}
}

func TestLostVersionIsNamed(t *testing.T) {
	dir, store := versionedLake(t)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	lost := m.Versions[1]
	if err := os.Remove(filepath.Join(dir, filepath.FromSlash(lost.Object))); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"--json=false", "--json"} {
		out, errs, code := starter(t, "versions", "--lake", dir, form)
		if code != cli.ExitFailed || out != "" || !strings.Contains(errs, lost.Object) || !strings.Contains(errs, "starter rebuild") {
			t.Errorf("%s: exit %d, %s%s", form, code, out, errs)
		}
	}
	if _, err := catalog.DropLost(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	out, errs, code := starter(t, "versions", "--lake", dir)
	if code != cli.ExitDone || !strings.Contains(out, "  follows "+lost.ID+", which is no longer kept") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	out, _, _ = starter(t, "versions", "--lake", dir, "--json")
	if strings.Count(out, `"rows_added": null`) != 1 {
		t.Errorf("%s", out)
	}
}
