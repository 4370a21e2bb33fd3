// Package command is the program starter as a command, which urlake has too.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/internal/tracing"
	"github.com/urlake/urlake/lake/blob"
)

// global holds the flags that all verbs share.
type global struct {
	lake string
	json bool
}

// New returns the program as a command.
func New() *cobra.Command {
	var g global
	cmd := &cobra.Command{
		Use:   "starter",
		Short: "Start, watch and inspect urlake",
		Long: `Starter ingests datasets of URLs into a lake, publishes versions of the lake, and
inspects it.

A lake is a folder or an S3 prefix that holds everything. For S3 set the AWS SDK's
variables: AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.

Ingest, publish, watch, schedule and rules update work through Temporal. They need a Temporal
server (TEMPORAL_ADDRESS, default 127.0.0.1:7233; TEMPORAL_NAMESPACE and the other
variables of Temporal's SDK apply too), and workers of the lake: worker --lake URL.
The other verbs need neither.

The help of a verb shows in brackets the variable that also sets a flag.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose one of the commands above")
		},
	}
	cmd.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON instead of text for people")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(ingestCommand(&g), publishCommand(&g), watchCommand(&g), scheduleCommand(&g),
		statusCommand(&g), datasetsCommand(&g), rejectsCommand(&g), versionsCommand(&g), verifyCommand(&g),
		rulesCommand(&g), normalizeCommand(&g), demoCommand())
	cli.BindEnv(cmd)
	return cmd
}

// lakeFlag adds --lake to a verb.
func (g *global) lakeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.lake, "lake", "", "`URL` of the lake: file:///dir, a path, or s3://bucket/prefix")
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

// connectTimeout is how long a verb tries to reach Temporal. A server that was just started answers
// sooner.
const connectTimeout = 5 * time.Second

// connect connects to the Temporal server that Temporal's standard environment variables name. What
// the client starts is traced if OpenTelemetry's variables ask for it, until the client is closed.
func connect(ctx context.Context) (client.Client, error) {
	traces, err := tracing.Start(ctx, "urlake-starter", cli.Version(), tracing.Reporter(cli.Printable(os.Stderr), "starter"))
	if err != nil {
		return nil, err
	}
	interceptors, err := traces.Interceptors()
	if err != nil {
		return nil, err
	}
	c, _, err := dial.Temporal(ctx, log.NewStructuredLogger(quiet), connectTimeout, nil,
		func(opts *client.Options) { opts.Interceptors = interceptors })
	if err != nil {
		traces.Stop()
		return nil, err
	}
	return tracedClient{c, traces}, nil
}

// tracedClient sends its spans when it is closed.
type tracedClient struct {
	client.Client
	traces *tracing.Tracing
}

func (c tracedClient) Close() {
	c.Client.Close()
	c.traces.Stop()
}

// printJSON writes v as one indented JSON document.
func printJSON(w io.Writer, v any) error { return cli.WriteJSON(w, v, true) }

// table prints rows under a header line, in aligned columns. A column whose header begins with > is
// aligned right. Cells are escaped.
func table(w io.Writer, header string, rows [][]string) error {
	cols := strings.Fields(header)
	widths := make([]int, len(cols))
	all := append([][]string{make([]string, len(cols))}, rows...)
	for i, c := range cols {
		all[0][i] = strings.TrimPrefix(c, ">")
	}
	for _, r := range all {
		for i := range r {
			r[i] = cli.Escape(r[i])
			widths[i] = max(widths[i], len(r[i]))
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

// count formats n with its thousands separated by commas.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short formats n with about three digits: 950, 1.5k, 23M.
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

// plural formats a number of things: 1 batch, 2 batches.
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

// size formats a number of bytes with a binary unit: 17.8 KiB.
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
