// Package cli is what the three programs share on the command line: flags that are also
// read from URLAKE_… variables, exit codes, and a context that ends on Ctrl-C.
package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of all programs.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError is wrong use of the command line: exit code 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef builds a *UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// EnvName is the variable that sets a flag: URLAKE_ and the flag's name in upper case, - as _.
func EnvName(flag string) string {
	return "URLAKE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// zero is, by a flag's type, the default that a help text does not mention.
var zero = map[string]string{"bool": "false", "duration": "0s", "int": "0", "int64": "0", "float64": "0", "stringSlice": "[]"}

// BindEnv makes every flag of cmd and of its subcommands read its URLAKE_ variable
// when it is not given on the command line, and says so in its help text, where defaults look the same
// whether they are values or described.
// Call it once, after all flags are defined.
func BindEnv(cmd *cobra.Command) {
	seen := map[*pflag.Flag]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		note := func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" || seen[f] {
				return
			}
			seen[f] = true
			if f.DefValue != zero[f.Value.Type()] {
				f.Usage += " (default: " + strings.Trim(f.DefValue, "[]") + ")"
				f.DefValue = zero[f.Value.Type()]
			}
			f.Usage += " [" + EnvName(f.Name) + "]"
		}
		c.LocalFlags().VisitAll(note)
		c.PersistentFlags().VisitAll(note)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cmd)
	previous := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		var err error
		c.Flags().VisitAll(func(f *pflag.Flag) {
			value, ok := os.LookupEnv(EnvName(f.Name))
			if f.Changed || !ok || err != nil || f.Name == "help" || f.Name == "version" {
				return
			}
			if e := c.Flags().Set(f.Name, value); e != nil {
				err = Usagef("%s: %w", EnvName(f.Name), e)
			}
		})
		if err == nil && previous != nil {
			err = previous(c, args)
		}
		return err
	}
}

// Main runs cmd until it ends or the process is asked to stop, and exits with its code.
// A second signal ends the process at once.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, cmd))
}

// Run runs cmd and returns its exit code; errors go to standard error, once.
func Run(ctx context.Context, cmd *cobra.Command) int {
	cmd.SilenceErrors = true
	cmd.SilenceUsage = true
	cmd.Version = Version()
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &UsageError{err} })
	c, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Name(), errorText(err))
	var usage *UsageError
	// Cobra itself reports unknown commands and wrong arguments with plain errors that begin so.
	if errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag") {
		fmt.Fprintf(cmd.ErrOrStderr(), "See '%s --help'.\n", c.CommandPath())
		return ExitUsage
	}
	return ExitFailed
}

// Args turns a cobra argument check's error into a *UsageError.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) > 0 && !cmd.HasSubCommands() && check(cmd, nil) == nil && check(cmd, args[:1]) != nil:
			// Cobra's own words are those for a misspelt verb.
			return Usagef("%s takes no arguments, and there is %q", cmd.CommandPath(), args[0])
		}
		return &UsageError{err}
	}
}

// Version names the build: the module's version, else the commit it was built from.
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

// LakeURL gives a lake one spelling, since task queues and workflow ids are made of it: a path
// becomes an absolute file:// URL, and a trailing slash goes.
func LakeURL(lake string) (string, error) {
	if lake == "" {
		return "", Usagef("which lake? Give --lake file:///dir or s3://bucket/prefix, or set %s", EnvName("lake"))
	}
	scheme, rest, isURL := strings.Cut(lake, "://")
	switch {
	case !isURL && strings.HasPrefix(strings.ToLower(lake), "file:"):
		return "", Usagef("lake %q: want file:///dir, with three slashes", lake)
	case !isURL:
		abs, err := filepath.Abs(lake)
		if err != nil {
			return "", fmt.Errorf("lake %q: %w", lake, err)
		}
		return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), nil
	case strings.EqualFold(scheme, "file"):
		u, err := url.Parse(lake)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
			return "", Usagef("lake %q: a local folder is file:///dir or a path", lake)
		}
		return (&url.URL{Scheme: "file", Path: path.Clean(u.Path)}).String(), nil
	case strings.EqualFold(scheme, "s3") && strings.Trim(rest, "/") != "":
		return "s3://" + strings.TrimRight(rest, "/"), nil
	}
	return "", Usagef("lake %q: want file:///dir, a path, or s3://bucket/prefix", lake)
}
