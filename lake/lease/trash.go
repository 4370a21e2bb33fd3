package lease

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// listFormat is the format version of lists.
	listFormat = 1
	listRoot   = TrashRoot + "lists/"
	timeLayout = "20060102T150405.000Z"

	// maxListed is the most objects of a list. A sweep may end after each.
	maxListed = 10_000
)

// TrashObject is an object that nothing referred to when its list was written.
type TrashObject struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
}

// TrashList is a list of objects that nothing referred to when it was written. They are deleted
// when the time of grace has passed and still nothing refers to them.
type TrashList struct {
	Format int `json:"format"`
	// Created is the time by the clock of the collection: UTC, in milliseconds.
	Created time.Time `json:"created"`
	// Objects are in the order in which they are deleted: what refers to another object comes
	// before that.
	Objects []TrashObject `json:"objects"`
}

// TrashRef names a list in the store.
type TrashRef struct {
	Key     string
	Created time.Time
}

var listKey = regexp.MustCompile(`^` + listRoot + `([0-9]{8}T[0-9]{6}\.[0-9]{3}Z)-[0-9]{6}-[0-9a-f]{32}\.json$`)

// WriteTrash writes the lists of objects, whose time is now. What a collection that died has listed
// is listed again by the next, which does no harm.
func WriteTrash(ctx context.Context, store blob.Store, now time.Time, objects iter.Seq2[TrashObject, error]) (lists int, err error) {
	l := TrashList{Format: listFormat, Created: now.UTC().Truncate(time.Millisecond)}
	flush := func() error {
		data, err := codec.Seal(&l)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%s%s-%06d-%s.json", listRoot, l.Created.Format(timeLayout), lists, lake.Digest(data))
		_, err = store.Put(ctx, key, data, blob.Condition{})
		lists++
		l.Objects = l.Objects[:0]
		return err
	}
	for o, err := range objects {
		if err != nil {
			return lists, err
		}
		if l.Objects = append(l.Objects, o); len(l.Objects) == maxListed {
			if err := flush(); err != nil {
				return lists, err
			}
		}
	}
	if len(l.Objects) == 0 {
		return lists, nil
	}
	return lists, flush()
}

// TrashLists returns the lists of a lake, the oldest first.
func TrashLists(ctx context.Context, store blob.Store) ([]TrashRef, error) {
	var all []TrashRef
	for info, err := range store.List(ctx, listRoot) {
		if err != nil {
			return nil, err
		}
		m := listKey.FindStringSubmatch(info.Key)
		if m == nil {
			continue
		}
		created, err := time.Parse(timeLayout, m[1])
		if err != nil {
			continue
		}
		all = append(all, TrashRef{Key: info.Key, Created: created})
	}
	return all, nil
}

// Read reads a list.
func (r TrashRef) Read(ctx context.Context, store blob.Store) (*TrashList, error) {
	data, _, err := store.Get(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	var l TrashList
	if err := codec.Unseal(data, r.Key, listFormat, &l); err != nil {
		return nil, err
	}
	if l.Format != listFormat {
		return nil, codec.Corrupt(r.Key, "format", -1, listFormat, l.Format)
	}
	if !l.Created.Equal(r.Created) || !strings.Contains(r.Key, lake.Digest(data)) {
		return nil, codec.Corrupt(r.Key, "name", -1, "that of its content", l.Created)
	}
	return &l, nil
}
