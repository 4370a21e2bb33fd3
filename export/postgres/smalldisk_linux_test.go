package postgres

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

func smallDisk(t *testing.T, bytes int) string { return testenv.SmallDisk(t, bytes) }
