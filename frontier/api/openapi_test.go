//go:build unix

package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/urlake/urlake/frontier/api"
)

// contract is openapi.yaml as the tests hold requests and answers against it: every object in it
// forbids members that it does not name.
type contract struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	seen     map[string]bool // "get /v1/stats 200": what tests have got
}

const contractURL = "https://urlake.test/openapi.json"

var theContract = sync.OnceValue(func() *contract {
	data, err := os.ReadFile("openapi.yaml")
	if err != nil {
		panic(err)
	}
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := &contract{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), seen: map[string]bool{}}
	c.forbidOthers(doc)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(contractURL, doc); err != nil {
		panic(err)
	}
	return c
})

func (c *contract) forbidOthers(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			c.forbidOthers(inner)
		}
	case []any:
		for _, inner := range v {
			c.forbidOthers(inner)
		}
	}
}

// at follows names from object to object, and references. It is nil if one is not there.
func (c *contract) at(names ...string) (v any, pointer string) {
	v, pointer = c.doc, contractURL+"#"
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
		for {
			object, _ := v.(map[string]any)
			ref, ok := object["$ref"].(string)
			if !ok {
				break
			}
			pointer = contractURL + ref
			v = c.doc
			for _, n := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
				v = v.(map[string]any)[n]
			}
		}
	}
	return v, pointer
}

// validate holds a body against the schema at names. That of NDJSON is for each line.
func (c *contract) validate(body []byte, contentType string, names ...string) error {
	v, pointer := c.at(append(names, "content", contentType, "schema")...)
	if v == nil {
		if media, _ := c.at(append(names, "content", contentType)...); media == nil {
			return fmt.Errorf("openapi.yaml has no content %s at %v", contentType, names)
		}
		return nil // bytes or text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, err := c.compiler.Compile(pointer)
	if err != nil {
		return err
	}
	documents := [][]byte{body}
	if strings.HasSuffix(contentType, "ndjson") {
		documents = bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	}
	for _, d := range documents {
		if len(d) == 0 && strings.HasSuffix(contentType, "ndjson") {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(d))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			return fmt.Errorf("%w: %.500s", err, d)
		}
	}
	return nil
}

// operation finds the path of the document that a request is for.
func (c *contract) operation(method, path string) (string, bool) {
	paths, _ := c.doc["paths"].(map[string]any)
	best := ""
	for p := range paths {
		if item, _ := paths[p].(map[string]any); item[strings.ToLower(method)] == nil {
			continue
		}
		pattern := regexp.QuoteMeta(p)
		pattern = strings.ReplaceAll(pattern, `\{path\}`, `.+`)
		pattern = regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(pattern, `[^/]+`)
		if regexp.MustCompile("^"+pattern+"$").MatchString(path) && (best == "" || strings.Count(p, "{") < strings.Count(best, "{")) {
			best = p
		}
	}
	return best, best != ""
}

// check holds a request and its answer against the document.
func (c *contract) check(req *http.Request, body string, res *http.Response, answer []byte) error {
	p, ok := c.operation(req.Method, req.URL.EscapedPath())
	if !ok {
		if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed {
			if kind := res.Header.Get("Content-Type"); kind != "application/problem+json" {
				return fmt.Errorf("it was answered with %s and %s", res.Status, kind)
			}
			return nil
		}
		return fmt.Errorf("openapi.yaml lacks it, and it was answered")
	}
	method, status := strings.ToLower(req.Method), strconv.Itoa(res.StatusCode)
	where := []string{"paths", p, method, "responses", status}
	response, _ := c.at(where...)
	if response == nil {
		return fmt.Errorf("openapi.yaml has no status %s", status)
	}
	c.mu.Lock()
	c.seen[method+" "+p+" "+status] = true
	c.mu.Unlock()
	for name := range res.Header {
		header, _ := c.at(append(where, "headers", name)...)
		if header == nil && !slices.Contains([]string{"Content-Type", "Content-Length", "Date", "Accept-Ranges", "Last-Modified", "Vary"}, name) {
			return fmt.Errorf("openapi.yaml has no header %s", name)
		}
	}
	if headers, _ := c.at(append(where, "headers")...); headers != nil {
		for name := range headers.(map[string]any) {
			if res.Header.Get(name) == "" {
				return fmt.Errorf("the answer lacks the header %s", name)
			}
		}
	}
	contentType, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := c.validate(answer, contentType, where...); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	// Of requests with lines, some may be wrong.
	if request, _ := c.at("paths", p, method, "requestBody"); request != nil && res.StatusCode == http.StatusOK && !strings.Contains(string(answer), "line: ") {
		content, _ := c.at("paths", p, method, "requestBody", "content")
		for kind := range content.(map[string]any) {
			if err := c.validate([]byte(body), kind, "paths", p, method, "requestBody"); err != nil {
				return fmt.Errorf("the request was taken, against openapi.yaml: %w", err)
			}
		}
	}
	return nil
}

