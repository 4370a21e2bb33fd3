package suppress

import (
	"bytes"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
)

// Older page keys are judged by what they may have been cut from.
func TestPageKeysOfHiddenRows(t *testing.T) {
	const key = "index/segments/00000000000000000000000000000000/parts.keys.zst"
	target := func(kind catalog.TargetKind, host, path string) *catalog.Takedown {
		return &catalog.Takedown{Target: catalog.Target{Kind: kind, Host: host, Path: path}}
	}
	own := part.PageKey{Host: "www.a.test", Path: "/secret/b", Port: part.NoPort}
	for _, c := range []struct {
		rule  *catalog.Takedown
		holds bool
	}{
		{target(catalog.DomainTarget, "a.test", ""), true},
		{target(catalog.DomainTarget, "b.test", ""), false},
		{target(catalog.DomainTarget, "w.a.test", ""), false},
		{target(catalog.HostTarget, "www.a.test", ""), true},
		{target(catalog.HostTarget, "a.test", ""), false},
		{target(catalog.URLTarget, "www.a.test", "/secret/book"), true},
		{target(catalog.URLTarget, "www.a.test", "/secret/"), false}, // the key was cut from a longer path
		{target(catalog.URLTarget, "a.test", "/secret/book"), false},
		{target(catalog.PrefixTarget, "www.a.test", "/secret/"), true},
		{target(catalog.PrefixTarget, "www.a.test", "/secret/book/"), true},
		{target(catalog.PrefixTarget, "www.a.test", "/secret/c"), false},
	} {
		var file bytes.Buffer
		w := segment.NewPageKeysWriter(&file)
		for i, k := range []part.PageKey{{Host: "z.test", Path: "/", Port: part.NoPort}, own} {
			if err := w.Add(uint32(i), &part.PageKeyBlock{FirstRow: 7, Keys: []part.PageKey{{Port: part.NoPort}, k}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		store := blob.NewMemory()
		info, err := store.Put(t.Context(), key, file.Bytes(), blob.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		in := &inspector{rule: c.rule}
		kind, may := in.kindOf(key)
		holds, _, err := in.versionHolds(t.Context(), store, kind, info)
		if !may || holds != c.holds || err != nil {
			t.Errorf("%+v: %s, %v, holds %v, want %v: %v", c.rule.Target, kind, may, holds, c.holds, err)
		}
		damaged := bytes.Clone(file.Bytes())
		damaged[9] ^= 4
		if info, err = store.Put(t.Context(), key, damaged, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err = in.versionHolds(t.Context(), store, kind, info); err == nil {
			t.Error("damage is not found")
		}
	}
}
