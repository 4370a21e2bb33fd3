package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// newerFormats are the formats of a build with an optional file that this one does not know.
var newerFormats = append(slices.Clone(fileFormats), fileFormat{kind: "hints.bin", form: mappedForm, version: 7, optional: true})

// A file that a reader does not know and may ignore does not keep it from reading the segment.
func TestOptionalFileOfANewerBuild(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	ref := m.writeFormats(t, store, 1, newerFormats)
	s := mustOpen(t, store, ref, Options{})
	if err := m.compare(s); err != nil {
		t.Error(err)
	}
	m.compareScans(t, s)
	f := s.Info().File("hints.bin")
	if f == nil || f.Format != 7 || !f.Optional || f.Bytes != int64(len(extraData)) {
		t.Errorf("file hints.bin is %+v", f)
	}
	if s.Info().File("absent.bin") != nil {
		t.Error("there is a file absent.bin")
	}
	// The file's version is in the id, so that two builds do not write different segments under
	// one.
	if ref.ID == ID(m.batches()) {
		t.Error("two sets of files have one id")
	}
	if _, ok, err := Find(context.Background(), store, m.batches()); ok || err != nil {
		t.Errorf("found a segment of this build: %v, %v", ok, err)
	}
	// The file is not read.
	if err := store.Delete(context.Background(), Prefix(ref.ID)+"hints.bin"); err != nil {
		t.Fatal(err)
	}
	if err := m.compare(mustOpen(t, store, ref, Options{})); err != nil {
		t.Error(err)
	}
}

