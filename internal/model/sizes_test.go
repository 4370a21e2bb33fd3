//go:build !soak

package model

import "testing"

// size returns how many sequences a test has, and how many steps one has on average.
func size(*testing.T) (sequences, steps int) { return 25, 30 }
