package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// program returns a command with a verb. The verb writes the values of two of its flags to seen.
func program(seen *string) *cobra.Command {
	var lake, dsn string
	var once bool
	cmd := &cobra.Command{Use: "program", RunE: func(*cobra.Command, []string) error {
		return errors.New("the store does not answer")
	}}
	verb := &cobra.Command{Use: "verb", Args: Args(cobra.NoArgs), RunE: func(*cobra.Command, []string) error {
		*seen = lake
		if once {
			*seen += " once"
		}
		return nil
	}}
	verb.Flags().StringVar(&lake, "lake", "default", "the lake")
	verb.Flags().StringVar(&dsn, "dsn", "", "the database")
	verb.Flags().BoolVar(&once, "only-once", false, "once")
	cmd.AddCommand(verb)
	BindEnv(cmd)
	return cmd
}

func TestFlagsOverrideVariables(t *testing.T) {
	for _, c := range []struct {
		args, env []string
		want      string
		code      int
	}{
		{[]string{"verb"}, nil, "default", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_LAKE", "/a"}, "/a", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_LAKE", ""}, "", ExitDone},
		{[]string{"verb", "--lake", "/b"}, []string{"URLAKE_LAKE", "/a"}, "/b", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_ONLY_ONCE", "true"}, "default", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_ONLY_ONCE", ""}, "default", ExitDone},
		{[]string{"verb", "--only-once"}, []string{"URLAKE_ONLY_ONCE", "false"}, "default once", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_DSN", "postgres://"}, "default", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_VERSION", "1"}, "default", ExitDone},
		{[]string{"verb"}, []string{"URLAKE_OTHER", "1"}, "default", ExitDone},
		{[]string{"verb", "--only-once"}, nil, "default once", ExitDone},
		{[]string{"verb", "more"}, nil, "", ExitUsage},
		{[]string{"verb", "--lakes", "x"}, nil, "", ExitUsage},
		{[]string{"vreb"}, nil, "", ExitUsage},
		{nil, nil, "", ExitFailed},
	} {
		t.Run(strings.Join(append(c.args, c.env...), " "), func(t *testing.T) {
			if c.env != nil {
				t.Setenv(c.env[0], c.env[1])
			}
			var seen string
			var out bytes.Buffer
			cmd := program(&seen)
			cmd.SetArgs(append([]string{}, c.args...))
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			if code := Run(context.Background(), cmd); code != c.code || seen != c.want {
				t.Errorf("exit %d, %q; want %d, %q\n%s", code, seen, c.code, c.want, &out)
			}
			if c.code != ExitDone && !strings.HasPrefix(out.String(), "program: ") {
				t.Errorf("the message %q does not begin with the program's name", &out)
			}
			const note = "program: the variable URLAKE_ONLY_ONCE does not set --only-once: give the flag if you want it\n"
			noted := len(c.args) == 1 && c.env != nil && c.env[0] == "URLAKE_ONLY_ONCE" && c.env[1] != ""
			if got := out.String() == note; got != noted {
				t.Errorf("it says %q", &out)
			}
		})
	}
}

func TestUnexpectedArgument(t *testing.T) {
	var seen string
	var out bytes.Buffer
	cmd := program(&seen)
	cmd.SetArgs([]string{"verb", "more"})
	cmd.SetErr(&out)
	code := Run(context.Background(), cmd)
	if code != ExitUsage || !strings.Contains(out.String(), "program verb takes no arguments") {
		t.Errorf("exit %d\n%s", code, &out)
	}
	out.Reset()
	cmd = program(&seen)
	cmd.SetArgs([]string{"verb", "--lake", "", "my lake"})
	cmd.SetErr(&out)
	code = Run(context.Background(), cmd)
	if code != ExitUsage || !strings.Contains(out.String(), "--lake 'my lake'") {
		t.Errorf("a lake as an argument: exit %d\n%s", code, &out)
	}
}

func TestMisspeltVerbsAndFlagsAreGuessed(t *testing.T) {
	for args, want := range map[string]string{
		"vreb":               `did you mean "verb"?`,
		"erb":                `did you mean "verb"?`,
		"ve":                 `did you mean "verb"?`,
		"VERBS":              `did you mean "verb"?`,
		"other":              `unknown command "other" for "program"` + "\n",
		"vreb --lake x":      `did you mean "verb"?`,
		"verb --lakes x":     "did you mean --lake?",
		"verb --laek x":      "did you mean --lake?",
		"verb --only":        "did you mean --only-once?",
		"verb --only_once":   "did you mean --only-once?",
		"verb --unheard-of":  "unknown flag: --unheard-of\n",
		"verb -x":            "unknown shorthand flag: 'x' in -x\n",
		"verb --only-once=5": "invalid argument",
	} {
		var seen string
		var out bytes.Buffer
		cmd := program(&seen)
		cmd.Args = Args(cobra.NoArgs)
		cmd.SetArgs(strings.Fields(args))
		cmd.SetErr(&out)
		if code := Run(context.Background(), cmd); code != ExitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, want %q in\n%s", args, code, want, &out)
		}
	}
}

