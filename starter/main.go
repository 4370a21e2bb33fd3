// Starter is urlake's command line: it starts and watches workflows, looks into a lake, and runs
// the demo.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/lake/blob"
)

func main() { cli.Main(command()) }

// global holds the flags that all verbs share.
type global struct {
	lake string
	json bool
}

func command() *cobra.Command {
	var g global
	cmd := &cobra.Command{
		Use:   "starter",
		Short: "Start, watch and inspect urlake",
		Long: `Starter ingests datasets of URLs into a lake, publishes versions of it, and looks into what is there.

A lake is a folder or an S3 prefix that holds everything; S3's settings come from the AWS SDK's own variables
(AWS_ENDPOINT_URL_S3, keys, region). Ingest, publish, watch and schedule work through Temporal: it has to be
reachable (TEMPORAL_ADDRESS, default: 127.0.0.1:7233, TEMPORAL_NAMESPACE and its other variables), and workers have
to run (bin/worker). The other verbs need neither.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("which verb?")
		},
	}
	cmd.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON instead of tables and sentences")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(ingestCommand(&g), publishCommand(&g), watchCommand(&g), scheduleCommand(&g),
		statusCommand(&g), datasetsCommand(&g), versionsCommand(&g), verifyCommand(&g),
		normalizeCommand(&g), demoCommand())
	cli.BindEnv(cmd)
	return cmd
}

// lakeFlag gives a verb its --lake.
func (g *global) lakeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.lake, "lake", "", "the lake's `URL`: file:///dir, a path, or s3://bucket/prefix")
}

// store opens the lake that --lake names.
func (g *global) store(ctx context.Context) (blob.Store, string, error) {
	url, err := cli.LakeURL(g.lake)
	if err != nil {
		return nil, "", err
	}
	s, err := blob.Open(ctx, url)
	return s, url, err
}

// patience is how long a verb tries to reach Temporal: one that was just started serves in less.
const patience = 5 * time.Second

// connect connects to Temporal as its standard environment says.
func connect(ctx context.Context) (client.Client, error) {
	c, _, err := dial.Temporal(ctx, log.NewStructuredLogger(quiet), patience, nil)
	return c, err
}

// printJSON writes v as one indented document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table prints rows under a header line, columns aligned; a column whose header begins with > is
// aligned right.
func table(w io.Writer, header string, rows [][]string) error {
	cols := strings.Fields(header)
	widths := make([]int, len(cols))
	all := append([][]string{make([]string, len(cols))}, rows...)
	for i, c := range cols {
		all[0][i] = strings.TrimPrefix(c, ">")
	}
	for _, r := range all {
		for i, cell := range r {
			widths[i] = max(widths[i], len(cell))
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range all {
		for i, cell := range r {
			if strings.HasPrefix(cols[i], ">") {
				cell = strings.Repeat(" ", widths[i]-len(cell)) + cell
			}
			end := "\t"
			if i == len(r)-1 {
				end = "\n"
			}
			fmt.Fprint(tw, cell, end)
		}
	}
	return tw.Flush()
}

// count prints n with thousands separated.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short prints n with three digits or so: 950, 1.5k, 23M.
func short(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "" || v >= 10 {
		return fmt.Sprintf("%.0f%s", v, unit)
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}

// plural prints n of a thing.
func plural(n int64, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "ch"):
		thing += "es"
	default:
		thing += "s"
	}
	return count(n) + " " + thing
}

// size prints a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