// unprovoked are statuses that only a disk that fails brings about.
var unprovoked = []string{"delete /v1/snapshots/{id} 503", "get /v1/snapshots/{id}/files/{path} 503", "post /v1/seen 503", "post /v1/visits 503"}

// TestMain runs the tests, and holds afterwards that each status of openapi.yaml was seen.
func TestMain(m *testing.M) {
	code := m.Run()
	whole := true
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		whole = whole && flag.Lookup(name).Value.String() == ""
	}
	if c := theContract(); code == 0 && whole && len(c.seen) > 0 {
		for _, o := range c.operations() {
			responses, _ := c.at("paths", o.path, o.method, "responses")
			for status := range responses.(map[string]any) {
				if name := o.method + " " + o.path + " " + status; !c.seen[name] && !slices.Contains(unprovoked, name) {
					fmt.Printf("openapi.yaml: no test got %s from %s %s: add one, or leave the status out\n", status, o.method, o.path)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

type operation struct{ method, path string }

func (c *contract) operations() (all []operation) {
	paths, _ := c.doc["paths"].(map[string]any)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(paths[p].(map[string]any))) {
			if method != "parameters" {
				all = append(all, operation{method, p})
			}
		}
	}
	return all
}

// The document is OpenAPI 3.1 by the schema of the OpenAPI Initiative, and what is served.
func TestDocumentIsOpenAPI(t *testing.T) {
	data, err := os.ReadFile("../../serve/api/openapi/testdata/openapi-3.1-schema.json")
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
	c := theContract()
	if err := schema.Validate(c.doc); err != nil {
		t.Error(err)
	}
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, got := request(t, "GET", serve(t, 1)[0]+"/v1/openapi.yaml", ""); got != strings.TrimSpace(string(want)) {
		t.Error("another document is served")
	}
	ids := map[any]bool{}
	for _, o := range c.operations() {
		id, _ := c.at("paths", o.path, o.method, "operationId")
		summary, _ := c.at("paths", o.path, o.method, "summary")
		if id == nil || ids[id] || summary == nil {
			t.Errorf("%s %s has no operationId of its own, or no summary", o.method, o.path)
		}
		ids[id] = true
	}
}

// sources parses the package.
func sources(t *testing.T) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	return files
}

// call returns the name of the called method, and its arguments.
func call(n ast.Node) (name string, args []ast.Expr) {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name, c.Args
	}
	return "", nil
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// TestRoutesAreDocumented compares the routes of the code, and the parameters that their handlers
// read, with the document.
func TestRoutesAreDocumented(t *testing.T) {
	c := theContract()
	routes := map[operation]string{} // the name of the handler
	bodies := map[string]*ast.FuncDecl{}
	for _, f := range sources(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if fn, ok := n.(*ast.FuncDecl); ok && fn.Recv != nil {
				bodies[fn.Name.Name] = fn
			}
			name, args := call(n)
			if (name == "Handle" || name == "HandleFunc") && len(args) == 2 {
				if id, ok := args[0].(*ast.Ident); ok && id.Name == "everything" { // what is not served
					return true
				}
				method, p, ok := strings.Cut(literal(args[0]), " ")
				if !ok {
					t.Errorf("a route without a method: %q", literal(args[0]))
				}
				handler := ""
				if _, in := call(args[1]); len(in) == 1 { // it is wrapped
					args[1] = in[0]
				}
				if s, ok := args[1].(*ast.SelectorExpr); ok {
					handler = s.Sel.Name
				}
				p = strings.ReplaceAll(strings.TrimSuffix(p, "{$}"), "...}", "}")
				routes[operation{strings.ToLower(method), p}] = handler
			}
			return true
		})
	}
	var parameters func(handler string, done map[string]bool) []string
	parameters = func(handler string, done map[string]bool) (all []string) {
		fn := bodies[handler]
		if fn == nil || done[handler] {
			return nil
		}
		done[handler] = true
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			name, args := call(n)
			if (name == "Get" || name == "Has") && len(args) == 1 && literal(args[0]) != "" && !strings.Contains(literal(args[0]), "-") {
				all = append(all, literal(args[0]))
			}
			if len(args) >= 2 { // another handler
				if w, ok := args[0].(*ast.Ident); ok && w.Name == "w" {
					all = append(all, parameters(name, done)...)
				}
			}
			return true
		})
		slices.Sort(all)
		return slices.Compact(all)
	}
	for _, o := range c.operations() {
		handler, ok := routes[o]
		if !ok {
			t.Errorf("openapi.yaml has %s %s, which is not served", o.method, o.path)
			continue
		}
		delete(routes, o)
		var documented, inPath []string
		for _, where := range [][]string{{"paths", o.path, "parameters"}, {"paths", o.path, o.method, "parameters"}} {
			list, _ := c.at(where...)
			all, _ := list.([]any)
			for _, p := range all {
				name := p.(map[string]any)["name"].(string)
				if p.(map[string]any)["in"] == "query" {
					documented = append(documented, name)
				} else {
					inPath = append(inPath, "{"+name+"}")
				}
			}
		}
		slices.Sort(documented)
		if diff := cmp.Diff(documented, parameters(handler, map[string]bool{})); diff != "" && len(documented)+len(parameters(handler, map[string]bool{})) > 0 {
			t.Errorf("%s %s: parameters (-openapi.yaml +read by the code):\n%s", o.method, o.path, diff)
		}
		if diff := cmp.Diff(inPath, regexp.MustCompile(`\{\w+\}`).FindAllString(o.path, -1)); diff != "" {
			t.Errorf("%s %s: parameters of the path:\n%s", o.method, o.path, diff)
		}
	}
	for o := range routes {
		t.Errorf("openapi.yaml lacks %s %s", o.method, o.path)
	}
}

