package lakecheck

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// scope is what needs an object: a version, a segment of versions, or what has the batch record at
// a key. It is empty for documents of the lake.
type scope struct{ version, segment, record string }

// need is what needs the objects of a scope.
type need struct {
	versions []string
	batches  map[catalog.BatchName]catalog.Batch
}

// needs adds to each problem what depends on the object: versions, batches and their rows.
func (c *checker) needs() error {
	all := map[scope]*need{}
	for _, s := range c.scopes {
		all[s] = &need{batches: map[catalog.BatchName]catalog.Batch{}}
	}
	if len(all) == 0 {
		return nil
	}
	for _, v := range c.versions {
		if err := c.needsOf(v, all); err != nil {
			return err
		}
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	for i, line := range c.report.Problems {
		key, _, _ := strings.Cut(line, ": ")
		s, ok := c.scopes[key]
		if !ok {
			continue
		}
		text := all[s].text(s, names)
		if command := lake.Remedy(c.store.URL(), key); strings.HasSuffix(line, command) {
			text, line = text+"; "+command, strings.TrimSuffix(line, "; "+command)
		}
		c.report.Problems[i] = line + "; " + text
	}
	return nil
}

// needsOf adds what a version needs. Damage of its pieces was reported.
func (c *checker) needsOf(v *catalog.Version, all map[scope]*need) error {
	add := func(s scope, b *catalog.Batch) {
		n := all[s]
		if n == nil {
			return
		}
		if !slices.Contains(n.versions, v.ID) {
			n.versions = append(n.versions, v.ID)
		}
		if b != nil {
			n.batches[b.BatchName] = *b
		}
	}
	add(scope{version: v.ID}, nil)
	for _, s := range v.Segments {
		add(scope{segment: s.ID}, nil)
		for i, batches := range []iter.Seq2[catalog.Batch, error]{v.BatchesIn(c.ctx, s.ID), v.DeadIn(c.ctx, s.ID)} {
			for b, err := range batches {
				if errors.Is(err, codec.ErrCorrupt) {
					break
				}
				if err != nil {
					return err
				}
				live := &b
				if i > 0 {
					live = nil
				}
				add(scope{segment: s.ID}, live)
				add(scope{record: b.Record()}, live)
				if b.Union != "" {
					add(scope{record: StoredRef(b).Key()}, live)
				}
			}
		}
	}
	return nil
}

// text says what needs the objects of a scope.
func (n *need) text(s scope, names map[uint32]string) string {
	text, rows := "needed by", int64(0)
	for _, b := range n.batches {
		rows += b.Rows
	}
	switch len(n.batches) {
	case 0:
	case 1:
		b := slices.Collect(maps.Keys(n.batches))[0]
		name, ok := names[b.DatasetID]
		if !ok {
			name = fmt.Sprintf("dataset %d", b.DatasetID)
		}
		text += fmt.Sprintf(" batch %s of %s with %d rows, in", b.Batch, name, rows)
	default:
		text += fmt.Sprintf(" %d batches with %d rows, in", len(n.batches), rows)
	}
	switch len(n.versions) {
	case 0:
		if s.record == "" {
			return text + " version " + s.version
		}
		return text + " a batch that waits to be published"
	case 1:
		return text + " version " + n.versions[0]
	}
	return text + fmt.Sprintf(" %d versions", len(n.versions))
}
