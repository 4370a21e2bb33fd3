package scan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/lease"
)

// A lake that refuses writes is read without a lease. Any other error of the lease ends the export:
// a garbage collection could take what it reads.
func TestHold(t *testing.T) {
	lake := blob.NewMemory()
	testlake.Ingest(t, lake, "a", "1", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, lake)
	store := blobtest.NewFaulty(lake)
	s, err := scan.Open(t.Context(), store, scan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leases := func() int {
		all, err := lease.All(t.Context(), lake)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	lost := errors.New("the connection is lost")
	for _, c := range []struct {
		put    error // of writing the lease
		want   error
		leases int // while it is held
	}{
		{nil, nil, 1},
		{fmt.Errorf("put: %w", blob.ErrDenied), nil, 0},
		{fmt.Errorf("put: %w", blob.ErrCredentials), blob.ErrCredentials, 0},
		{lost, lost, 0},
	} {
		store.Heal()
		if c.put != nil {
			store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.HasPrefix(key, lease.Root) }, Err: c.put})
		}
		release, err := s.Hold(t.Context(), "a test")
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("when a put says %v: %v", c.put, err)
		}
		if n := leases(); n != c.leases {
			t.Errorf("when a put says %v: %d leases", c.put, n)
		}
		if err == nil {
			release()
		}
		if n := leases(); n != 0 {
			t.Errorf("when a put says %v: %d leases after the release", c.put, n)
		}
	}
	store.Heal()
	if _, err := scan.Hold(t.Context(), store, "20000101T000000Z-0000000000000000", "a test"); !errors.Is(err, scan.ErrDropped) || leases() != 0 {
		t.Errorf("a version that was dropped: %v, %d leases", err, leases())
	}
}
