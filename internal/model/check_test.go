package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
)

// check holds the lake against the map.
func (m *machine) check(*rapid.T) {
	m.steps++
	m.done["steps"]++
	if err := m.agrees(m.world); err != nil {
		m.Fatalf("%v", err)
	}
	if m.steps%8 == 0 {
		m.verify()
	}
}

// verify reads everything that is stored.
func (m *machine) verify() {
	r, err := lakecheck.Lake(m.Context(), m.store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: m.temp})
	if err != nil || len(r.Problems) > 0 {
		m.Fatalf("verify: %+v, %v", r, err)
	}
	m.done["verified"]++
}

// agrees returns an error if the lake differs from a world. It tells the world the ids of new
// versions.
func (m *machine) agrees(w *world) error {
	for id := range w.orders {
		if err := m.batchesAgree(w, id.dataset); err != nil {
			return err
		}
	}
	list, _, err := catalog.ReadManifest(m.Context(), m.store)
	if errors.Is(err, catalog.ErrNoVersion) {
		if len(w.versions) > 0 {
			return errors.New("the lake has no version")
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(list.Versions) != len(w.versions) {
		return fmt.Errorf("%d versions, want %d", len(list.Versions), len(w.versions))
	}
	known := slices.Clone(w.versions)
	for i, v := range w.versions {
		if v.id == "" {
			c := *v
			c.id = list.Versions[i].ID
			known[i] = &c
		}
		if known[i].id != list.Versions[i].ID {
			return fmt.Errorf("version %d is %s, want %s", i, list.Versions[i].ID, known[i].id)
		}
		if tags := list.TagsOf(known[i].id); !slices.Equal(tags, v.tags) && len(tags)+len(v.tags) > 0 {
			return fmt.Errorf("version %d has tags %q, want %q", i, tags, v.tags)
		}
	}
	if err := m.server.Refresh(m.Context()); err != nil {
		return fmt.Errorf("refresh: %w", err)
	}
	all := make([]*answers, len(known))
	for i, v := range known {
		all[i] = w.answers(v)
		if err := m.versionAgrees(v, all[i]); err != nil {
			return fmt.Errorf("version %d of %d, %s: %w", i, len(known), v.id, err)
		}
	}
	if err := m.summariesAgree(known, all); err != nil {
		return err
	}
	i, j := m.steps%len(known), m.steps/3%len(known)
	if err := m.diffAgrees(known[i], known[j], diff(all[i], all[j])); err != nil {
		return fmt.Errorf("diff of versions %d and %d of %d: %w", i, j, len(known), err)
	}
	w.versions = known
	return nil
}

// batchesAgree compares which batches of a dataset are retired.
func (m *machine) batchesAgree(w *world, dataset string) error {
	want, got := map[string]bool{}, map[string]bool{}
	for id := range w.orders {
		if c, retired := w.current(id); c != nil && id.dataset == dataset {
			want[id.batch] = retired
		}
	}
	if id := m.idOf(dataset); id != 0 {
		state, err := catalog.LookBatches(m.Context(), m.store, id)
		if err != nil {
			return err
		}
		states, err := state.Batches(m.Context(), id)
		if err != nil {
			return err
		}
		for _, s := range states {
			got[s.Batch] = s.Retired
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("retired batches of %s (-map +lake):\n%s", dataset, diff)
	}
	return nil
}

func (m *machine) versionAgrees(v *version, want *answers) error {
	snap, err := m.server.Acquire(m.Context(), v.id)
	if err != nil {
		return err
	}
	defer snap.Release()
	domains := map[string]bool{"absent.test": true}
	for _, host := range hosts {
		domains[domainOf(host, v.list)] = true
	}
	got := &answers{map[place]totals{}, map[place][]string{}, map[string]treeNode{}, map[string]int64{}, 0}
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		target, err := lookup.ParseTarget(domain)
		if err != nil {
			return err
		}
		page, err := snap.Domain(m.Context(), target, "")
		if err != nil {
			return fmt.Errorf("%s: %w", domain, err)
		}
		if page.Domain != domain || page.Total != len(page.Datasets) || page.Cursor != "" {
			return fmt.Errorf("%s: answer %+v", domain, page)
		}
		if err := m.addTree(got, snap, target, "", nil); err != nil {
			return fmt.Errorf("tree of %s: %w", domain, err)
		}
		for _, d := range page.Datasets {
			at := place{domain, d.Name}
			if err := m.addTree(got, snap, target, d.Name, []uint32{d.ID}); err != nil {
				return fmt.Errorf("tree of %v: %w", at, err)
			}
			got.totals[at] = totals{d.Rows, d.Size, d.HasSize, d.FirstTS, d.LastTS, d.HasTS}
			if got.rows[at], err = m.list(snap, target, d.ID); err != nil {
				return fmt.Errorf("URLs of %v: %w", at, err)
			}
		}
	}
	page, err := snap.Datasets(m.Context(), "")
	if err != nil {
		return err
	}
	for _, d := range page.Datasets {
		got.datasets[d.Name] = d.Rows
	}
	got.all = page.Rows
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answers{})); diff != "" {
		return fmt.Errorf("(-map +lake):\n%.4000s", diff)
	}
	return nil
}

