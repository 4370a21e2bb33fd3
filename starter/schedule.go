package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a machine without the database checks --time-zone as others do

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
		Short: "Ingest a dataset again and again, nightly say",
		Long: `Schedule makes Temporal start an ingest at every tick. Inputs are listed anew each time; without --batch
the batch is named by what is found, so unchanged inputs change nothing. The schedule stands in Temporal's UI,
where it is paused, triggered, backfilled and deleted; scheduling the same dataset again replaces it.`,
		Example: `  starter schedule --lake s3://b/lake --dataset crawl --cron '0 3 * * *' s3://raw/crawl/latest/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.input(g, args)
			if err != nil {
				return err
			}
			if cron == "" {
				return cli.Usagef("when? Give --cron, five fields as in crontab")
			}
			if err := checkCron(cron); err != nil {
				return err
			}
			if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
				return cli.Usagef("--time-zone %q is none: want a name such as Europe/Berlin, or UTC", zone)
			}
			c, err := connect(cmd.Context())
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
			var refused *serviceerror.InvalidArgument
			if errors.As(err, &refused) {
				return cli.Usagef("--cron %q, --time-zone %q: Temporal refuses them: %s", cron, zone, refused.Message)
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
	cmd.Flags().StringVar(&cron, "cron", "", "when: `FIELDS` minute, hour, day, month and day of the week as in crontab, or @daily and the like")
	cmd.Flags().StringVar(&zone, "time-zone", "UTC", "the `ZONE` of --cron's fields, such as Europe/Berlin")
	return cmd
}

// cronFields are the fields of a crontab line, with the names that stand for numbers.
var cronFields = []struct {
	what        string
	first, last int
	names       []string // of first, first+1, …
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of the week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// checkCron refuses, as wrong usage, what is no crontab line. The rarer forms that Temporal has besides,
// which begin with @, are left to it.
func checkCron(cron string) error {
	if strings.HasPrefix(cron, "@") {
		return nil
	}
	fields := strings.Fields(cron)
	if len(fields) != len(cronFields) {
		return cli.Usagef("--cron %q has %d fields: want minute, hour, day, month, day of week, such as '0 3 * * *'", cron, len(fields))
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
				return cli.Usagef("--cron %q: %q is no %s (%d to %d, *, a-b, */n, or several with commas)", cron, field, f.what, f.first, f.last)
			}
		}
	}
	return nil
}
