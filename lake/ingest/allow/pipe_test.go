//go:build unix

package allow_test

import (
	"syscall"
	"testing"

	"github.com/urlake/urlake/lake/ingest/allow"
)

func TestAPipeDoesNotBlock(t *testing.T) {
	dir := tree(t, []string{"data/a"}, nil)
	pipe := dir + "/data/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*allow.Inputs{nil, parse(t, dir+"/data")} {
		f, err := a.Open(pipe)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err != nil || info.Mode().IsRegular() {
			t.Error(info, err)
		}
		f.Close()
	}
}
