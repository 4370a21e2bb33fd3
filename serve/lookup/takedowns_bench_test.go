package lookup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
)

// BenchmarkTakedowns measures a lake of 20,000 domains with ten thousand takedowns, a quarter of
// each kind: a domain that none is about and one that has lost rows, and reading all of them anew.
func BenchmarkTakedowns(b *testing.B) {
	snap := benchLake(b)
	store := snap.server.store
	const rules = 10_000
	doc := &catalog.TakedownDocument{}
	for i := range rules {
		kind, text := catalog.DomainTarget, fmt.Sprintf("site%05d.test", 100+i)
		switch i % 4 {
		case 1:
			kind, text = catalog.HostTarget, "www."+text
		case 2:
			kind, text = catalog.URLTarget, fmt.Sprintf("https://www.%s/some/path/0/0?q=%d", text, 100+i)
		case 3:
			kind, text = catalog.PrefixTarget, "www."+text+"/some/path/1"
		}
		t, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
		if err != nil {
			b.Fatal(err)
		}
		r := catalog.Takedown{ID: fmt.Sprintf("20261120-%010x", i), Target: t, Reason: "bench", Created: time.Unix(1_800_000_000, 0).UTC()}
		if doc, err = doc.Edit(b.Context(), store, &r, nil, catalog.NewTakedownRecord(&r, uint64(i+1), nil, nil)); err != nil {
			b.Fatal(err)
		}
	}
	ref, err := doc.Write(b.Context(), store)
	if err != nil {
		b.Fatal(err)
	}
	err = catalog.SetTakedowns(b.Context(), store, func(context.Context, *catalog.Manifest) (*catalog.TakedownRef, uint64, error) {
		return &ref, doc.Epoch, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	started := time.Now()
	if _, err := suppress.Reapply(b.Context(), store, b.TempDir()); err != nil {
		b.Fatal(err)
	}
	b.Logf("all rules were applied to all segments in %v", time.Since(started))
	for _, c := range []struct{ name, domain string }{
		{"before, not named", "site00077.test"}, {"not named", "site00077.test"}, {"named", "site00101.test"}, {"absent", "no-such-domain.test"},
	} {
		if c.name == "not named" {
			if err := snap.server.Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		tg := target(b, c.domain)
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := snap.Domain(b.Context(), tg, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	m, _, err := catalog.ReadManifest(b.Context(), store)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			snap.server.takedowns.Store(nil)
			if err := snap.server.loadTakedowns(b.Context(), m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
