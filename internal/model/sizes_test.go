//go:build !soak

package model

import "testing"

// size returns how many sequences a test has, and how many steps one has on average.
func size(*testing.T) (sequences, steps int) { return 25, 30 }

// seed is the seed of rapid. It is fixed, so that a test of a change fails because of the change,
// not because of a sequence that no run has had before. Those are left to make soak.
const seed = "1"
