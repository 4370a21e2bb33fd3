//go:build soak

package e2e

import "testing"

// TestDocumentedCommandsRunFromNothing is TestDocumentedCommandsRunInAFreshCopy with empty caches,
// so that all modules are downloaded and Temporal's dev server is built.
func TestDocumentedCommandsRunFromNothing(t *testing.T) {
	runDocuments(t, true)
}