// Every other difference in the list of files is an error that names the file.
func TestFileListErrors(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	ref := m.writeFormats(t, store, 1, newerFormats)
	good, err := ReadInfo(context.Background(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(i *Info, name string) {
		i.Files = slices.DeleteFunc(i.Files, func(f File) bool { return f.Name == name })
	}
	insert := func(i *Info, f File) {
		i.Files = append(i.Files, f)
		slices.SortFunc(i.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	}
	for name, c := range map[string]struct {
		change func(i *Info)
		format FormatError // zero for a *codec.CorruptError
		says   string
	}{
		"a newer perfect hash":        {func(i *Info) { i.File(MPHFName).Format = 2 }, FormatError{File: MPHFName, Found: 2, Known: 1}, "domains.mphf: format 2"},
		"an optional, newer required": {func(i *Info) { f := i.File(PartsName); f.Format, f.Optional = 9, true }, FormatError{File: PartsName, Found: 9, Known: 1}, "format 9"},
		"an unknown required file":    {func(i *Info) { i.File("hints.bin").Optional = false }, FormatError{File: "hints.bin", Found: 7}, "hints.bin"},
		"a newer segment.json":        {func(i *Info) { i.Format = 2 }, FormatError{Found: 2, Known: 1}, "segment.json: format 2"},
		"an older segment.json":       {func(i *Info) { i.Format = 0 }, FormatError{Found: 0, Known: 1}, "format 0"},
		"no perfect hash":             {func(i *Info) { remove(i, MPHFName) }, FormatError{}, MPHFName},
		"no shard 1":                  {func(i *Info) { remove(i, PostingsName(1)) }, FormatError{}, PostingsName(1)},
		"a third shard":               {func(i *Info) { f := *i.File(PostingsName(1)); f.Name = PostingsName(2); insert(i, f) }, FormatError{}, PostingsName(2)},
		"a file twice":                {func(i *Info) { insert(i, *i.File(FilesName)) }, FormatError{}, FilesName},
		"files out of order":          {func(i *Info) { slices.Reverse(i.Files) }, FormatError{}, "a name after"},
		"shards of two formats": {func(i *Info) {
			insert(i, File{Name: "x/0000", Format: 1, Optional: true, XXH64: formatSum(1)})
			insert(i, File{Name: "x/0001", Format: 2, Optional: true, XXH64: formatSum(1)})
		}, FormatError{}, "x/0001"},
		"a format below 1":            {func(i *Info) { i.File("hints.bin").Format = 0 }, FormatError{}, "hints.bin"},
		"another optional format":     {func(i *Info) { i.File("hints.bin").Format = 8 }, FormatError{}, "segment " + ref.ID},
		"no optional file":            {func(i *Info) { remove(i, "hints.bin") }, FormatError{}, "segment " + ref.ID},
		"an optional file of no hash": {func(i *Info) { i.File("hints.bin").XXH64 = "" }, FormatError{}, "hints.bin"},
		"a name outside the segment":  {func(i *Info) { insert(i, File{Name: "../x", Format: 1, Optional: true, XXH64: formatSum(1)}) }, FormatError{}, "../x"},
		"segment.json as a file":      {func(i *Info) { insert(i, File{Name: InfoName, Format: 1, Optional: true, XXH64: formatSum(1)}) }, FormatError{}, InfoName},
		"a perfect hash of frames":    {func(i *Info) { i.File(MPHFName).Frames = 1 }, FormatError{}, MPHFName},
		"a frame file of blocks":      {func(i *Info) { i.File(PartsName).BlockXXH64 = formatSum(1) }, FormatError{}, PartsName},
	} {
		i := *good
		i.Files = slices.Clone(good.Files)
		c.change(&i)
		data, err := codec.Seal(&i)
		if err != nil {
			t.Fatal(err)
		}
		put(t, store, Prefix(ref.ID)+InfoName, data)
		_, err = Open(context.Background(), store, Ref{ID: ref.ID, XXH64: formatSum(xxhash.Sum64(data))}, Options{CacheDir: t.TempDir()})
		var format *FormatError
		if c.format != (FormatError{}) {
			c.format.Key = Prefix(ref.ID) + InfoName
			if !errors.As(err, &format) || *format != c.format || errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%s: %v, want %+v", name, err, c.format)
			}
		} else if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
	// Members that only a newer build knows do not hide that it is newer.
	data, err := codec.Seal(map[string]any{"format": Format + 1, "takedowns": true})
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, Prefix(ref.ID)+InfoName, data)
	var format *FormatError
	if _, err := ReadInfo(context.Background(), store, Ref{ID: ref.ID, XXH64: formatSum(xxhash.Sum64(data))}); !errors.As(err, &format) {
		t.Errorf("a newer segment.json with new members: %v", err)
	}
	if data, err = codec.Seal(map[string]any{"format": Format, "takedowns": true}); err != nil {
		t.Fatal(err)
	}
	put(t, store, Prefix(ref.ID)+InfoName, data)
	if _, err := ReadInfo(context.Background(), store, Ref{ID: ref.ID, XXH64: formatSum(xxhash.Sum64(data))}); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("an unknown member: %v", err)
	}
}

func TestWriterRejectsUnknownFiles(t *testing.T) {
	w := NewWriter(context.Background(), blob.NewMemory(), smallModel().batches())
	if _, err := w.Create("hints.bin"); err == nil {
		t.Error("created a file that is not in the table of formats")
	}
}

// The table agrees with the files that are written and with docs/formats/segment.md.
func TestTableOfFormats(t *testing.T) {
	store := blob.NewMemory()
	m := tinyModel()
	ref := m.write(t, store, 0)
	files := objects(t, store)
	page, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "formats", "segment.md"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder // of which the id is the digest, as the page has it
	fmt.Fprintf(&text, "urlake segment %d\n", Format)
	for n, f := range fileFormats {
		if n > 0 && f.kind <= fileFormats[n-1].kind {
			t.Errorf("%s does not come after %s", f.kind, fileFormats[n-1].kind)
		}
		need := map[bool]string{false: "required", true: "optional"}[f.optional]
		if row := fmt.Sprintf("| `%s` | %d | %s |", f.kind, f.version, need); !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/formats/segment.md has no row %q", row)
		}
		data := files[Prefix(ref.ID)+strings.Replace(f.kind, shardElement, "0000", 1)]
		if f.form == frameForm && f.magic != "" { // stored frames: the first starts with a block
			data = data[bytes.Index(data, []byte(f.magic)):]
		}
		if start := codec.AppendMagic(nil, f.magic, uint32(f.version)); f.magic != "" && !bytes.HasPrefix(data, start) {
			t.Errorf("%s starts with %q, want %q", f.kind, data[:8], start)
		}
		fmt.Fprintf(&text, "%s\t%d\n", f.kind, f.version)
	}
	for _, b := range m.batches() {
		fmt.Fprintf(&text, "%d\t%s\t%s\n", b.DatasetID, b.Batch, b.Digest)
	}
	if want := lake.Digest([]byte(text.String())); ref.ID != want {
		t.Errorf("id %s, want %s", ref.ID, want)
	}
}
