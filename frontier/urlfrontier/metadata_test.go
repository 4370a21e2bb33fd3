package urlfrontier

import (
	"encoding/json"
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// equalMetadata compares, with an empty map equal to none.
func equalMetadata(a, b map[string]*pb.StringList) bool {
	return maps.EqualFunc(a, b, func(a, b *pb.StringList) bool { return proto.Equal(a, b) })
}

// TestMetadataOfHTTP reads metadata as it may come over HTTP.
func TestMetadataOfHTTP(t *testing.T) {
	list := func(values ...string) *pb.StringList { return &pb.StringList{Values: values} }
	for text, want := range map[string]map[string]*pb.StringList{
		``:                             nil,
		`{}`:                           nil,
		`{"a": "x", "b": ["y", "z"]}`:  {"a": list("x"), "b": list("y", "z")},
		`{"a": 1, "b": null, "c": []}`: {"a": list("1"), "b": list("null"), "c": list()},
		`{"a": ["x", 2], "b": {"c":1}}`: {
			"a": list(`["x", 2]`), "b": list(`{"c":1}`),
		},
		`["x"]`:  {"metadata": list(`["x"]`)},
		`"text"`: {"metadata": list(`"text"`)},
	} {
		got, put := parseMetadata([]byte(text))
		if !equalMetadata(got, want) || put != "" {
			t.Errorf("%s: %v, %q, want %v", text, got, put, want)
		}
	}
}

// FuzzMetadata writes and reads metadata: it is JSON, and comes back whole, with the spelling.
func FuzzMetadata(f *testing.F) {
	f.Add("source", "a", "b", "")
	f.Add("urlfrontier.url", "mine", "", "HTTP://A.example")
	f.Add("urlfrontier.url''", "\x00\"\\", "ü", "x")
	f.Fuzz(func(t *testing.T, name, value, other, put string) {
		in := &pb.URLInfo{Url: put, Metadata: map[string]*pb.StringList{name: {Values: []string{value, other}}, other: {}}}
		// Only what gRPC lets through.
		data, err := proto.Marshal(in)
		if err != nil || proto.Unmarshal(data, in) != nil {
			return
		}
		kept := appendMetadata(nil, in.GetMetadata(), put)
		if !json.Valid(kept) {
			t.Fatalf("%q is no JSON", kept)
		}
		if got, spelled := parseMetadata(kept); !equalMetadata(got, in.GetMetadata()) || spelled != put {
			t.Errorf("%v, %q, want %v, %q, kept as %s", got, spelled, in.GetMetadata(), put, kept)
		}
	})
}
