package retire

import (
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
)

// NewCommand returns "starter retire", or "starter restore", without what it runs, and the options
// that its flags set.
func NewCommand(restore bool) (*cobra.Command, *Options) {
	o := &Options{Restore: restore}
	cmd := &cobra.Command{
		Use:   "retire --lake URL --dataset NAME [--batch NAME…]",
		Short: "Take batches of a dataset, or all of it, out of the lake",
		Long: `Retire takes batches out of the lake: versions from the next one on do not have them,
and a dataset of which nothing is left is not in them. Versions before answer as they
did. "starter restore" brings the batches back until "starter gc" deletes them.

The batches are retired when the command has said so, even if the publish that it asks
for fails; the next one makes the version. An ingest of a retired batch that begins
later brings it back. One that began before, and still runs, does not. A batch of which
no ingest has finished is not retired with its dataset: cancel its ingest.`,
		Example: `  starter retire --lake /data/lake --dataset seeds --batch 2019-04 --dry-run
  starter retire --lake /data/lake --dataset seeds --batch 2019-04 --batch 2019-05 --wait
  starter retire --lake s3://b/lake --dataset crawl --no-publish`,
		Args: cli.Args(cobra.NoArgs),
	}
	if restore {
		cmd.Use = "restore --lake URL --dataset NAME [--batch NAME…]"
		cmd.Short = "Bring retired batches back"
		cmd.Long = `Restore brings batches back that "starter retire" took out of the lake: the content that
they had is in the next version again. Without --batch it restores all retired batches
of the dataset. If objects of one of them are missing or damaged, nothing is restored.`
		cmd.Example = `  starter restore --lake /data/lake --dataset seeds --wait
  starter restore --lake s3://b/lake --dataset crawl --batch 2026-11-20`
	}
	f := cmd.Flags()
	f.StringVar(&o.Dataset, "dataset", "", "`NAME` or id of the dataset")
	f.StringSliceVar(&o.Batches, "batch", nil, "`NAME` of a batch; may be repeated (default: all batches of the dataset)")
	f.BoolVar(&o.Wait, "wait", false, "wait for the version, and name it")
	f.BoolVar(&o.NoPublish, "no-publish", false, "leave the version to the next publish; needs no Temporal")
	f.BoolVar(&o.DryRun, "dry-run", false, "only say which batches it would be, with their rows and bytes; needs no Temporal")
	f.StringVar(&o.Deadline, "deadline", "", "give up the publish after this `DURATION`, e.g. 36h or 3d (default: 7d)")
	return cmd, o
}

// Check returns a *cli.UsageError if the options do not fit together.
func (o *Options) Check() error {
	switch {
	case o.Dataset == "":
		return cli.Usagef("no dataset given; use --dataset NAME")
	case o.Wait && (o.NoPublish || o.DryRun):
		return cli.Usagef("--wait waits for a publish; use it without --no-publish and --dry-run")
	}
	return nil
}
