package frontier

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/lake/urlnorm"
)

// FoundName is the member of a URL's metadata that has the URL as it was added. It comes first. A
// robots.txt may forbid a spelling that the canonical form has lost: the order of a query, slashes
// in a row.
const FoundName = "urlfrontier.url"

const foundStart = `{"` + FoundName + `":`

// withFound returns metadata that has the URL as it was added, too, if its path or query is spelled
// in another way than the canonical form. Metadata that is no object, or would be too long, stays.
func withFound(metadata []byte, added string, canonical *urlnorm.URL) []byte {
	metadata = bytes.TrimSpace(metadata)
	path := pathOf(added)
	if path == "" || path == canonical.PathQuery || len(added)+len(metadata) > MaxMetadata/2 ||
		bytes.Contains(metadata, []byte(FoundName)) {
		return metadata
	}
	rest := []byte("}")
	if len(metadata) > 0 && string(metadata) != "{}" {
		if metadata[0] != '{' {
			return metadata
		}
		rest = append([]byte(","), metadata[1:]...)
	}
	b, err := jsontext.AppendQuote([]byte(foundStart), strings.ToValidUTF8(added, "\ufffd"))
	if err != nil {
		return metadata
	}
	return append(b, rest...)
}

// pathOf returns the path and query of a URL in any spelling; "" if it has none.
func pathOf(url string) string {
	url, _, _ = strings.Cut(strings.TrimSpace(url), "#")
	if i := strings.Index(url, "//"); i == 0 || i > 0 && url[i-1] == ':' {
		url = url[i+2:]
	}
	if i := strings.IndexAny(url, `/?\`); i >= 0 {
		return url[i:]
	}
	return ""
}

// Found returns the URL as it was added, "" if that is not known to differ from the canonical form,
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
