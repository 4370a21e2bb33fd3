package blob

import (
	"context"
	"iter"
	"time"
)

// Versioning tells whether a store keeps the older versions of objects that are replaced or
// deleted.
type Versioning string

const (
	// Unversioned: it keeps none, and never did.
	Unversioned Versioning = "none"
	// VersioningEnabled: it keeps them.
	VersioningEnabled Versioning = "enabled"
	// VersioningSuspended: it keeps those that it has, and makes no new ones but those with the id
	// NullVersion, of which an object has one at most.
	VersioningSuspended Versioning = "suspended"
)

// NullVersion is the id of a version that was written while versioning was not enabled. While it is
// suspended, a put replaces the version with this id, so that an id that named an older version
// names the current one.
const NullVersion = "null"

// Version is an older version of an object: not the current one.
type Version struct {
	Info
	ID       string
	Modified time.Time
}

// Versioned is a store that may keep older versions of objects. Reads of a Store never see them.
type Versioned interface {
	// Versioning asks whether the store keeps versions. It is an ErrDenied if that may not be
	// asked; OldVersions tells then.
	Versioning(ctx context.Context) (Versioning, error)

	// OldVersions yields the older versions of the objects whose keys start with prefix, also of
	// deleted ones, in byte order of the keys. Delete markers, which have no bytes, are left out.
	// An error is the last thing that it yields.
	OldVersions(ctx context.Context, prefix string) iter.Seq2[Version, error]

	// AtVersion returns a store with a single object: that version, under its key. It can be read,
	// not written or listed.
	AtVersion(v Version) Store

	// DeleteVersions deletes versions for good. One that does not exist is no error. It calls
	// failed for each that the store does not delete; permissions, locks and times of retention are
	// an ErrDenied. After another error some may still exist; deleting again is safe.
	DeleteVersions(ctx context.Context, versions []Version, failed func(Version, error)) error
}

// AsVersioned returns s, or the first store inside it, that is Versioned. Its operations bypass the
// wrappers, as those of AsLocalFiler do.
func AsVersioned(s Store) (Versioned, bool) { return as[Versioned](s) }
