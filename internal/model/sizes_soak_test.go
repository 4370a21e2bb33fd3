//go:build soak

package model

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// size returns how many sequences a test has, and how many steps one has on average.
func size(t *testing.T) (sequences, steps int) { return testenv.Scaled(t, 1000, 20), 60 }

// seed is the seed of rapid: "0" is another one in each run.
const seed = "0"
