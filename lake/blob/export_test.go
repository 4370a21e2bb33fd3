package blob

import "testing"

// LockKey takes the lock under which a local store changes a key.
func LockKey(t *testing.T, s Store, key string) (unlock func()) {
	t.Helper()
	unlock, err := s.(*Local).lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}
