//go:build !unix

package indexbuild

import "math"

// maxOpenFiles returns a number without a limit: this system has no RLIMIT_NOFILE.
func maxOpenFiles() int { return math.MaxInt }
