// Package layers holds the rules of the source tree that no linter knows: imports run one way,
// comments and documents are not too wide, packages and files not too large, and every assembly
// routine is documented and fuzzed. It has nothing but tests, which `make check` runs.
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

// allowed lists, for every package, the packages of the project that it may import directly. A
// package that is not listed fails the test: whoever adds one decides in which layer it is.
var allowed = map[string][]string{
	"lake/codec":         {},
	"lake/seekable":      {"lake/codec"},
	"lake/blob":          {},
	"lake/blob/s3blob":   {"lake/blob"},
	"lake/blob/blobtest": {"lake/blob"},
	"lake/pieces":        {"lake/blob", "lake/codec"},
	"lake/urlnorm":       {},
	"lake/zstdtext":      {"lake/seekable"},

	"lake":     {"lake/blob", "lake/codec", "lake/seekable", "lake/urlnorm"},
	"lake/row": {"lake", "lake/blob", "lake/codec", "lake/seekable", "lake/urlnorm"},
	"lake/part": {
		"internal/thrift", "lake", "lake/blob", "lake/codec", "lake/row", "lake/seekable",
		"lake/urlnorm", "lake/zstdtext",
	},

	"lake/raw":           {"lake/raw/timestamp"},
	"lake/raw/timestamp": {},
	"lake/raw/jsondoc":   {"lake/codec", "lake/raw/timestamp"},
	"lake/raw/unpack":    {"lake/raw"},
	"lake/raw/text":      {"lake/codec", "lake/raw", "lake/raw/jsondoc", "lake/raw/timestamp"},
	"lake/raw/parquetin": {
		"internal/thrift", "lake/codec", "lake/raw", "lake/raw/jsondoc", "lake/raw/text",
		"lake/raw/timestamp", "lake/raw/unpack",
	},
	"lake/raw/markup": {"lake/raw", "lake/raw/text"},
	"lake/raw/warcin": {"lake/raw", "lake/raw/text", "lake/raw/timestamp", "lake/raw/unpack"},
	"lake/raw/detect": {
		"lake/raw", "lake/raw/jsondoc", "lake/raw/markup", "lake/raw/parquetin", "lake/raw/text",
		"lake/raw/timestamp", "lake/raw/unpack", "lake/raw/warcin", "lake/urlnorm",
	},
	"lake/raw/reader": {
		"lake/codec", "lake/raw", "lake/raw/detect", "lake/raw/markup", "lake/raw/parquetin",
		"lake/raw/text", "lake/raw/unpack", "lake/raw/warcin", "lake/seekable",
	},

	"lake/ingest": {
		"lake", "lake/blob", "lake/catalog", "lake/codec", "lake/ingest/allow", "lake/ingest/inventory",
		"lake/part", "lake/raw", "lake/raw/reader", "lake/raw/text", "lake/raw/unpack", "lake/row",
		"lake/seekable", "lake/urlnorm",
	},
	"lake/ingest/many": {
		"lake", "lake/blob", "lake/catalog", "lake/codec", "lake/ingest", "lake/pieces",
		"lake/seekable",
	},
	"lake/catalog":          {"lake", "lake/blob", "lake/codec", "lake/lease", "lake/pieces", "lake/urlnorm"},
	"lake/ingest/allow":     {},
	"lake/ingest/inventory": {"lake/raw", "lake/raw/reader"},
	"lake/access":           {"lake", "lake/blob", "lake/codec"},
	"lake/lease":            {"lake", "lake/blob", "lake/codec"},

	"indexbuild/mph":                {"lake/codec"},
	"indexbuild/bbhash":             {"lake/codec"},
	"indexbuild/prefixtree":         {"indexbuild/bbhash", "internal/mapped", "lake/blob", "lake/codec"},
	"indexbuild/segment/membership": {"internal/mapped", "lake/codec"},
	"indexbuild/segment": {
		"indexbuild/mph", "indexbuild/segment/membership", "internal/flight", "internal/mapped",
		"internal/spans", "lake", "lake/blob", "lake/codec", "lake/part", "lake/seekable",
		"lake/urlnorm",
	},
	"indexbuild/keysort": {"indexbuild/segment", "lake/codec"},
	"indexbuild/postings": {
		"indexbuild/segment", "lake", "lake/blob", "lake/codec", "lake/ingest", "lake/part",
		"lake/seekable", "lake/urlnorm",
	},
	"indexbuild": {
		"indexbuild/keysort", "indexbuild/mph", "indexbuild/postings", "indexbuild/segment",
		"indexbuild/segment/membership", "lake", "lake/blob", "lake/codec", "lake/part",
	},
	"indexbuild/verify": {
		"indexbuild/keysort", "indexbuild/mph", "indexbuild/postings", "indexbuild/segment",
		"indexbuild/segment/membership", "indexbuild/segment/pathtree", "lake", "lake/blob",
		"lake/codec", "lake/part",
	},
	"indexbuild/segment/pathtree": {"indexbuild/segment", "lake/blob", "lake/codec", "lake/seekable"},
	"indexbuild/treebuild": {
		"indexbuild/keysort", "indexbuild/prefixtree", "indexbuild/segment",
		"indexbuild/segment/pathtree", "lake/blob", "lake/codec", "lake/ingest/inventory", "lake/part",
	},
	"indexbuild/deletion": {
		"indexbuild/postings", "indexbuild/segment", "lake", "lake/blob", "lake/catalog", "lake/codec",
		"lake/part", "lake/seekable", "lake/urlnorm",
	},
	"publish/suppress": {
		"indexbuild/deletion", "indexbuild/postings", "indexbuild/segment",
		"indexbuild/segment/pathtree", "lake", "lake/blob", "lake/catalog", "lake/codec", "lake/lease",
		"lake/part", "lake/seekable", "lake/urlnorm",
	},
	"publish/lakecheck": {
		"export/domain64/numbers", "indexbuild", "indexbuild/deletion", "indexbuild/postings",
		"indexbuild/segment", "indexbuild/treebuild", "indexbuild/verify", "lake", "lake/access",
		"lake/blob", "lake/catalog", "lake/codec", "lake/lease", "lake/part", "lake/pieces",
	},
	"publish/rewrite": {
		"indexbuild/postings", "indexbuild/segment", "lake", "lake/blob", "lake/catalog", "lake/codec",
		"lake/part", "lake/row", "lake/urlnorm",
	},
	"publish": {
		"indexbuild", "indexbuild/deletion", "indexbuild/postings", "indexbuild/segment",
		"indexbuild/treebuild", "indexbuild/verify", "lake", "lake/blob", "lake/catalog", "lake/codec",
		"lake/lease", "lake/urlnorm", "publish/lakecheck", "publish/rewrite", "publish/suppress",
	},
	"publish/gc": {
		"export/domain64/numbers", "indexbuild/segment/pathtree", "indexbuild/treebuild", "lake",
		"lake/access", "lake/blob", "lake/catalog", "lake/codec", "lake/ingest/many", "lake/lease",
		"publish",
	},
	"indexbuild/indextest": {
		"indexbuild/postings", "indexbuild/segment", "lake", "lake/blob", "lake/codec", "lake/ingest",
		"lake/part", "lake/row", "lake/urlnorm",
	},

	"export/urlkey":   {},
	"export/domain64": {},
	"export/domain64/numbers": {
		"export/domain64", "lake", "lake/blob", "lake/codec", "lake/lease", "lake/pieces",
	},

	"export/postgres": {
		"export/domain64", "export/domain64/numbers", "export/scan", "export/urlkey", "lake",
		"lake/blob", "lake/catalog", "lake/codec", "lake/ingest/allow", "lake/part", "lake/urlnorm",
	},
	"export/scan": {
		"indexbuild/deletion", "indexbuild/postings", "indexbuild/segment", "lake", "lake/blob",
		"lake/catalog", "lake/codec", "lake/lease", "lake/part",
	},
	"export/files": {
		"export/domain64", "export/domain64/numbers", "export/scan", "export/urlkey", "internal/cli",
		"lake", "lake/blob", "lake/catalog", "lake/codec", "lake/part", "lake/urlnorm", "serve/format",
	},

	"activities": {
		"export/postgres", "frontier/feed", "frontier/migrate", "indexbuild/postings",
		"indexbuild/segment", "lake", "lake/blob", "lake/catalog", "lake/codec", "lake/ingest",
		"lake/ingest/many", "publish", "publish/gc", "publish/lakecheck",
	},
	"workflows": {
		"activities", "export/postgres", "frontier/feed", "frontier/migrate", "lake", "lake/ingest",
		"lake/ingest/many", "publish",
	},
	"worker": {"internal/cli", "lake/blob/s3blob", "worker/command"},
	"worker/command": {
		"activities", "export/postgres", "frontier/feed", "internal/cli", "internal/dial",
		"internal/processors", "internal/storemetrics", "internal/tracing", "internal/tracing/otlp",
		"lake", "lake/blob", "lake/ingest", "lake/ingest/allow", "lake/ingest/many", "publish",
		"workflows",
	},
	"starter": {"internal/cli", "lake/blob/s3blob", "starter/command"},
	"starter/command": {
		"activities", "export/domain64", "export/files", "export/postgres", "export/scan",
		"export/urlkey", "frontier/feed", "frontier/migrate", "indexbuild/deletion",
		"indexbuild/postings", "indexbuild/prefixtree", "indexbuild/segment",
		"indexbuild/segment/pathtree", "indexbuild/treebuild", "internal/addresses", "internal/cli",
		"internal/dial", "internal/supervise", "internal/tracing", "internal/tracing/otlp", "lake",
		"lake/access", "lake/blob", "lake/catalog", "lake/codec", "lake/ingest", "lake/ingest/many",
		"lake/urlnorm", "publish/gc", "publish/lakecheck", "publish/rewrite", "publish/suppress",
		"serve/bulk", "serve/format", "serve/lookup", "serve/shortlived", "serve/tree", "starter/find",
		"starter/retire", "workflows",
	},
	"starter/find": {"internal/cli", "lake", "lake/blob", "lake/catalog"},
	"starter/retire": {
		"indexbuild/postings", "indexbuild/segment", "internal/cli", "lake/blob", "lake/catalog",
		"publish", "publish/lakecheck", "starter/find",
	},

	"serve/lookup": {
		"indexbuild/deletion", "indexbuild/mph", "indexbuild/segment", "internal/flight",
		"internal/mapped", "internal/spans", "lake", "lake/access", "lake/blob", "lake/catalog",
		"lake/codec", "lake/lease", "lake/part", "lake/urlnorm", "serve/lookup/filter", "serve/lru",
		"serve/turns",
	},
	"serve/lookup/filter": {},
	"serve/turns":         {},
	"serve/lru":           {},
	"serve/bulk":          {"lake/codec", "lake/urlnorm", "serve/lookup"},
	"serve/tree": {
		"indexbuild/segment/pathtree", "lake/codec", "lake/part", "serve/lookup", "serve/lru",
	},
	"serve/api": {
		"indexbuild/segment", "internal/spans", "internal/storemetrics", "lake", "lake/blob",
		"lake/catalog", "lake/codec", "lake/urlnorm", "serve/api/openapi", "serve/auth", "serve/bulk",
		"serve/format", "serve/lookup", "serve/lookup/filter", "serve/lru", "serve/tree", "serve/turns",
		"serve/ui",
	},
	"serve/shortlived":  {"lake/blob", "serve/lookup"},
	"serve/api/openapi": {"lake/codec", "serve/ui"},
	"serve/auth":        {"lake/access", "serve/lru"},
	"serve/format":      {"internal/cli", "lake/codec", "lake/part", "serve/lookup"},
	"serve/ui":          {},
	"serve/command": {
		"internal/cli", "internal/storetrace", "internal/tracing/otlp", "lake/access", "lake/blob",
		"lake/lease", "serve/api", "serve/auth", "serve/lookup", "serve/shortlived",
	},
	"serve": {"internal/cli", "lake/blob/s3blob", "serve/command"},

	"frontier/client": {"lake/ingest/allow"},
	"frontier/feed": {
		"export/scan", "frontier/client", "lake", "lake/blob", "lake/catalog", "lake/ingest",
		"lake/part", "lake/urlnorm",
	},
	"frontier/migrate": {"export/postgres", "frontier/client", "lake/codec", "lake/urlnorm"},
	"frontier/frontiertest": {
		"frontier", "frontier/api", "frontier/coord", "frontier/shard", "internal/testenv",
	},
	"frontier/journal": {"lake/codec"},
	"frontier/robots":  {},
	"frontier/numbers": {},
	"frontier/arena":   {"frontier/numbers"},
	"frontier/shard":   {"frontier/arena", "frontier/journal", "lake/codec"},
	"frontier/ready":   {"frontier/arena"},
	"frontier/coord":   {"frontier/numbers", "frontier/ready", "lake/codec"},
	"frontier": {
		"frontier/coord", "frontier/ready", "frontier/robots", "frontier/shard", "lake/codec",
		"lake/urlnorm",
	},
	"frontier/api": {"frontier"},
	"frontier/snapshot": {
		"frontier", "frontier/coord", "frontier/journal", "frontier/shard", "lake/blob", "lake/codec",
	},
	"frontier/command": {
		"frontier", "frontier/api", "frontier/coord", "frontier/journal", "frontier/shard",
		"frontier/snapshot", "frontier/urlfrontier", "internal/cli", "lake/blob", "lake/catalog",
		"lake/urlnorm",
	},
	"frontier/urlfrontier":               {"frontier", "frontier/urlfrontier/urlfrontierpb", "lake/urlnorm"},
	"frontier/urlfrontier/urlfrontierpb": {},

	"frontier/frontierd": {"frontier/command", "internal/cli", "lake/blob/s3blob"},

	"frontier/example": {
		"frontier/client", "frontier/journal", "frontier/robots", "internal/cli", "lake/urlnorm",
	},
	"frontier/example/crawler": {"frontier/example", "internal/cli"},
	"frontier/example/demo": {
		"frontier/example/sites", "internal/addresses", "internal/cli", "internal/supervise",
	},
	"frontier/example/sites": {},

	"client": {},

	".": {"command", "internal/cli", "lake/blob/s3blob"},
	"command": {
		"internal/addresses", "internal/cli", "internal/supervise", "lake", "lake/blob", "lake/catalog",
		"lake/urlnorm", "serve/bulk", "serve/command", "serve/lookup", "serve/shortlived",
		"starter/command", "worker/command",
	},

	"internal/cli":       {},
	"internal/cpulevels": {},
	"internal/dial":      {},
	"internal/compat": {
		"internal/cli", "internal/testenv", "lake/blob", "serve/api", "serve/lookup", "starter/command",
	},
	"internal/addresses":    {},
	"internal/e2e":          {},
	"internal/layers":       {},
	"internal/mapped":       {"lake/blob", "lake/codec"},
	"internal/model":        {},
	"internal/processors":   {},
	"internal/storemetrics": {"lake/blob"},
	"internal/supervise":    {},
	"internal/testenv":      {"internal/addresses"},
	"internal/testlake": {
		"indexbuild/mph", "indexbuild/postings", "indexbuild/segment", "indexbuild/segment/membership",
		"lake", "lake/blob", "lake/catalog", "lake/ingest", "lake/part", "lake/urlnorm", "publish",
	},
	"internal/thrift":     {"lake/codec"},
	"internal/flight":     {},
	"internal/spans":      {},
	"internal/storetrace": {"internal/spans", "lake/blob"},
	"internal/tracing": {
		"activities", "internal/tracing/otlp", "lake/ingest", "lake/ingest/many", "workflows",
	},
	"internal/tracing/otlp": {},
}

// forbidden lists imports from outside that a folder may not have, each with its reason.
var forbidden = []struct{ folder, imported, reason string }{
	{"serve", "go.temporal.io/", "a read server needs a lake and nothing else"},
	{"lake", "go.temporal.io/", "the lake is a library"},
	{"indexbuild", "go.temporal.io/", "building is a library"},
	{"workflows", "os", "workflow code may not see its process's environment"},
	{"workflows", "net", "workflow code does no I/O"},
	{"workflows", "math/rand", "workflow code has no randomness of its own"},
}

// pkg is a package of the project as go list describes it. Deps are all packages that it depends
// on.
type pkg struct {
	ImportPath, Name string
	Imports, Deps    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Imports,Deps", "./...")
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

// folder is the folder of a package, from the root of the module.
func folder(p pkg) string {
	if p.ImportPath+"/" == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module)
}

func TestImportsRunOneWay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t) {
		name := folder(p)
		seen[name] = true
		may, ok := allowed[name]
		if !ok {
			t.Errorf("package %s is in no layer: add it to the table", name)
			continue
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, own) {
				t.Errorf("%s imports %s, which the table does not allow", name, own)
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
