//go:build !unix

package indextest

import (
	"testing"
	"time"
)

// ProcessorTime returns 0: this system has no getrusage.
func ProcessorTime(testing.TB) time.Duration { return 0 }
