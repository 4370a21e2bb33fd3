package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // so that --time-zone is checked alike on machines without a time zone database

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
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
		Short: "Ingest a dataset regularly, e.g. every night",
		Long: `Schedule creates a Temporal schedule that starts an ingest at the times of --cron. Each
run lists the inputs again. Without --batch the batch is named by what is found, so
that unchanged inputs change nothing.

A dataset has one schedule; scheduling it again replaces the schedule. With
--datasets-from the same inputs have one. Temporal's UI and "temporal schedule" show,
pause, trigger, backfill and delete it.`,
		Example: `  starter schedule --lake s3://b/lake --dataset crawl --cron '0 3 * * *' s3://raw/crawl/latest/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.input(g, args)
			if err != nil {
				return err
			}
			if cron == "" {
				return cli.Usagef("no time given; use --cron with five fields as in crontab, e.g. --cron '0 3 * * *'")
			}
			if err := checkCron(cron); err != nil {
				return err
			}
			if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
				return cli.Usagef("--time-zone %q: unknown time zone; use e.g. Europe/Berlin or UTC", zone)
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			id := fmt.Sprintf("ingest:%s@%s", in.Dataset, in.Lake)
			var workflow, input any = workflows.IngestWorkflow, in
			if f.datasetsFrom != "" {
				many := f.many(in)
				workflow, input = workflows.IngestManyWorkflow, many
				if id, err = manyID(*many); err != nil {
					return err
				}
			}
			spec := client.ScheduleSpec{CronExpressions: []string{cron}, TimeZoneName: zone}
			action := &client.ScheduleWorkflowAction{
				ID:        id,
				Workflow:  workflow,
				Args:      []any{input},
				TaskQueue: activities.TaskQueue(in.Lake, activities.PoolControl),
			}
			_, err = c.ScheduleClient().Create(cmd.Context(), client.ScheduleOptions{
				ID: id, Spec: spec, Action: action,
				// The schedule runs one ingest at a time. If ticks pass meanwhile, it runs once
				// more afterwards.
				Overlap: enums.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE,
			})
			if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
				handle := c.ScheduleClient().GetHandle(cmd.Context(), id)
				err = handle.Update(cmd.Context(), client.ScheduleUpdateOptions{
					DoUpdate: func(u client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
						s := u.Description.Schedule
						s.Spec, s.Action = &spec, action
						return &client.ScheduleUpdate{Schedule: &s}, nil
					},
				})
			}
			var invalid *serviceerror.InvalidArgument
			if errors.As(err, &invalid) {
				return cli.Usagef("Temporal rejects --cron %q with --time-zone %q: %s", cron, zone, invalid.Message)
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
			cli.Fprintf(cmd.OutOrStdout(), "Scheduled %s, next at %s\n"+
				"To run it now: temporal schedule trigger --schedule-id '%s'\n", id, next, id)
			return nil
		},
	}
	f.register(g, cmd)
	cmd.Flags().StringVar(&cron, "cron", "",
		"when to run: the `FIELDS` minute, hour, day of month, month and day of week as in crontab, or e.g. @daily")
	cmd.Flags().StringVar(&zone, "time-zone", "UTC", "time `ZONE` of the fields of --cron, e.g. Europe/Berlin")
	return cmd
}

// cronFields are the fields of a crontab line: their ranges, and the names that stand for numbers.
var cronFields = []struct {
	name        string
	first, last int
	names       []string // of first, first+1, …
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// checkCron returns a *cli.UsageError if cron is not a crontab line. It leaves the forms that begin
// with @ to Temporal.
func checkCron(cron string) error {
	if strings.HasPrefix(cron, "@") {
		return nil
	}
	fields := strings.Fields(cron)
	if len(fields) != len(cronFields) {
		return cli.Usagef("--cron %q has %d fields instead of 5: minute, hour, day of month, month, day of week; "+
			"use e.g. '0 3 * * *'", cron, len(fields))
	}
	for i, field := range fields {
		f := cronFields[i]
		number := func(s string) (int, bool) {
			if n := slices.Index(f.names, strings.ToLower(s)); n >= 0 {
				return f.first + n, true
			}
			n, err := strconv.ParseUint(s, 10, 8)
			return int(n), err == nil && int(n) >= f.first && int(n) <= f.last
		}
		for _, item := range strings.Split(field, ",") {
			item, step, stepped := strings.Cut(item, "/")
			n, err := strconv.Atoi(step)
			ok := !stepped || err == nil && n > 0
			if item != "*" && item != "?" {
				from, to, isRange := strings.Cut(item, "-")
				a, okA := number(from)
				ok = ok && okA
				if isRange {
					b, okB := number(to)
					ok = ok && okB && a <= b
				}
			}
			if !ok {
				return cli.Usagef("--cron %q: %q is not a valid %s; use %d to %d, *, a-b, */n, or several separated by commas",
					cron, field, f.name, f.first, f.last)
			}
		}
	}
	return nil
}
