package command

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/frontier/snapshot"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
)

func newSnapshot() *cobra.Command {
	var frontierURL, to string
	var keep int
	var rate int64
	cmd := &cobra.Command{
		Use:   "snapshot --frontier URL --to URI",
		Short: "Copy a running frontier to a store",
		Long: `Snapshot copies a frontier to a folder or to S3 while it runs: the files of all its
processes, and what Redis has of it. Everything that was answered before the command
began is in the snapshot.

Only what the last snapshot in the store does not have is uploaded, in a stream that
leaves processors and disk to the frontier: see --rate. A command that is
killed leaves no snapshot; the next one deletes what it has left.`,
		Example: `  frontierd snapshot --frontier http://localhost:7070 --to s3://backup/frontier --keep 7`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 0 || rate < 0 {
				return cli.Usagef("--keep %d, --rate %d: they are not negative", keep, rate)
			}
			if rate > math.MaxInt64>>20 {
				return cli.Usagef("--rate %d: the most is %d; 0 is no bound", rate, int64(math.MaxInt64>>20))
			}
			if !strings.HasPrefix(frontierURL, "http://") && !strings.HasPrefix(frontierURL, "https://") {
				return cli.Usagef("--frontier: a URL such as http://localhost:7070")
			}
			store, err := blob.Open(cmd.Context(), to)
			if err != nil {
				return err
			}
			note := func(text string) { cli.Fprintf(cmd.ErrOrStderr(), "%s\n", text) }
			began := time.Now()
			t, err := snapshot.Take(cmd.Context(), store, snapshot.TakeOptions{Frontier: frontierURL, Keep: keep, Rate: rate << 20, Note: note})
			if t != nil {
				cli.Fprintf(cmd.OutOrStdout(), "%s: %d files of %d shards, %s, %s of it copied, in %v\n",
					t.Manifest.ID, len(t.Manifest.Files), t.Manifest.Shards, cli.Size(t.Manifest.Bytes()), cli.Size(t.Copied),
					time.Since(began).Round(time.Millisecond))
				if t.Deleted+t.DeletedObjects > 0 {
					cli.Fprintf(cmd.OutOrStdout(), "deleted %d old snapshots and %d objects\n", t.Deleted, t.DeletedObjects)
				}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&frontierURL, "frontier", "", "`URL` of one of the frontier's processes, as http://localhost:7070")
	f.StringVar(&to, "to", "", "`URI` of the store: a folder, or s3://bucket/prefix")
	f.IntVar(&keep, "keep", 0, "delete all but the newest `N` snapshots; 0 keeps all")
	f.Int64Var(&rate, "rate", 64, "`MIB` to copy a second at most; 0 is no bound")
	_ = cmd.MarkFlagRequired("frontier")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

func newRestore() *cobra.Command {
	var from, dir, redisFlag, name, id string
	var check, list bool
	cmd := &cobra.Command{
		Use:   "restore --from URI --data DIR --redis ADDR",
		Short: "Fill an empty folder and Redis from a snapshot",
		Long: `Restore fills a folder and Redis from a snapshot; frontierd then serves what was answered
before the snapshot began. It refuses a folder that is not empty and a name that Redis
has. It checks every byte before Redis gets any. It may be killed: until it has ended,
frontierd refuses both, and the same command begins again.

URLs that were leased stay leased for as long as their leases last.`,
		Example: `  frontierd restore --from s3://backup/frontier --data /data/frontier --redis 127.0.0.1:6379
  frontierd restore --from s3://backup/frontier --check`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			if !check && !list && (dir == "" || redisFlag == "") {
				return cli.Usagef("--data and --redis are needed, unless --check or --list is given")
			}
			store, err := blob.Open(ctx, from)
			if err != nil {
				return err
			}
			if list {
				ids, err := snapshot.IDs(ctx, store)
				for _, id := range ids {
					cli.Fprintf(cmd.OutOrStdout(), "%s\n", id)
				}
				return err
			}
			m, err := snapshot.Read(ctx, store, id)
			if err != nil {
				return err
			}
			if check {
				wrong, err := snapshot.Damaged(ctx, store, m)
				if err == nil && len(wrong) == 0 {
					cli.Fprintf(cmd.OutOrStdout(), "%s: %d files, %s, nothing is damaged\n", m.ID, len(m.Files), cli.Size(m.Bytes()))
				}
				return errors.Join(append(wrong, err)...)
			}
			client, _, err := connect(ctx, redisFlag)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, client.Close()) }()
			if err := snapshot.Restore(ctx, store, m, snapshot.RestoreOptions{Dir: dir, Name: name, Redis: client}); err != nil {
				return fmt.Errorf("restore snapshot %s: %w", m.ID, err)
			}
			cli.Fprintf(cmd.OutOrStdout(), "%s: restored %s in %d shards; start frontierd with --shards %d\n", m.ID, cli.Size(m.Bytes()), m.Shards, m.Shards)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`URI` of the store: a folder, or s3://bucket/prefix")
	f.StringVar(&id, "snapshot", "", "`ID` of the snapshot (the newest if missing)")
	f.StringVar(&dir, "data", "", "`DIR` to fill")
	f.StringVar(&redisFlag, "redis", "", redisHelp)
	f.StringVar(&name, "name", "frontier", "`NAME` of the frontier in Redis")
	f.BoolVar(&check, "check", false, "only read the snapshot, and say what of it is damaged")
	f.BoolVar(&list, "list", false, "only list the snapshots")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}
