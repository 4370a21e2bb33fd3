package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish/lakecheck"
)

// inspectCommand returns a verb that reads a lake without Temporal. The lake must exist.
func inspectCommand(
	g *global, use, short string, run func(cmd *cobra.Command, store blob.Store, url string) error,
) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " --lake URL",
		Short: short,
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			return lake.Explained(url, run(cmd, store, url))
		},
	}
	g.lakeFlag(cmd)
	return cmd
}

// errNoLake means that there is no lake yet.
var errNoLake = errors.New("no lake")

// requireLake returns an error if there is no lake at url, for example because url is mistyped. A
// lake in which nothing is published yet is a lake: the registry is the first object that an ingest
// writes.
func requireLake(ctx context.Context, store blob.Store, url string) error {
	_, err := store.Stat(ctx, lake.RegistryKey)
	if errors.Is(err, blob.ErrNotExist) {
		switch err := catalog.CheckRegistryPresent(ctx, store); {
		case errors.Is(err, codec.ErrCorrupt):
			return nil // a lake whose registry is lost: the verb reports it
		case err != nil:
			return err
		}
		return fmt.Errorf("%w at %s: nothing was ever ingested there; check --lake", errNoLake, url)
	}
	return err
}

// openVersion reads the manifest and one of its versions, the current version for "".
func openVersion(ctx context.Context, store blob.Store, id string) (*catalog.Manifest, *catalog.Version, error) {
	m, _, err := catalog.ReadManifest(ctx, store)
	if err = noVersion(ctx, store, err); err != nil {
		return nil, nil, fmt.Errorf("lake %s: %w", store.URL(), err)
	}
	ref, err := m.Version(id)
	if err != nil {
		return nil, nil, fmt.Errorf("lake %s: %w", store.URL(), err)
	}
	v, err := catalog.ReadVersion(ctx, store, ref)
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(ref.Object, "object", -1, "one that exists", "none")
	}
	return m, v, err
}

// noVersion returns err, or that the manifest is lost if err says that no version is published yet
// although there are some.
func noVersion(ctx context.Context, store blob.Store, err error) error {
	if errors.Is(err, catalog.ErrNoVersion) {
		return cmp.Or(catalog.CheckManifestPresent(ctx, store), err)
	}
	return err
}

// lakeStatus is what "status --json" prints.
type lakeStatus struct {
	Lake       string          `json:"lake"`
	Version    string          `json:"version,omitempty"`
	Generation uint64          `json:"generation,omitempty"`
	Counts     *catalog.Counts `json:"counts,omitempty"`
	// DeadRows are rows of DeadSegments of the version's segments that the version does not have.
	DeadRows     int64             `json:"dead_rows,omitempty"`
	DeadSegments int               `json:"dead_segments,omitempty"`
	Unpublished  []unpublished     `json:"unpublished"`
	TaskQueues   map[string]string `json:"task_queues"`
	// Damage is set if the manifest or the current version is lost.
	Damage string `json:"damage,omitempty"`
	// Running are the first of RunningWorkflows workflows that have not ended. IdlePools are the
	// pools that no worker polls. TemporalError says why these are not known.
	Running          []running `json:"running,omitempty"`
	RunningWorkflows int64     `json:"running_workflows,omitempty"`
	IdlePools        []string  `json:"idle_pools,omitempty"`
	TemporalError    string    `json:"temporal_error,omitempty"`
	// Schedules is nil if the lake has none, or if that is not known.
	Schedules *overview `json:"schedules,omitempty"`
}

// unpublished is a finished batch that the current version lacks, or a retired one that it has. If
// a document of what waits is damaged, it is not known which batches it names, and Batch is "".
type unpublished struct {
	Dataset string `json:"dataset"`
	Batch   string `json:"batch"`
	Digest  string `json:"digest"`
	// Damage says why no publish can include the batch.
	Damage string `json:"damage,omitempty"`
	// Retired tells that the version has the batch, and the next one will not.
	Retired bool `json:"retired,omitempty"`

	id uint32 // of the dataset
}

