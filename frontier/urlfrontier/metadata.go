package urlfrontier

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// spelling is the name in the metadata under which a URL is kept as it was put, if that is not its
// canonical form. A name of a client that begins so gets a quote more at its end.
const (
	spelling = frontier.FoundName
	quote    = "'"
)

// appendMetadata appends what is kept of metadata: a JSON object, or nothing if there is none. Put
// is the URL as it was put, "" if that is its canonical form.
func appendMetadata(b []byte, metadata map[string]*pb.StringList, put string) []byte {
	if len(metadata) == 0 && put == "" {
		return b
	}
	open := byte('{')
	name := func(s string) {
		b = append(b, open)
		open = ','
		b, _ = jsontext.AppendQuote(b, s) // what came by gRPC is UTF-8
		b = append(b, ':')
	}
	if put != "" {
		name(spelling)
		b, _ = jsontext.AppendQuote(b, put)
	}
	var few [16]string // on the stack
	keys := few[:0]
	for key := range metadata {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if strings.HasPrefix(key, spelling) {
			name(key + quote)
		} else {
			name(key)
		}
		between := byte('[')
		for _, v := range metadata[key].GetValues() {
			b = append(b, between)
			between = ','
			b, _ = jsontext.AppendQuote(b, v)
		}
		if between == '[' {
			b = append(b, '[')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// parseMetadata returns what appendMetadata has appended, and whatever came over HTTP as well as it
// can be told.
func parseMetadata(data []byte) (metadata map[string]*pb.StringList, put string) {
	if len(data) == 0 {
		return nil, ""
	}
	var values map[string]jsontext.Value
	if json.Unmarshal(data, &values) != nil {
		return map[string]*pb.StringList{"metadata": {Values: []string{string(data)}}}, ""
	}
	metadata = make(map[string]*pb.StringList, len(values))
	for key, value := range values {
		var list []string
		var one string
		switch {
		case value.Kind() == '"':
			_ = json.Unmarshal(value, &one)
			list = []string{one}
		case json.Unmarshal(value, &list) != nil || value.Kind() != '[':
			list = []string{string(value)}
		}
		switch {
		case key == spelling:
			put = one
			continue
		case strings.HasPrefix(key, spelling):
			key = strings.TrimSuffix(key, quote)
		}
		metadata[key] = &pb.StringList{Values: list}
	}
	return metadata, put
}
