package scan

import (
	"context"
	"fmt"
	"time"

	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/manifest"
)

// releaseTime is how long a lease may take to be removed.
const releaseTime = 10 * time.Second

// Hold keeps the objects of the slice from being deleted until release is called, by a lease on its
// version. Program names the reader in it. A version that was dropped meanwhile is an error. A lake
// that this program may not write to has no lease: there its time of grace has to be longer than
// the export.
func (s *Slice) Hold(ctx context.Context, program string) (release func(), err error) {
	h := lease.Hold(ctx, s.store.Store, lease.Options{Program: program})
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		h.Close(ctx)
	}
	if h.Set(ctx, []string{s.Version}) != nil {
		release()
		release = func() {}
	}
	m, _, err := manifest.Read(ctx, s.store)
	if err == nil {
		_, err = m.Version(s.Version)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("version %s was dropped while the export began: %w", s.Version, err)
	}
	return release, nil
}
