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

// hintsName is an optional file that only a newer build knows.
const hintsName = "hints.bin"

// newerFormats are the formats of that build.
var newerFormats = append(slices.Clone(fileFormats),
	fileFormat{kind: hintsName, form: mappedForm, version: 7, optional: true})

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
	f := s.Info().File(hintsName)
	if f == nil || f.Format != 7 || !f.Optional || f.Bytes != int64(len(extraData)) {
		t.Errorf("file hints.bin is %+v", f)
	}
	if s.Info().File("absent.bin") != nil {
		t.Error("there is a file absent.bin")
	}
	// The file's version is in the id, so that two builds do not write different segments under
	// one.
	if ref.ID == ID(m.batches(), Unnamed) {
		t.Error("two sets of files have one id")
	}
	if _, ok, err := Find(context.Background(), store, m.batches(), Unnamed); ok || err != nil {
		t.Errorf("found a segment of this build: %v, %v", ok, err)
	}
	// The file is not read.
	if err := store.Delete(context.Background(), Prefix(ref.ID)+hintsName); err != nil {
		t.Fatal(err)
	}
	if err := m.compare(mustOpen(t, store, ref, Options{})); err != nil {
		t.Error(err)
	}
}

// openInfo opens the segment id with another segment.json, for which the reference vouches.
func openInfo(t *testing.T, store blob.Store, id string, info any) error {
	t.Helper()
	data, err := codec.Seal(info)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, Prefix(id)+InfoName, data)
	ref := Ref{ID: id, XXH64: formatSum(xxhash.Sum64(data))}
	s, err := Open(context.Background(), store, ref, Options{CacheDir: t.TempDir()})
	if err == nil {
		s.Close()
	}
	return err
}

// infoOfANewerBuild returns a function that returns copies of a segment.json with hintsName.
func infoOfANewerBuild(t *testing.T, store blob.Store) func() *Info {
	t.Helper()
	good, err := ReadInfo(context.Background(), store, smallModel().writeFormats(t, store, 1, newerFormats))
	if err != nil {
		t.Fatal(err)
	}
	return func() *Info {
		i := *good
		i.Files = slices.Clone(good.Files)
		return &i
	}
}

// What another build wrote is a FormatError that names file, found and known version, and no
// damage.
func TestFormatErrors(t *testing.T) {
	store := blob.NewMemory()
	newer := infoOfANewerBuild(t, store)
	id := newer().Segment
	for _, c := range []struct {
		change func(i *Info)
		want   codec.FormatError
		says   string
	}{
		{func(i *Info) { i.File(MPHFName).Format = 2 },
			codec.FormatError{File: MPHFName, Found: 2, Known: 1}, id + "/domains.mphf: format 2, "},
		{func(i *Info) { f := i.File(PartsName); f.Format, f.Optional = 9, true },
			codec.FormatError{File: PartsName, Found: 9, Known: 1}, "parts.idx.zst: format 9, "},
		{func(i *Info) { i.File(hintsName).Optional = false },
			codec.FormatError{File: hintsName, Found: 7}, "hints.bin: a kind of file (format 7) that this program does not know"},
		{func(i *Info) { i.Format = 2 }, codec.FormatError{Found: 2, Known: 1}, "segment.json: format 2, "},
		{func(i *Info) { i.Format = 0 }, codec.FormatError{Found: 0, Known: 1}, "segment.json: format 0, "},
	} {
		i := newer()
		c.change(i)
		c.want.Key = Prefix(id) + InfoName
		err := openInfo(t, store, id, i)
		var got *codec.FormatError
		if !errors.As(err, &got) || *got != c.want || errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %+v that says %q", err, c.want, c.says)
		}
	}
	// Members that only a newer build knows do not hide that it is newer.
	var got *codec.FormatError
	if err := openInfo(t, store, id, map[string]any{"format": Format + 1, "hints": true}); !errors.As(err, &got) {
		t.Errorf("a newer segment.json with another member: %v", err)
	}
	if err := openInfo(t, store, id, map[string]any{"format": Format, "hints": true}); !errors.As(err, &got) || got.Member != "hints" {
		t.Errorf("another member: %v", err)
	}
}

// A list of files that no build writes is corrupt.
func TestFileListErrors(t *testing.T) {
	store := blob.NewMemory()
	newer := infoOfANewerBuild(t, store)
	id := newer().Segment
	remove := func(i *Info, name string) {
		i.Files = slices.DeleteFunc(i.Files, func(f File) bool { return f.Name == name })
	}
	insert := func(i *Info, f File) {
		i.Files = append(i.Files, f)
		slices.SortFunc(i.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	}
	optional := func(name string, format int) File {
		return File{Name: name, Format: format, Optional: true, XXH64: formatSum(1)}
	}
	for name, c := range map[string]struct {
		change func(i *Info)
		says   string
	}{
		"no perfect hash":   {func(i *Info) { remove(i, MPHFName) }, MPHFName},
		"no shard 1":        {func(i *Info) { remove(i, PostingsName(1)) }, PostingsName(1)},
		"a third shard":     {func(i *Info) { f := *i.File(PostingsName(1)); f.Name = PostingsName(2); insert(i, f) }, PostingsName(2)},
		"a file twice":      {func(i *Info) { insert(i, *i.File(FilesName)) }, FilesName},
		"files disordered":  {func(i *Info) { slices.Reverse(i.Files) }, "a name after"},
		"shards differ":     {func(i *Info) { insert(i, optional("x/0000", 1)); insert(i, optional("x/0001", 2)) }, "x/0001"},
		"format 0":          {func(i *Info) { i.File(hintsName).Format = 0 }, hintsName},
		"another format":    {func(i *Info) { i.File(hintsName).Format = 8 }, "segment " + id},
		"no optional file":  {func(i *Info) { remove(i, hintsName) }, "segment " + id},
		"no hash":           {func(i *Info) { i.File(hintsName).XXH64 = "" }, hintsName},
		"another folder":    {func(i *Info) { insert(i, optional("../x", 1)) }, "../x"},
		"segment.json":      {func(i *Info) { insert(i, optional(InfoName, 1)) }, InfoName},
		"frames in a map":   {func(i *Info) { i.File(MPHFName).Frames = 1 }, MPHFName},
		"blocks of a frame": {func(i *Info) { i.File(PartsName).BlockXXH64 = formatSum(1) }, PartsName},
	} {
		i := newer()
		c.change(i)
		err := openInfo(t, store, id, i)
		if !errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want corruption that says %q", name, err, c.says)
		}
	}
}

func TestWriterRejectsUnknownFiles(t *testing.T) {
	w := NewWriter(context.Background(), blob.NewMemory(), smallModel().batches(), "")
	if _, err := w.Create(hintsName); err == nil {
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
	var list strings.Builder
	for _, b := range m.batches() {
		fmt.Fprintf(&list, "%d\t%s\t%s\n", b.DatasetID, b.Batch, b.Digest)
	}
	fmt.Fprintf(&text, "%d batches\t%s\n", len(m.batches()), lake.Digest([]byte(list.String())))
	if want := lake.Digest([]byte(text.String())); ref.ID != want {
		t.Errorf("id %s, want %s", ref.ID, want)
	}
}
