package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxVerified is how many tokens of each of two generations are remembered.
	maxVerified = 4096
	// verifiedBytes is about the memory of one, in bytes.
	verifiedBytes = 150
)

// verified remembers which tokens a key set has verified. A signature costs tens of microseconds, a
// multiple of a lookup. It belongs to one key set and ends with it, so the token of a key that the
// provider has withdrawn is refused as soon as the keys are fetched again.
//
// Only tokens that were taken are in it: forged ones cannot displace others. It has their hashes
// and not the tokens. When the young generation is full, it becomes the old one, and the old one is
// dropped; a token that is found in the old one is young again.
type verified struct {
	mu         sync.Mutex
	young, old map[tokenHash]claim
}

type tokenHash [sha256.Size]byte

func hashed(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// claim is what a token says: the name, and when it expires.
type claim struct {
	name    string
	expires time.Time
}

// find returns the name of a token that was verified before and has not expired.
func (v *verified) find(h tokenHash, now time.Time) (name string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, ok := v.young[h]
	if !ok {
		if c, ok = v.old[h]; ok {
			v.put(h, c)
		}
	}
	if !ok || !now.Before(c.expires.Add(leeway)) { // as the parser judges it, which then says why
		return "", false
	}
	return c.name, true
}

// add remembers a token.
func (v *verified) add(h tokenHash, c claim) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.put(h, c)
}

// entries is how many tokens are remembered. One that is young again counts twice until the old
// generation is dropped.
func (v *verified) entries() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return int64(len(v.young) + len(v.old))
}

func (v *verified) put(h tokenHash, c claim) {
	if v.young == nil || len(v.young) >= maxVerified {
		v.old, v.young = v.young, map[tokenHash]claim{}
	}
	v.young[h] = c
}
