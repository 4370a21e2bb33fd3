package lookup

import (
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// A server that starts with a manifest from before a takedown and a publish hides the URLs that
// were taken down and shows all that were published. Its status names the damage until it is
// mended.
func TestManifestThatIsPutBack(t *testing.T) {
	store := blob.NewMemory()
	publish := func(batch, url string) {
		testlake.Ingest(t, store, "d", batch, []testlake.Record{{URL: url}})
		testlake.Publish(t, store)
	}
	publish("b1", "https://secret.example/1")
	publish("b2", "https://example.com/2")
	running := serve(t, store, Options{})
	before, _, err := store.Get(t.Context(), catalog.ManifestKey)
	if err != nil {
		t.Fatal(err)
	}
	rule := naiveRule{kind: "domain", text: "secret.example"}
	rule.add(t, store, nil)
	publish("b3", "https://example.com/3")
	if err := running.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	newest := acquire(t, running, "").version.ID
	if _, err := store.Put(t.Context(), catalog.ManifestKey, before, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	started := NewServer(store, Options{CacheDir: t.TempDir()})
	t.Cleanup(started.Close)
	for name, s := range map[string]*Server{"running": running, "started": started} {
		err := s.Refresh(t.Context())
		if name == "started" && (!errors.Is(err, codec.ErrCorrupt) || !strings.Contains(Reason(s.Status().Err), "publish")) ||
			name == "running" && !errors.Is(err, catalog.ErrGeneration) {
			t.Errorf("%s: %v; want an error that names the manifest", name, err)
		}
		snap := acquire(t, s, "")
		if snap.version.ID != newest {
			t.Errorf("%s: version %s, want %s", name, snap.version.ID, newest)
		}
		for host, want := range map[string]int{"secret.example": 0, "example.com": 1} {
			page, err := snap.Domain(t.Context(), target(t, host), "")
			if err != nil || page.Total != want {
				t.Errorf("%s: %d datasets of %s, %v; want %d", name, page.Total, host, err, want)
			}
		}
	}
	testlake.Publish(t, store)
	for name, s := range map[string]*Server{"running": running, "started": started} {
		if err := s.Refresh(t.Context()); err != nil || s.Status().Err != nil {
			t.Errorf("%s, after a publish: %v", name, err)
		}
		if page, err := acquire(t, s, "").Domain(t.Context(), target(t, "secret.example"), ""); err != nil || page.Total != 0 {
			t.Errorf("%s, after a publish: %d datasets, %v", name, page.Total, err)
		}
	}
}
