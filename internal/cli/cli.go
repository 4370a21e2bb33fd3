// Package cli holds the command-line conventions that serve, worker and starter share: settings
// that URLAKE_… variables have, too, exit codes, a context that ends on Ctrl-C, and one
// spelling for the URL of a lake.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of all programs: success, failure, wrong usage, not yet.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
	// ExitPending is for a question whose answer is "not yet": all was looked at, and a script may
	// ask again later.
	ExitPending = 3
)

// ErrPending ends a program with ExitPending. It prints nothing: the program has said what it
// found.
var ErrPending = errors.New("not yet")

// UsageError means that the command line is wrong. The exit code is ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef formats a *UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// variables are the flags that a URLAKE_… variable sets, too: settings of a whole program, which
// mean the same wherever a flag has the name. Only the command line says what a verb does: a
// variable set for one verb might make another one delete something else.
var variables = []string{
	"allow-input", "allow-target", "auth", "auth-audience", "auth-issuer", "lake", "listen", "redis",
	"state", "tls-cert", "tls-key",
}

// EnvName returns the variable that sets a flag: URLAKE_ and the flag's name in upper case, with _
// for -.
func EnvName(flag string) string {
	return "URLAKE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// zeroValues maps a flag's type to the default that pflag leaves out of help texts.
var zeroValues = map[string]string{
	"bool": "false", "duration": "0s", "int": "0", "int64": "0", "uint16": "0", "uint32": "0",
	"float64": "0", "stringSlice": "[]", "stringArray": "[]",
}

// BindEnv makes the flags of cmd and its subcommands that are settings of the whole program read
// their URLAKE_… variable when they are not on the command line. The variable of another flag sets
// nothing, and a note on standard error says so. BindEnv also adds the variable, and the default of
// every flag in a uniform form, to the help texts. Call it after all flags are defined; commands
// that were bound alone may become subcommands of another, which is then bound.
func BindEnv(cmd *cobra.Command) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		describe := func(f *pflag.Flag) {
			variable := " [" + EnvName(f.Name) + "]"
			if f.Name == "help" || f.Name == "version" || strings.HasSuffix(f.Usage, variable) {
				return
			}
			if f.DefValue != zeroValues[f.Value.Type()] {
				f.Usage += " (default: " + strings.Trim(f.DefValue, "[]") + ")"
				f.DefValue = zeroValues[f.Value.Type()]
			}
			if slices.Contains(variables, f.Name) {
				f.Usage += variable
			}
		}
		c.LocalFlags().VisitAll(describe)
		c.PersistentFlags().VisitAll(describe)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cmd)
	previous := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		var err error
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name := EnvName(f.Name)
			value, ok := os.LookupEnv(name)
			switch {
			case f.Changed || !ok || err != nil:
			case slices.Contains(variables, f.Name):
				if e := c.Flags().Set(f.Name, value); e != nil {
					err = Usagef("%s: %w", name, e)
				}
			case f.Name == "dsn": // URLAKE_DSN is a DSN that the flag may name
			case value != "" && f.Annotations[cobra.FlagSetByCobraAnnotation] == nil:
				fmt.Fprintf(c.ErrOrStderr(), "%s: the variable %s does not set --%s: give the flag if you want it\n",
					c.Root().Name(), name, f.Name)
			}
		})
		if err == nil && previous != nil {
			err = previous(c, args)
		}
		return err
	}
}

// Main runs cmd and exits with its code. An interrupt, SIGTERM or SIGHUP cancels the context of
// cmd. A second signal ends the process at once.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, cmd))
}

// Run runs cmd and returns its exit code. It writes an error once, to the command's error output.
func Run(ctx context.Context, cmd *cobra.Command) int {
	cmd.SilenceErrors = true
	cmd.SilenceUsage = true
	cmd.Version = Version()
	cmd.SetFlagErrorFunc(flagError)
	c, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	if errors.Is(err, ErrPending) {
		return ExitPending
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Name(), errorText(err))
	var usage *UsageError
	// Cobra has no error types for unknown commands and missing flags, only these texts.
	if errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command") ||
		strings.HasPrefix(err.Error(), "required flag") {
		fmt.Fprintf(cmd.ErrOrStderr(), "See '%s --help'.\n", c.CommandPath())
		return ExitUsage
	}
	return ExitFailed
}

