// Package command is the program starter as a command, which urlake has too.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/internal/tracing"
	"github.com/urlake/urlake/internal/tracing/otlp"
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

Ingest, publish, compact, retire, restore, gc, rebuild, watch, schedule, backfill, rules
update, export postgres and frontier work through Temporal. They need a Temporal server
(TEMPORAL_ADDRESS, default 127.0.0.1:7233; TEMPORAL_NAMESPACE and the other variables of
Temporal's SDK apply too), and workers of the lake: worker --lake URL.
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
	cmd.AddCommand(ingestCommand(&g), publishCommand(&g), watchCommand(&g), scheduleCommand(&g), backfillCommand(&g),
		newLookupCommand(&g),
		statusCommand(&g), datasetsCommand(&g), rejectsCommand(&g), versionsCommand(&g), diffCommand(&g),
		newURLsCommand(&g),
		newTreeCommand(&g),
		newExportCommand(&g,
			exportPostgresCommand(&g)), newFrontierCommand(&g),
		tagCommand(&g), retireCommand(&g, false), retireCommand(&g, true), newTakedownCommand(&g),
		newACLCommand(&g), newTokenCommand(&g),
		compactCommand(&g), gcCommand(&g), newInventoryCommand(&g),
		verifyCommand(&g), rebuildCommand(&g), rulesCommand(&g), normalizeCommand(&g), demoCommand())
	cli.BindEnv(cmd)
	return cmd
}

// taskBar returns the functions of a bar for a task of this process.
func (g *global) taskBar(w io.Writer) (show, func(error)) {
	b := newBar(w, g.json)
	show := func(fraction float64, stage string, text func(func(int64) string) string) {
		b.show(fraction, stage, time.Now(), text)
	}
	return show, b.finish
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
	traces, err := tracing.Start(ctx, "urlake-starter", cli.Version(), otlp.Reporter(cli.Printable(os.Stderr), "starter"))
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
		if up := cli.Typed("starter up"); up != "starter up" && ctx.Err() == nil {
			err = fmt.Errorf("%w; to run one on this machine: %s LAKE", err, up)
		}
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

// How results are printed for people.
var (
	table  = cli.Table
	count  = cli.Count
	short  = cli.Short
	plural = cli.Plural
	size   = cli.Size
)
