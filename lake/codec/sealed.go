package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A sealed document ends with sealKey, the 16 hex digits of its hash, and sealEnd.
const (
	sealKey = ",\n  \"xxh64\": \""
	sealEnd = "\"\n}\n"

	// sealSection is the section of errors about the seal.
	sealSection = "seal"
)

// Seal encodes v as an indented JSON object whose last member "xxh64" is the hash of all bytes
// before that member's comma. Unseal notices every changed bit. V must be a struct or a map with at
// least one member.
func Seal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(buf.Bytes(), []byte("\n}\n"))
	if len(body) == buf.Len() || len(body) < 3 {
		return nil, fmt.Errorf("seal %T: not a JSON object with members", v)
	}
	return appendSeal(bytes.Clone(body)), nil
}

func appendSeal(body []byte) []byte {
	sum := xxhash.Sum64(body)
	return fmt.Appendf(body, "%s%016x%s", sealKey, sum, sealEnd)
}

// Unseal checks a document that Seal made and decodes it into v. Newest is the newest format of the
// document, its member "format", that the caller knows. A document of a newer one, and one with
// members that v lacks, is a *FormatError, so that what a newer program wrote is neither half
// understood nor taken for damage. Other errors are *CorruptErrors. All of them name file.
func Unseal(data []byte, file string, newest int, v any) error {
	n := len(data) - len(sealKey) - 16 - len(sealEnd)
	if n < 0 {
		return Corrupt(file, sealSection, int64(len(data)), "a sealed document", fmt.Sprintf("%d bytes", len(data)))
	}
	if want := appendSeal(bytes.Clone(data[:n])); !bytes.Equal(want, data) {
		got := "no seal at its end"
		if seal := string(data[n:]); strings.HasPrefix(seal, sealKey) && strings.HasSuffix(seal, sealEnd) {
			got = "xxh64 " + seal[len(sealKey):len(sealKey)+16]
		}
		return Corrupt(file, sealSection, int64(n), "xxh64 "+string(want[n+len(sealKey):n+len(sealKey)+16]), got)
	}
	// The seal replaced the closing brace of the document.
	doc := append(bytes.Clone(data[:n]), "\n}"...)
	format := formatOf(doc)
	if format > newest {
		return &FormatError{Key: file, Found: format, Known: newest}
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if member := unknownMember(err); member != "" {
			return &FormatError{Key: file, Found: format, Known: newest, Member: member}
		}
		return Corrupt(file, "document", dec.InputOffset(), "a document of this format", err)
	}
	return nil
}

// IsUnsealed reports whether err says that the seal of a document is broken: its bytes are not
// those that were written. Other errors of Unseal are about a document that is intact.
func IsUnsealed(err error) bool {
	var c *CorruptError
	return errors.As(err, &c) && c.Section == sealSection
}
