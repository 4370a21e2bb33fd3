//go:build unix && !linux

package postgres

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

func smallDisk(t *testing.T, _ int) string {
	t.Helper()
	testenv.Missing(t, "a file system of its own, which only Linux mounts")
	return ""
}
