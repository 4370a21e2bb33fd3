package lakecheck

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/pack"
	"github.com/urlake/urlake/lake/registry"
	"github.com/urlake/urlake/lake/remedy"
)

// maxNamed is how many batches of a damaged pack are named.
const maxNamed = 20

// packed are the packs of a lake and their batches, as versions and the registry name them.
type packed struct {
	view    *pack.View
	batches map[string][]string // by pack
	known   map[string]bool     // pack and batch
}

func (p *packed) add(dataset uint32, batch, name string) {
	batch = fmt.Sprintf("%s of dataset %d", batch, dataset)
	if name == "" || p.known[name+batch] {
		return
	}
	p.known[name+batch] = true
	p.batches[name] = append(p.batches[name], batch)
}

// findPacks lists the packs of versions and of all finished batches. A registry that cannot be read
// is reported where it is checked.
func (c *checker) findPacks(versions []*manifest.Version) error {
	c.packs = &packed{view: pack.NewView(c.store), batches: map[string][]string{}, known: map[string]bool{}}
	c.store = c.packs.view
	add := func(dataset uint32, batch, name string) {
		c.packs.view.Add(dataset, batch, name)
		c.packs.add(dataset, batch, name)
	}
	for _, v := range versions {
		for b, err := range v.Needed(c.ctx) {
			if errors.Is(err, codec.ErrCorrupt) {
				break // it is reported where the version is checked
			}
			if err != nil {
				return err
			}
			add(b.DatasetID, b.Batch, b.Pack)
		}
	}
	finished, err := registry.AllBatches(c.ctx, c.store, func(int, error) {})
	for _, b := range finished {
		add(b.DatasetID, b.Batch, b.Pack)
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return err
}

// lostPacks adds a line for each pack that has lost an object, with the batches that it holds. The
// lost objects have lines of their own.
func (c *checker) lostPacks() {
	for _, name := range c.packs.view.Lost() {
		batches := c.packs.batches[name]
		more := ""
		if n := len(batches) - maxNamed; n > 0 {
			batches, more = batches[:maxNamed], fmt.Sprintf(" and %d more", n)
		}
		key := pack.Key(name)
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(
			"%s: the pack is damaged or missing; it holds batch %s%s; %s",
			key, strings.Join(batches, ", batch "), more, remedy.Of(c.store.URL(), key)))
	}
}
