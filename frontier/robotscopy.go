package frontier

import "go.etcd.io/bbolt"

// Copy writes what the store has at the moment to another file, which Open opens.
func (s *robotsStore) Copy(name string) error {
	return s.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(name, 0o666) })
}
