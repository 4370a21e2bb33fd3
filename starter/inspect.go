package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// inspecting makes a verb that looks into a lake without Temporal.
func inspecting(g *global, use, short string, run func(cmd *cobra.Command, store blob.Store, url string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " --lake URL",
		Short: short,
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := lakeIsThere(cmd.Context(), store, url); err != nil {
				return err
			}
			return run(cmd, store, url)
		},
	}
	g.lakeFlag(cmd)
	return cmd
}

// lakeIsThere tells a lake in which nothing is published yet from a place where there is none, such as a
// mistyped one: the registry is the first object of a lake.
func lakeIsThere(ctx context.Context, store blob.Store, url string) error {
	_, err := store.Stat(ctx, lake.RegistryKey)
	if errors.Is(err, blob.ErrNotExist) {
		if err := lake.CheckPresent(ctx, store, lake.RegistryKey); err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return err
		} else if err != nil {
			return nil // what is missing is for the verb to say
		}
		return fmt.Errorf("no lake at %s: nothing was ever ingested there", url)
	}
	return err
}

// openVersion reads the manifest and one of its versions, the current one for "".
func openVersion(ctx context.Context, store blob.Store, id string) (*manifest.Manifest, *manifest.Version, error) {
	m, _, err := manifest.Read(ctx, store)
	if err != nil {
		return nil, nil, fmt.Errorf("lake %s: %w", store.URL(), err)
	}
	ref, err := m.Version(id)
	if err != nil {
		return nil, nil, fmt.Errorf("lake %s: %w", store.URL(), err)
	}
	v, err := manifest.ReadVersion(ctx, store, ref)
	return m, v, absent(ref.Object, err)
}

// lostManifest tells a lake whose manifest is missing although versions were written, by a *codec.CorruptError, from one in which nothing
// is published yet.
func lostManifest(ctx context.Context, store blob.Store) error {
	id, err := manifest.Newest(ctx, store)
	if err != nil || id == "" {
		return err
	}
	return codec.Corrupt(manifest.Key, "object", -1, "one that exists, since version "+id+" was written", `none; "starter publish" writes a new one`)
}

// lakeStatus is what `status --json` prints.
type lakeStatus struct {
	Lake        string            `json:"lake"`
	Version     string            `json:"version,omitempty"`
	Generation  uint64            `json:"generation,omitempty"`
	Counts      *manifest.Counts  `json:"counts,omitempty"`
	Unpublished []unpublished     `json:"unpublished"`
	TaskQueues  map[string]string `json:"task_queues"`
	// Damage tells that the manifest is lost.
	Damage string `json:"damage,omitempty"`
}

// unpublished is a finished batch that the current version lacks.
type unpublished struct {
	Dataset string `json:"dataset"`
	Batch   string `json:"batch"`
	Digest  string `json:"digest"`
	// Damage tells why no publish can take it.
	Damage string `json:"damage,omitempty"`
}

