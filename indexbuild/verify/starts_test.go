package verify

import (
	"bytes"
	"errors"
	"fmt"
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
	starts := seg.DomainStarts()
	if starts.Len() != 5 {
		t.Fatalf("%d frames", starts.Len())
	}
	for changed := -1; changed < starts.Len(); changed++ {
		if changed == 0 {
			continue // its start is empty, which is checked before
		}
		var text, file bytes.Buffer
		for i := range starts.Len() {
			text.Write(starts.At(i))
			if i == changed {
				text.WriteByte('!')
			}
			text.WriteByte('\n')
		}
		w := seekable.NewWriter(&file, 0)
		if _, _, err := w.Frame(nil, text.Bytes()); err != nil {
			t.Fatal(err)
		}
		ff, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		info, err := segment.ReadInfo(ctx, store, ref)
		if err != nil {
			t.Fatal(err)
		}
		f := info.File(segment.DomainStartsName)
		f.Bytes, f.XXH64, f.Frames, f.RawBytes = ff.Bytes, fmt.Sprintf("%016x", ff.XXH64), ff.Frames, ff.RawBytes
		f.TailBytes, f.TailXXH64 = ff.FooterBytes, fmt.Sprintf("%016x", ff.FooterXXH64)
		data, err := codec.Seal(info)
		if err != nil {
			t.Fatal(err)
		}
		indextest.Put(t, store, segment.Prefix(ref.ID)+segment.DomainStartsName, file.Bytes())
		indextest.Put(t, store, segment.Prefix(ref.ID)+segment.InfoName, data)
		ref.XXH64, ref.Bytes = fmt.Sprintf("%016x", xxhash.Sum64(data)), info.Bytes()+int64(len(data))
		report, err := Segment(ctx, store, ref, false, t.TempDir())
		switch {
		case changed < 0 && err != nil:
			t.Errorf("the same starts: %v", err)
		case changed >= 0 && (!errors.Is(err, codec.ErrCorrupt) || report.Found != 1 ||
			!strings.HasSuffix(report.Problems[0].Object, segment.DomainStartsName)):
			t.Errorf("start %d is wrong: %v, %+v", changed, err, report.Problems)
		}
	}
}
