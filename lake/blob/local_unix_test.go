//go:build unix

package blob_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

func TestLocalPassesOverFIFOs(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "fifo"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("Get of a FIFO: %v", err)
	}
	for _, prefix := range []string{"", "fifo", "fifo/"} {
		for info, err := range s.List(t.Context(), prefix) {
			t.Errorf("List: %v, %v", info, err)
		}
	}
}
