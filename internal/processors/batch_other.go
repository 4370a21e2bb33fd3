//go:build !linux

package processors

// batch does nothing: other systems have no such policy.
func batch() {}
