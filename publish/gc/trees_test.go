package gc_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish/gc"
)

// A file of path trees that another one has replaced goes, though not at once: a build writes the
// file before the document. One without a document stays, and so does the one that is named.
func TestReplacedTreesGo(t *testing.T) {
	store := blob.NewMemory()
	if err := treebuild.SetAlways(t.Context(), store, true); err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "news", "a", records("a", 30))
	testlake.Publish(t, store)
	var document, file string
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(info.Key, "/tree.json"):
			document = info.Key
		case pathtree.IsFile(info.Key):
			file = info.Key
		}
	}
	data, _, err := store.Get(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	other := file[:strings.LastIndex(file, "-")+1] + strings.Repeat("0", 32) + ".zst"
	put := func(key string, data []byte) {
		t.Helper()
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(key string) bool {
		t.Helper()
		_, err := store.Stat(t.Context(), key)
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	clock := time.Now()
	opt := func() gc.Options { return gc.Options{Keep: 1, Now: func() time.Time { return clock }} }
	kind := gc.SegmentFiles.String()

	put(other, data)
	dry := opt()
	dry.DryRun = true
	if res := collect(t, store, dry); res.Found[kind].Objects != 1 || res.Deleted[kind].Objects != 0 {
		t.Errorf("dry: %+v", res)
	}
	if res := collect(t, store, opt()); res.Found[kind].Objects != 1 || res.Deleted[kind].Objects != 0 || res.Waiting.Objects != 1 {
		t.Errorf("at first: %+v", res)
	}
	clock = clock.Add(59 * time.Minute)
	if res := collect(t, store, opt()); res.Found[kind].Objects != 0 || res.Deleted[kind].Objects != 0 || !has(other) {
		t.Errorf("within the hour: %+v", res)
	}
	// The document is written just before the hour ends.
	info, err := pathtree.ReadInfo(t.Context(), store, strings.Split(file, "/")[2])
	if err != nil {
		t.Fatal(err)
	}
	info.File = path.Base(other)
	replaced, err := codec.Seal(info)
	if err != nil {
		t.Fatal(err)
	}
	put(document, replaced)
	clock = clock.Add(2 * time.Minute)
	if res := collect(t, store, opt()); res.Spared.Objects != 1 || res.Deleted[kind].Objects != 0 || !has(other) || !has(file) {
		t.Errorf("named: %+v", res)
	}
	// Now the first one is the replaced one, found just now.
	clock = clock.Add(61 * time.Minute)
	if res := collect(t, store, opt()); res.Deleted[kind].Objects != 1 || !has(other) || has(file) {
		t.Errorf("afterwards: %+v", res)
	}
	// Without a document, or with a damaged one, nothing goes.
	put(file, data)
	for _, text := range []string{"{}", ""} {
		if put(document, []byte(text)); text == "" {
			if err := store.Delete(t.Context(), document); err != nil {
				t.Fatal(err)
			}
		}
		clock = clock.Add(48 * time.Hour)
		if res := collect(t, store, opt()); res.Found[kind].Objects != 0 || !has(other) || !has(file) {
			t.Errorf("document %q: %+v", text, res)
		}
	}
}
