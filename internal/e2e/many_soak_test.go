//go:build soak

package e2e

import "testing"

// TestManyDatasetsTenThousand is TestManyDatasetsEqualBruteForce for ten thousand lists, with 200
// of their domains. Each domain is in some forty of the datasets.
func TestManyDatasetsTenThousand(t *testing.T) {
	n := scaled(t, 10_000, 300)
	manyDatasets(t, n, max(n/5, 250), 200)
}
