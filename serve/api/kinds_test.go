package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/api/openapi"
	"github.com/urlake/urlake/serve/lookup"
)

// troubled is a store whose reads go wrong once trouble is set.
type troubled struct {
	blob.Store
	trouble func(ctx context.Context, data []byte) ([]byte, error)
}

func (s *troubled) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	data, info, err := s.Store.Get(ctx, key)
	if err == nil && s.trouble != nil {
		data, err = s.trouble(ctx, data)
	}
	return data, info, err
}

func (s *troubled) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, err := s.Store.ReadRange(ctx, key, off, n)
	if err == nil && s.trouble != nil {
		data, err = s.trouble(ctx, data)
	}
	return data, err
}

// troubles are the ways in which a server cannot answer. Each makes the problem of that kind.
var troubles = map[string]func(ctx context.Context, data []byte) ([]byte, error){
	"lake": func(context.Context, []byte) ([]byte, error) { return nil, errors.New("the store is away") },
	"corrupt": func(_ context.Context, data []byte) ([]byte, error) {
		data = slices.Clone(data)
		for i := range data {
			data[i] ^= 0x55
		}
		return data, nil
	},
	"deadline": func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	},
	"panic": func(context.Context, []byte) ([]byte, error) { panic("a defect") },
}

// provocations turn an example request into one that gets a problem of that kind.
var provocations = map[string]func(u *url.URL){
	// Pages ignore unknown parameters, but not repeated ones.
	"bad-parameter":   func(u *url.URL) { u.RawQuery += "&nonsense=1&version=1&version=1" },
	"bad-cursor":      with("cursor", "forged"),
	"bad-version":     with("version", "1"),
	"unknown-version": with("version", "no-such-tag"),
	"version-gone":    with("version", "20200101T000000.000Z-00000000"),
	"not-a-host":      replaced("example.com", "mailto:me"),
	"unknown-dataset": replaced("captures", "no-such-dataset"),
	"no-such-path":    replaced("bad-cursor", "no-such-kind"),
	"bad-request":     with("format", "ndjson"),
}

// with returns what sets a query parameter. What a diff has for version is to.
func with(name, value string) func(u *url.URL) {
	return func(u *url.URL) {
		q := u.Query()
		if name == "version" && strings.HasSuffix(u.Path, "/diff") {
			q.Set("to", value)
		} else {
			q.Set(name, value)
		}
		u.RawQuery = q.Encode()
	}
}

// replaced returns what replaces text. A request without a dataset gets one.
func replaced(text, by string) func(u *url.URL) {
	return func(u *url.URL) {
		if text == "captures" && !strings.Contains(u.String(), text) {
			with("dataset", by)(u)
			return
		}
		u.Path, u.RawQuery = strings.ReplaceAll(u.Path, text, by), strings.ReplaceAll(u.RawQuery, text, url.QueryEscape(by))
	}
}

