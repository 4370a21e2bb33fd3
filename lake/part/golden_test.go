package part

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
)

var updateGolden = flag.Bool("update", false, "rewrite golden files; read the difference before committing it")

// TestGolden compares what is written today with a checked-in part and its page index: the same
// rows give the same bytes, and the part is readable.
func TestGolden(t *testing.T) {
	rows := []row.Row{
		{Domain: "example.com", Host: "example.com", Scheme: "https", Port: -1, PathQuery: "/",
			TS: 1714521600000, HasTS: true},
		{Domain: "example.com", Host: "www.example.com", Scheme: "http", Port: 8080, PathQuery: "/a?b=c",
			Size: 512, HasSize: true, RawURL: "HTTP://www.example.com:8080/a?b=c"},
		{Domain: "example.org", Host: "example.org", Scheme: "https", Port: -1, PathQuery: "/%C3%A9",
			Extras: `{"lang":"fr"}`},
	}
	store, parts := writeParts(t, rows, Limits{PageRows: 2})
	written := partBytes(t, store, parts[0])
	partFile := filepath.Join("testdata", "part-v1.parquet")
	if *updateGolden {
		if err := os.WriteFile(partFile, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(partFile)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := BuildPageIndex(bytes.NewReader(golden), int64(len(golden)), partFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(context.Background(), partFile, golden, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	cols, err := ReadColumns(context.Background(), store, partFile, &blocks[0], 0, 3, allColumns...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fileRows(rows), columnRows(cols)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", partFile, diff)
	}
	if !bytes.Equal(golden, written) {
		t.Errorf("the rows of %s are now written as other bytes; if a new zstd causes it, all parts get new names: "+
			"update knowingly", partFile)
	}

	dump := dumpPageIndexBlock(blocks[0].Append(nil))
	compareGolden(t, filepath.Join("testdata", "page-index.txt"), dump)
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// dumpPageIndexBlock comments the bytes of a block. It follows the document and does not use the
// decoder.
func dumpPageIndexBlock(data []byte) string {
	var out strings.Builder
	at := 0
	line := func(n int, format string, args ...any) {
		fmt.Fprintf(&out, "%04x  %-12s %s\n", at, hex.EncodeToString(data[at:at+n]), fmt.Sprintf(format, args...))
		at += n
	}
	num := func(format string) uint64 {
		v, n := binary.Uvarint(data[at:])
		line(n, format, v)
		return v
	}
	num("row group %d")
	num("first row %d")
	pages := int(num("%d pages"))
	for p := range pages {
		num(fmt.Sprintf("page %d: %%d rows", p))
	}
	num("%d columns")
	for c := range Column(NumColumns) {
		num(c.String() + ": first page at byte %d")
		for p := range pages {
			num(fmt.Sprintf("  page %d: %%d bytes", p))
		}
		for p := range pages {
			line(4, "  page %d: CRC-32C %08x", p, binary.LittleEndian.Uint32(data[at:]))
		}
	}
	return out.String()
}
