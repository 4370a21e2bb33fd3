//go:build unix

package indexbuild

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/lake/blob"
)

// A process that may have few files open merges fewer lists at once and builds the same segment.
func TestFewOpenFiles(t *testing.T) {
	const files, lists = 64, 60
	local, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &indextest.Lake{Store: local}
	rng := rand.New(rand.NewPCG(14, 14))
	for i := range lists {
		o := indextest.Options{Rows: 1000, Domains: 3000} // more than a source reads ahead, so its file stays open
		l.AddBatch(t, 5, fmt.Sprintf("b%04d", i), indextest.RandomRows(rng, o), o)
	}
	want := mustBuild(t, l.Store, l.Batches, Options{})
	for key := range indextest.SegmentObjects(t, l.Store, want.ID) {
		if err := l.Store.Delete(t.Context(), key); err != nil {
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
	if got := mustBuild(t, l.Store, l.Batches, Options{}); got != want {
		t.Errorf("segment %+v, want %+v", got, want)
	}
}
