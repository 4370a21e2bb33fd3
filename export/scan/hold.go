package scan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/lease"
)

// releaseTime is how long a lease may take to be removed.
const releaseTime = 10 * time.Second

// ErrDropped tells that a version was dropped before it was held.
var ErrDropped = errors.New("the version was dropped from the lake while the export began")

// Hold keeps the objects of the slice from being deleted until release is called: Hold below.
func (s *Slice) Hold(ctx context.Context, program string) (release func(), err error) {
	return Hold(ctx, s.store, s.Version, program)
}

// Hold keeps the objects of a version from being deleted until release is called, by a lease.
// Program names the reader in it. The error wraps ErrDropped if the manifest lists the version no
// longer. A lake that this program may not write to gets no lease: there its time of grace has to
// be longer than the export.
func Hold(ctx context.Context, store blob.Store, version, program string) (release func(), err error) {
	h := lease.Hold(ctx, store, lease.Options{Program: program})
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		h.Close(ctx)
	}
	if err = h.Set(ctx, []string{version}); lease.Refused(err) {
		release()
		release, err = func() {}, nil
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("lease of version %s: %w", version, err)
	}
	m, _, err := catalog.ReadManifest(ctx, store)
	if err == nil {
		_, err = m.Version(version)
	}
	if errors.Is(err, catalog.ErrNoVersion) || errors.Is(err, catalog.ErrUnknownVersion) {
		err = fmt.Errorf("%s: %w", version, ErrDropped)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
