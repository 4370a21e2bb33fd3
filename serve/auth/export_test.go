package auth

// Reason is reason, for tests of this package.
func Reason(err error) string { return reason(err) }