func statusCommand(g *global) *cobra.Command {
	var showRunning bool
	cmd := &cobra.Command{
		Use:   "status --lake URL",
		Short: "Show the current version, what waits to be published, and the task queues",
		Long: `Status prints the current version and how much it holds, the finished batches that
the next "starter publish" adds to it, the retired ones that it takes out, and the
names of the lake's task queues in Temporal. If Temporal answers, it also says how many
workflows of the lake are running, how many of them wait, which pools have no worker, and
which schedule is due next. With --running it names the workflows, and what they wait for
since when, even if the lake cannot be read; then Temporal has to answer.`,
		Example: `  starter status --lake /data/lake
  starter status --lake s3://b/lake --running --json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			s := lakeStatus{Lake: url, Unpublished: []unpublished{}, TaskQueues: map[string]string{}}
			for _, pool := range activities.Pools {
				s.TaskQueues[pool] = activities.TaskQueue(url, pool)
			}
			unread := lake.Explained(url, s.read(cmd.Context(), store))
			if !showRunning && unread != nil && !errors.Is(unread, errNoLake) {
				return unread
			}
			if err := s.ask(cmd.Context()); err != nil {
				if showRunning {
					return errors.Join(unread, err)
				}
				s.TemporalError = err.Error()
			}
			if s.RunningWorkflows > 0 && errors.Is(unread, errNoLake) {
				unread = nil // the first ingest has not begun
			}
			if !showRunning && unread != nil {
				return unread
			}
			if g.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), s), unread)
			}
			s.print(cmd.OutOrStdout(), unread == nil, showRunning)
			return unread
		},
	}
	g.lakeFlag(cmd)
	cmd.Flags().BoolVar(&showRunning, "running", false, "list each running workflow and what it waits for")
	return cmd
}

// read reads what the lake says.
func (s *lakeStatus) read(ctx context.Context, store blob.Store) error {
	if err := requireLake(ctx, store, s.Lake); err != nil {
		return err
	}
	m, v, err := openVersion(ctx, store, "")
	if errors.Is(err, catalog.ErrNoVersion) {
		err = catalog.CheckManifestPresent(ctx, store)
	}
	switch {
	case errors.Is(err, codec.ErrCorrupt):
		s.Damage = lake.Explain(store.URL(), err)
	case err != nil:
		return err
	case v != nil:
		s.Version, s.Generation, s.Counts = v.ID, m.Generation, &v.Counts
		s.DeadRows, s.DeadSegments = v.DeadRows()
		if err := subtract(ctx, store, m, v); err != nil {
			return err
		}
	}
	s.Unpublished, err = findUnpublished(ctx, store, v)
	return err
}

// print prints the status for people, without the lake if that was not read.
func (s *lakeStatus) print(out io.Writer, read, showRunning bool) {
	cli.Fprintf(out, "Lake        %s\n", s.Lake)
	if read {
		s.printLake(out)
	}
	cli.Fprintf(out, "Task queues %s\n", activities.TaskQueue(s.Lake, "{"+strings.Join(activities.Pools, ",")+"}"))
	s.printRunning(out, showRunning)
	if s.Schedules != nil {
		cli.Fprintf(out, "Schedules   %s\n", s.Schedules)
	}
}

// askTimeout is how long status waits for a Temporal that it does not need.
const askTimeout = 3 * time.Second

// ask asks Temporal what runs for the lake.
func (s *lakeStatus) ask(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	c, _, err := dial.Temporal(ctx, log.NewStructuredLogger(quiet), 0, nil, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if s.Running, s.RunningWorkflows, err = findRunning(ctx, c, s.Lake); err != nil {
		return err
	}
	if s.Schedules, err = look(ctx, c, s.Lake); err != nil {
		return err
	}
	s.IdlePools, err = idlePools(ctx, c, s.Lake)
	return err
}

func (s *lakeStatus) printLake(out io.Writer) {
	switch c := s.Counts; {
	case s.Damage != "":
		cli.Fprintf(out, "Version     %s\n", s.Damage)
	case c == nil:
		cli.Fprintf(out, "Version     none published yet\n")
	default:
		cli.Fprintf(out, "Version     %s (generation %d)\n", s.Version, s.Generation)
		cli.Fprintf(out, "Holds       %s of %s in %s, %s, %s of Parquet\n", plural(c.Rows, "row"),
			plural(int64(c.Datasets), "dataset"), plural(int64(c.Batches), "batch"),
			plural(c.Parts, "part"), size(c.PartBytes))
		cli.Fprintf(out, "Index       %s, %s\n", plural(int64(c.Segments), "segment"), size(c.IndexBytes))
		if s.DeadRows > 0 {
			cli.Fprintf(out, "            %s of batches that were taken out stay in %s until a compaction\n",
				plural(s.DeadRows, "row"), plural(int64(s.DeadSegments), "segment"))
		}
	}
	s.printWaiting(out)
}

// shownWaiting is how many waiting batches status lists in its text for people.
const shownWaiting = 20

// printWaiting prints the waiting batches, damaged ones first.
func (s *lakeStatus) printWaiting(out io.Writer) {
	unknown := map[string][]string{} // datasets by damage
	var waiting []unpublished
	retired := int64(0)
	for _, u := range s.Unpublished {
		if u.Batch == "" {
			unknown[u.Damage] = append(unknown[u.Damage], u.Dataset)
			continue
		}
		if u.Retired {
			retired++
		}
		waiting = append(waiting, u)
	}
	cli.Fprintf(out, "Waiting     %s to be published", plural(int64(len(waiting))-retired, "finished batch"))
	if retired > 0 {
		cli.Fprintf(out, ", %s to be left out", plural(retired, "retired batch"))
	}
	cli.Fprintf(out, "\n")
	for _, damage := range slices.Sorted(maps.Keys(unknown)) {
		names := unknown[damage]
		const most = 3
		text := strings.Join(names[:min(len(names), most)], ", ")
		if more := len(names) - most; more > 0 {
			text += fmt.Sprintf(" and %s", plural(int64(more), "other dataset"))
		}
		cli.Fprintf(out, "            batches of %s: %s\n", text, damage)
	}
	slices.SortStableFunc(waiting, func(a, b unpublished) int {
		return cmp.Compare(min(len(b.Damage), 1), min(len(a.Damage), 1))
	})
	for _, u := range waiting[:min(len(waiting), shownWaiting)] {
		if u.Damage != "" {
			cli.Fprintf(out, "            %s %s is damaged: %s\n", u.Dataset, u.Batch, u.Damage)
		} else if u.Retired {
			cli.Fprintf(out, "            %s %s is retired\n", u.Dataset, u.Batch)
		} else {
			cli.Fprintf(out, "            %s %s\n", u.Dataset, u.Batch)
		}
	}
	if more := len(waiting) - shownWaiting; more > 0 {
		cli.Fprintf(out, "            and %s; --json lists all\n", plural(int64(more), "other batch"))
	}
}

// findWaiting returns what waits and a version, which may be nil, lacks.
func findWaiting(ctx context.Context, store blob.Store, v *catalog.Version) ([]catalog.PendingBatch, []catalog.DamagedDocument, error) {
	state, err := catalog.ReadWaiting(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	state.Version = v
	waiting, err := state.Unpublished(ctx)
	return waiting, state.Damaged, err
}

// findUnpublished returns the finished batches that a version, which may be nil, lacks, and those
// that are retired and that it has.
func findUnpublished(ctx context.Context, store blob.Store, v *catalog.Version) ([]unpublished, error) {
	waiting, damaged, err := findWaiting(ctx, store, v)
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, d := range damaged {
		ids = append(ids, d.DatasetID)
	}
	for _, b := range waiting {
		ids = append(ids, b.DatasetID)
	}
	datasets, err := catalog.FindDatasets(ctx, store, ids)
	if err != nil {
		return nil, err
	}
	found := []unpublished{}
	for _, d := range damaged {
		found = append(found, unpublished{
			Dataset: cmp.Or(datasets[d.DatasetID].Name, "several datasets"), id: d.DatasetID, Damage: lake.Explain(store.URL(), d.Err),
		})
	}
	for _, b := range waiting {
		d, named := datasets[b.DatasetID]
		if !named {
			continue
		}
		u := unpublished{Dataset: d.Name, Batch: b.Batch, Digest: b.Digest, Retired: b.Retired, id: d.ID}
		if b.Retired {
			found = append(found, u)
			continue
		}
		var damage *postings.DamageError
		ref := segment.BatchRef{DatasetID: d.ID, Batch: b.Batch, Digest: b.Digest}
		_, err := lakecheck.Batch(ctx, store, ref)
		if errors.As(err, &damage) {
			u.Damage = lakecheck.Reason(ctx, store, ref, err)
		} else if err != nil {
			return nil, err
		}
		found = append(found, u)
	}
	return found, nil
}

// States of a dataset, as "datasets" prints them.
const (
	// statePublished is a dataset in the current version.
	statePublished = "published"
	// stateWaiting is a dataset with finished batches, none of which is in the current version.
	stateWaiting = "waiting"
	// stateRunning is a dataset without a finished batch, whose first ingest runs.
	stateRunning = "running"
	// stateRetired is a dataset whose batches are all retired.
	stateRetired = "retired"
	// stateDamaged is a dataset of which nothing is published, and of which a document of what
	// waits is damaged.
	stateDamaged = "damaged"
)

// listed is one dataset of "datasets --json".
type listed struct {
	catalog.Dataset
	State string `json:"state"`
}

func datasetsCommand(g *global) *cobra.Command {
	const short = "List the datasets of a lake"
	cmd := inspectCommand(g, "datasets", short, func(cmd *cobra.Command, store blob.Store, _ string) error {
		registered, err := catalog.Datasets(cmd.Context(), store)
		if err != nil {
			return err
		}
		m, v, err := openVersion(cmd.Context(), store, "")
		if err != nil && !errors.Is(err, catalog.ErrNoVersion) {
			return err
		}
		hidden, err := hidden(cmd.Context(), store, m, v)
		if err != nil {
			return err
		}
		ids := make([]uint32, len(registered))
		for i := range registered {
			ids[i] = registered[i].ID
		}
		published, err := v.FindDatasets(cmd.Context(), ids)
		if err != nil {
			return err
		}
		states, err := unpublishedStates(cmd.Context(), store, v)
		if err != nil {
			return err
		}
		all := make([]listed, 0, len(registered))
		for _, d := range registered {
			if live, ok := published[d.ID]; ok {
				live.Rows -= hidden[d.ID]
				all = append(all, listed{live, statePublished})
				continue
			}
			row := listed{State: states[d.ID]}
			row.ID, row.Name, row.Title, row.Source, row.Licence = d.ID, d.Name, d.Title, d.Source, d.Licence
			if row.State != "" { // else an ingest has failed, and left nothing but the name
				all = append(all, row)
			}
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), all)
		}
		rows := make([][]string, 0, len(all))
		for _, d := range all {
			rows = append(rows, []string{fmt.Sprint(d.ID), d.Name, d.State,
				count(int64(d.Batches)), count(d.Rows), size(d.Bytes), d.Licence})
		}
		return table(cmd.OutOrStdout(), ">ID NAME STATE >BATCHES >ROWS >PARQUET LICENCE", rows)
	})
	cmd.Long = `Datasets lists the datasets and how much of each the current version holds. A dataset
gets its id when its first ingest begins; the id never changes. The state of a dataset
is one of

  published   the current version holds it
  waiting     it has finished batches, which the next publish includes
  running     its first ingest runs
  retired     "starter retire" took all its batches out of the lake
  damaged     what waits of it is damaged; "starter rebuild" says what is lost

A dataset whose first ingest has failed is not listed. The read server lists published
datasets only.`
	cmd.Example = `  starter datasets --lake s3://b/lake
  starter datasets --lake /data/lake --json`
	return cmd
}

// unpublishedStates returns the states of the datasets of which v has nothing.
func unpublishedStates(ctx context.Context, store blob.Store, v *catalog.Version) (map[uint32]string, error) {
	states := map[uint32]string{}
	running, err := many.Running(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, b := range running {
		states[b.DatasetID] = stateRunning
	}
	for g, err := range v.Gone(ctx, 0) {
		if err != nil {
			return nil, err
		}
		states[g.DatasetID] = stateRetired
	}
	waiting, damaged, err := findWaiting(ctx, store, v)
	if err != nil {
		return nil, err
	}
	for _, b := range waiting {
		if b.Retired {
			states[b.DatasetID] = cmp.Or(states[b.DatasetID], stateRetired)
		}
	}
	for _, b := range waiting {
		if !b.Retired {
			states[b.DatasetID] = stateWaiting
		}
	}
	for _, d := range damaged {
		states[d.DatasetID] = stateDamaged
	}
	return states, nil
}

func versionsCommand(g *global) *cobra.Command {
	var parts, sql bool
	var version string
	const short = "List published versions, or the Parquet files of one"
	cmd := inspectCommand(g, "versions", short, func(cmd *cobra.Command, store blob.Store, lakeURL string) error {
		if cmd.Flags().Changed("version-id") && (!parts || version == "") {
			return cli.Usagef("--version-id says of which version to list the files; use --parts --version-id VERSION")
		}
		if sql && (!parts || g.json) {
			return cli.Usagef("--sql is a form of --parts; use --parts --sql, without --json")
		}
		m, v, err := openVersion(cmd.Context(), store, version)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if parts {
			files, err := ReadFiles(cmd.Context(), store, lakeURL, v)
			switch {
			case err != nil:
				return err
			case sql:
				return files.WriteView(cmd.Context(), out, v)
			case len(files.Dead) > 0:
				cli.Fprintf(cmd.ErrOrStderr(), "Some of these files also hold rows of batches that were taken out since; "+
					"the view of --sql leaves them out.\n")
			}
			if g.json {
				return printJSON(out, files.Paths)
			}
			for _, p := range files.Paths {
				cli.Fprintf(out, "%s\n", p)
			}
			return nil
		}
		return printVersions(cmd.Context(), out, store, m, g.json)
	})
	cmd.Long = `Versions lists the published versions, oldest first. Every publish that adds batches
makes one. Requests and cursors name a version, and the server answers from any of
them. The lines under a version say which names it has ("starter tag"), what it holds
more or less than its parent, the version that it follows, and which program built it.
A batch that replaces another one does not change the number of batches; "starter diff"
compares what two versions hold. With --json each version also has the time, the rules
and the sizes that its document names.

With --parts it prints the Parquet files of one version instead, one per line. Give
this list to a query engine: the folders also hold files of replaced batches and of
batches that are not published. With --sql it prints SQL for DuckDB that makes a view
urls of them, with the URL, the name of the dataset, and unsigned ids. After a
compaction a file can hold several batches, and until the next one also rows of
batches that were taken out since; the view leaves those out.`
	cmd.Example = `  starter versions --lake s3://b/lake
  starter versions --lake /data/lake --parts --json
  starter versions --lake /data/lake --parts --sql > urls.sql && duckdb -init urls.sql`
	cmd.Flags().BoolVar(&parts, "parts", false,
		"list the Parquet files of the version, e.g. for read_parquet([…]) in DuckDB; with --json as an array")
	cmd.Flags().BoolVar(&sql, "sql", false, "with --parts: print a CREATE VIEW for DuckDB")
	cmd.Flags().StringVar(&version, "version-id", "", "`VERSION` of --parts (default: the current one)")
	return cmd
}
