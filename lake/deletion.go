package lake

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urlake/urlake/lake/codec"
)

// DeletionRoot is the folder of deletion tables (package indexbuild/deletion).
const DeletionRoot = "index/deletions/"

var (
	deletionName = regexp.MustCompile(`^[0-9a-f]{32}\.zst$`)
	deletionKey  = regexp.MustCompile(`^` + DeletionRoot + `[0-9a-f]{32}-[0-9a-f]{32}\.zst$`)
)

// DeletionKey is the key of the deletion table with that digest of a segment, or of what versions
// have of one.
func DeletionKey(of, digest string) string { return DeletionRoot + of + "-" + digest + ".zst" }

// IsDeletion reports whether a key is that of a deletion table.
func IsDeletion(key string) bool { return deletionKey.MatchString(key) }

// CheckDeletion returns a *codec.CorruptError, which names file, if o cannot name a deletion table
// of a segment, or of what versions have of one.
func (o *FrameObject) CheckDeletion(file, section, of string) error {
	digest, ok := strings.CutPrefix(o.Key, DeletionRoot+of+"-")
	_, err := o.FrameFile()
	if !ok || !deletionName.MatchString(digest) || err != nil || o.FooterBytes < 1 || o.Bytes <= o.FooterBytes {
		return codec.Corrupt(file, section, -1, "a deletion table of the segment", fmt.Sprintf("%+v", *o))
	}
	return nil
}
