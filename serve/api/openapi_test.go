package api

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// The document is OpenAPI 3.1 by the schema of the OpenAPI Initiative, its schemas are JSON Schema
// 2020-12, and its examples are as their schemas say.
func TestDocumentIsOpenAPI(t *testing.T) {
	data, err := os.ReadFile("openapi/testdata/openapi-3.1-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	official, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi", official); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("openapi")
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, small(t), lookup.Options{}).do("GET", "/openapi.json")
	doc, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("%v", err)
	}
	at(doc, "info").(map[string]any)["title"] = nil
	if schema.Validate(doc) == nil {
		t.Error("the schema of OpenAPI takes anything")
	}
	c := mustContract(t)
	if err := c.checkSchemas(c.doc, nil); err != nil {
		t.Error(err)
	}
	ids := map[any]bool{}
	c.operations(func(method, p string, operation map[string]any) {
		if id := operation["operationId"]; ids[id] {
			t.Errorf("operationId %s is there twice", id)
		} else {
			ids[id] = true
		}
		var want, got []string
		for _, name := range placeholder.FindAllStringSubmatch(p, -1) {
			want = append(want, name[1])
		}
		parameters, _ := operation["parameters"].([]any)
		for _, parameter := range parameters {
			if at(parameter, "in") == "path" {
				got = append(got, at(parameter, "name").(string))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: parameters of the path (-path +documented):\n%s", method, p, diff)
		}
	})
}

// Every route is documented with its parameters, and nothing else is.
func TestEveryRouteIsDocumented(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	c := mustContract(t)
	undocumented := map[string]*route{}
	for pattern, rt := range s.routes {
		if pattern != "/" { // answers for paths that are not served
			method, p := documentedPath(pattern)
			undocumented[method+" "+p] = rt
		}
	}
	undocumented["get /metrics"] = &route{} // the program adds it
	c.operations(func(method, p string, operation map[string]any) {
		rt, ok := undocumented[method+" "+p]
		delete(undocumented, method+" "+p)
		if !ok {
			t.Errorf("openapi.yaml has %s %s, which is not served", method, p)
			return
		}
		var got []string
		parameters, _ := operation["parameters"].([]any)
		for _, parameter := range parameters {
			if at(parameter, "in") == "query" {
				got = append(got, at(parameter, "name").(string))
			}
		}
		slices.Sort(got)
		want := slices.Clone(rt.parameters)
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Errorf("%s %s: parameters (-served +in openapi.yaml):\n%s", method, p, diff)
		}
		if operation["x-request"] == nil || operation["summary"] == nil {
			t.Errorf("%s %s has no x-request, an example request, or no summary", method, p)
		}
	})
	for name := range undocumented {
		t.Errorf("openapi.yaml lacks %s: add the path with its parameters, answers and problems", name)
	}
}

// exampleLake is the lake of the document's examples.
func exampleLake(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	captures := []testlake.Record{
		{URL: "https://example.com/", TS: 1_718_323_200_000, HasTS: true, Size: 1256, HasSize: true},
		{URL: "https://example.com/a/b?x=1", TS: 1_718_323_201_500, HasTS: true, Size: 902, HasSize: true},
		{URL: "https://www.example.com/about", TS: 1_732_147_200_000, HasTS: true, Size: 3310, HasSize: true},
	}
	testlake.Ingest(t, store, "captures", "2024", captures)
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "smallweb", "2024-11", []testlake.Record{{URL: "https://example.com/"}, {URL: "https://example.org/"}})
	testlake.Publish(t, store)
	return store
}

// varying are the members of answers that differ from one lake to the next although both were made
// of the same records, or with the version of a library.
var varying = []string{
	"version", "current_version", "parent", "commit", "created", "built_by", "from", "to", "next", "next_cursor",
	"bytes", "part_bytes", "index_bytes", "public_suffix_list", "hits", "misses", "entries",
}

// mask replaces what varies by its JSON type.
func mask(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if v[name] = mask(inner); slices.Contains(varying, name) {
				v[name] = fmt.Sprintf("%T", inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	}
	return v
}

// Each example of the document is what the server answers to its example request.
func TestExamplesAreTrue(t *testing.T) {
	s := start(t, exampleLake(t), lookup.Options{})
	s.web.Handle("GET /metrics", s.metrics.Handler())
	c := mustContract(t)
	c.operations(func(method, p string, operation map[string]any) {
		request, _ := operation["x-request"].(string)
		body, _ := operation["x-body"].(string)
		w, _ := s.send(httptest.NewRequest(strings.ToUpper(method), request, strings.NewReader(body)))
		if w.Code != 200 {
			t.Errorf("%s %s: %d %s", method, request, w.Code, w.Body)
		}
		if _, pattern := s.web.Handler(httptest.NewRequest(strings.ToUpper(method), request, nil)); s.routes[pattern] != nil {
			if m, documented := documentedPath(pattern); m != method || documented != p {
				t.Errorf("the example request of %s %s is one of %s", method, p, pattern)
			}
		}
		contentType, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
		example := at(operation, "responses", "200", "content", contentType, "example")
		if example == nil {
			return
		}
		answer, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
		if err != nil {
			t.Fatalf("%s %s: %v", method, request, err)
		}
		if diff := cmp.Diff(mask(answer), mask(example)); diff != "" {
			t.Errorf("%s %s: the example (-answer +openapi.yaml):\n%s\n%s", method, request, diff, w.Body)
		}
	})
}
