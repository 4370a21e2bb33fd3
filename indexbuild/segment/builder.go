package segment

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// Builder names a build of urlake: 16 hex digits. Each segment has an optional file
// built-by/{name}, so that its id contains the name. Two builds therefore never write to the same
// keys, even if they compress differently, and a late step of an old worker cannot replace files
// that another build has published. "" is this build.
type Builder string

// Unnamed is any build whose segments have no file built-by/{name}: those before this rule.
const Unnamed Builder = "unnamed"

const (
	builderRoot   = "built-by/"
	builderFormat = 1
	builderDigits = 16
)

// generation counts the changes of this module's code after which a segment has other bytes
// although its formats have the same versions. indexbuild's TestBytesOfASegment fails until it is
// raised.
const generation = 3

// codecs are the modules whose versions decide the bytes that this module's own code leaves to
// others: compression, bitmaps and hashes.
var codecs = []string{
	"github.com/klauspost/compress", "github.com/RoaringBitmap/roaring/v2", "github.com/cespare/xxhash/v2",
	"github.com/zeebo/xxh3",
}

// thisBuilder names this program by its generation and the versions of codecs. Programs that write
// the same bytes have the same name, so the same input gives the same segment in all of them.
var thisBuilder = sync.OnceValue(func() Builder {
	text := fmt.Sprintf("generation %d\n", generation)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nameOf(text)
	}
	for _, d := range info.Deps {
		if !slices.Contains(codecs, d.Path) {
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		text += d.Path + "@" + d.Version + "\n"
	}
	return nameOf(text)
})

func nameOf(text string) Builder { return Builder(lake.Digest([]byte(text))[:builderDigits]) }

// file returns the name of the builder's file, or "" for Unnamed.
func (b Builder) file() string {
	switch b {
	case Unnamed:
		return ""
	case "":
		return builderRoot + string(thisBuilder())
	}
	return builderRoot + string(b)
}

// write writes the builder's file.
func (b Builder) write(ctx context.Context, store blob.Store, id string) (File, error) {
	data := []byte(strings.TrimPrefix(b.file(), builderRoot) + "\n")
	_, err := store.Put(ctx, Prefix(id)+b.file(), data, blob.Condition{})
	return File{
		Name: b.file(), Format: builderFormat, Optional: true,
		Bytes: int64(len(data)), XXH64: fmt.Sprintf("%016x", xxhash.Sum64(data)),
	}, err
}
