//go:build !linux

package testenv

import "testing"

// Guarded returns size zero bytes. Only on Linux is the memory past their end inaccessible.
func Guarded(_ testing.TB, size int) []byte { return make([]byte, size) }