// addTree adds the nodes of the tree of a domain to what a version has answered.
func (m *machine) addTree(got *answers, snap *lookup.Snapshot, target lookup.Target, dataset string, only []uint32) error {
	q := tree.Query{Target: target, Datasets: only, Depth: 1 + m.steps%5, Limit: 1 + m.steps%3}
	var add func(n *tree.Node) error
	add = func(n *tree.Node) error {
		if n.Rows > 0 {
			got.nodes[dataset+" "+target.Host+" "+n.Path] = treeNode{n.Rows, n.Direct, n.Size, n.HasSize}
		}
		if n.Nodes != nil && len(n.Nodes) == n.Children {
			for i := range n.Nodes {
				if err := add(&n.Nodes[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if n.Children == 0 {
			return nil
		}
		below := q
		children := 0
		for below.Path = n.Path; ; {
			page, err := m.trees.Answer(m.Context(), snap, below)
			if err != nil {
				return err
			}
			for i := range page.Nodes {
				children++
				if err := add(&page.Nodes[i]); err != nil {
					return err
				}
			}
			if below.Cursor = page.Cursor; below.Cursor == "" {
				break
			}
		}
		if children != n.Children {
			return fmt.Errorf("%q has %d children, want %d", n.Path, children, n.Children)
		}
		return nil
	}
	page, err := m.trees.Answer(m.Context(), snap, q)
	if err != nil {
		return err
	}
	return add(&page.Node)
}

// list reads a list of URLs page by page, and returns it sorted.
func (m *machine) list(snap *lookup.Snapshot, target lookup.Target, dataset uint32) (all []string, err error) {
	q := lookup.URLsQuery{Target: target, Dataset: dataset, Limit: 1 + m.steps%7}
	for {
		p, err := snap.URLs(m.Context(), q)
		if err != nil {
			return nil, err
		}
		if p.Offset != int64(len(all)) || p.Len() == 0 && p.Cursor != "" {
			return nil, fmt.Errorf("a page of %d rows at offset %d after %d rows, cursor %q", p.Len(), p.Offset, len(all), p.Cursor)
		}
		for i := range p.Len() {
			ts, ok := p.TS(i)
			all = append(all, shown(string(p.URL(i)), ts, ok))
		}
		if q.Cursor = p.Cursor; q.Cursor == "" {
			if p.Total != int64(len(all)) {
				return nil, fmt.Errorf("%d rows of a total of %d", len(all), p.Total)
			}
			slices.Sort(all)
			return all, nil
		}
	}
}

func (m *machine) summariesAgree(versions []*version, want []*answers) error {
	page, err := m.server.Versions(m.Context(), lookup.MaxVersions, "")
	if err != nil {
		return err
	}
	if len(page.Versions) != len(versions) {
		return fmt.Errorf("a list of %d versions, want %d", len(page.Versions), len(versions))
	}
	for i := range versions {
		s := page.Versions[len(versions)-1-i]
		if s.ID != versions[i].id || s.Counts.Rows != want[i].all || s.Counts.Batches != len(versions[i].batches) {
			return fmt.Errorf("version %d of the list: %+v, want %d rows of %d batches", i, s, want[i].all, len(versions[i].batches))
		}
	}
	return nil
}

func (m *machine) diffAgrees(before, after *version, want map[place]change) error {
	a, err := m.server.Acquire(m.Context(), before.id)
	if err != nil {
		return err
	}
	defer a.Release()
	b, err := m.server.Acquire(m.Context(), after.id)
	if err != nil {
		return err
	}
	defer b.Release()
	got := map[place]change{}
	q := lookup.DiffQuery{Limit: 1 + m.steps%5}
	for {
		p, err := b.Diff(m.Context(), a, q)
		if err != nil {
			return err
		}
		for _, c := range p.Changes {
			t := func(t *lookup.DatasetTotals) totals {
				return totals{t.Rows, t.Size, t.HasSize, t.FirstTS, t.LastTS, t.HasTS}
			}
			at := place{c.Domain, c.Name}
			if _, ok := got[at]; ok {
				return fmt.Errorf("%v twice", at)
			}
			got[at] = change{t(&lookup.DatasetTotals{Totals: c.Before}), t(&lookup.DatasetTotals{Totals: c.After})}
		}
		if q.Cursor = p.Cursor; q.Cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-map +lake):\n%.4000s", diff)
	}
	return nil
}
