package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// FormatError says that this program does not read an object because another version of urlake
// wrote it. The object is intact. So a FormatError is no damage: it does not match ErrCorrupt, and
// nothing may replace, drop or delete the object because of it.
type FormatError struct {
	// Key is the object. File is what of it has the format, below Key's folder, "" for Key itself.
	Key, File string
	// Found is the object's format, and Known the newest one that this program reads, 0 if it does
	// not know the kind of file.
	Found, Known int
	// Member is a member of a document that this program does not know, although it knows the
	// format, "" for none.
	Member string
}

func (e *FormatError) Error() string {
	name := e.Key
	if e.File != "" {
		name = e.Key[:strings.LastIndexByte(e.Key, '/')+1] + e.File
	}
	switch {
	case e.Member != "":
		return fmt.Sprintf("%s: format %d with the member %s, which this program does not know; it needs a newer urlake",
			name, e.Found, e.Member)
	case e.Known == 0:
		return fmt.Sprintf("%s: a kind of file (format %d) that this program does not know; it needs a newer urlake",
			name, e.Found)
	case e.Found > e.Known:
		return fmt.Sprintf("%s: format %d, but this program knows formats up to %d; it needs a newer urlake",
			name, e.Found, e.Known)
	}
	return fmt.Sprintf("%s: format %d, but this program reads format %d; use the urlake that wrote it",
		name, e.Found, e.Known)
}

// IsFormat reports whether err is about an intact object of another version of urlake.
func IsFormat(err error) bool {
	var f *FormatError
	return errors.As(err, &f)
}

// formatPrefix begins a document whose first member is its format.
const formatPrefix = "{\n  \"format\": "

// formatOf returns the member "format" of a JSON document, 0 if it has none.
func formatOf(doc []byte) int {
	if rest, ok := bytes.CutPrefix(doc, []byte(formatPrefix)); ok {
		if end := bytes.IndexAny(rest, ",\n"); end > 0 {
			if n, err := strconv.Atoi(string(rest[:end])); err == nil {
				return n
			}
		}
	}
	var head struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(doc, &head) != nil {
		return 0
	}
	return head.Format
}

// unknownMember returns the member that a decoder complains of because it does not know it.
func unknownMember(err error) string {
	member, ok := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !ok {
		return ""
	}
	return strings.Trim(member, `"`)
}
