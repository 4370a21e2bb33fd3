package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// sealKey opens the last member of a sealed document.
const sealKey = ",\n  \"xxh64\": \""

// sealEnd closes it.
const sealEnd = "\"\n}\n"

// Seal encodes v, which must be a struct or map with at least one member, as indented JSON
// whose last member "xxh64" is the hash of all bytes before that member's comma. People
// can read the document and every changed bit in it is noticed.
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

// Unseal checks a document made by Seal and decodes it into v. Unknown members are an error:
// a document from a newer writer is not half understood.
func Unseal(data []byte, file string, v any) error {
	n := len(data) - len(sealKey) - 16 - len(sealEnd)
	if n < 0 {
		return Corrupt(file, "seal", int64(len(data)), "a sealed document", fmt.Sprintf("%d bytes", len(data)))
	}
	if want := appendSeal(bytes.Clone(data[:n])); !bytes.Equal(want, data) {
		got := "no seal at its end"
		if seal := string(data[n:]); strings.HasPrefix(seal, sealKey) && strings.HasSuffix(seal, sealEnd) {
			got = "xxh64 " + seal[len(sealKey):len(sealKey)+16]
		}
		return Corrupt(file, "seal", int64(n), "xxh64 "+string(want[n+len(sealKey):n+len(sealKey)+16]), got)
	}
	// The seal's comma follows the last member; what precedes it is the document less its brace.
	doc := append(bytes.Clone(data[:n]), "\n}"...)
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return Corrupt(file, "document", dec.InputOffset(), "a document of this format", err)
	}
	return nil
}
