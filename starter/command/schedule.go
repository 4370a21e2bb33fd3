package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
)

// scheduleKind is something that a schedule can run. New adds its flags to a verb, and returns what
// makes the work of them and of the arguments.
type scheduleKind struct {
	Use, Short, Long, Example string
	New                       func(*cobra.Command) func(lake string, args []string) (*Work, error)
}

// namespace is the namespace in which the client of the starter works.
func namespace() string {
	opts, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return client.DefaultNamespace // the client could not be made either
	}
	return cmp.Or(opts.Namespace, client.DefaultNamespace)
}

// newScheduleCommand returns the verb schedule with its own verbs.
func newScheduleCommand(g *global, kinds ...scheduleKind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Run ingests, compact, gc, rebuild and verify regularly, e.g. every night",
		Long: `Schedules are Temporal's own: they go on without this program, and Temporal's UI and
"temporal schedule" show and change them too. A lake has any number of schedules, and
so has a dataset; each has a name.

Inputs may have a date in their names: s3://raw/crawl/{date}/ is read as
s3://raw/crawl/2026-11-20/ by the run that is due on that day, and its batch is
2026-11-20. A run that starts late, is repeated or is made up for by "starter backfill"
has the date at which it was due. A date that is ingested again replaces its batch.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose one of the commands above, e.g. %s", cli.Typed("starter schedule create ingest"))
		},
	}
	create := &cobra.Command{
		Use:   "create",
		Short: "Create a schedule, or change one",
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("what is to be run? Choose one of the commands above")
		},
	}
	for _, k := range kinds {
		create.AddCommand(g.createScheduleCommand(k))
	}
	cmd.AddCommand(create, g.listSchedulesCommand(), g.showScheduleCommand(), g.pauseScheduleCommand(false), g.pauseScheduleCommand(true),
		g.triggerScheduleCommand(), g.deleteScheduleCommand())
	return cmd
}

func (g *global) createScheduleCommand(k scheduleKind) *cobra.Command {
	var t times
	var name string
	var overwrite bool
	cmd := &cobra.Command{Use: k.Use, Short: k.Short, Long: k.Long, Example: k.Example}
	work := k.New(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		lake, err := cli.LakeURL(g.lake)
		if err != nil {
			return err
		}
		w, err := work(lake, args)
		if err != nil {
			return err
		}
		if w.Dated() {
			w.spec.DateZone = t.zone
			if t.zone == "UTC" {
				w.spec.DateZone = ""
			}
		}
		if err := t.check(w); err != nil {
			return err
		}
		if name == "" {
			name = w.Name
		}
		id, err := scheduleID(lake, name)
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		c, err := connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		replaced, err := create(ctx, c, id, w, &t, overwrite)
		if err != nil {
			return err
		}
		f, err := findSchedule(ctx, c, lake, id)
		if err != nil {
			return err
		}
		d, err := f.describe(ctx, c, 3)
		if err != nil {
			return err
		}
		if g.json {
			return cli.WriteJSON(cmd.OutOrStdout(), d, true)
		}
		out := cmd.OutOrStdout()
		did := "Created"
		if replaced {
			did = "Changed"
		}
		what := f.what()
		if f.spec == nil {
			what = what + " of this lake"
		}
		cli.Fprintf(out, "%s schedule %s: %s\n", did, d.Name, what)
		for _, next := range d.Next {
			cli.Fprintf(out, "  due %s%s\n", next.Due.In(f.zone()).Format(scheduleTimeFormat), batchText(next))
		}
		switch {
		case d.Paused:
			cli.Fprintf(out, "It is paused. To start it: %s\n", g.typedSchedule("unpause", f))
		case len(d.Next) == 0:
			cli.Fprintf(out, "It is never due: no time matches %s\n", strings.Join(cronLines(f.schedule.Spec), "; "))
		default:
			cli.Fprintf(out, "To run it now: %s\n", g.typedSchedule("trigger", f))
		}
		if f.Dated() {
			cli.Fprintf(out, "To ingest other dates: %s\n",
				cli.Typed(fmt.Sprintf("starter backfill --lake %s %s --from DATE --to DATE", cli.ShellWord(f.Lake), f.Name)))
		}
		return warnIdlePools(ctx, c, lake, cmd.ErrOrStderr())
	}
	g.lakeAnd(cmd)
	t.register(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the schedule (default: what it runs, e.g. ingest:crawl or gc)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "change the schedule of that name if there is one; it stays paused if it is")
	return cmd
}

// lakeAnd adds --lake to a verb that has none yet.
func (g *global) lakeAnd(cmd *cobra.Command) {
	if cmd.Flags().Lookup("lake") == nil {
		g.lakeFlag(cmd)
	}
}

// typedSchedule is how one types a verb about a schedule.
func (g *global) typedSchedule(verb string, f *found) string {
	return cli.Typed(fmt.Sprintf("starter schedule %s --lake %s %s", verb, cli.ShellWord(f.Lake), f.Name))
}

// scheduleVerb returns a verb about one schedule.
func (g *global) scheduleVerb(use, short, long string, run func(cmd *cobra.Command, c client.Client, f *found) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " NAME --lake URL", Short: short, Long: long,
		Example: "  starter schedule " + use + " --lake s3://b/lake ingest:crawl",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("which schedule? %q lists them", cli.Typed("starter schedule list"))
			}
			return cli.Args(cobra.ExactArgs(1))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			lake, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			if _, err := scheduleID(lake, args[0]); err != nil {
				return err
			}
			c, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			f, err := findSchedule(cmd.Context(), c, lake, args[0])
			if err != nil {
				return err
			}
			return run(cmd, c, f)
		},
	}
	g.lakeFlag(cmd)
	return cmd
}

func (g *global) listSchedulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list --lake URL", Short: "List the schedules of a lake, when they are due next and how they ended last",
		Example: "  starter schedule list --lake s3://b/lake",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			lake, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			found, err := all(ctx, c, lake)
			if err != nil {
				return err
			}
			descriptions := make([]*description, 0, len(found))
			for _, f := range found {
				d, err := f.describe(ctx, c, 1)
				if err != nil {
					return err
				}
				descriptions = append(descriptions, d)
			}
			switch {
			case g.json:
				return cli.WriteJSON(cmd.OutOrStdout(), descriptions, true)
			case len(found) == 0:
				cli.Fprintf(cmd.OutOrStdout(), "This lake has no schedule. To create one: %s\n", cli.Typed("starter schedule create"))
				return nil
			}
			return printList(cmd.OutOrStdout(), found, descriptions)
		},
	}
	g.lakeFlag(cmd)
	return cmd
}

// scheduleShown is how many runs and times show prints: as many as Temporal keeps.
const scheduleShown = 10

func (g *global) showScheduleCommand() *cobra.Command {
	return g.scheduleVerb("show", "Show a schedule: what it runs, when, and its last runs",
		`Show prints what a schedule runs and when, its policies, when it is due next and for
which date, and the last ten runs with what became of them.`,
		func(cmd *cobra.Command, c client.Client, f *found) error {
			d, err := f.describe(cmd.Context(), c, scheduleShown)
			if err != nil {
				return err
			}
			if g.json {
				return cli.WriteJSON(cmd.OutOrStdout(), d, true)
			}
			d.Next = d.Next[:min(3, len(d.Next))]
			f.print(cmd.OutOrStdout(), d)
			return nil
		})
}

// answerSchedule prints a text, or what it says as JSON.
func (g *global) answerSchedule(cmd *cobra.Command, f *found, did, text string) error {
	if g.json {
		return cli.WriteJSON(cmd.OutOrStdout(), map[string]string{"schedule_id": f.id, "done": did}, true)
	}
	cli.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return nil
}

func (g *global) pauseScheduleCommand(unpause bool) *cobra.Command {
	use, short, long := "pause", "Pause a schedule", `A paused schedule starts nothing by itself; a run that goes on goes on. What is due
while it is paused is not made up for when it goes on; "starter backfill" does that.
"starter schedule trigger" and "starter backfill" work on a paused schedule, too.`
	if unpause {
		use, short, long = "unpause", "Let a paused schedule go on", `What was due while it was paused is not made up for; "starter backfill" does that.`
	}
	var reason string
	cmd := g.scheduleVerb(use, short, long, func(cmd *cobra.Command, _ client.Client, f *found) error {
		var err error
		text := fmt.Sprintf("Paused schedule %s", f.Name)
		if unpause {
			text = fmt.Sprintf("Schedule %s goes on", f.Name)
			err = f.handle.Unpause(cmd.Context(), client.ScheduleUnpauseOptions{Note: cmp.Or(reason, "unpaused by starter")})
		} else {
			err = f.handle.Pause(cmd.Context(), client.SchedulePauseOptions{Note: cmp.Or(reason, "paused by starter")})
		}
		if err != nil {
			return fmt.Errorf("%s schedule %s: %w", use, f.Name, err)
		}
		if running := len(f.info.RunningWorkflows); running > 0 && !unpause {
			text += fmt.Sprintf("; %s goes on", cli.Plural(int64(running), "run"))
		}
		return g.answerSchedule(cmd, f, use, text)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, which \"starter schedule show\" and Temporal's UI tell")
	return cmd
}

func (g *global) triggerScheduleCommand() *cobra.Command {
	var overlap string
	cmd := g.scheduleVerb("trigger", "Run what a schedule runs, now",
		`Trigger starts one run now. With dates it is for the date of now, with the schedule's
offset; for another date use "starter backfill". If a run of the schedule goes on, the
schedule's overlap policy says what happens, or --overlap.`,
		func(cmd *cobra.Command, c client.Client, f *found) error {
			policy, err := overlapOf(overlap, enums.SCHEDULE_OVERLAP_POLICY_UNSPECIFIED)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			started := map[string]bool{}
			for _, a := range f.info.RecentActions {
				if a.StartWorkflowResult != nil {
					started[a.StartWorkflowResult.FirstExecutionRunID] = true
				}
			}
			if err := f.handle.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: policy}); err != nil {
				return fmt.Errorf("trigger schedule %s: %w", f.Name, err)
			}
			run, err := f.newRun(ctx, c, started)
			if err != nil {
				return err
			}
			if g.json {
				return cli.WriteJSON(cmd.OutOrStdout(), struct {
					ID  string       `json:"schedule_id"`
					Run *runSchedule `json:"run"`
				}{f.id, run}, true)
			}
			out := cmd.OutOrStdout()
			if run == nil {
				cli.Fprintf(out, "Schedule %s has started nothing yet: another run goes on, and the overlap policy decides.\n"+
					"To see its runs: %s\n", f.Name, g.typedSchedule("show", f))
				return warnIdlePools(ctx, c, f.Lake, cmd.ErrOrStderr())
			}
			cli.Fprintf(out, "Started %s\n", run.WorkflowID)
			if run.Batch != "" {
				cli.Fprintf(out, "  batch %s\n", run.Batch)
			}
			cli.Fprintf(out, "To watch it: %s\n", cli.Typed("starter watch "+cli.ShellWord(run.WorkflowID)))
			return warnIdlePools(ctx, c, f.Lake, cmd.ErrOrStderr())
		})
	cmd.Flags().StringVar(&overlap, "overlap", "", "`POLICY` if a run goes on (default: that of the schedule)")
	return cmd
}

