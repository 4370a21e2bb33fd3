package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/urlake/urlake/serve/api/openapi"
)

// contract is openapi.yaml as tests hold requests and answers against it: every object in it
// forbids members that it does not name. service.do and service.send hold all their requests
// against it, so a test that asks through them tests the document as well.
type contract struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	schemas  map[string]*jsonschema.Schema
}

const contractURL = "https://urlake.test/openapi.json"

var loadContract = sync.OnceValues(func() (*contract, error) {
	d, err := described()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.JSON))
	if err != nil {
		return nil, err
	}
	forbidOthers(doc)
	c := &contract{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource(contractURL, doc)
})

// forbidOthers makes every object schema in v reject members that it does not name.
func forbidOthers(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, open := v["additionalProperties"]; v["type"] == "object" && !open {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			forbidOthers(inner)
		}
	case []any:
		for _, inner := range v {
			forbidOthers(inner)
		}
	}
}

// inPointer escapes a name for a JSON pointer in a URL.
var inPointer = strings.NewReplacer("~", "~0", "/", "~1", "%", "%25", "{", "%7B", "}", "%7D")

// schema returns the schema at names, which lead to it from the root of the document.
func (c *contract) schema(names ...string) (*jsonschema.Schema, error) {
	pointer := contractURL + "#"
	for _, name := range names {
		pointer += "/" + inPointer.Replace(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.schemas[pointer]; ok {
		return s, nil
	}
	s, err := c.compiler.Compile(pointer)
	if err == nil {
		c.schemas[pointer] = s
	}
	return s, err
}

// at follows names from object to object. The result is nil if one is not there.
func at(v any, names ...string) any {
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// outcome is what a request turned out to be: an operation of the document, as "get /v1/datasets",
// its status, and the kind of problem, if it was one.
type outcome struct {
	operation string
	status    int
	kind      string
}

// documentedPath is the path in the document of a pattern of the mux.
func documentedPath(pattern string) (method, p string) {
	method, p, _ = strings.Cut(pattern, " ")
	return strings.ToLower(method), strings.TrimSuffix(p, "{$}")
}

// check holds a request and its answer against the document. Its errors say what the document or
// the answer lacks.
func (c *contract) check(pattern string, r *http.Request, w *httptest.ResponseRecorder) (o outcome, err error) {
	body, header := w.Body.Bytes(), w.Result().Header
	o.status = w.Code
	if p := r.URL.EscapedPath(); w.Code/100 == 3 && p != path.Clean(p) {
		return o, nil // the mux sends clients to the clean path
	}
	if r.Method == http.MethodHead || w.Code == http.StatusNotModified {
		return o, nil // the rest is that of GET
	}
	// Streams have no Content-Length. They say what comes in trailers.
	if header.Get("Content-Length") != strconv.Itoa(len(body)) && header.Get("Trailer") == "" {
		return o, fmt.Errorf("Content-Length is %s for %d bytes", header.Get("Content-Length"), len(body))
	}
	contentType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return o, fmt.Errorf("content type %q: %w", header.Get("Content-Type"), err)
	}
	if body, err = decoded(header.Get("Content-Encoding"), body); err != nil {
		return o, fmt.Errorf("content encoding %q: %w", header.Get("Content-Encoding"), err)
	}
	isProblem := contentType == "application/problem+json"
	if isProblem {
		if o.kind, err = c.problem(w.Code, body); err != nil {
			return o, err
		}
	}
	if pattern == "/" { // what no operation is for
		if !slices.Contains([]string{"no-such-path", "method-not-allowed", "bad-parameter", "unauthorized", "not-ready"}, o.kind) {
			return o, fmt.Errorf("a path that is not served has %d %s", w.Code, body)
		}
		return o, nil
	}
	method, p := documentedPath(pattern)
	o.operation = method + " " + p
	operation := at(c.doc, "paths", p, method)
	if operation == nil {
		return o, fmt.Errorf("openapi.yaml lacks %s: add the path with its parameters, answers and problems", o.operation)
	}
	status := strconv.Itoa(w.Code)
	response := at(operation, "responses", status)
	if response == nil {
		return o, fmt.Errorf("%s answers %s %s, which openapi.yaml does not list: "+
			"add the answer to responses or the kind of problem to x-problems", o.operation, status, o.kind)
	}
	if isProblem {
		kinds, _ := at(response, "x-problems").([]any)
		if !slices.Contains(kinds, any(o.kind)) {
			return o, fmt.Errorf("%s answers problem %s, which its x-problems in openapi.yaml lacks", o.operation, o.kind)
		}
	} else if w.Code < 300 {
		if err := c.request(p, method, r); err != nil {
			return o, err
		}
	}
	where := []string{"paths", p, method, "responses", status}
	if err := c.headers(response, where, header); err != nil {
		return o, fmt.Errorf("%s, %s: %w", o.operation, status, err)
	}
	if at(response, "content", contentType) == nil {
		return o, fmt.Errorf("%s, %s: openapi.yaml has no content %s", o.operation, status, contentType)
	}
	schema, err := c.schema(append(where, "content", contentType, "schema")...)
	if err != nil {
		return o, err
	}
	if err := hold(schema, contentType, body); err != nil {
		return o, fmt.Errorf("%s, %s: the answer is not what openapi.yaml says: %w", o.operation, status, err)
	}
	return o, nil
}

// hold validates a body. The schema of NDJSON is that of each line; other text is not looked into.
func hold(schema *jsonschema.Schema, contentType string, body []byte) error {
	documents := [][]byte{body}
	switch {
	case strings.HasSuffix(contentType, "ndjson"):
		documents = bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
		if len(body) == 0 {
			return nil
		}
	case !strings.HasSuffix(contentType, "json"):
		return nil
	}
	for _, document := range documents {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return fmt.Errorf("%w: %.1000s", err, document)
		}
	}
	return nil
}

// request validates the query parameters of a request that was answered.
func (c *contract) request(p, method string, r *http.Request) error {
	query := r.URL.Query()
	parameters, _ := at(c.doc, "paths", p, method, "parameters").([]any)
	for i, parameter := range parameters {
		name, _ := at(parameter, "name").(string)
		text := query.Get(name)
		if at(parameter, "in") != "query" || !query.Has(name) {
			continue
		}
		query.Del(name)
		var value any = text
		if at(parameter, "schema", "type") == "integer" {
			if _, ok := new(big.Int).SetString(text, 10); !ok {
				return fmt.Errorf("parameter %s is %q and was served, but openapi.yaml says integer", name, text)
			}
			value = json.Number(text)
		}
		schema, err := c.schema("paths", p, method, "parameters", strconv.Itoa(i), "schema")
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return fmt.Errorf("parameter %s is %q and was served, against openapi.yaml: %w", name, text, err)
		}
	}
	page := at(c.doc, "paths", p, method, "responses", "200", "content", "text/html") != nil
	if len(query) > 0 && !page { // pages ignore unknown ones
		return fmt.Errorf("openapi.yaml lacks the parameters %v of %s %s", slices.Sorted(maps.Keys(query)), method, p)
	}
	return nil
}

