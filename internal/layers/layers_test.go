// Package layers holds the rule that imports run one way. It has nothing but this test.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

const module = "github.com/urlake/urlake/"

// allowed lists, for every package, the packages of the project that it may import, directly. A package
// that is not listed fails the test: whoever adds one decides where it stands.
var allowed = map[string][]string{
	"lake/codec":         {"internal/prefetch"},
	"lake/blob":          {},
	"lake/blob/blobtest": {"lake/blob"},
	"lake/zstdtext":      {"lake/codec"},
	"lake/urlnorm":       {},
	"lake/raw":           {"internal/thrift", "lake/codec"},
	"lake":               {"internal/prefetch", "internal/thrift", "lake/blob", "lake/codec", "lake/urlnorm", "lake/zstdtext"},
	"lake/ingest":        {"lake", "lake/blob", "lake/codec", "lake/raw", "lake/urlnorm"},
	"lake/manifest":      {"lake", "lake/blob", "lake/codec", "lake/urlnorm"},

	"indexbuild/mph":     {"lake/codec"},
	"indexbuild/segment": {"lake", "lake/blob", "lake/codec", "lake/urlnorm", "lake/zstdtext", "indexbuild/mph"},
	"indexbuild":         {"lake", "lake/blob", "lake/codec", "lake/ingest", "lake/urlnorm", "indexbuild/mph", "indexbuild/segment"},
	"indexbuild/publish": {"lake", "lake/blob", "lake/codec", "lake/manifest", "lake/urlnorm", "indexbuild", "indexbuild/segment"},

	"activities": {"lake", "lake/blob", "lake/codec", "lake/ingest", "indexbuild", "indexbuild/publish"},
	"workflows":  {"activities", "lake", "lake/ingest", "indexbuild/publish"},
	"worker":     {"activities", "workflows", "internal/cli", "internal/dial", "internal/processors", "lake", "lake/blob"},
	"starter": {"activities", "workflows", "internal/cli", "internal/dial", "lake", "lake/blob", "lake/codec", "lake/ingest", "lake/manifest", "lake/raw", "lake/urlnorm",
		"indexbuild", "indexbuild/publish", "indexbuild/segment"},

	"serve/lookup": {"lake", "lake/blob", "lake/codec", "lake/manifest", "lake/urlnorm", "indexbuild/segment"},
	"serve/api":    {"lake", "lake/blob", "lake/codec", "lake/manifest", "lake/urlnorm", "serve/lookup", "serve/ui"},
	"serve/ui":     {},
	"serve":        {"internal/cli", "lake/blob", "serve/api", "serve/lookup"},

	"internal/cli":        {},
	"internal/dial":       {},
	"internal/e2e":        {},
	"internal/prefetch":   {},
	"internal/processors": {},
	"internal/testenv":    {},
	"internal/thrift":     {"lake/codec"},
	"internal/testlake":   {"lake", "lake/blob", "lake/ingest", "indexbuild", "indexbuild/publish"},
	"internal/layers":     {},
}

// forbidden are imports from outside, by the folder that may not have them, with the reason.
var forbidden = []struct{ folder, imported, reason string }{
	{"serve", "go.temporal.io/", "a read server needs a lake and nothing else"},
	{"lake", "go.temporal.io/", "the lake is a library"},
	{"indexbuild", "go.temporal.io/", "building is a library"},
	{"workflows", "os", "workflow code may not see its process's environment"},
	{"workflows", "net", "workflow code does no I/O"},
	{"workflows", "math/rand", "workflow code has no randomness of its own"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = testenv.Root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsRunOneWay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		seen[name] = true
		may, ok := allowed[name]
		if !ok {
			t.Errorf("package %s stands in no layer: add it to the table", name)
			continue
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, own) {
				t.Errorf("%s imports %s, which its layer may not", name, own)
			}
			for _, f := range forbidden {
				in := name == f.folder || strings.HasPrefix(name, f.folder+"/")
				is := imp == f.imported || strings.HasPrefix(imp, strings.TrimSuffix(f.imported, "/")+"/")
				if in && is {
					t.Errorf("%s imports %s: %s", name, imp, f.reason)
				}
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("the table lists %s, which does not exist", name)
		}
	}
}
