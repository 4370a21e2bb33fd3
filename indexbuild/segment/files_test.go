package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

func TestFilesRoundTrip(t *testing.T) {
	var files []FileInfo
	for i := range 2000 {
		files = append(files, FileInfo{
			DatasetID: uint32(i / 7), DomainPrefix: fmt.Sprintf("%02x", i%256), Path: strings.Repeat("p", i%90) + "/x",
			Batch: "b-1", Bytes: int64(i) << 40, Rows: int64(i),
		})
	}
	var buf bytes.Buffer
	ff, err := WriteFiles(&buf, files)
	if err != nil {
		t.Fatal(err)
	}
	read := func(_ context.Context, off, n int64) ([]byte, error) { return buf.Bytes()[off : off+n], nil }
	frames, err := seekable.OpenAt(context.Background(), read, ff, "files", filesFence)
	if err != nil {
		t.Fatal(err)
	}
	if frames.Len() < 2 {
		t.Errorf("%d frames", frames.Len())
	}
	var text []byte
	for i := range frames.Len() {
		data, err := frames.Read(context.Background(), read, i, i+1)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(data[0], []byte("\n")) {
			t.Error("a line straddles frames")
		}
		var fence []byte
		for _, column := range bytes.SplitN(data[0], []byte("\t"), 3)[:2] {
			n, err := strconv.Atoi(string(column))
			if err != nil {
				t.Fatal(err)
			}
			fence = append(fence, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		}
		if !bytes.Equal(fence, frames.Fence(i)) {
			t.Errorf("fence %x, want %x", frames.Fence(i), fence)
		}
		text = append(text, data[0]...)
	}
	got, err := parseFiles(text, "files", int64(len(files)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files, got.info); d != "" {
		t.Error(d)
	}
}

func TestFilesReject(t *testing.T) {
	for name, files := range map[string][]FileInfo{
		"datasets out of order": {{DatasetID: 2}, {DatasetID: 1}},
		"a tab in a path":       {{Path: "a\tb"}},
		"a newline in a batch":  {{Batch: "a\nb"}},
	} {
		if _, err := WriteFiles(&bytes.Buffer{}, files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	const good = "0\t1\tany\turls/a\tb\t5\t6\n"
	if _, err := parseFiles([]byte(good), "files", 1); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", good + good, strings.TrimSuffix(good, "\n"), "1" + good[1:], "00" + good[1:], "+0" + good[1:],
		"0\t-1\tany\turls/a\tb\t5\t6\n", "0\t1\tany\t\tb\t5\t6\n", "0\t1\tany\turls/a\tb c\t5\t6\n", "0\t1\tany\turls/a\tb\t5\n",
		"0\t1\tany\turls/a\tb\t-5\t6\n", "0\t1\tany\turls/a\tb\t5\t6\t\n", "0\t4294967296\tany\turls/a\tb\t5\t6\n",
	} {
		if _, err := parseFiles([]byte(bad), "files", 1); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	const disordered = "0\t2\tany\ta\tb\t5\t6\n1\t1\tany\ta\tb\t5\t6\n"
	if _, err := parseFiles([]byte(disordered), "files", 2); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("datasets out of order: %v", err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("0\t0\t\t0\t0\t0\t0"))
	f.Add([]byte("0\t1\tany\turls/a\tb\t5\t6\n1\t1\t0f\turls/b\tb\t5\t6\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseFiles(text, "files", int64(bytes.Count(text, []byte("\n"))))
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var again []byte
		for i := range got.info {
			again = got.info[i].append(again, i)
		}
		if !bytes.Equal(again, text) {
			t.Fatalf("%q becomes %q when written again", text, again)
		}
	})
}

// Every member of segment.json is checked even if the seal is right.
func FuzzInfo(f *testing.F) {
	m := smallModel()
	info := Info{Format: Format, Segment: ID(m.batches(), Unnamed), CanonicalForm: "a", PublicSuffix: "b"}
	info.BatchCount, info.BatchDigest = digestOf(m.batches())
	for name := range requiredNames(fileFormats, 0) {
		file := File{Name: name, Format: formatOf(fileFormats, kindOf(name)).version, XXH64: formatSum(1)}
		if !isMapped(name) {
			file.TailXXH64 = formatSum(2)
		}
		info.Files = append(info.Files, file)
	}
	slices.SortFunc(info.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	data, err := codec.Seal(&info)
	if err != nil {
		f.Fatal(err)
	}
	const seal = ",\n  \"xxh64\": \"%016x\"\n}\n"
	f.Add(data[:len(data)-len(fmt.Sprintf(seal, 0))])
	f.Fuzz(func(t *testing.T, body []byte) {
		i, err := decodeInfo(fmt.Appendf(bytes.Clone(body), seal, xxhash.Sum64(body)), "segment.json", info.Segment)
		if err != nil {
			var other *codec.FormatError
			if !errors.Is(err, codec.ErrCorrupt) && !errors.As(err, &other) {
				t.Fatal(err)
			}
			return
		}
		for name := range requiredNames(fileFormats, i.ShardBits) {
			if f := i.File(name); f == nil || f.Name != name {
				t.Fatalf("file %s is %+v", name, f)
			}
		}
	})
}