// Args turns the errors of a cobra argument check into *UsageErrors.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) > 0 && cmd.HasSubCommands():
			return unknownVerb(cmd, args[0])
		case len(args) > 0 && !cmd.HasSubCommands() && check(cmd, nil) == nil && check(cmd, args[:1]) != nil:
			// Cobra's text would be about a misspelt verb.
			if lake := cmd.Flags().Lookup("lake"); lake != nil && lake.Value.String() == "" {
				return Usagef("%s takes the lake by a flag: --lake %s", cmd.CommandPath(), ShellWord(args[0]))
			}
			return Usagef("%s takes no arguments; remove %q", cmd.CommandPath(), args[0])
		}
		return &UsageError{err}
	}
}

// Version identifies the build: by the version of the module, or else by the commit.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+changes"
			}
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + modified
}

// LakeURL returns the canonical URL of a lake. Task queues and workflow ids contain the URL, so
// every spelling of a lake must become the same one: a path becomes an absolute file:// URL, and
// trailing slashes are removed.
func LakeURL(lake string) (string, error) {
	if lake == "" {
		return "", Usagef("which lake? Use --lake file:///dir or --lake s3://bucket/prefix, or set %s", EnvName("lake"))
	}
	scheme, rest, isURL := strings.Cut(lake, "://")
	switch {
	case !isURL && strings.HasPrefix(strings.ToLower(lake), "file:"):
		return "", Usagef("lake %q: write file:///dir, with three slashes", lake)
	case !isURL:
		abs, err := filepath.Abs(lake)
		if err != nil {
			return "", fmt.Errorf("lake %q: %w", lake, err)
		}
		return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), nil
	case strings.EqualFold(scheme, "file"):
		u, err := url.Parse(lake)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
			return "", Usagef("lake %q: for a local folder, use file:///dir or a path", lake)
		}
		return (&url.URL{Scheme: "file", Path: path.Clean(u.Path)}).String(), nil
	case strings.EqualFold(scheme, "s3") && strings.Trim(rest, "/") != "":
		return "s3://" + strings.TrimRight(rest, "/"), nil
	}
	return "", Usagef("lake %q: use file:///dir, a path, or s3://bucket/prefix", lake)
}

// Typed returns how the user of this program types a command of one of the programs, as in "starter
// watch": the program urlake has all of them as verbs.
func Typed(command string) string {
	const all = "urlake"
	if filepath.Base(os.Args[0]) != all {
		return command
	}
	return all + " " + strings.TrimPrefix(command, "starter ")
}

// CheckLake rejects a local lake that cannot be one: it is a file, it may not be read, or both it
// and its parent folder are missing, as the path is mistyped or a file system is not mounted.
func CheckLake(lakeURL string) error {
	path, ok := lakeFolder(lakeURL)
	if !ok {
		return nil
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.IsDir():
		return Usagef("the lake %s is a file; name a folder", lakeURL)
	case err == nil:
		if _, err = os.Stat(filepath.Join(path, "index")); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("the lake %s may not be read: %w", lakeURL, fs.ErrPermission)
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the lake %s may not be reached: %w", lakeURL, err)
	}
	parent := filepath.Dir(path)
	if st, err := os.Stat(parent); err != nil {
		return Usagef("no lake at %s, and its parent folder is missing; check --lake and mounts: %w", lakeURL, err)
	} else if !st.IsDir() {
		return Usagef("no lake at %s, and %s is a file; name a folder", lakeURL, parent)
	}
	return nil
}

// CheckLakeWritable is CheckLake, and rejects a local lake in which this process cannot make files.
// Work on such a lake would be repeated until its deadline.
func CheckLakeWritable(lakeURL string) error {
	if err := CheckLake(lakeURL); err != nil {
		return err
	}
	folder, ok := lakeFolder(lakeURL)
	if !ok {
		return nil
	}
	if _, err := os.Stat(folder); err != nil {
		folder = filepath.Dir(folder) // the first ingest makes the lake
	}
	f, err := os.CreateTemp(folder, ".urlake-*")
	if err != nil {
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("the lake %s cannot be written, no file can be made in %s: %w", lakeURL, folder, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// lakeFolder returns the folder of a local lake.
func lakeFolder(lakeURL string) (string, bool) {
	u, err := url.Parse(lakeURL)
	if err != nil || u.Scheme != "file" {
		return "", false // opening the lake reports a bad URL
	}
	return filepath.FromSlash(u.Path), true
}
