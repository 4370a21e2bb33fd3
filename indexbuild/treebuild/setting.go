package treebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// SettingKey is the key of the document that says whether publishes and compactions build the
// indexes of their segments. A lake without it has none built.
const SettingKey = "index/trees.json"

// settingFormat is the format version of the document.
// 1: first.
const settingFormat = 1

type setting struct {
	Format int `json:"format"`
	// Always tells that new segments get an index.
	Always bool `json:"always"`
}

// Always reports whether new segments get an index of trees.
func Always(ctx context.Context, store blob.Store) (bool, error) {
	data, _, err := store.Get(ctx, SettingKey)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var s setting
	err = codec.Unseal(data, SettingKey, settingFormat, &s)
	return s.Always, err
}

// SetAlways says whether new segments get an index of trees. It replaces a damaged setting.
func SetAlways(ctx context.Context, store blob.Store, always bool) error {
	data, err := codec.Seal(&setting{settingFormat, always})
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, SettingKey, data, blob.Condition{})
	return err
}

// State is what a segment has of an index.
type State int

// The states.
const (
	Missing State = iota
	Damaged
	Sound
)

// Inspect looks whether a segment has an index whose bytes are those that were written. For a
// damaged one why says what is wrong.
func Inspect(ctx context.Context, store blob.Store, segmentID string) (s State, info *pathtree.Info, why error, err error) {
	index, err := pathtree.Open(ctx, store, segmentID, nil)
	if err == nil && index == nil {
		return Missing, nil, nil, nil
	}
	if err == nil {
		info = index.Info()
		err = index.CheckFile(ctx, store)
	}
	switch {
	case errors.Is(err, codec.ErrCorrupt):
		return Damaged, info, err, nil
	case err != nil:
		return Missing, nil, nil, err
	}
	return Sound, info, nil, nil
}

// Ensure builds the index of a segment unless it has a sound one. Built tells whether it did.
func Ensure(ctx context.Context, store blob.Store, ref segment.Ref, opt Options) (info *pathtree.Info, built bool, err error) {
	state, info, _, err := Inspect(ctx, store, ref.ID)
	if err != nil {
		return nil, false, fmt.Errorf("trees of segment %s: %w", ref.ID, err)
	}
	if state == Sound {
		return info, false, nil
	}
	info, err = Build(ctx, store, ref, opt)
	return info, err == nil, err
}
