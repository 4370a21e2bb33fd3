package lake_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// shows compares the block of a page in docs/formats that starts with ```info with got.
func shows(t *testing.T, page, info, got string) {
	t.Helper()
	path := filepath.Join(testenv.Root(t), "docs", "formats", page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "```"+info+"\n")
	shown, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block %q", page, info)
	}
	diff := cmp.Diff(shown, got)
	if diff == "" {
		return
	}
	if os.Getenv("URLAKE_UPDATE_GOLDEN") != "1" {
		t.Errorf("%s shows something else (URLAKE_UPDATE_GOLDEN=1 rewrites it, read the difference):\n%s", page, diff)
		return
	}
	if err := os.WriteFile(path, []byte(before+"```"+info+"\n"+got+"```\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRegistryIsAsItsPageShows(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	for _, d := range []lake.Dataset{
		{Name: "eot-2024", Title: "End of Term 2024 seeds", Source: "https://github.com/end-of-term/eot2024", Licence: "Apache-2.0"},
		{Name: "smallweb"},
	} {
		if _, err := lake.RegisterDataset(ctx, store, d); err != nil {
			t.Fatal(err)
		}
	}
	for i, finish := range []bool{true, true, false} {
		run := fmt.Sprintf("run-%d", i+1)
		if _, err := lake.RegisterIngest(ctx, store, 1, "2024-11", run); err != nil {
			t.Fatal(err)
		}
		if finish {
			if _, err := lake.FinishIngest(ctx, store, 1, "2024-11", run, lake.Digest([]byte(run))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for info, key := range map[string]string{"json datasets": lake.RegistryKey, "json ingests": lake.BatchRegistryKey(1)} {
		data, _, err := store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		shows(t, "registry.md", info, string(data))
	}
}

func TestBatchRecordIsAsItsPageShows(t *testing.T) {
	digest := lake.Digest([]byte("content"))
	object := func(key string) lake.Object { return lake.Object{Key: key, Bytes: 4711, XXH64: "0123456789abcdef"} }
	rejects := object(lake.RejectsKey(1, "2024-11", digest))
	b := &lake.Batch{
		Format: lake.BatchFormat, DatasetID: 1, Batch: "2024-11", CanonicalForm: lake.CurrentRules().CanonicalForm, PublicSuffix: lake.CurrentRules().PublicSuffix,
		Inputs: []lake.Input{
			{Name: "file:///data/seeds.csv.gz", Bytes: 120_000, Format: "csv+gzip", Records: 1000, Rejects: 2},
			{Name: "s3://raw/more/seeds.txt", Bytes: 64_000, Format: "lines", Records: 500},
		},
		Records: 1500, Rows: 1400, Merged: 98, Rejected: map[string]int64{"scheme": 1, "host": 1}, Domains: 321,
		Parts:    []lake.Part{{Object: object(lake.PartKey(1, lake.AnyPrefix, "2024-11", digest, 0)), DomainPrefix: lake.AnyPrefix, Rows: 1400, RowGroups: 1}},
		Postings: []lake.FrameObject{{Object: object(lake.PostingsKey(1, "2024-11", digest)), TailBytes: 100, TailXXH64: "fedcba9876543210"}},
		Rejects:  &rejects,
	}
	data, name, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	shows(t, "batch.md", "json", string(data))
	got, err := lake.DecodeBatch(data, lake.BatchKey(1, "2024-11", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, got); diff != "" {
		t.Errorf("read back it differs: %s", diff)
	}
	for _, key := range []string{lake.BatchKey(2, "2024-11", name), lake.BatchKey(1, "2024-12", name), lake.BatchKey(1, "2024-11", digest)} {
		if _, err := lake.DecodeBatch(data, key); !isCorrupt(err) {
			t.Errorf("read as %s: %v", key, err)
		}
	}
	for i := range data {
		bad := []byte(string(data))
		bad[i] ^= 4
		if _, err := lake.DecodeBatch(bad, lake.BatchKey(1, "2024-11", lake.Digest(bad))); !isCorrupt(err) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

// stagedRows are shown by the pages of shuffle files and runs.
var stagedRows = []lake.Row{
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/b", Scheme: "https", Port: -1},
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/a", Scheme: "https", Port: -1, TS: 1714521600000, HasTS: true},
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/", Scheme: "http", Port: 8080, Size: 512, HasSize: true, RawURL: "HTTP://www.example.com:8080"},
	{Domain: "example.org", Host: "example.org", PathQuery: "/", Scheme: "http", Port: -1},
}

// dump walks over the frames of a file. Line takes bytes, num a varint.
type dump struct {
	t   *testing.T
	out strings.Builder
	b   []byte
}

func (d *dump) line(n int, format string, args ...any) {
	fmt.Fprintf(&d.out, "  %s  %s\n", hex.EncodeToString(d.b[:n]), fmt.Sprintf(format, args...))
	d.b = d.b[n:]
}

func (d *dump) num(format string) int {
	v, n := binary.Uvarint(d.b)
	d.line(n, format, v)
	return int(v)
}

// frames calls show for each frame of a file.
func (d *dump) frames(store blob.Store, o lake.FrameObject, show func(last bool)) string {
	ctx := context.Background()
	ff, err := o.FrameFile()
	if err != nil {
		d.t.Fatal(err)
	}
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, o.Key, off, n) }
	frames, err := codec.OpenFramesAt(ctx, read, ff, o.Key, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	data, err := frames.Read(ctx, read, 0, frames.Len())
	if err != nil {
		d.t.Fatal(err)
	}
	for i, b := range data {
		fmt.Fprintf(&d.out, "frame %d\n", i)
		d.b = b
		show(i == len(data)-1)
		if len(d.b) > 0 {
			d.t.Errorf("frame %d has %d bytes more", i, len(d.b))
		}
	}
	return d.out.String()
}

// The dumps walk over the bytes by the page, not by the decoder.
func TestRunIsAsItsPageShows(t *testing.T) {
	store := blob.NewMemory()
	run := writeRuns(t, store, stagedRows, 1<<20)[0]
	d := &dump{t: t}
	shows(t, "run.md", "hexdump", d.frames(store, run.FrameObject, func(bool) {
		var suffixes []int
		for size, end := d.num("%d bytes of lengths"), 0; end < size; {
			before := len(d.b)
			d.num("%d bytes shared")
			suffixes = append(suffixes, d.num("  and %d bytes more"))
			end += before - len(d.b)
		}
		for _, n := range suffixes {
			d.line(n, "%q", d.b[:n])
		}
	}))
}

func TestShuffleFileIsAsItsPageShows(t *testing.T) {
	store := blob.NewMemory()
	f := writeShuffle(t, store, stagedRows, 1<<20)[0]
	d := &dump{t: t}
	frame := 0
	shows(t, "shuffle.md", "hexdump", d.frames(store, f.FrameObject, func(last bool) {
		number := func(size int, format string) int {
			var v [4]byte
			copy(v[:], d.b[:size])
			n := int(binary.LittleEndian.Uint32(v[:]))
			d.line(size, format, n)
			return n
		}
		frame++
		switch {
		case last:
			d.line(4, "magic %s", d.b[:4])
			number(4, "version %d")
			number(1, "all paths begin with a slash: %d")
			for range d.num("%d partitions") {
				d.line(1, "partition %02x", d.b[0])
				d.num("  %d rows")
				d.num("  in %d frames")
				d.num("  %d hosts")
				d.num("  in %d frames")
			}
		case frame > 2:
			for len(d.b) > 0 {
				number(4, "host with %d rows")
				number(4, "  in %d bytes")
				n := number(2, "  its name has %d bytes")
				number(2, "  its last %d bytes are the domain")
				d.line(n, "  %s", d.b[:n])
			}
		default:
			for len(d.b) > 0 {
				number(4, "row of host %d")
				head := binary.LittleEndian.Uint32(d.b)
				d.line(4, "  path of %d bytes, tail of kind %d", head>>2, head&3)
				d.line(int(head>>2), "  %s", d.b[:head>>2])
				if head&3 == 2 {
					n := number(4, "  tail of %d bytes")
					d.line(n, "  %q", d.b[:n])
				}
			}
		}
	}))
}