func statusCommand(g *global) *cobra.Command {
	cmd := inspecting(g, "status", "Show the current version, what waits to be published, and the task queues", func(cmd *cobra.Command, store blob.Store, url string) error {
		s := lakeStatus{Lake: url, Unpublished: []unpublished{}, TaskQueues: map[string]string{}}
		for _, pool := range activities.Pools {
			s.TaskQueues[pool] = activities.TaskQueue(url, pool)
		}
		m, v, err := openVersion(cmd.Context(), store, "")
		if err != nil && !errors.Is(err, manifest.ErrNoVersion) {
			return err
		}
		if v != nil {
			s.Version, s.Generation, s.Counts = v.ID, m.Generation, &v.Counts
		} else if err := lostManifest(cmd.Context(), store); errors.Is(err, codec.ErrCorrupt) {
			s.Damage = err.Error()
		} else if err != nil {
			return err
		}
		if s.Unpublished, err = findUnpublished(cmd.Context(), store, v); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if g.json {
			return printJSON(out, s)
		}
		fmt.Fprintf(out, "Lake        %s\n", url)
		switch {
		case s.Damage != "":
			fmt.Fprintf(out, "Version     %s\n", s.Damage)
		case v == nil:
			fmt.Fprintln(out, "Version     none published yet")
		default:
			c := v.Counts
			fmt.Fprintf(out, "Version     %s (generation %d)\n", v.ID, m.Generation)
			fmt.Fprintf(out, "Holds       %s of %s in %s, %s, %s of Parquet\n", plural(c.Rows, "row"), plural(int64(c.Datasets), "dataset"),
				plural(int64(c.Batches), "batch"), plural(c.Parts, "part"), size(c.PartBytes))
			fmt.Fprintf(out, "Index       %s, %s\n", plural(int64(c.Segments), "segment"), size(c.IndexBytes))
		}
		fmt.Fprintf(out, "Waiting     %s to be published\n", plural(int64(len(s.Unpublished)), "finished batch"))
		for _, u := range s.Unpublished {
			if u.Damage != "" {
				fmt.Fprintf(out, "            %s %s is damaged: %s\n", u.Dataset, u.Batch, u.Damage)
				continue
			}
			fmt.Fprintf(out, "            %s %s\n", u.Dataset, u.Batch)
		}
		fmt.Fprintf(out, "Task queues %s\n", activities.TaskQueue(url, "{"+strings.Join(activities.Pools, ",")+"}"))
		return nil
	})
	cmd.Long = `Status prints the current version and how much it holds, the finished batches that it lacks ("starter publish"
takes them), and the names of the lake's task queues in Temporal. It asks the lake alone: running workflows are
seen in Temporal's UI, or with "temporal workflow list".`
	cmd.Example = `  starter status --lake /data/lake
  starter status --lake s3://b/lake --json`
	return cmd
}

// findUnpublished compares the registry's finished batches with a version.
func findUnpublished(ctx context.Context, store blob.Store, v *manifest.Version) ([]unpublished, error) {
	datasets, err := lake.Registry(ctx, store)
	if err != nil {
		return nil, err
	}
	if len(datasets) == 0 {
		if err := lake.CheckPresent(ctx, store, lake.RegistryKey); err != nil {
			return nil, err
		}
	}
	found := []unpublished{}
	for _, d := range datasets {
		current, err := lake.CurrentBatches(ctx, store, d.ID)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(current)) {
			if v != nil {
				if b, ok := v.FindBatch(d.ID, name); ok && b.Digest == current[name] {
					continue
				}
			}
			u := unpublished{Dataset: d.Name, Batch: name, Digest: current[name]}
			var damage *postings.DamageError
			_, err := indexbuild.CheckBatch(ctx, store, segment.BatchRef{DatasetID: d.ID, Batch: name, Digest: u.Digest}, false)
			if errors.As(err, &damage) {
				u.Damage = damage.Err.Error()
			} else if err != nil {
				return nil, err
			}
			found = append(found, u)
		}
	}
	return found, nil
}

// States of a dataset, as `datasets` prints them.
const (
	// statePublished: the current version holds rows of it.
	statePublished = "published"
	// stateWaiting: it has finished batches, and the current version holds none.
	stateWaiting = "waiting"
	// stateEmpty: it has a name and an id and no finished batch: its first ingest runs, failed or was cancelled.
	stateEmpty = "empty"
)

// listed is one dataset of `datasets --json`.
type listed struct {
	manifest.Dataset
	State string `json:"state"`
}

