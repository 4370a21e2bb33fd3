package coord_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/frontier/coord"
)

// TestLease writes leases as earlier programs have them in Redis and their clients hold them.
func TestLease(t *testing.T) {
	var all strings.Builder
	first := coord.AppendLease(&all, 1<<56+2, 3<<56+4, "c\x00a.example")
	second := coord.AppendLease(&all, 0, 1<<64-1, "")
	for _, c := range []struct {
		lease coord.Lease
		text  string
		seq   uint64
		queue string
	}{
		{first, "\x01\x00\x00\x00\x00\x00\x00\x02\x03\x00\x00\x00\x00\x00\x00\x04c\x00a.example", 3<<56 + 4, "c\x00a.example"},
		{second, "\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 1<<64 - 1, ""},
	} {
		if string(c.lease) != c.text || c.lease.Seq() != c.seq || c.lease.Queue() != c.queue {
			t.Errorf("%q: %d, %q, want %q", string(c.lease), c.lease.Seq(), c.lease.Queue(), c.text)
		}
		if got, err := coord.ParseLease(c.text); got != c.lease || err != nil {
			t.Errorf("%q is parsed as %q, %v", c.text, string(got), err)
		}
		if _, err := coord.ParseLease(c.text[:15]); err == nil {
			t.Errorf("%q is a lease", c.text[:15])
		}
	}
}
