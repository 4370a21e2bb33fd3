package frontier

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/frontier/robots"
	"github.com/urlake/urlake/lake/urlnorm"
)

// FoundName is the member of a URL's metadata that has the URL as it was found. It comes first, and
// is reserved. A robots.txt may forbid a spelling that the canonical form has lost: the order of a
// query, slashes in a row.
const FoundName = "urlfrontier.url"

const foundStart = `{"` + FoundName + `":`

// withFound returns metadata that has the URL as it was added, too, if its path or query is spelled
// in another way than the canonical form. It begins with the scheme and host of that form, so that
// it can be fetched. Metadata that is no object, or would be too long, stays, and so does that of a
// URL that is not UTF-8.
func withFound(metadata []byte, added string, canonical *urlnorm.URL) []byte {
	metadata = bytes.TrimSpace(metadata)
	path := robots.Path(added)
	if path == canonical.PathQuery || len(added)+len(metadata) > MaxMetadata/2 || !utf8.ValidString(path) ||
		bytes.Contains(metadata, []byte(FoundName)) {
		return metadata
	}
	rest := []byte("}")
	if len(metadata) > 0 {
		members, ok := bytes.CutPrefix(metadata, []byte("{"))
		if !ok {
			return metadata
		}
		if members = bytes.TrimSpace(members); !bytes.HasPrefix(members, rest) {
			rest = append([]byte(","), members...)
		}
	}
	b, err := jsontext.AppendQuote([]byte(foundStart), strings.TrimSuffix(canonical.String(), canonical.PathQuery)+path)
	if err != nil {
		return metadata
	}
	return append(b, rest...)
}

// Found returns the URL as it was found, "" if that is not known to differ from the canonical form,
// and the metadata without it.
func Found(metadata []byte) (found string, rest []byte) {
	after, ok := bytes.CutPrefix(metadata, []byte(foundStart))
	if !ok {
		return "", metadata
	}
	d := jsontext.NewDecoder(bytes.NewReader(after))
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '"' {
		return "", metadata
	}
	found = t.String()
	switch rest = bytes.TrimLeft(after[d.InputOffset():], " \t\r\n"); {
	case len(rest) == 0:
		return "", metadata
	case rest[0] == ',':
		return found, append([]byte("{"), rest[1:]...)
	}
	return found, nil
}
