//go:build unix && !linux

package postgres

import "testing"

func smallDisk(t *testing.T, _ int) string {
	t.Skip("needs a file system of its own, which only Linux can mount here")
	return ""
}