// headers checks that a response has the documented header fields and no others.
func (c *contract) headers(response any, where []string, header http.Header) error {
	documented, _ := at(response, "headers").(map[string]any)
	known := []string{"Content-Type", "Content-Length"}
	for name := range documented {
		known = append(known, http.CanonicalHeaderKey(name))
	}
	for name := range header {
		if !slices.Contains(known, name) {
			return fmt.Errorf("openapi.yaml lacks the header %s: %s", name, header.Get(name))
		}
	}
	for name, field := range documented {
		if len(header.Values(name)) == 0 {
			if at(field, "required") == true {
				return fmt.Errorf("the answer lacks the header %s", name)
			}
			continue
		}
		var value any = strings.Join(header.Values(name), ", ")
		if at(field, "schema", "type") == "integer" {
			value = json.Number(header.Get(name))
		}
		schema, err := c.schema(append(slices.Clone(where), "headers", name, "schema")...)
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return nil
}

// problem checks a problem document and returns its kind.
func (c *contract) problem(status int, body []byte) (string, error) {
	var document map[string]any
	if err := json.Unmarshal(body, &document); err != nil {
		return "", err
	}
	typ, _ := document["type"].(string)
	name, _ := strings.CutPrefix(typ, openapi.ProblemPath)
	kind, ok := findKind(name)
	if !ok {
		return "", fmt.Errorf("problem %s is not in problems.go, which explains every kind: add it: %s", typ, body)
	}
	schema, err := c.schema("components", "schemas", "Problem")
	if err != nil {
		return "", err
	}
	if err := hold(schema, "application/problem+json", body); err != nil {
		return "", err
	}
	if !slices.Contains(kind.Statuses, status) || document["status"] != float64(status) || document["title"] != kind.Title {
		return "", fmt.Errorf("status %d, but problems.go has statuses %v and title %q: %s",
			status, kind.Statuses, kind.Title, body)
	}
	for member := range document {
		known := slices.ContainsFunc(kind.Members, func(m openapi.Member) bool { return m.Name == member })
		if !known && !slices.Contains([]string{"type", "title", "status", "detail"}, member) {
			return "", fmt.Errorf("member %s of problem %s is not in problems.go", member, name)
		}
	}
	return name, nil
}

// send answers a request and holds both against the document.
func (s *service) send(r *http.Request) (*httptest.ResponseRecorder, outcome) {
	s.t.Helper()
	c, err := loadContract()
	if err != nil {
		s.t.Fatal(err)
	}
	w := httptest.NewRecorder()
	_, pattern := s.web.Handler(r)
	if !isClean(r) {
		pattern = "/" // the mux would redirect it
	}
	s.web.ServeHTTP(w, r)
	if _, ours := s.routes[pattern]; !ours {
		return w, outcome{status: w.Code} // a route of the test itself
	}
	o, err := c.check(pattern, r, w)
	if err != nil {
		s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	return w, o
}

func mustContract(t *testing.T) *contract {
	t.Helper()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// operations calls do for every operation of the document.
func (c *contract) operations(do func(method, p string, operation map[string]any)) {
	paths, _ := c.doc["paths"].(map[string]any)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		item, _ := paths[p].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(item)) {
			operation, _ := item[method].(map[string]any)
			do(method, p, operation)
		}
	}
}

// checkSchemas compiles every schema of the document and validates the example beside it.
func (c *contract) checkSchemas(v any, where []string) error {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			here := append(slices.Clone(where), name)
			if name == "schema" || len(where) > 0 && where[len(where)-1] == "schemas" {
				schema, err := c.schema(here...)
				if err != nil {
					return err
				}
				if example, ok := v["example"]; ok && name == "schema" {
					if err := schema.Validate(example); err != nil {
						return fmt.Errorf("the example at %v: %w", where, err)
					}
				}
			}
			if name != "example" {
				if err := c.checkSchemas(inner, here); err != nil {
					return err
				}
			}
		}
	case []any:
		var err error
		for i, inner := range v {
			err = errors.Join(err, c.checkSchemas(inner, append(slices.Clone(where), strconv.Itoa(i))))
		}
		return err
	}
	return nil
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)
