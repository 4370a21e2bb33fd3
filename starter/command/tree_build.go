package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// buildOptions say what "starter tree build" does.
type buildOptions struct {
	always, never, again bool
	tempDir              string
	memory               int64
	json                 bool
}

// buildResult is what was done, as JSON.
type buildResult struct {
	Version string `json:"version"`
	Always  bool   `json:"always"`
	// Segments are all segments of the version.
	Segments []builtSegment `json:"segments"`
}

type builtSegment struct {
	Segment string `json:"segment"`
	// Built tells that the index was built now. Reason says why: missing, damaged or again.
	Built   bool    `json:"built"`
	Reason  string  `json:"reason,omitempty"`
	Domains int64   `json:"domains"`
	Nodes   int64   `json:"nodes"`
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds,omitempty"`
	// Error says why there is no sound index and what mends that.
	Error string `json:"error,omitempty"`
}

// newBuildCommand returns "starter tree build".
func newBuildCommand(g *global) *cobra.Command {
	var o buildOptions
	cmd := &cobra.Command{
		Use:   "build --lake URL",
		Short: "Build the index of path trees of segments that have none",
		Long: `Build makes the index of path trees for each segment of the current version that has
none, or a damaged one. With it trees are looked up in a few reads, however large the
domain; without it the rows of the domain are read. It reads the Parquet files and works
on this machine, not on workers, and may be stopped and started again.

With --always every later publish and compaction builds the indexes of its own segments;
--never ends that. Servers notice a new index within half a minute.`,
		Example: `  starter tree build --lake /data/lake
  starter tree build --lake s3://bucket/lake --always`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json = g.json; o.always && o.never {
				return cli.Usagef("--always and --never contradict each other")
			}
			if o.memory < 1 {
				return cli.Usagef("--memory is %d MiB; use at least 1", o.memory)
			}
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			err = o.run(cmd.Context(), store, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return lake.Explained(url, noVersion(cmd.Context(), store, err))
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.always, "always", false, "let publishes and compactions build the indexes of their segments")
	f.BoolVar(&o.never, "never", false, "let publishes and compactions build none; those that are there stay, and nothing is built now")
	f.BoolVar(&o.again, "again", false, "build sound indexes again too")
	f.StringVar(&o.tempDir, "temp-dir", "", "`FOLDER` for temporary files (default: the system's)")
	f.Int64Var(&o.memory, "memory", treebuild.DefaultMemoryBytes>>20, "memory for sorting, in `MIB`; more is sorted in temporary files")
	return cmd
}

func (o *buildOptions) run(ctx context.Context, store blob.Store, out, notes io.Writer) error {
	m, _, err := catalog.ReadManifest(ctx, store)
	if err != nil {
		return err
	}
	ref, err := m.Version("")
	if err != nil {
		return err
	}
	v, err := catalog.ReadVersion(ctx, store, ref)
	if err != nil {
		return err
	}
	if o.always || o.never {
		if err := treebuild.SetAlways(ctx, store, o.always); err != nil {
			return err
		}
	}
	result := buildResult{Version: v.ID, Segments: []builtSegment{}}
	if result.Always, err = treebuild.Always(ctx, store); err != nil {
		return err
	}
	failed := 0
	for i := range v.Segments {
		if o.never {
			break
		}
		s := &v.Segments[i]
		done, err := o.segment(ctx, store, s, notes)
		if errors.Is(err, codec.ErrCorrupt) {
			failed++
			done.Error = lake.Explain(store.URL(), err)
			cli.Fprintf(notes, "No index is built: %s\n", done.Error)
		} else if err != nil {
			return err
		}
		result.Segments = append(result.Segments, done)
	}
	if o.json {
		err = writeJSON(out, result)
	} else {
		err = o.report(out, &result)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %s have no index because of damage; mend the lake, then build again", failed,
			cli.Plural(int64(len(v.Segments)), "segment"))
	}
	return err
}

// segment builds the index of a segment if that is needed.
func (o *buildOptions) segment(ctx context.Context, store blob.Store, s *catalog.Segment, notes io.Writer) (builtSegment, error) {
	out := builtSegment{Segment: s.ID, Rows: s.Rows}
	state, info, why, err := treebuild.Inspect(ctx, store, s.ID)
	switch {
	case err != nil:
		return out, err
	case state == treebuild.Missing:
		out.Reason = "missing"
	case state == treebuild.Damaged:
		out.Reason = "damaged"
		cli.Fprintf(notes, "The index of segment %s is damaged and is built again: %v\n", s.ID, why)
	case o.again:
		out.Reason = "again"
	}
	if out.Reason != "" {
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		started, shown := time.Now(), time.Now()
		if info, err = treebuild.Build(ctx, store, ref, treebuild.Options{
			TempDir: o.tempDir, MemoryBytes: o.memory << 20,
			Progress: func(rows int64) {
				if time.Since(shown) > progressTime {
					shown = time.Now()
					cli.Fprintf(notes, "segment %s: %s of %s rows read\n", s.ID, cli.Count(rows), cli.Count(s.Rows))
				}
			},
		}); err != nil {
			return out, err
		}
		out.Built, out.Seconds = true, time.Since(started).Seconds()
	}
	out.fill(info)
	return out, nil
}

// progressTime is the time between two lines about progress.
const progressTime = 5 * time.Second

func (b *builtSegment) fill(i *pathtree.Info) {
	b.Domains, b.Nodes, b.Rows, b.Bytes = i.Domains, i.Nodes, i.Rows, i.Bytes
}

// report prints the result for people.
func (o *buildOptions) report(out io.Writer, r *buildResult) error {
	var rows [][]string
	for _, s := range r.Segments {
		what := "there"
		switch {
		case s.Error != "":
			what = "not built: damage"
		case s.Built:
			what = fmt.Sprintf("built in %.1f s (%s)", s.Seconds, s.Reason)
		}
		rows = append(rows, []string{s.Segment, cli.Count(s.Rows), cli.Count(s.Nodes), cli.Count(s.Bytes), what})
	}
	if len(rows) > 0 {
		if err := cli.Table(out, "SEGMENT >ROWS >NODES >BYTES INDEX", rows); err != nil {
			return err
		}
	}
	setting := "Publishes and compactions build no index of trees; --always changes that."
	if r.Always {
		setting = "Publishes and compactions build the indexes of trees of their segments."
	}
	cli.Fprintf(out, "%s\n", setting)
	return nil
}