// TestEditsAgainstSearch compares edits with a search through all single changes.
func TestEditsAgainstSearch(t *testing.T) {
	const letters = "abc"
	for _, from := range []string{"", "a", "ab", "ba", "abc", "aab", "cab"} {
		// All words that are reached by one more change, layer by layer. Changes may overlap here,
		// which edits does not count, so words of more than one change may be nearer.
		one := map[string]bool{}
		for i := range len(from) + 1 {
			for _, l := range letters {
				one[from[:i]+string(l)+from[i:]] = true
				if i < len(from) {
					one[from[:i]+string(l)+from[i+1:]] = true
				}
			}
			if i < len(from) {
				one[from[:i]+from[i+1:]] = true
			}
			if i+1 < len(from) {
				one[from[:i]+from[i+1:i+2]+from[i:i+1]+from[i+2:]] = true
			}
		}
		delete(one, from)
		var words func(prefix string, n int)
		words = func(prefix string, n int) {
			if got := edits(from, prefix); (got == 1) != one[prefix] || (got == 0) != (from == prefix) {
				t.Errorf("edits(%q, %q) = %d, one change: %t", from, prefix, got, one[prefix])
			}
			if n == 0 {
				return
			}
			for _, l := range letters {
				words(prefix+string(l), n-1)
			}
		}
		words("", 4)
	}
}

func TestHelpNamesVariables(t *testing.T) {
	var seen string
	var out bytes.Buffer
	cmd := program(&seen)
	cmd.SetArgs([]string{"verb", "--help"})
	cmd.SetOut(&out)
	code := Run(context.Background(), cmd)
	if code != ExitDone || !strings.Contains(out.String(), "the lake (default: default) [URLAKE_LAKE]\n") ||
		strings.Contains(out.String(), "URLAKE_ONLY_ONCE") {
		t.Errorf("exit %d\n%s", code, &out)
	}
}

// TestHelpHasEachDefaultOnce has a flag of each type whose default is said and one whose is not.
func TestHelpHasEachDefaultOnce(t *testing.T) {
	cmd := &cobra.Command{Use: "program", Run: func(*cobra.Command, []string) {}}
	f := cmd.Flags()
	_, _, _ = f.Uint16("a", 0, "a"), f.Uint32("b", 20, "b"), f.Int("c", 3, "c")
	_, _, _ = f.Duration("d", time.Second, "d"), f.Float64("e", 0, "e"), f.Bool("f", true, "f")
	BindEnv(cmd)
	usages := f.FlagUsages()
	if strings.Contains(usages, "(default )") {
		t.Errorf("a default is empty:\n%s", usages)
	}
	if n := strings.Count(usages, "(default"); n != 4 || strings.Count(usages, "(default: ") != n {
		t.Errorf("%d defaults, want those of b, c, d and f:\n%s", n, usages)
	}
}

func TestCommandsThatWereBoundAloneCanBeBoundTogether(t *testing.T) {
	var seen string
	var out bytes.Buffer
	all := &cobra.Command{Use: "all"}
	all.AddCommand(program(&seen))
	BindEnv(all)
	t.Setenv("URLAKE_LAKE", "/a")
	all.SetArgs([]string{"program", "verb"})
	if code := Run(context.Background(), all); code != ExitDone || seen != "/a" {
		t.Errorf("exit %d, %q", code, seen)
	}
	all.SetArgs([]string{"program", "verb", "--help"})
	all.SetOut(&out)
	if code := Run(context.Background(), all); code != ExitDone || strings.Count(out.String(), "[URLAKE_LAKE]") != 1 {
		t.Errorf("exit %d\n%s", code, &out)
	}
}

func TestLakeURL(t *testing.T) {
	for lake, want := range map[string]string{
		"/data/lake":            "file:///data/lake",
		"/data/lake/":           "file:///data/lake",
		"/data/../lake":         "file:///lake",
		"file:///data/lake/":    "file:///data/lake",
		"FILE:///data/lake":     "file:///data/lake",
		"/data/a%20b":           "file:///data/a%2520b",
		"/data/a b":             "file:///data/a%20b",
		"file:///data/a%20b":    "file:///data/a%20b",
		"/data/a#b?c":           "file:///data/a%23b%3Fc",
		"s3://bucket/prefix/":   "s3://bucket/prefix",
		"S3://bucket":           "s3://bucket",
		"s3://bucket/a/b/c%20d": "s3://bucket/a/b/c%20d",
	} {
		if got, err := LakeURL(lake); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", lake, got, err, want)
		}
	}
	for _, lake := range []string{
		"", "gs://bucket/x", "s3://", "s3:///", "file:/x", "file://host/x", "file:///x?y", "http://x/",
	} {
		var usage *UsageError
		if got, err := LakeURL(lake); !errors.As(err, &usage) {
			t.Errorf("%q: %q, %v; want a usage error", lake, got, err)
		}
	}
}

// TestCheckLakeNamesTheReason holds that a path which cannot be a lake is rejected before anything
// is started for it.
func TestCheckLakeNamesTheReason(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                                  "",
		filepath.Join(dir, "new"):            "",
		file:                                 "is a file; name a folder",
		filepath.Join(file, "new"):           "is a file; name a folder",
		filepath.Join(dir, "no", "such"):     "parent folder is missing",
		filepath.Join(dir, "no", "su", "ch"): "parent folder is missing",
	} {
		for name, check := range map[string]func(string) error{"CheckLake": CheckLake, "CheckLakeWritable": CheckLakeWritable} {
			err := check("file://" + filepath.ToSlash(path))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: %v, want %q", name, path, err, want)
			}
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the checks left %v (%v)", entries, err)
	}
	// Nobody, not even root, makes files in /proc.
	if _, err := os.Stat("/proc/self"); err == nil {
		if err := CheckLakeWritable("file:///proc/self"); err == nil || !strings.Contains(err.Error(), "cannot be written") {
			t.Errorf("CheckLakeWritable of a folder without write permission: %v", err)
		}
	}
}
