package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// seedOptions are what the flags of a seed say.
type seedOptions struct {
	workflows.CrawlSeedInput
	domainsFile string
}

// seedCommand returns the verb, without what runs it and without --lake, and what its flags say.
func seedCommand() (*cobra.Command, *seedOptions) {
	o := &seedOptions{}
	cmd := &cobra.Command{
		Use:   "seed --lake URL --frontier URL [--dataset NAME…] [--domain DOMAIN…] [flags]",
		Short: "Add the published URLs of the lake to a frontier",
		Long: `Seed adds the URLs of a version of the lake to a frontier: all of them, or those of some
datasets, batches or domains. URLs that the frontier knows, because they wait or were
visited, stay as they are. What takedowns hide is not added.

The version is read once, in order, while crawlers work. If a worker dies, another goes
on where it was; URLs that are sent twice are known the second time. The same command
again adds what is new in the lake since.

With --refetch-after 30d a URL is not fetched before 30 days after the time of its row,
if it has one. With --update URLs that the frontier knows are scheduled again, too: with
both, a dataset of visits is fetched again as its visits grow old.`,
		Example: `  starter frontier seed --lake /data/lake --frontier http://127.0.0.1:7070 --dataset seeds --wait
  starter frontier seed --lake s3://b/lake --frontier http://frontier:7070 --domain example.com --priority 5
  starter frontier seed --lake s3://b/lake --frontier http://frontier:7070 --dataset visits --refetch-after 30d --update`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	frontierFlag(cmd, &o.Frontier)
	f.StringArrayVar(&o.Datasets, "dataset", nil, "seed only this dataset, by `NAME` or number; repeatable (default: all)")
	f.StringArrayVar(&o.Batches, "batch", nil, "seed only the batch of this `NAME`, of the one dataset; repeatable (default: all)")
	f.StringArrayVar(&o.Domains, "domain", nil, "seed only this registrable `DOMAIN`; repeatable (default: all)")
	f.StringVar(&o.domainsFile, "domains", "", "seed only the domains that this `FILE` has, one a line")
	f.StringVar(&o.Version, "version", "", "`VERSION` of the lake or its tag (default: the current one)")
	f.StringVar(&o.Crawl, "crawl", "", "`NAME` of the crawl in the frontier (default: DEFAULT)")
	f.Uint16Var(&o.Priority, "priority", 0, "`NUMBER` up to 65535: URLs of a queue with a higher one are fetched first")
	f.StringVar(&o.RefetchAfter, "refetch-after", "", "`DURATION` after the time of a row before which its URL is not fetched, e.g. 30d")
	f.BoolVar(&o.Update, "update", false, "schedule URLs that the frontier knows again")
	f.StringVar(&o.Deadline, "deadline", "", "give up after this `DURATION`, e.g. 6h (default: 7d)")
	return cmd, o
}

// check returns an error for flags that make no sense. It reads the file of domains.
func (o *seedOptions) check() error {
	if o.Frontier == "" {
		return cli.Usagef("--frontier is missing; use e.g. --frontier http://127.0.0.1:7070")
	}
	if o.domainsFile != "" {
		data, err := os.ReadFile(o.domainsFile)
		if err != nil {
			return fmt.Errorf("--domains: %w", err)
		}
		before := len(o.Domains)
		lines := bufio.NewScanner(strings.NewReader(string(data)))
		for lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
				o.Domains = append(o.Domains, line)
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("--domains %s: %w", o.domainsFile, err)
		}
		if len(o.Domains) == before {
			return cli.Usagef("--domains %s: the file has no domain", o.domainsFile)
		}
	}
	spec := o.SeedSpec
	return checkSpec(&spec, &spec.Lake, o.Deadline)
}

// startSeed starts the workflow. A lake seeds a frontier with any number of them at a time, each
// with its own datasets and domains.
func startSeed(ctx context.Context, c client.Client, in *workflows.CrawlSeedInput) (client.WorkflowRun, error) {
	what := strings.Join(slices.Concat([]string{in.Frontier, in.Crawl, in.Version}, in.Datasets, in.Batches, in.Domains), "\n")
	return startSingle(ctx, c, idOf("frontier-seed", what, in.Lake), "run of this seed", in.Lake, workflows.CrawlSeedWorkflow, *in)
}

// seedProgress asks a seed how far it is: see compaction.Progress.
func seedProgress(ctx context.Context, c client.Client, run client.WorkflowRun) (share float64, stage, line string, ok bool) {
	var p workflows.CrawlSeedProgress
	if !singleQuery(ctx, c, run, &p) {
		return 0, "", "", false
	}
	if p.Stage != workflows.StageSeed {
		return 0, p.Stage, "planning", true
	}
	var now feed.SeedProgress
	if heartbeat(ctx, c, run, "SeedFrontier", &now) && now.Rows > p.Progress.Rows {
		p.Progress = now
	}
	share = 0.02 + 0.98*float64(p.Progress.Rows)/float64(max(1, p.Rows))
	return min(share, 1), p.Stage, fmt.Sprintf("%s of %s read; %s added, %s known",
		cli.Count(p.Progress.Rows), cli.Plural(p.Rows, "row"), cli.Count(p.Progress.Added), cli.Count(p.Progress.Known)), true
}

// printSeed prints the result of a seed for people.
func printSeed(w io.Writer, r *workflows.CrawlSeedResult) {
	cli.Fprintf(w, "Sent %s of version %s to the frontier\n", cli.Plural(r.URLs, "URL"), r.Version)
	cli.Fprintf(w, "  added        %s\n  known        %s\n", cli.Count(r.Added), cli.Count(r.Known))
	if r.Updated > 0 {
		cli.Fprintf(w, "  updated      %s\n", cli.Count(r.Updated))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Rejected)) {
		cli.Fprintf(w, "  rejected     %s: %s\n", cli.Count(r.Rejected[reason]), reason)
	}
	if r.Restarts > 0 {
		cli.Fprintf(w, "It was interrupted %s: what it had added and not yet counted is among the known.\n", cli.Plural(int64(r.Restarts), "time"))
	}
}

// seedKind schedules seeds.
func seedKind() scheduleKind {
	return scheduleKind{
		Use:     "seed --lake URL --frontier URL --cron '0 5 * * *' [flags]",
		Short:   "Add the URLs of the current version to a frontier regularly",
		Long:    `Each run does what "starter frontier seed" does.`,
		Example: `  starter schedule create seed --lake s3://b/lake --frontier http://frontier:7070 --dataset seeds --cron '0 5 * * *'`,
		New: func(cmd *cobra.Command) func(string, []string) (*Work, error) {
			once, o := seedCommand()
			cmd.Flags().AddFlagSet(once.Flags())
			cmd.Args = cli.Args(cobra.NoArgs)
			return func(lake string, _ []string) (*Work, error) {
				o.Lake = lake
				return &Work{Kind: "seed", Lake: lake, Name: "seed",
					Workflow: workflows.CrawlSeedWorkflow, Input: &o.CrawlSeedInput}, o.check()
			}
		},
	}
}
