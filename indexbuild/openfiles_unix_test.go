//go:build unix

package indexbuild

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

// A process that may have few files open merges fewer lists at once, and builds the same segment.
func TestFewOpenFiles(t *testing.T) {
	const files, lists = 64, 60
	local, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &testLake{store: local}
	rng := rand.New(rand.NewPCG(14, 14))
	for i := range lists {
		o := lakeOptions{rows: 1000, domains: 3000} // more than is read ahead: the file stays open
		l.addBatch(t, 5, fmt.Sprintf("b%04d", i), randomRows(rng, o), o)
	}
	want := mustBuild(t, l.store, l.batches, Options{})
	for key := range segmentObjects(t, l.store, want.ID) {
		if err := l.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = files
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if got := mustBuild(t, l.store, l.batches, Options{}); got != want {
		t.Errorf("segment %+v, want %+v", got, want)
	}
}
