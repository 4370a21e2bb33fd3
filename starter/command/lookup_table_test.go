package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/bulk"
	"github.com/urlake/urlake/serve/shortlived"
)

// What people see on a terminal.
func TestTables(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "news", "1", []testlake.Record{
		{URL: "https://www.example.com/1", Size: 1234, HasSize: true, TS: 1e12, HasTS: true}, {URL: "https://example.com/2"},
	})
	testlake.Ingest(t, store, "blogs", "1", []testlake.Record{{URL: "https://example.com/1"}, {URL: "https://other.test/"}})
	testlake.Publish(t, store)
	server, err := shortlived.New(store, "s3://test/lake", t.TempDir(), "test", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	questions, err := Questions([]string{"www.example.com", "absent.test"}, "-", strings.NewReader("other.test\nmailto:x\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    lookupOptions
		want string
	}{
		{lookupOptions{}, `
ASKED            DOMAIN       DATASET                        ROWS   SIZE  FIRST       LAST
www.example.com  example.com  news                              2  1,234  2001-09-09  2001-09-09
www.example.com  example.com  blogs                             1
absent.test      absent.test  (none)
other.test       other.test   blogs                             1
mailto:x                      (neither http, https nor ftp)
`}, {lookupOptions{Presence: true}, `
ASKED            DOMAIN       DATASET
www.example.com  example.com  news
www.example.com  example.com  blogs
absent.test      absent.test  (none)
other.test       other.test   blogs
mailto:x                      (neither http, https nor ftp)
`}, {lookupOptions{Matrix: true}, `
DOMAIN                                  news  blogs
example.com                                2      1
absent.test
other.test                                        1
mailto:x (neither http, https nor ftp)
`}, {lookupOptions{Matrix: true, Presence: true}, `
DOMAIN                                  news  blogs
example.com                                x      x
absent.test
other.test                                        x
mailto:x (neither http, https nor ftp)
`},
	} {
		var out bytes.Buffer
		q := bulk.Query{Presence: c.o.Presence}
		sums, err := c.o.tables(t.Context(), snap, questions, q, &out)
		if err != nil || sums.Answered != 3 || sums.Invalid != 1 {
			t.Fatalf("%v, %+v", err, sums)
		}
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), out.String()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.o, diff)
		}
	}
}
