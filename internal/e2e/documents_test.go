package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// commands are the shell commands of a document's code blocks, with continued lines joined.
func commands(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	blocks := strings.Split(string(data), "\n```")
	for i := 1; i < len(blocks); i += 2 {
		joined := strings.ReplaceAll(blocks[i], "\\\n", " ")
		for _, line := range strings.Split(joined, "\n") {
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			first, _, _ := strings.Cut(line, " ")
			switch strings.TrimPrefix(first, "bin/") {
			case "starter", "worker", "serve", "temporal":
				found = append(found, line)
			}
		}
	}
	return found
}

// TestDocumentedFlagsExist holds every command of the documents against the programs' own help.
func TestDocumentedFlagsExist(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	seen := 0
	for _, doc := range []string{"README.md", "docs/operation.md"} {
		for _, c := range commands(t, doc) {
			fields := strings.Fields(strings.TrimPrefix(c, "bin/"))
			var help *exec.Cmd
			switch fields[0] {
			case "temporal":
				args := []string{}
				for _, f := range fields[1:] {
					if strings.HasPrefix(f, "-") {
						break
					}
					args = append(args, f)
				}
				help = exec.Command(testenv.Program(t, "temporal"), append(args, "--help")...)
			case "starter":
				help = exec.Command(filepath.Join(bin, "starter"), fields[1], "--help")
			default:
				help = exec.Command(filepath.Join(bin, fields[0]), "--help")
			}
			out, err := help.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s: %v", doc, c, err)
				continue
			}
			for _, f := range flag.FindAllString(strings.Split(c, " #")[0], -1) {
				if !bytes.Contains(out, []byte(f+" ")) && !bytes.Contains(out, []byte(f+"\n")) {
					t.Errorf("%s: %s: its help does not know %s", doc, c, f)
				}
			}
			seen++
		}
	}
	if seen < 12 {
		t.Errorf("only %d commands were found: the documents' form has changed", seen)
	}
}

// TestReadmeTranscriptOfNormalize runs the example and compares what the README shows.
func TestReadmeTranscriptOfNormalize(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(testenv.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "$ bin/starter normalize ")
	if !ok {
		t.Fatal("the README has no such example")
	}
	args, rest, _ := strings.Cut(rest, "\n")
	want, _, _ := strings.Cut(rest, "```")
	out, err := exec.Command("sh", "-c", filepath.Join(bin, "starter")+" normalize "+args).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != want {
		t.Errorf("the README shows\n%sand the program prints\n%s", want, out)
	}
}

// TestWorkflowsStartedByHand runs the README's temporal commands on a lake of its own.
func TestWorkflowsStartedByHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir)+"/lake", [][]string{{"control", "normalize", "write", "index", "publish"}})
	list := write(t, dir, "list.txt", "http://example.com/a\n")
	temporal := testenv.Program(t, "temporal")
	ran := 0
	for _, c := range commands(t, "README.md") {
		if !strings.HasPrefix(c, "temporal workflow") {
			continue
		}
		c = strings.NewReplacer("s3://bucket/lake", u.lake, "s3://raw/crawl/2026-11-20/", list, "temporal workflow", temporal+" workflow").Replace(c)
		sh := exec.Command("sh", "-c", c)
		sh.Env = u.env
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
		ran++
		if strings.Contains(c, "IngestWorkflow") {
			sh := exec.Command(temporal, "workflow", "result", "--workflow-id", "ingest:crawl:2026-11-20@"+u.lake, "-o", "json")
			sh.Env = u.env
			out, err := sh.Output()
			var res struct {
				Result struct {
					Version string
					Rows    int
				}
			}
			if err != nil || json.Unmarshal(out, &res) != nil || res.Result.Rows != 1 || res.Result.Version == "" {
				t.Fatalf("the ingest ended with %v: %s", err, out)
			}
		}
	}
	if ran != 3 {
		t.Errorf("%d temporal commands in the README, want 3", ran)
	}
}
