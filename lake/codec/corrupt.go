// Package codec is the base of urlake's own file formats: the error for damaged files, an encoder
// and a decoder for little-endian fields, CRC-32C, and sealed JSON documents. All packages that
// read or write objects use it.
//
// Decoding never panics. Every length is checked before bytes are used, and every failure is a
// *CorruptError.
package codec

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what every *CorruptError matches with errors.Is.
var ErrCorrupt = errors.New("corrupt")

// CorruptError names the bytes of a file that are not what the format requires.
type CorruptError struct {
	// File is the key of the object, or the path of the file.
	File string
	// Section names the part of the file: "header", "frame 12", "fences".
	Section string
	// Offset is the byte offset in File, or -1 if it is not known.
	Offset int64
	// Want describes what the format requires, Got what was found.
	Want, Got string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: corrupt %s: want %s, got %s", e.File, e.Section, e.Want, e.Got)
	}
	return fmt.Sprintf("%s: corrupt %s at byte %d: want %s, got %s", e.File, e.Section, e.Offset, e.Want, e.Got)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Corrupt returns a *CorruptError. Want and got are formatted by fmt.Sprint.
func Corrupt(file, section string, offset int64, want, got any) error {
	return &CorruptError{File: file, Section: section, Offset: offset, Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
}

// Confirm returns the result of read. If that is damage (ErrCorrupt), it reads again and returns
// the second result: bytes can be damaged on their way to this program. It belongs before whatever
// replaces, drops or reports a damaged object, and around the reading alone.
func Confirm[T any](read func() (T, error)) (T, error) {
	out, err := read()
	if errors.Is(err, ErrCorrupt) {
		return read()
	}
	return out, err
}
