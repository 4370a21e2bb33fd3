package auth

// Reason is reason, for tests of this package.
func Reason(err error) string { return reason(err) }

// Forget makes j forget which tokens it has verified.
func Forget(j *JWKS) {
	set := j.keys.Load()
	j.keys.Store(&keySet{keys: set.keys, at: set.at})
}

// Remembered returns how many tokens j remembers, and whether token is one of them.
func Remembered(j *JWKS, token string) (n int, has bool) {
	v := &j.keys.Load().verified
	v.mu.Lock()
	defer v.mu.Unlock()
	_, young := v.young[hashed(token)]
	_, old := v.old[hashed(token)]
	return len(v.young) + len(v.old), young || old
}
