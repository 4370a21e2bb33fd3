package rebuild

import "testing"

// StageFrom lets the postings of batches from that many bytes of Parquet be staged.
func StageFrom(t *testing.T, bytes int64) {
	was := staged
	staged = bytes
	t.Cleanup(func() { staged = was })
}
