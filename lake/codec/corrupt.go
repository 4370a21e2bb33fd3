// Package codec holds what urlake's own formats share: the corruption error, a sticky
// decoder and an encoder for little-endian fields, sealed JSON documents, and
// compressed files made of independent frames.
//
// Its promise: a byte that reaches a caller has been covered by a length check and, where
// the format has one, a checksum; every failure is one *CorruptError; nothing panics.
package codec

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what every *CorruptError matches with errors.Is.
var ErrCorrupt = errors.New("corrupt")

// CorruptError says which bytes are not what they have to be.
type CorruptError struct {
	// File is the object's key or path as its reader knows it.
	File string
	// Section names the part of the file: "header", "frame 12", "fences".
	Section string
	// Offset is the byte offset in File, -1 where it is not known.
	Offset int64
	// Want and Got describe what was found and what it should have been.
	Want, Got string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: corrupt %s: want %s, got %s", e.File, e.Section, e.Want, e.Got)
	}
	return fmt.Sprintf("%s: corrupt %s at byte %d: want %s, got %s", e.File, e.Section, e.Offset, e.Want, e.Got)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Corrupt builds a *CorruptError. Want and got are formatted with %v.
func Corrupt(file, section string, offset int64, want, got any) error {
	return &CorruptError{File: file, Section: section, Offset: offset, Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
}
