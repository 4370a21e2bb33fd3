package catalog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/pieces"
)

// datasetOf returns the dataset in a key, as in "batches/dataset_id=3/…".
func datasetOf(key, prefix string) (id uint32, ok bool) {
	digits, ok := strings.CutPrefix(key, prefix+"dataset_id=")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

// RestoredRegistry is what RestoreRegistry has done.
type RestoredRegistry struct {
	// Keys are the objects that were lost and are written again: lake.RegistryKey, CopyKey.
	Keys []string
	// Anew tells that neither the document nor its copy could be read: the lake has the rules that
	// the caller passed.
	Anew bool
	// Lost are pieces that were missing or damaged.
	Lost []string
	// Nameless are the ids that keys of the lake contain but no source tells the names of; they are
	// not given again.
	Nameless []uint32
}

// RestoreRegistry writes the registry's datasets again if they are lost: the document or pieces of
// it damaged, or missing from a lake that is not new. The datasets are those of sound pieces that
// the document or its copy names, and those of a version, which the caller passes. Rules are used
// if neither the document nor its copy can be read.
func RestoreRegistry(
	ctx context.Context, store blob.Store, rules lake.Rules, datasets []lake.Dataset,
) (out RestoredRegistry, err error) {
	h, cond, lost, err := readLost(ctx, store, lake.RegistryKey)
	if err != nil {
		return out, err
	}
	backup, _, backupLost, err := readLost(ctx, store, RegistryCopyKey)
	if err != nil {
		return out, err
	}
	if !lost && h != nil && backup != nil && h.notOlder(backup.Generation) != nil {
		h, lost = nil, true
	}
	byID := map[uint32]lake.Dataset{}
	for _, d := range datasets {
		byID[d.ID] = d
	}
	source := h
	if lost {
		source = backup
	}
	if source != nil {
		broken, err := source.soundDatasets(ctx, store, byID)
		if err != nil {
			return out, err
		}
		out.Lost = broken
	}
	if lost || len(out.Lost) > 0 {
		if h, err = restoredHead(ctx, store, source, rules, byID, &out); err != nil {
			return out, err
		}
		data, err := codec.Seal(h)
		if err != nil {
			return out, err
		}
		if _, err = store.Put(ctx, lake.RegistryKey, data, cond); err != nil {
			return out, err
		}
		out.Keys, out.Anew = append(out.Keys, lake.RegistryKey), source == nil
	}
	if h == nil {
		return out, nil
	}
	if backupLost {
		out.Keys = append(out.Keys, RegistryCopyKey)
	}
	return out, keepCopy(ctx, store, h)
}

// restoredHead is the document of these datasets. Source is what could be read of the lost one, nil
// for nothing.
func restoredHead(
	ctx context.Context, store blob.Store, source *head, rules lake.Rules, byID map[uint32]lake.Dataset, out *RestoredRegistry,
) (*head, error) {
	used := map[uint32]bool{}
	for _, prefix := range []string{"batches/", "urls/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if id, ok := datasetOf(info.Key, prefix); ok {
				used[id] = true
			}
		}
	}
	h := &head{Format: headFormat, Rules: rules, NextID: 1}
	var err error
	if h.Swept, err = lease.LastSweep(ctx, store); err != nil {
		return nil, err
	}
	if source != nil {
		h.Rules, h.NextID, h.Generation = source.Rules, source.NextID, source.Generation
		h.Version, h.Takedowns = source.Version, source.Takedowns
	}
	h.Generation++
	all := slices.SortedFunc(maps.Values(byID), func(a, b lake.Dataset) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range all {
		delete(used, d.ID)
		h.NextID = max(h.NextID, d.ID+1)
	}
	out.Nameless = slices.Sorted(maps.Keys(used))
	if n := len(out.Nameless); n > 0 {
		h.NextID = max(h.NextID, out.Nameless[n-1]+1)
	}
	return h, h.set(ctx, store, all)
}

// readLost reads the registry's document, or its copy, to see whether it has to be restored, and
// the condition under which it may be replaced. The document is nil if it cannot be read. One of
// another format belongs to another program's version and is not lost.
func readLost(ctx context.Context, store blob.Store, key string) (h *head, cond blob.Condition, lost bool, err error) {
	etag := ""
	h, err = codec.Confirm(func() (h *head, err error) {
		h, etag, err = readRegistry(ctx, store, key)
		return h, err
	})
	if err == nil && etag == "" {
		if key != RegistryCopyKey {
			err = CheckRegistryPresent(ctx, store)
		}
		if errors.Is(err, codec.ErrCorrupt) {
			lost, err = true, nil
		}
		return nil, blob.Condition{IfAbsent: true}, lost, err
	}
	cond = blob.Condition{IfMatch: etag}
	var damage *codec.CorruptError
	switch {
	case codec.IsUnsealed(err):
		return nil, cond, true, nil
	case errors.As(err, &damage):
		return nil, cond, damage.Section != "format", nil
	case errors.Is(err, codec.ErrCorrupt):
		return nil, cond, false, nil
	case err != nil:
		return nil, blob.Condition{}, false, err
	}
	return h, cond, false, nil
}

// soundDatasets adds the datasets of h that can be read to those of byID, and returns the keys of
// the pieces that are lost.
func (h *head) soundDatasets(ctx context.Context, store blob.Store, byID map[uint32]lake.Dataset) (lost []string, err error) {
	add := func(d lake.Dataset) {
		// A version has the same name. The title may be newer here.
		if have, ok := byID[d.ID]; !ok || have.Name == d.Name {
			byID[d.ID] = d
		}
	}
	damaged := func(key string) { lost = append(lost, key) }
	for e, err := range h.byName(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if len(e.Value) == 4 {
			id := binary.BigEndian.Uint32(e.Value)
			if _, ok := byID[id]; !ok {
				add(lake.Dataset{ID: id, Name: string(e.Key)})
			}
		}
	}
	for e, err := range h.byID(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if d, err := decodeDataset(e); err == nil {
			add(d)
		}
	}
	return lost, nil
}

// CheckRegistry calls damaged with the error of every lost object of the registry: the document,
// its copy, and pieces. It returns other errors.
func CheckRegistry(ctx context.Context, store blob.Store, damaged func(err error) error) error {
	note := func(err error) error {
		if errors.Is(err, codec.ErrCorrupt) {
			return damaged(err)
		}
		return err
	}
	if _, _, err := readRegistry(ctx, store, RegistryCopyKey); err != nil {
		if err := note(err); err != nil {
			return err
		}
	}
	h, err := readHead(ctx, store)
	if err != nil {
		return note(err)
	}
	for _, m := range []*pieces.Map{h.byID(store), h.byName(store)} {
		for _, err := range m.Pieces(ctx) {
			if err := note(err); err != nil {
				return err
			}
		}
	}
	return nil
}