// TestFieldsAreDocumented compares the fields of bodies with their schemas, both ways.
func TestFieldsAreDocumented(t *testing.T) {
	c := theContract()
	all := maps.Clone(api.Schemas)
	known := map[string]bool{}
	var compare func(name string, typ reflect.Type)
	compare = func(name string, typ reflect.Type) {
		known[typ.Name()] = true
		schema, _ := c.at("components", "schemas", name)
		if schema == nil {
			t.Errorf("openapi.yaml lacks the schema %s", name)
			return
		}
		properties, _ := schema.(map[string]any)["properties"].(map[string]any)
		var required, must []string
		list, _ := schema.(map[string]any)["required"].([]any)
		for _, r := range list {
			required = append(required, r.(string))
		}
		got := map[string]bool{}
		for _, f := range reflect.VisibleFields(typ) {
			if f.Anonymous {
				known[f.Type.Name()] = true
				continue
			}
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			got[tag] = true
			property, _ := c.at("components", "schemas", name, "properties", tag)
			if property == nil {
				t.Errorf("openapi.yaml: schema %s lacks %s", name, tag)
				continue
			}
			if options == "" && !slices.Contains(api.Requests, name) {
				must = append(must, tag)
			}
			if want := jsonType(f.Type); want != "" && !strings.Contains(fmt.Sprint(property.(map[string]any)["type"], property.(map[string]any)["oneOf"]), want) && want != "object" {
				t.Errorf("openapi.yaml: %s of %s is %v, want %s", tag, name, property, want)
			}
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice && inner != reflect.TypeFor[jsontext.Value]() {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
				ref := regexp.MustCompile(`#/components/schemas/(\w+)`).FindStringSubmatch(fmt.Sprint(raw(c, name, tag)))
				if ref == nil {
					t.Errorf("openapi.yaml: %s of %s refers to no schema", tag, name)
				} else if all[ref[1]] == nil {
					all[ref[1]] = inner
					compare(ref[1], inner)
				} else {
					known[inner.Name()] = true
				}
			}
		}
		for p := range properties {
			if !got[p] {
				t.Errorf("openapi.yaml: schema %s has %s, which the code has not", name, p)
			}
		}
		slices.Sort(required)
		slices.Sort(must)
		if diff := cmp.Diff(required, must); diff != "" && !slices.Contains(api.Requests, name) {
			t.Errorf("openapi.yaml: schema %s: required (-openapi.yaml +always there):\n%s", name, diff)
		}
	}
	for name, typ := range api.Schemas {
		compare(name, typ)
	}
	schemas, _ := c.at("components", "schemas")
	for name := range schemas.(map[string]any) {
		if all[name] == nil {
			t.Errorf("openapi.yaml has a schema %s that no type has", name)
		}
	}
	for _, f := range sources(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && hasTags(spec.Type) && !known[spec.Name.Name] {
				t.Errorf("type %s is in JSON, but not in Schemas of export_test.go", spec.Name.Name)
			}
			if fn, ok := n.(*ast.FuncDecl); ok && hasTags(fn.Body) {
				t.Errorf("%s has a type of JSON without a name: give it one, so that it can be compared with openapi.yaml", fn.Name.Name)
			}
			return true
		})
	}
}

// raw returns a property with its references.
func raw(c *contract, schema, property string) any {
	v, _ := c.at("components", "schemas", schema, "properties")
	return v.(map[string]any)[property]
}

func hasTags(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		found = found || ok && f.Tag != nil && strings.Contains(f.Tag.Value, "json:")
		return true
	})
	return found
}

func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string"
	case t == reflect.TypeFor[jsontext.Value]():
		return ""
	case t.Kind() == reflect.Pointer:
		return jsonType(t.Elem())
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	}
	return "integer"
}
