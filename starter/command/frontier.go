package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
)

// newFrontierCommand returns the verb frontier with its own verbs.
func newFrontierCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "frontier",
		Short: "Fill a crawl frontier from the lake, and ingest what it has visited",
		Long: `A frontier, frontierd, decides what a crawler fetches next. These verbs work through
Temporal, and workers connect to the frontier: the address has to be one that they reach.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose one of the commands above, e.g. %s", cli.Typed("starter frontier seed"))
		},
	}
	seed, seeds := seedCommand()
	ingest, visits := newFrontierIngestCommand()
	migration, tables := migrateCommand()
	cmd.AddCommand(
		g.startVerb(seed, verb{
			Lake: &seeds.Lake, Reads: true, Check: seeds.check, Workflow: "CrawlSeedWorkflow", What: "the seed",
			Start: func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
				return startSeed(ctx, c, &seeds.CrawlSeedInput)
			},
		}),
		g.startVerb(ingest, verb{ // the first ingest makes the lake
			Lake: &visits.Lake, Check: func() error { return checkIngest(visits) }, Workflow: "VisitedIngestWorkflow", What: "the ingest of visits",
			Start: func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
				return startFrontierIngest(ctx, c, visits)
			},
		}),
		g.startVerb(migration, verb{
			Lake: &tables.Lake, Check: func() error { return checkMigrate(tables) }, Workflow: "FrontierMigrateWorkflow", What: "the migration",
			Start: func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
				return startMigrate(ctx, c, tables)
			},
		}),
	)
	return cmd
}

// frontierFlag adds --frontier to a verb.
func frontierFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "frontier", "", "`URL` of the frontier, as workers reach it, e.g. http://127.0.0.1:7070")
}

// idOf makes an id of a workflow of which a lake and a frontier have one at a time.
func idOf(verb, frontier, lake string) string {
	return fmt.Sprintf("%s:%08x@%s", verb, uint32(xxh3.HashString(frontier)), lake)
}

// heartbeat sets p to what an activity that runs has said last. It is false if it has said nothing.
func heartbeat(ctx context.Context, c client.Client, run client.WorkflowRun, activity string, p any) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), "")
	if err != nil {
		return false
	}
	for _, a := range d.PendingActivities {
		if a.GetActivityType().GetName() == activity && a.GetHeartbeatDetails() != nil {
			return converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), p) == nil
		}
	}
	return false
}

// checkSpec checks a copy of what a workflow is to do, and the text of its ingest. The flag of
// the lake is checked elsewhere.
func checkSpec(spec interface{ Check() error }, lake *string, within string) error {
	if *lake == "" {
		*lake = "-"
	}
	err := spec.Check()
	if err == nil {
		_, err = ingest.ParseDeadline(within)
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}
