package suppress

import (
	"bytes"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
)

// Older page keys are judged by what they may have been cut from.
func TestPageKeysOfHiddenRows(t *testing.T) {
	const key = "index/segments/00000000000000000000000000000000/parts.keys.zst"
	target := func(kind takedown.Kind, host, path string) *takedown.Rule {
		return &takedown.Rule{Target: takedown.Target{Kind: kind, Host: host, Path: path}}
	}
	own := part.PageKey{Host: "www.a.test", Path: "/secret/b", Port: part.NoPort}
	for _, c := range []struct {
		rule  *takedown.Rule
		holds bool
	}{
		{target(takedown.Domain, "a.test", ""), true},
		{target(takedown.Domain, "b.test", ""), false},
		{target(takedown.Domain, "w.a.test", ""), false},
		{target(takedown.Host, "www.a.test", ""), true},
		{target(takedown.Host, "a.test", ""), false},
		{target(takedown.URL, "www.a.test", "/secret/book"), true},
		{target(takedown.URL, "www.a.test", "/secret/"), false}, // the key was cut from a longer path
		{target(takedown.URL, "a.test", "/secret/book"), false},
		{target(takedown.Prefix, "www.a.test", "/secret/"), true},
		{target(takedown.Prefix, "www.a.test", "/secret/book/"), true},
		{target(takedown.Prefix, "www.a.test", "/secret/c"), false},
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
