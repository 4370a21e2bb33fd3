package blob

import "testing"

// LockKey locks a key in a local store.
func LockKey(t *testing.T, s Store, key string) (unlock func()) {
	t.Helper()
	unlock, err := s.(*Local).lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}
