// Package command is the program urlake as a command: everything in one program. Up, add and find
// are for one person on one machine. The other verbs are those of the programs starter, worker and
// serve.
package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
	serve "github.com/urlake/urlake/serve/command"
	starter "github.com/urlake/urlake/starter/command"
	worker "github.com/urlake/urlake/worker/command"
)

// Groups of verbs in the help text.
const (
	groupStart   = "start"
	groupInspect = "more"
)

// Called returns the program of a name, which may be a path: starter or worker, else urlake. So
// links to one file are the programs that people start, and a build links their code once.
func Called(name string) *cobra.Command {
	switch filepath.Base(name) {
	case "starter":
		return starter.New()
	case "worker":
		return worker.New()
	}
	return New()
}

// New returns the program urlake as a command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "urlake",
		Short: "Which of our collections hold this site, since when, and how much?",
		Long: `Urlake says which of your collections of URLs hold a site, since when, and how
much.

  urlake up ./lake                 runs the lake and its web page, until Ctrl-C
  urlake add ./lake FILE…          adds files, folders or s3://bucket/prefix/
  urlake find ./lake example.com   says which datasets hold the site

A lake is a folder or s3://bucket/prefix that holds everything. For S3 set the
AWS SDK's variables: AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nurlake --help lists all verbs.\n", cmd.Long)
			return err
		},
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddGroup(&cobra.Group{ID: groupStart, Title: "On this machine:"},
		&cobra.Group{ID: groupInspect, Title: "One by one, on any number of machines:"})
	for _, sub := range []*cobra.Command{addCommand(), findCommand(), upCommand()} {
		sub.GroupID = groupStart
		cmd.AddCommand(sub)
	}
	// The verbs of starter are verbs of urlake, with the flags that all of them share.
	verbs := starter.New()
	for _, sub := range slices.Clone(verbs.Commands()) {
		verbs.RemoveCommand(sub)
		sub.PersistentFlags().AddFlagSet(verbs.PersistentFlags())
		sub.GroupID = groupInspect
		cmd.AddCommand(sub)
	}
	for _, sub := range []*cobra.Command{worker.New(), serve.New()} {
		sub.GroupID = groupInspect
		cmd.AddCommand(sub)
	}
	rename(cmd)
	cli.BindEnv(cmd)
	bound := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := bound(cmd, args); err != nil {
			return err
		}
		return useRunning(cmd)
	}
	return cmd
}

// programs are the names of programs as they are in help texts and examples, and what they are
// here.
var programs = strings.NewReplacer(
	`"starter `, `"urlake `, "  starter ", "  urlake ", " starter watch", " urlake watch", "| starter ", "| urlake ",
	"  worker --", "  urlake worker --", ": worker --", ": urlake worker --",
	"  serve --", "  urlake serve --",
)

// rename writes the names of programs in the help texts of the subcommands of cmd as they are here.
func rename(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		sub.Short, sub.Long, sub.Example = programs.Replace(sub.Short), programs.Replace(sub.Long), programs.Replace(sub.Example)
		sub.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = programs.Replace(f.Usage) })
		rename(sub)
	}
}

// temporalSet reports whether the environment says which Temporal to use.
func temporalSet() bool {
	for _, name := range []string{"TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// dueSuffix is the end of the id of a workflow that a schedule has started.
var dueSuffix = regexp.MustCompile(`-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)

// lakeOf returns the lake that the id of a workflow names, as in ingest:DATASET:BATCH@LAKE.
func lakeOf(workflow string) string {
	_, lake, _ := strings.Cut(workflow, "@")
	return dueSuffix.ReplaceAllString(lake, "")
}

// useRunning makes a verb that works through Temporal use the one that "urlake up" runs for its
// lake, unless the environment names one.
func useRunning(cmd *cobra.Command) error {
	lake := cmd.Flags().Lookup("lake")
	name := ""
	switch {
	case temporalSet():
		return nil
	case lake != nil:
		name = lake.Value.String()
	case cmd.Name() == "watch" && cmd.Flags().NArg() == 1:
		name = lakeOf(cmd.Flags().Arg(0))
	}
	url, err := cli.LakeURL(name)
	if name == "" || err != nil {
		return nil //nolint:nilerr // the verb reports it
	}
	state, err := supervise.StateOf(os.Getenv(cli.EnvName("state")), url)
	if err != nil {
		return nil //nolint:nilerr // without a folder for state nothing runs there
	}
	if r, ok := state.Find(); ok {
		return os.Setenv("TEMPORAL_ADDRESS", r.Temporal)
	}
	return nil
}
