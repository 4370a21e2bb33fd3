package command

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/catalog"
	serve "github.com/urlake/urlake/serve/command"
	starter "github.com/urlake/urlake/starter/command"
	worker "github.com/urlake/urlake/worker/command"
)

// run runs urlake in this process.
func run(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.Run(context.Background(), cmd)
	return out.String(), errs.String(), code
}

// TestLinksAreThePrograms holds that a link to urlake is the program of the link's name.
func TestLinksAreThePrograms(t *testing.T) {
	for name, want := range map[string]string{
		"bin/worker": "worker", "/usr/local/bin/starter": "starter", "./urlake": "urlake", "urlake-1.2": "urlake", "serve": "urlake",
	} {
		if got := Called(name).Name(); got != want {
			t.Errorf("%s is the program %s, want %s", name, got, want)
		}
	}
}

// TestEverythingIsInOneProgram holds that all verbs and flags of the other programs are here, under
// the names that one types here.
func TestEverythingIsInOneProgram(t *testing.T) {
	others := []*cobra.Command{worker.New(), serve.New()}
	others = append(others, starter.New().Commands()...)
	if len(others) < 12 {
		t.Fatalf("only %d verbs", len(others))
	}
	for _, other := range others {
		out, errs, code := run(other.Name(), "--help")
		if code != 0 || errs != "" {
			t.Errorf("%s: exit %d, %s", other.Name(), code, errs)
		}
		for _, line := range strings.Split(other.Flags().FlagUsages(), "\n") {
			if flag, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(flag, "--") && !strings.Contains(out, flag) {
				t.Errorf("%s lacks %s", other.Name(), flag)
			}
		}
		if other.Name() != "demo" && strings.Contains(out, "starter ") {
			t.Errorf("the help of %s names another program:\n%s", other.Name(), out)
		}
		if examples := strings.Fields(out); len(examples) == 0 {
			t.Errorf("%s has no help", other.Name())
		}
	}
	for _, verb := range []string{"create", "create ingest", "create gc", "create compact", "create verify", "create rebuild", "list", "show", "pause"} {
		out, errs, code := run(append(append([]string{"schedule"}, strings.Fields(verb)...), "--help")...)
		if code != 0 || errs != "" || strings.Contains(out, "starter ") || !strings.Contains(out, "urlake schedule "+verb) {
			t.Errorf("schedule %s: exit %d, %s%s", verb, code, errs, out)
		}
	}
	if out, _, code := run("status", "--lake", t.TempDir(), "--json"); code != 1 || out != "" {
		t.Errorf("status --json of no lake: exit %d, %q", code, out)
	}
}

func TestLakeOfAWorkflow(t *testing.T) {
	for id, want := range map[string]string{
		"ingest:d:b@file:///lake":                   "file:///lake",
		"ingest:d@s3://b/lake-2026-11-20T03:00:00Z": "s3://b/lake",
		"gc@file:///lake-2026":                      "file:///lake-2026",
		"5a1e0f6c-0000-4000-8000-000000000000":      "",
	} {
		if got := lakeOf(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestWithoutArgumentsItSaysWhatToType holds that the three commands come first.
func TestWithoutArgumentsItSaysWhatToType(t *testing.T) {
	out, errs, code := run()
	if code != 0 || errs != "" || strings.Count(out, "\n") > 20 {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	for _, want := range []string{"urlake up ", "urlake add ", "urlake find ", "urlake --help"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if len([]rune(line)) > 81 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
}

// TestWithoutTemporalItSaysHowToGetIt: the message is one line, without escapes.
func TestWithoutTemporalItSaysHowToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // and the program of this test is in a folder without temporal
	_, errs, code := run("up", filepath.Join(t.TempDir(), "lake"), "--state", t.TempDir(), "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(errs, "docs.temporal.io/cli#install") || strings.Contains(errs, `\`) || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestAddChecksTheStore holds that an ingest is not started for a lake whose store does not give
// what it is asked for, and that a lake which is still empty is none of these.
func TestAddChecksTheStore(t *testing.T) {
	dir := t.TempDir()
	url, err := cli.LakeURL(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStore(t.Context(), url); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.Symlink("index", filepath.Join(dir, "index")); err != nil { // which leads to itself
		t.Fatal(err)
	}
	if err := checkStore(t.Context(), url); err == nil || !strings.Contains(err.Error(), catalog.ManifestKey) {
		t.Errorf("a manifest that cannot be read: %v", err)
	}
}

// TestUpListensOnTheNameThatIsGiven takes addresses by name, as the server answers for that name.
func TestUpListensOnTheNameThatIsGiven(t *testing.T) {
	for _, host := range []string{"localhost", "127.0.0.1", "::1", ""} {
		var held addresses.Set
		o := up{listen: net.JoinHostPort(host, "0"), chosen: true}
		got, err := o.address(&held)
		if gotHost, port, _ := net.SplitHostPort(got); err != nil || gotHost != host || port == "0" {
			t.Errorf("%s: %s, %v", o.listen, got, err)
		}
		held.Release()
	}
}