func datasetsCommand(g *global) *cobra.Command {
	cmd := inspecting(g, "datasets", "List the datasets of a lake", func(cmd *cobra.Command, store blob.Store, _ string) error {
		registered, err := lake.Registry(cmd.Context(), store)
		if err != nil {
			return err
		}
		_, v, err := openVersion(cmd.Context(), store, "")
		if err != nil && !errors.Is(err, manifest.ErrNoVersion) {
			return err
		}
		all := make([]listed, 0, len(registered))
		for _, d := range registered {
			if v != nil {
				if live, ok := v.Dataset(d.ID); ok {
					all = append(all, listed{*live, statePublished})
					continue
				}
			}
			row := listed{manifest.Dataset{ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence}, stateEmpty}
			finished, err := lake.CurrentBatches(cmd.Context(), store, d.ID)
			if err != nil {
				return err
			}
			if len(finished) > 0 {
				row.State = stateWaiting
			}
			all = append(all, row)
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), all)
		}
		rows := make([][]string, 0, len(all))
		for _, d := range all {
			rows = append(rows, []string{fmt.Sprint(d.ID), d.Name, d.State, count(int64(d.Batches)), count(d.Rows), size(d.Bytes), d.Licence})
		}
		return table(cmd.OutOrStdout(), ">ID NAME STATE >BATCHES >ROWS >PARQUET LICENCE", rows)
	})
	cmd.Long = `Datasets lists every registered dataset with what the current version holds of it. A dataset is registered,
and its id given for ever, when its first ingest begins. Its state is

  published   the current version holds it
  waiting     it has finished batches, and the next publish takes them
  empty       it has no finished batch: its first ingest runs, failed or was cancelled

Ingest into an empty dataset whenever its cause is mended: it keeps its id. The server lists published ones only.`
	return cmd
}

func versionsCommand(g *global) *cobra.Command {
	var parts bool
	var version string
	cmd := inspecting(g, "versions", "List published versions, or the Parquet files of one", func(cmd *cobra.Command, store blob.Store, lakeURL string) error {
		m, v, err := openVersion(cmd.Context(), store, version)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if parts {
			paths, err := partPaths(cmd.Context(), store, lakeURL, v)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(out, paths)
			}
			for _, p := range paths {
				fmt.Fprintln(out, p)
			}
			return nil
		}
		if g.json {
			return printJSON(out, m)
		}
		rows := make([][]string, 0, len(m.Versions))
		for _, ref := range m.Versions {
			v, err := manifest.ReadVersion(cmd.Context(), store, ref)
			if err != nil {
				return err
			}
			mark := ""
			if ref.ID == m.CurrentVersion {
				mark = "current"
			}
			rows = append(rows, []string{v.ID, fmt.Sprint(v.Counts.Datasets), fmt.Sprint(v.Counts.Batches), fmt.Sprint(v.Counts.Segments), count(v.Counts.Rows), mark})
		}
		return table(out, "VERSION >DATASETS >BATCHES >SEGMENTS >ROWS STATE", rows)
	})
	cmd.Long = `Versions lists what was published, the oldest first. Every publish makes one; requests and cursors name it, and
the server answers from any of them. With --parts it prints the Parquet files of a version instead, one a line: give
an engine this list, since the folders also hold files of replaced batches and of batches not yet published.`
	cmd.Example = `  starter versions --lake s3://b/lake
  starter versions --lake /data/lake --parts --json`
	cmd.Flags().BoolVar(&parts, "parts", false, "list the version's Parquet files, for read_parquet([…]) in DuckDB; --json prints an array")
	cmd.Flags().StringVar(&version, "version-id", "", "the `VERSION` (default: the current one)")
	return cmd
}

// partPaths lists the Parquet files of a version in its order, as an engine on this machine opens them.
func partPaths(ctx context.Context, store blob.Store, lakeURL string, v *manifest.Version) ([]string, error) {
	root := lakeURL
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		root = u.Path
	}
	perBatch := make([][]string, len(v.Batches))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, live := range v.Batches {
		group.Go(func() error {
			data, _, err := store.Get(ctx, live.Record())
			if err != nil {
				return fmt.Errorf("batch %s of dataset %d: %w", live.Batch, live.DatasetID, err)
			}
			b, err := lake.DecodeBatch(data, live.Record())
			if err != nil {
				return err
			}
			for _, p := range b.Parts {
				perBatch[i] = append(perBatch[i], root+"/"+p.Key)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	paths := []string{}
	for _, p := range perBatch {
		paths = append(paths, p...)
	}
	return paths, nil
}
