package row

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/seekable"
)

// stagedRows are the rows in the dumps of shuffle.md and run.md.
var stagedRows = []Row{
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/b", Scheme: "https", Port: -1},
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/a", Scheme: "https", Port: -1, TS: 1714521600000, HasTS: true},
	{Domain: "example.com", Host: "www.example.com", PathQuery: "/", Scheme: "http", Port: 8080, Size: 512, HasSize: true, RawURL: "HTTP://www.example.com:8080"},
	{Domain: "example.org", Host: "example.org", PathQuery: "/", Scheme: "http", Port: -1},
}

// dump prints the frames of a file. Line prints bytes, num a varint.
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
	frames, err := seekable.OpenAt(ctx, read, ff, o.Key, 0)
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
			d.t.Errorf("frame %d has %d more bytes", i, len(d.b))
		}
	}
	return d.out.String()
}

// The dumps follow the page, not the decoder.
func TestRunIsAsItsPageShows(t *testing.T) {
	store := blob.NewMemory()
	run := writeRuns(t, store, stagedRows, 1<<20)[0]
	d := &dump{t: t}
	testenv.Shows(t, "run.md", "hexdump", d.frames(store, run.FrameObject, func(bool) {
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
	testenv.Shows(t, "shuffle.md", "hexdump", d.frames(store, f.FrameObject, func(last bool) {
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
				header := binary.LittleEndian.Uint32(d.b)
				d.line(4, "  path of %d bytes, suffix of kind %d", header>>2, header&3)
				d.line(int(header>>2), "  %s", d.b[:header>>2])
				if header&3 == 2 {
					n := number(4, "  suffix of %d bytes")
					d.line(n, "  %q", d.b[:n])
				}
			}
		}
	}))
}
