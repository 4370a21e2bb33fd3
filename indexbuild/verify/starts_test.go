package verify

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// A check reports starts of frames that are in order and in a valid file, and are not those of the
// domains.
func TestWrongDomainStarts(t *testing.T) {
	ctx, store := t.Context(), blob.NewMemory()
	ref := mustBuild(t, store, indextest.SyntheticLake(t, store, 5000, 1, 5000, false), indexbuild.Options{SkipPageKeys: true})
	seg, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	for name, starts := range map[string]*segment.Starts{
		segment.DomainStartsName: seg.Names().Starts(), segment.ReversedStartsName: seg.Reversed().Starts(),
	} {
		if starts.Len() != 5 {
			t.Fatalf("%d frames", starts.Len())
		}
		for changed := -1; changed < starts.Len(); changed++ {
			if changed == 0 {
				continue // its start is empty, which is checked before
			}
			var text []byte
			for i := range starts.Len() {
				text = append(text, starts.At(i)...)
				if i == changed {
					text = append(text, '!')
				}
				text = append(text, '\n')
			}
			report, err := verifyWith(t, store, ref, name, text)
			switch {
			case changed < 0 && err != nil:
				t.Errorf("%s, the same starts: %v", name, err)
			case changed >= 0 && (!errors.Is(err, codec.ErrCorrupt) || report.Found != 1 ||
				!strings.HasSuffix(report.Problems[0].Object, "/"+name)):
				t.Errorf("%s: start %d is wrong: %v, %+v", name, changed, err, report.Problems)
			}
		}
	}
}

// A check reports reversed domains that are in order and in a valid file, and are not those of the
// segment.
func TestWrongReversedDomains(t *testing.T) {
	ctx, store := t.Context(), blob.NewMemory()
	ref := mustBuild(t, store, indextest.SyntheticLake(t, store, 900, 1, 900, false), indexbuild.Options{SkipPageKeys: true})
	seg, err := segment.Open(ctx, store, ref, segment.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	texts, err := seg.Reversed().Texts(ctx, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(texts[0], []byte("\n"))
	lines = lines[:len(lines)-1]
	for at := range lines {
		if at%100 != 0 {
			continue
		}
		changed := slices.Clone(lines)
		changed[at] = append(bytes.Clone(changed[at][:len(changed[at])-1]), "!\n"...)
		report, err := verifyWith(t, store, ref, segment.ReversedName, bytes.Join(changed, nil))
		if !errors.Is(err, codec.ErrCorrupt) || report.Found != 1 || !strings.HasSuffix(report.Problems[0].Object, "/"+segment.ReversedName) {
			t.Errorf("line %d is wrong: %v, %+v", at, err, report.Problems)
		}
		changed[at], changed[at+1] = lines[at+1], lines[at]
		report, err = verifyWith(t, store, ref, segment.ReversedName, bytes.Join(changed, nil))
		if !errors.Is(err, codec.ErrCorrupt) || report.Found != 1 || !strings.HasSuffix(report.Problems[0].Object, "/"+segment.ReversedName) {
			t.Errorf("lines %d and %d are exchanged: %v, %+v", at, at+1, err, report.Problems)
		}
	}
	if _, err := verifyWith(t, store, ref, segment.ReversedName, texts[0]); err != nil {
		t.Errorf("the same lines: %v", err)
	}
}

// verifyWith verifies a segment with another text in one of its frame files.
func verifyWith(t *testing.T, store blob.Store, ref segment.Ref, name string, text []byte) (Report, error) {
	t.Helper()
	ctx := t.Context()
	var file bytes.Buffer
	w := seekable.NewWriter(&file, 0)
	if _, _, err := w.Frame(nil, text); err != nil {
		t.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	copied := blob.NewMemory()
	for key, data := range indextest.SegmentObjects(t, store, ref.ID) {
		indextest.Put(t, copied, key, data)
	}
	info, err := segment.ReadInfo(ctx, store, ref)
	if err != nil {
		t.Fatal(err)
	}
	f := info.File(name)
	f.Bytes, f.XXH64, f.Frames, f.RawBytes = ff.Bytes, fmt.Sprintf("%016x", ff.XXH64), ff.Frames, ff.RawBytes
	f.TailBytes, f.TailXXH64 = ff.FooterBytes, fmt.Sprintf("%016x", ff.FooterXXH64)
	data, err := codec.Seal(info)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Put(t, store, segment.Prefix(ref.ID)+name, file.Bytes())
	indextest.Put(t, store, segment.Prefix(ref.ID)+segment.InfoName, data)
	ref.XXH64, ref.Bytes = fmt.Sprintf("%016x", xxhash.Sum64(data)), info.Bytes()+int64(len(data))
	report, err := Segment(ctx, store, ref, false, t.TempDir())
	for key, data := range indextest.SegmentObjects(t, copied, ref.ID) {
		indextest.Put(t, store, key, data)
	}
	return report, err
}
