// Package snapshot copies a running frontier to a store, and back into an empty folder and Redis.
//
// # Store
//
// A snapshot is a manifest, which is written last, and objects that it names. An object is a piece
// of a file; a later snapshot names the pieces of an earlier one if the file still has them, so
// only what is new is uploaded. docs/formats/frontier.md describes both.
//
// # What it has
//
// Of each shard a snapshot has the files, and what Redis has, as of one moment after it was begun:
// see frontier.Snapshot. So everything that was answered before is in it, and of what was asked
// meanwhile some may be.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// manifests is the folder of the manifests, and pieces that of the objects that these name.
	manifests = "snapshots/"
	pieces    = "files/"
	suffix    = ".json"
	// format is the newest version of manifests. 1: first.
	format = 1
)

// Manifest describes a snapshot.
type Manifest struct {
	Format int `json:"format"`
	// ID begins with the time at which the snapshot was begun, so ids are in the order of time.
	ID     string    `json:"id"`
	Taken  time.Time `json:"taken"`
	Shards int       `json:"shards"`
	Files  []File    `json:"files"`
}

// File is a file of a frontier's folder, or the state of Redis, in pieces.
type File struct {
	// Path is relative to the folder of the frontier.
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Modified is when the file was written to last, in nanoseconds since 1970.
	Modified int64   `json:"modified"`
	Pieces   []Piece `json:"pieces"`
}

// Piece is an object that has the next bytes of a file.
type Piece struct {
	Object string `json:"object"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Bytes is the size of all files.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Files {
		n += m.Files[i].Size
	}
	return n
}

func (m *Manifest) check(name string) error {
	wrong := func(what string, got any) error { return codec.Corrupt(name, "document", -1, what, got) }
	if name != manifests+m.ID+suffix {
		return wrong("the id of its name", m.ID)
	}
	if m.Shards < 1 {
		return wrong("a number of shards", m.Shards)
	}
	for _, f := range m.Files {
		if f.Path == "" || path.Clean("/"+f.Path) != "/"+f.Path || strings.Contains(f.Path, `\`) {
			return wrong("a relative path", f.Path)
		}
		size := int64(0)
		for _, p := range f.Pieces {
			if p.Size < 0 || !strings.HasPrefix(p.Object, pieces) {
				return wrong("pieces of "+f.Path, p.Object)
			}
			size += p.Size
		}
		if size != f.Size {
			return wrong(fmt.Sprintf("pieces of %d bytes of %s", f.Size, f.Path), size)
		}
	}
	return nil
}

// IDs returns the ids of the snapshots in a store, the oldest first.
func IDs(ctx context.Context, store blob.Store) (ids []string, err error) {
	for info, err := range store.List(ctx, manifests) {
		if err != nil {
			return nil, err
		}
		if id, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, manifests), suffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Read returns the manifest of a snapshot; of the newest if id is "".
func Read(ctx context.Context, store blob.Store, id string) (*Manifest, error) {
	if id == "" {
		ids, err := IDs(ctx, store)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%s: it has no snapshot", store.URL())
		}
		id = ids[len(ids)-1]
	}
	name := manifests + id + suffix
	r, err := store.Open(ctx, name, 0, -1) // it may be longer than what Get returns
	if errors.Is(err, blob.ErrNotExist) {
		return nil, fmt.Errorf("%s: it has no snapshot %s", store.URL(), id)
	}
	if err != nil {
		return nil, err
	}
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := codec.Unseal(data, name, format, m); err != nil {
		return nil, err
	}
	return m, m.check(name)
}