// newRun returns the run that a trigger has started, nil if there is none after some seconds.
func (f *found) newRun(ctx context.Context, c client.Client, before map[string]bool) (*runSchedule, error) {
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		now, err := findSchedule(ctx, c, f.Lake, f.Name)
		if err != nil {
			return nil, err
		}
		for _, a := range slices.Backward(now.info.RecentActions) {
			if w := a.StartWorkflowResult; w != nil && !before[w.FirstExecutionRunID] {
				return &runSchedule{Tick: now.tick(a.ScheduleTime), WorkflowID: w.WorkflowID, RunID: w.FirstExecutionRunID,
					Started: a.ActualTime.UTC(), Status: statusRunning}, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, nil
}

func (g *global) deleteScheduleCommand() *cobra.Command {
	return g.scheduleVerb("delete", "Delete a schedule", `Delete removes the schedule. Runs that go on go on, and what was ingested stays.`,
		func(cmd *cobra.Command, _ client.Client, f *found) error {
			if err := f.handle.Delete(cmd.Context()); err != nil {
				return fmt.Errorf("delete schedule %s: %w", f.Name, err)
			}
			text := fmt.Sprintf("Deleted schedule %s; what it has ingested stays", f.Name)
			if running := len(f.info.RunningWorkflows); running > 0 {
				text += fmt.Sprintf(", and %s goes on", cli.Plural(int64(running), "run"))
			}
			return g.answerSchedule(cmd, f, "delete", text)
		})
}

// backfillCommand returns the verb backfill.
func backfillCommand(g *global) *cobra.Command {
	var from, to, overlap string
	var wait, dryRun bool
	cmd := &cobra.Command{
		Use:   "backfill [NAME] --lake URL --from DATE --to DATE",
		Short: "Ingest the dates that a schedule has missed, or from before it was made",
		Long: `Backfill starts what a schedule would have started for the dates from --from to --to,
both included: an ingest for each time at which it was due, with the inputs and the batch
of that date. Dates are those of batches: with an offset of -1d, the date 2026-11-20 is
due on 2026-11-21. A date that is in the lake already is read again, and replaces its
batch; if nothing has changed, nothing changes.

NAME may be left out if one schedule of the lake has dates. The ingests of a backfill run
beside each other, and beside those that are due, as far as workers take them, and
batches that are finished together are published together. Those with --new-only or
--replace run one after the other, in the order of their dates.

It is the same as Temporal's own: in its UI, or "temporal schedule backfill". Give these
the times at which the schedule was due, and a policy: without one they leave out what is
due while the first ingest runs.`,
		Example: `  starter backfill --lake s3://b/lake ingest:crawl --from 2026-11-01 --to 2026-11-03 --wait
  starter backfill --lake s3://b/lake --from 2026-11-01 --to 2026-11-30 --overlap buffer-all`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			lake, err := cli.LakeURL(g.lake)
			if err != nil {
				return err
			}
			if from == "" || to == "" {
				return cli.Usagef("no dates given; use --from and --to, e.g. --from 2026-11-01 --to 2026-11-03")
			}
			first, last, err := ingest.ParseDateRange(from, to)
			if err != nil {
				return cli.Usagef("--from %s --to %s: %w", from, to, err)
			}
			if _, err := overlapOf(overlap, 0); err != nil {
				return err
			}
			if wait && dryRun {
				return cli.Usagef("--dry-run starts nothing to wait for; use it without --wait")
			}
			ctx := cmd.Context()
			c, err := connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			f, err := g.toBackfill(ctx, c, lake, args)
			if err != nil {
				return err
			}
			b, err := newBackfill(ctx, c, f, first, last, overlap)
			if err != nil {
				return err
			}
			return g.backfill(cmd, c, b, wait, dryRun)
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "first `DATE`, e.g. 2026-11-01, 2026-11 for a month, or 2026-11-01T06 of hourly batches")
	f.StringVar(&to, "to", "", "last `DATE`, e.g. 2026-11-03")
	f.StringVar(&overlap, "overlap", "", "`POLICY` for runs beside each other, as in \"starter schedule create\" "+
		"(default: allow-all; buffer-all with --new-only and --replace)")
	f.BoolVar(&wait, "wait", false, "wait until all have ended, and say how; exit code 1 if one failed")
	f.BoolVar(&dryRun, "dry-run", false, "only say which dates would be ingested, and when they were due")
	return cmd
}

// toBackfill returns the schedule that args name, or the only one with dates.
func (g *global) toBackfill(ctx context.Context, c client.Client, lake string, args []string) (*found, error) {
	if len(args) > 0 {
		return findSchedule(ctx, c, lake, args[0])
	}
	every, err := all(ctx, c, lake)
	if err != nil {
		return nil, err
	}
	every = slices.DeleteFunc(every, func(f *found) bool { return !f.Dated() })
	switch len(every) {
	case 0:
		return nil, fmt.Errorf("no schedule of this lake has dates; create one of inputs such as s3://raw/crawl/{date}/: %s",
			cli.Typed("starter schedule create ingest"))
	case 1:
		return every[0], nil
	}
	names := every[0].Name
	for _, f := range every[1:] {
		names += ", " + f.Name
	}
	return nil, cli.Usagef("which schedule? These have dates: %s", names)
}

func (g *global) backfill(cmd *cobra.Command, c client.Client, b *backfill, wait, dryRun bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	late := ""
	if b.late > 0 {
		late = fmt.Sprintf("; %s not due yet and left out", cli.Plural(int64(b.late), "date")+map[bool]string{true: " is", false: " are"}[b.late == 1])
	}
	asJSON := func() error {
		return cli.WriteJSON(out, struct {
			ID   string        `json:"schedule_id"`
			Runs []runSchedule `json:"runs"`
			Late int           `json:"not_due_yet,omitempty"`
		}{b.id, b.runs, b.late}, true)
	}
	n := cli.Plural(int64(len(b.runs)), "batch")
	if dryRun {
		if g.json {
			return asJSON()
		}
		b.print(out)
		cli.Fprintf(out, "Would ingest %s by schedule %s%s\n", n, b.Name, late)
		return nil
	}
	if err := b.start(ctx, c); err != nil {
		return fmt.Errorf("backfill schedule %s: %w", b.Name, err)
	}
	if err := warnIdlePools(ctx, c, b.Lake, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if !wait {
		if g.json {
			return asJSON()
		}
		cli.Fprintf(out, "Ingesting %s, %s to %s, by schedule %s (%s)%s\nTo see its runs: %s\n", n, b.runs[0].Batch,
			b.runs[len(b.runs)-1].Batch, b.Name, policyOf(b.overlap).name, late, g.typedSchedule("show", b.found))
		return nil
	}
	err := b.wait(ctx, c, func(r *runSchedule) {
		if !g.json {
			cli.Fprintf(out, "%s  %s\n", r.Batch, r.outcome())
		}
	})
	if err != nil {
		return err
	}
	failed := b.failed()
	if g.json {
		err = asJSON()
	} else {
		cli.Fprintf(out, "%s of %s ingested%s\n", cli.Count(int64(len(b.runs)-failed)), n, late)
	}
	if failed > 0 && err == nil {
		err = fmt.Errorf("%s not ingested", cli.Plural(int64(failed), "batch"))
	}
	return err
}

// scheduleCommand returns the verb schedule. What can be scheduled is a line each.
func scheduleCommand(g *global) *cobra.Command {
	kinds := []scheduleKind{ingestKind(g), compactionKind(), garbageKind(), postgresKind(), seedKind(), frontierIngestKind()}
	return newScheduleCommand(g, append(kinds, checkKinds()...)...)
}

// ingestKind schedules ingests.
func ingestKind(g *global) scheduleKind {
	return scheduleKind{
		Use:   "ingest --lake URL --dataset NAME --cron '0 3 * * *' [flags] INPUT…",
		Short: "Ingest a dataset regularly, with the date in the names of the inputs or without",
		Long: `Each run lists the inputs again. The flags are those of "starter ingest".

Inputs, --manifest, --include, --exclude and --batch may have placeholders for the date
of a run:

  {date}  2026-11-20          {yyyy}  2026      {mm}  11      {dd}  20      {hh}  03

The date is that at which the run is due, in the zone of --time-zone, and not that at
which it starts: a run that is late, repeated or made up for by "starter backfill" has
its own date. --offset is added to it: with -1d (or -24h) the run of every day reads
what the day before has left. Days are days of the calendar, also where clocks change.

Each date is a batch, which a repetition replaces. Without --batch its name is the date,
as finely as the placeholders divide it: 2026-11, 2026-11-20 or 2026-11-20T03.

Without placeholders --batch NAME keeps one copy, which each run replaces. Without
--batch unchanged inputs change nothing, and changed inputs are added as another batch;
see --new-only and --replace.`,
		Example: `  starter schedule create ingest --lake s3://b/lake --dataset crawl --cron '0 3 * * *' --offset -1d 's3://raw/crawl/{date}/'
  starter schedule create ingest --lake s3://b/lake --dataset logs --name logs-hourly --cron '10 * * * *' --offset -1h \
    's3://raw/logs/{yyyy}/{mm}/{dd}/{hh}.cdx.gz'
  starter schedule create ingest --lake s3://b/lake --dataset seeds --batch latest --cron @daily s3://raw/seeds.txt`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			var f ingestFlags
			var offset string
			f.register(g, cmd)
			cmd.Flags().StringVar(&offset, "offset", "",
				"`DURATION` to add to the time at which a run is due, for the date: e.g. -1d for the day before, or -1h")
			return func(lake string, args []string) (*Work, error) {
				named := f.spec
				named.Inputs = args
				switch {
				case hasPlaceholders(&named):
					f.spec.Date, f.spec.DateOffset = ingest.ScheduledDate, offset
				case offset != "":
					return nil, cli.Usagef("--offset %s: no input has a placeholder such as {date}", offset)
				}
				in, err := f.input(g, args)
				if err != nil {
					return nil, err
				}
				w := &Work{Kind: "ingest", Lake: lake, Name: "ingest:" + in.Dataset, Workflow: workflows.IngestWorkflow, Input: &in}
				w.Ingest(&in.Spec)
				if f.datasetsFrom != "" {
					many := f.many(in)
					if w.Name, err = manyName(*many); err != nil {
						return nil, err
					}
					w.Workflow, w.Input = workflows.IngestManyWorkflow, many
					w.Ingest(&many.Spec.Spec)
				}
				return w, nil
			}
		},
	}
}
