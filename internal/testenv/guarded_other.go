//go:build !linux

package testenv

import "testing"

// Guarded returns size zero bytes. The memory behind them is inaccessible only on Linux.
func Guarded(_ testing.TB, size int) []byte { return make([]byte, size) }
