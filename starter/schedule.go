package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

func scheduleCommand(g *global) *cobra.Command {
	var f ingestFlags
	var cron, zone string
	cmd := &cobra.Command{
		Use:   "schedule --lake URL --dataset NAME --cron '0 3 * * *' [flags] INPUT…",
		Short: "Ingest a dataset again and again, nightly say",
		Long: `Schedule makes Temporal start an ingest at every tick. Inputs are listed anew each time; without --batch
the batch is named by what is found, so unchanged inputs change nothing. The schedule stands in Temporal's UI,
where it is paused, triggered, backfilled and deleted; scheduling the same dataset again replaces it.`,
		Example: `  starter schedule --lake s3://b/lake --dataset crawl --cron '0 3 * * *' s3://raw/crawl/latest/`,
		Args:    cli.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.input(g, args)
			if err != nil {
				return err
			}
			if cron == "" {
				return cli.Usagef("when? Give --cron, five fields as in crontab")
			}
			c, err := dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			id := fmt.Sprintf("ingest:%s@%s", in.Dataset, in.Lake)
			spec := client.ScheduleSpec{CronExpressions: []string{cron}, TimeZoneName: zone}
			action := &client.ScheduleWorkflowAction{
				ID:        id,
				Workflow:  workflows.IngestWorkflow,
				Args:      []any{in},
				TaskQueue: activities.TaskQueue(in.Lake, activities.PoolControl),
			}
			_, err = c.ScheduleClient().Create(cmd.Context(), client.ScheduleOptions{
				ID: id, Spec: spec, Action: action,
				// One ingest of a dataset at a time; a tick that comes meanwhile runs once, after it.
				Overlap: enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE,
			})
			if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
				err = c.ScheduleClient().GetHandle(cmd.Context(), id).Update(cmd.Context(), client.ScheduleUpdateOptions{
					DoUpdate: func(u client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
						s := u.Description.Schedule
						s.Spec, s.Action = &spec, action
						return &client.ScheduleUpdate{Schedule: &s}, nil
					},
				})
			}
			if err != nil {
				return fmt.Errorf("schedule %s: %w", id, err)
			}
			d, err := c.ScheduleClient().GetHandle(cmd.Context(), id).Describe(cmd.Context())
			if err != nil {
				return fmt.Errorf("schedule %s: %w", id, err)
			}
			next := ""
			if len(d.Info.NextActionTimes) > 0 {
				next = d.Info.NextActionTimes[0].Format(time.RFC3339)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), map[string]string{"schedule_id": id, "next": next})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Scheduled %s, next at %s\nRun it now: temporal schedule trigger --schedule-id '%s'\n", id, next, id)
			return nil
		},
	}
	f.register(g, cmd)
	cmd.Flags().StringVar(&cron, "cron", "", "when, five fields as in crontab")
	cmd.Flags().StringVar(&zone, "time-zone", "UTC", "the cron fields' time zone")
	return cmd
}
