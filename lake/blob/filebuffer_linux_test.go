package blob

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestFileBufferReportsAFullDisk(t *testing.T) {
	for _, size := range []int{1, localWriteBuffer + 1, 2 * directBuffer, 9 * directBuffer} {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeIn(newFileBuffer(f), make([]byte, size), 100_000); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d bytes: error %v, want %v", size, err, syscall.ENOSPC)
		}
		f.Close()
	}
}
