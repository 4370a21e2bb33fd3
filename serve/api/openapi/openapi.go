// Package openapi is the description of the read server's HTTP interface: openapi.yaml, completed
// to an OpenAPI 3.1 document and to what the page about the interface shows. Package api serves
// both. Tests of package api hold its requests and answers against the document.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/ui"
)

//go:embed openapi.yaml
var source []byte

// ProblemPath is the path below which the server explains each kind of problem. With a kind behind
// it, it is the type of a problem document: a reference that clients resolve against the URL that
// they asked, as RFC 9457 describes it.
const ProblemPath = "/problems/"

// Kind describes all problems of one kind to those who get one.
type Kind struct {
	Name     string
	Statuses []int
	Title    string
	// Meaning says what happened, Remedy what the client can do about it.
	Meaning, Remedy string
	// Members are what such a problem can have besides type, title, status and detail.
	Members []Member
}

// Member is a member of a problem document.
type Member struct{ Name, Meaning string }

// Document is the completed description.
type Document struct {
	// JSON is the OpenAPI document.
	JSON []byte
	// Page is what the page about the interface shows, without the address of the server.
	Page ui.Reference
}

// Load completes openapi.yaml with the kinds of problems. It expands anchors and merges and turns
// x-problems into error answers. It fails only for a defect in openapi.yaml, which a test finds.
func Load(kinds []Kind) (*Document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	doc := expand(root.Content[0])
	addProblemSchemas(doc, kinds)
	page := ui.Reference{
		Title: text(doc, "info", "title"), Summary: text(doc, "info", "summary"),
		Paragraphs: strings.Split(strings.TrimSpace(text(doc, "info", "description")), "\n\n"),
	}
	for i := range kinds {
		page.Problems = append(page.Problems, kinds[i].link())
	}
	for path, item := range pairs(find(doc, "paths")) {
		for method, op := range pairs(item) {
			of, err := addProblems(op, kinds)
			if err != nil {
				return nil, fmt.Errorf("openapi.yaml: %s %s: %w", method, path, err)
			}
			shown, err := operation(op)
			if err != nil {
				return nil, fmt.Errorf("openapi.yaml: %s %s: %w", method, path, err)
			}
			shown.Method, shown.Path = strings.ToUpper(method), path
			if of := text(op, "x-alias-of"); of != "" {
				if !page.Alias(shown.Method, of, path) {
					return nil, fmt.Errorf("openapi.yaml: %s %s: no operation %s is above it", method, path, of)
				}
				continue
			}
			for _, k := range of {
				shown.Problems = append(shown.Problems, k.link())
			}
			page.Add(text(op, "tags"), shown)
		}
	}
	return &Document{JSON: appendJSON(nil, doc), Page: page}, nil
}

func (k *Kind) link() ui.ProblemLink {
	return ui.ProblemLink{Path: ProblemPath + k.Name, Name: k.Name, Title: k.Title, Statuses: k.Statuses}
}

// expand returns n with anchors and merges in their places, and without x-shared, which only holds
// anchors. A member that a mapping has itself takes precedence over a merged one.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := *n
	c.Content, c.Anchor = nil, ""
	if n.Kind != yaml.MappingNode {
		for _, v := range n.Content {
			c.Content = append(c.Content, expand(v))
		}
		return &c
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Value == "x-shared":
		case key.Tag == "!!merge":
			sources := expand(value)
			if sources.Kind == yaml.MappingNode {
				sources = &yaml.Node{Content: []*yaml.Node{sources}}
			}
			for _, source := range sources.Content {
				for name, v := range pairs(source) {
					if find(n, name) == nil {
						set(&c, name, v)
					}
				}
			}
		default:
			set(&c, key.Value, expand(value))
		}
	}
	return &c
}

// pairs yields the members of a mapping in their order, none if n is nil.
func pairs(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// find follows names from member to member and returns nil if one does not exist.
func find(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		var next *yaml.Node
		for key, value := range pairs(n) {
			if key == name {
				next = value
			}
		}
		n = next
	}
	return n
}

// text returns the text at names, or of the first element of a list there.
func text(n *yaml.Node, names ...string) string {
	switch n = find(n, names...); {
	case n == nil:
		return ""
	case n.Kind == yaml.SequenceNode:
		return n.Content[0].Value
	default:
		return n.Value
	}
}

// set appends a member to the mapping n, or replaces it.
func set(n *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, scalar("!!str", name), value)
}

// remove takes a member out of the mapping n, if n has it.
func remove(n *yaml.Node, name string) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// object returns a mapping of alternate names and values. Values are nodes, texts, integers or
// booleans, or lists of texts.
func object(members ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i < len(members); i += 2 {
		var value *yaml.Node
		switch v := members[i+1].(type) {
		case *yaml.Node:
			value = v
		case []string:
			value = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
			for _, s := range v {
				value.Content = append(value.Content, scalar("!!str", s))
			}
		case string:
			value = scalar("!!str", v)
		case int:
			value = scalar("!!int", strconv.Itoa(v))
		case bool:
			value = scalar("!!bool", strconv.FormatBool(v))
		}
		set(n, members[i].(string), value)
	}
	return n
}