// Every kind of problem that the document lists for an operation is given by it. A panic can happen
// anywhere, and is provoked where the store is read.
func TestEveryDocumentedProblemIsGiven(t *testing.T) {
	sound := start(t, exampleLake(t), lookup.Options{})
	empty := start(t, blob.NewMemory(), lookup.Options{})
	guarded := startClosed(t, exampleLake(t))
	nobody, err := access.ParseReaders("none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := access.Change(t.Context(), guarded.store, access.Edit{Dataset: "smallweb", Readers: &nobody}); err != nil {
		t.Fatal(err)
	}
	if err := guarded.server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	c := mustContract(t)
	c.operations(func(method, p string, operation map[string]any) {
		example, _ := operation["x-request"].(string)
		responses, _ := operation["responses"].(map[string]any)
		for _, code := range slices.Sorted(maps.Keys(responses)) {
			kinds, _ := at(responses[code], "x-problems").([]any)
			for _, k := range kinds {
				kind, _ := k.(string)
				u, err := url.Parse(example)
				if err != nil {
					t.Fatal(err)
				}
				s := sound
				// Lists of very many parts, and what net/http rejects, have tests of their own.
				if kind == "too-many-parts" || kind == "bad-request" && code != "505" {
					continue
				}
				if slices.Contains(elsewhere, kind) {
					continue
				}
				if change := provocations[kind]; change != nil {
					change(u)
				} else if kind == "not-ready" {
					s = empty
				} else if kind == "unauthorized" || kind == "forbidden" {
					s = guarded.service
					if kind == "forbidden" {
						with("explain", "1")(u)
					}
				} else if troubles[kind] != nil {
					// /readyz reads only who may ask, which TestDamageFailsClosed damages.
					if kind == "panic" && !reads(responses) || p == "/readyz" {
						continue
					}
					if kind == "deadline" && !slices.Contains(lateAlone, p) {
						continue // its deadline passes while it waits for others, which has tests of its own
					}
					s = inTrouble(t, kind)
					// What has an older version to open reads the store for it.
					if hasParameter(operation, "version") && kind != "deadline" {
						with("version", older(t, s))(u)
					}
				} else {
					t.Errorf("no request provokes problem %s: add one to provocations or troubles", kind)
					continue
				}
				if kind == "deadline" && p == "/" {
					with("dataset", "captures")(u) // only pages of URLs have one
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // lest a defect hangs the test
				body, _ := operation["x-body"].(string)
				r := httptest.NewRequestWithContext(ctx, strings.ToUpper(method), u.String(), strings.NewReader(body))
				if kind == "unauthorized" {
					r.Header.Set("Authorization", "Bearer forged")
				}
				if kind == "bad-request" {
					r.ProtoMajor, r.ProtoMinor = 1, 0
				}
				w, o := s.send(r)
				cancel()
				page := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
				if strconv.Itoa(w.Code) != code || o.kind != kind && !page {
					t.Errorf("%s %s: %d %s, want %s %s: %.200s", method, u, w.Code, o.kind, code, kind, w.Body)
				}
				seen[kind] = true
			}
		}
	})
	for _, k := range openapi.Problems {
		if !seen[k.Name] && !slices.Contains(elsewhere, k.Name) && !slices.Contains([]string{"method-not-allowed", "bad-request"}, k.Name) {
			t.Errorf("no operation gives problem %s: add it to the x-problems of those that do", k.Name)
		}
	}
}

// elsewhere are the kinds that take more than one request, or a list: the tests of gates,
// connections, draining, scans, lists of domains, distinct URLs, filters and trees have them, and
// TestProblems and TestMalformedRequestsAreProblems the rest. Package command tests listeners.
var elsewhere = []string{
	"misdirected", "too-many-requests", "overloaded", "too-many-connections", "stopping", "computing", "too-slow", "bad-list",
	"not-acceptable", "too-large", "unsupported-media-type", "too-many-parts",
	"tree-too-large", "filter-too-large",
}

// lateAlone are the paths whose answers can be late without any other request.
var lateAlone = []string{
	"/v1/domain/{d}/datasets/{id}/urls", "/domain/{d}/dataset/{id}/urls", "/v1/url", "/v1/versions", "/",
}

// reads reports whether an operation with these answers reads the store.
func reads(responses map[string]any) bool { return responses["502"] != nil }

func hasParameter(operation map[string]any, name string) bool {
	parameters, _ := operation["parameters"].([]any)
	return slices.ContainsFunc(parameters, func(p any) bool { return at(p, "name") == name })
}

// inTrouble returns a server of the example lake whose reads go wrong from now on.
func inTrouble(t *testing.T, kind string) *service {
	t.Helper()
	store, opt := &troubled{Store: exampleLake(t)}, lookup.Options{}
	if kind == "deadline" {
		opt.Deadline = time.Millisecond
	}
	s := start(t, store, opt)
	store.trouble = troubles[kind]
	return s
}

// older is the version before the one that s serves.
func older(t *testing.T, s *service) string {
	t.Helper()
	snap, err := s.server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	return snap.Version().Parent
}

// Every kind that the package answers is in openapi.Problems with its title, and docs/api.md has
// the same kinds and statuses.
func TestEveryKindIsExplained(t *testing.T) {
	calls := 0
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.Ident)
			if !ok || f.Name != "newProblem" {
				return true
			}
			calls++
			kind, err := strconv.Unquote(call.Args[1].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := findKind(kind); !ok && kind != "client-gone" { // which is never sent
				t.Errorf("%s: problem %s is not in problems.go: explain it there", name, kind)
			}
			return true
		})
	}
	if calls < 10 {
		t.Fatalf("only %d calls of newProblem", calls)
	}
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs/api.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]int{}
	code := regexp.MustCompile("`([a-z-]+)`")
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \| ([^|]*) \|`).FindAllStringSubmatch(string(data), -1) {
		for _, kind := range code.FindAllStringSubmatch(row[2], -1) {
			for _, status := range strings.Split(row[1], ", ") {
				n, err := strconv.Atoi(status)
				if err != nil {
					t.Fatal(err)
				}
				documented[kind[1]] = append(documented[kind[1]], n)
			}
		}
	}
	explained := map[string][]int{}
	for _, k := range openapi.Problems {
		explained[k.Name] = k.Statuses
	}
	if diff := cmp.Diff(explained, documented); diff != "" {
		t.Errorf("kinds of problems (-problems.go +docs/api.md):\n%s", diff)
	}
}

// The type of a problem leads to its explanation: a page for browsers, JSON for programs.
func TestTypesOfProblemsExplainThemselves(t *testing.T) {
	s := start(t, small(t), lookup.Options{})
	get := func(path, accept string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Accept", accept)
		w, _ := s.send(r)
		if w.Code != 200 || w.Header().Get("Vary") != "Accept" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		return w
	}
	var p problemDocument
	s.get("/v1/domain/mailto:me", &p)
	if p.Type != "/problems/not-a-host" {
		t.Fatalf("type %q", p.Type)
	}
	for _, k := range openapi.Problems {
		path := "/problems/" + k.Name
		page := get(path, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
		if text := page.Body.String(); !strings.Contains(text, k.Name) || !strings.Contains(text, "What to do") ||
			!strings.Contains(text, strconv.Itoa(k.Statuses[0])) {
			t.Errorf("%s: %s", path, text)
		}
		for _, accept := range []string{"", "*/*", "application/json", "application/json, text/html;q=0.5", "text/html;q=x"} {
			var got struct {
				Type, Title, Meaning, Remedy string
				Statuses                     []int
			}
			if err := json.Unmarshal(get(path, accept).Body.Bytes(), &got); err != nil {
				t.Fatalf("%s with Accept %q: %v", path, accept, err)
			}
			if got.Type != path || got.Title != k.Title || got.Meaning != k.Meaning || got.Remedy != k.Remedy ||
				!slices.Equal(got.Statuses, k.Statuses) {
				t.Errorf("%s: %+v", path, got)
			}
		}
	}
	if w := s.do("GET", "/problems/nonsense"); w.Code != http.StatusNotFound {
		t.Errorf("a kind that does not exist: %d %s", w.Code, w.Body)
	}
}

// The page about the interface has every route and every kind of problem, all its links lead
// somewhere, and its examples name the server that was asked unless its name could mislead a shell.
func TestReferencePage(t *testing.T) {
	s := start(t, exampleLake(t), lookup.Options{})
	text := s.do("GET", "/api").Body.String()
	mustContract(t).operations(func(method, p string, operation map[string]any) {
		shown := fmt.Sprintf("<code>%s %s</code></h3>", strings.ToUpper(method), p)
		if operation["x-alias-of"] != nil {
			shown = fmt.Sprintf("<code>%s</code> is the same.", p)
		}
		if strings.Count(text, shown) != 1 {
			t.Errorf("the page does not have %s %s once", method, p)
		}
	})
	links := regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(text, -1)
	if len(links) < 2*len(openapi.Problems) {
		t.Fatalf("only %d links", len(links))
	}
	for _, link := range links {
		if id, here := strings.CutPrefix(link[1], "#"); here {
			if !strings.Contains(text, `id="`+id+`"`) {
				t.Errorf("the page has no %s", link[1])
			}
		} else if link[1] != "data:," && s.do("GET", link[1]).Code != 200 {
			t.Errorf("link %s leads nowhere", link[1])
		}
	}
	for host, base := range map[string]string{
		"lake.example:9000": "http://lake.example:9000/v1", "[::1]:80": "http://[::1]:80/v1",
		"x';rm -r ~;'": "http://localhost:8080/v1", "<script>": "http://localhost:8080/v1", "": "http://localhost:8080/v1",
	} {
		r := httptest.NewRequest("GET", "/api", nil)
		r.Host = host
		w, _ := s.send(r)
		if text := w.Body.String(); !strings.Contains(text, base) || strings.Contains(text, "<script") || strings.Contains(text, "rm -r") {
			t.Errorf("with Host %q the examples lack %s", host, base)
		}
	}
	r := httptest.NewRequest("GET", "/api", nil)
	r.Header.Set("X-Forwarded-Proto", "https")
	if w, _ := s.send(r); !strings.Contains(w.Body.String(), "https://example.com/v1") {
		t.Error("behind a proxy that ends TLS the examples have no https")
	}
}
