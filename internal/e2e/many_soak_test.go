//go:build soak

package e2e

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestManyDatasetsTenThousand is TestManyDatasetsEqualBruteForce for ten thousand lists, with 200
// of their domains. Each domain is in some forty of the datasets.
func TestManyDatasetsTenThousand(t *testing.T) {
	n := testenv.Scaled(t, 10_000, 300)
	manyDatasets(t, n, max(n/5, 250), 200)
}
