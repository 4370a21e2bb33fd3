//go:build !weakhash

package urlnorm

// weakID is the hash itself. With the tag weakhash it leaves few ids.
func weakID(hash uint64) uint64 { return hash }