// addProblemSchemas adds the schemas of error answers, and of their explanations.
func addProblemSchemas(doc *yaml.Node, kinds []Kind) {
	var types []string
	properties := object(
		"type", object(),
		"title", object("type", "string", "description", "The same for all problems of the type."),
		"status", object("type", "integer", "description", "The status of the answer."),
		"detail", object("type", "string", "description", "What is wrong with this request, for people."),
	)
	for _, k := range kinds {
		types = append(types, ProblemPath+k.Name)
		for _, m := range k.Members {
			set(properties, m.Name, object("type", "string", "description", "Of "+k.Name+": "+m.Meaning+"."))
		}
	}
	set(properties, "type", object("type", "string", "format", "uri-reference", "enum", types,
		"description", "A URL of this server that explains the kind of problem."))
	schemas := find(doc, "components", "schemas")
	set(schemas, "Problem", object(
		"type", "object", "description", "An error answer (RFC 9457).",
		"required", []string{"type", "title", "status"}, "properties", properties,
	))
	set(schemas, "ProblemKind", object(
		"type", "object",
		"required", []string{"type", "title", "statuses", "meaning", "remedy", "members"},
		"properties", object(
			"type", object("type", "string", "enum", types),
			"title", object("type", "string"),
			"statuses", object("type", "array", "items", object("type", "integer")),
			"meaning", object("type", "string", "description", "What happened."),
			"remedy", object("type", "string", "description", "What the client can do."),
			"members", object("type", "array", "description", "Further members of such a problem.",
				"items", object("type", "object", "required", []string{"name", "meaning"},
					"properties", object("name", object("type", "string"), "meaning", object("type", "string")))),
		),
	))
}

// addProblems turns an operation's x-problems, which are kinds and lists of kinds, into one answer
// for each status. Such an answer names its kinds in x-problems.
func addProblems(op *yaml.Node, all []Kind) (kinds []*Kind, err error) {
	list := find(op, "x-problems")
	if list == nil {
		return nil, nil
	}
	var names []string
	for _, n := range list.Content {
		if n.Kind == yaml.SequenceNode {
			for _, inner := range n.Content {
				names = append(names, inner.Value)
			}
			continue
		}
		names = append(names, n.Value)
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("problem %s is not in problems.go", name)
		}
		kinds = append(kinds, &all[i])
	}
	slices.SortStableFunc(kinds, func(a, b *Kind) int { return a.Statuses[0] - b.Statuses[0] })
	pages := find(op, "x-problem-pages") != nil
	responses := find(op, "responses")
	for _, k := range kinds {
		for _, status := range k.Statuses {
			code := strconv.Itoa(status)
			answer := find(responses, code)
			if answer == nil {
				answer = object("description", http.StatusText(status), "headers", headersOf(status, pages),
					"content", problemContent(pages), "x-problems", []string{})
				set(responses, code, answer)
			}
			of := find(answer, "x-problems")
			of.Content = append(of.Content, scalar("!!str", k.Name))
			find(answer, "description").Value = http.StatusText(status) + ": " + strings.Join(values(of), ", ")
		}
	}
	remove(op, "x-problems")
	remove(op, "x-problem-pages")
	return kinds, nil
}

func values(list *yaml.Node) (texts []string) {
	for _, n := range list.Content {
		texts = append(texts, n.Value)
	}
	return texts
}

// problemContent is the content of error answers; those of pages can be pages too.
func problemContent(pages bool) *yaml.Node {
	content := object("application/problem+json",
		object("schema", object("$ref", "#/components/schemas/Problem")))
	if pages {
		set(content, "text/html", object("schema", object("type", "string")))
	}
	return content
}

// headersOf are the header fields of error answers with that status.
func headersOf(status int, pages bool) *yaml.Node {
	constant := func(value string) *yaml.Node { return object("required", true, "schema", object("const", value)) }
	headers := object("X-Content-Type-Options", constant("nosniff"))
	for _, name := range []string{"X-Request-Id", "Cache-Control", "Vary", "Link", "Content-Encoding", "Allow", "Urlake-Version"} {
		set(headers, name, object("schema", object("type", "string")))
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		set(headers, "Retry-After", object("required", true, "description", "Seconds after which to ask again.",
			"schema", object("type", "integer", "minimum", 0)))
	}
	if status == http.StatusUnauthorized {
		set(headers, "WWW-Authenticate", object("required", true, "schema", object("type", "string")))
	}
	if pages {
		of := func(schema *yaml.Node) *yaml.Node { return object("description", "Of pages.", "schema", schema) }
		set(headers, "Content-Security-Policy", of(object("type", "string")))
		set(headers, "Referrer-Policy", of(object("const", "no-referrer")))
	}
	return headers
}

// operation returns what the page shows of an operation.
func operation(op *yaml.Node) (ui.Operation, error) {
	o := ui.Operation{
		ID: text(op, "operationId"), Summary: text(op, "summary"), Description: text(op, "description"),
		Request: text(op, "x-request"), Body: text(op, "x-body"),
	}
	if list := find(op, "parameters"); list != nil {
		for _, p := range list.Content {
			o.Parameters = append(o.Parameters, ui.Parameter{
				Name: text(p, "name"), In: text(p, "in"), Description: text(p, "description"),
				Type: text(p, "schema", "type"), Default: text(p, "schema", "default"),
			})
		}
	}
	for kind, content := range pairs(find(op, "responses", "200", "content")) {
		o.Content = append(o.Content, kind)
		example := find(content, "example")
		if example == nil {
			continue
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, appendJSON(nil, example), "", "  "); err != nil {
			return o, err
		}
		o.Answer = pretty.String()
	}
	return o, nil
}

// appendJSON appends an expanded node as JSON.
func appendJSON(dst []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		for name, value := range pairs(n) {
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = appendJSON(append(codec.AppendJSONString(dst, name), ':'), value)
		}
		return append(dst, '}')
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, value := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, value)
		}
		return append(dst, ']')
	}
	switch n.Tag {
	case "!!null":
		return append(dst, "null"...)
	case "!!int", "!!float", "!!bool": // openapi.yaml writes them as JSON does
		return append(dst, n.Value...)
	}
	return codec.AppendJSONString(dst, n.Value)
}
