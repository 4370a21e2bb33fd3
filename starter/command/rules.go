package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/workflows"
)

// ruleSet describes rules. Present and Damage are those of the list's object in the lake; a list
// that is neither there nor compiled in has no number of rules.
type ruleSet struct {
	lake.Rules
	Count   int    `json:"rules,omitempty"`
	Object  string `json:"object"`
	Present bool   `json:"present"`
	Damage  string `json:"damage,omitempty"`

	list *urlnorm.SuffixList // nil if it cannot be loaded
}

// versionRules are the rules that a version follows.
type versionRules struct {
	Version string `json:"version"`
	Current bool   `json:"current,omitempty"`
	ruleSet
}

// lakeRules is what "rules --json" prints.
type lakeRules struct {
	Lake    ruleSet `json:"lake"`
	Program ruleSet `json:"program"`
	// Added and Removed are the numbers of rules that only the program's list and only the lake's
	// list have. They are absent if the lake's list is missing.
	Added   *int `json:"added,omitempty"`
	Removed *int `json:"removed,omitempty"`
	// Versions are those that follow other rules than the lake's, oldest first.
	Versions []versionRules `json:"versions"`
}

func rulesCommand(g *global) *cobra.Command {
	const short = "Show the rules that a lake follows, or move it to another public suffix list"
	cmd := inspectCommand(g, "rules", short, func(cmd *cobra.Command, store blob.Store, url string) error {
		r, err := readLakeRules(cmd.Context(), store)
		if err != nil {
			return err
		}
		if g.json {
			return printJSON(cmd.OutOrStdout(), r)
		}
		printLakeRules(cmd, url, r)
		return nil
	})
	cmd.Long = `Rules shows what turns URLs into rows: the canonical form and the public suffix list,
which decides the domain of a host. A lake keeps the list that it was made with, so
another program with a newer list changes nothing. The command compares both, and
lists the versions that follow another list than new rows do.

"starter rules update" moves the lake to another list.`
	cmd.Example = `  starter rules --lake s3://b/lake
  starter rules update --lake s3://b/lake --dry-run`
	cmd.AddCommand(rulesUpdateCommand(g))
	return cmd
}

// describeRules describes rules and the object of their list.
func describeRules(ctx context.Context, store blob.Store, r lake.Rules) (ruleSet, error) {
	s := ruleSet{Rules: r, Object: lake.SuffixListKey(r.PublicSuffix)}
	_, err := store.Stat(ctx, s.Object)
	if s.Present = err == nil; err != nil && !errors.Is(err, blob.ErrNotExist) {
		return s, err
	}
	if s.Present {
		if err := lake.CheckSuffixList(ctx, store, r.PublicSuffix); errors.Is(err, codec.ErrCorrupt) {
			s.Damage = err.Error()
		} else if err != nil {
			return s, err
		}
	}
	s.list, err = loadList(ctx, store, r.PublicSuffix)
	if s.list != nil {
		s.Count = s.list.Rules()
	}
	return s, err
}

// loadList returns a list, nil if it is missing or damaged.
func loadList(ctx context.Context, store blob.Store, identity string) (*urlnorm.SuffixList, error) {
	list, err := lake.LoadSuffixList(ctx, store, identity)
	var missing *lake.MissingListError
	if errors.As(err, &missing) || errors.Is(err, codec.ErrCorrupt) {
		return nil, nil
	}
	return list, err
}

func readLakeRules(ctx context.Context, store blob.Store) (*lakeRules, error) {
	rules, err := catalog.ReadRules(ctx, store)
	if err != nil {
		return nil, err
	}
	out := &lakeRules{Versions: []versionRules{}}
	if out.Lake, err = describeRules(ctx, store, rules); err != nil {
		return nil, err
	}
	if out.Program, err = describeRules(ctx, store, lake.CurrentRules()); err != nil {
		return nil, err
	}
	if out.Lake.list != nil {
		c := urlnorm.NewSuffixChange(out.Lake.list, out.Program.list)
		added, removed := len(c.Added()), len(c.Removed())
		out.Added, out.Removed = &added, &removed
	}
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(ctx, store, ref)
		if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
			continue // "starter verify" names it
		}
		if err != nil {
			return nil, err
		}
		own := lake.Rules{CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix}
		if own == rules {
			continue
		}
		s, err := describeRules(ctx, store, own)
		if err != nil {
			return nil, err
		}
		out.Versions = append(out.Versions, versionRules{Version: v.ID, Current: ref.ID == m.CurrentVersion, ruleSet: s})
	}
	return out, nil
}

// state says in words what the object of a list is.
func (s *ruleSet) state() string {
	switch {
	case s.Damage != "":
		return "damaged: " + s.Damage
	case s.Present:
		return s.Object
	case s.list != nil:
		return "not in the lake; the next ingest adds it"
	}
	return "not in the lake, and not this program's"
}

func (s *ruleSet) count() string {
	if s.list == nil {
		return "rules not known"
	}
	return plural(int64(s.Count), "rule")
}

func printLakeRules(cmd *cobra.Command, url string, r *lakeRules) {
	out := cmd.OutOrStdout()
	cli.Fprintf(out, "Lake       %s\n", url)
	cli.Fprintf(out, "Follows    %s\n", r.Lake.PublicSuffix)
	cli.Fprintf(out, "           %s; canonical form %s\n", r.Lake.count(), r.Lake.CanonicalForm)
	cli.Fprintf(out, "           %s\n", r.Lake.state())
	cli.Fprintf(out, "Program    %s\n", r.Program.PublicSuffix)
	cli.Fprintf(out, "           %s; canonical form %s\n", r.Program.count(), r.Program.CanonicalForm)
	switch {
	case r.Added == nil:
	case *r.Added+*r.Removed == 0:
		cli.Fprintf(out, "           the same rules\n")
	default:
		cli.Fprintf(out, "           %s more and %s fewer than the lake's\n", count(int64(*r.Added)), count(int64(*r.Removed)))
	}
	for i := range r.Versions {
		v := &r.Versions[i]
		name := v.Version
		if v.Current {
			name += ", which is current: the next publish moves it"
		}
		cli.Fprintf(out, "Version    %s\n           follows %s\n           %s; %s\n", name, v.PublicSuffix, v.count(), v.state())
	}
}

// readListFile reads a public suffix list from a file.
func readListFile(path string) (*urlnorm.SuffixList, error) {
	// To open a FIFO waits for its writer, and no signal ends that.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, cli.Usagef("--psl %s: want a file with a public suffix list, not a folder or a pipe", path)
	}
	if err != nil {
		return nil, fmt.Errorf("public suffix list: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := urlnorm.ParseSuffixList(data)
	if err != nil {
		return nil, fmt.Errorf("public suffix list %s: %w", path, err)
	}
	return list, nil
}

const pslUsage = "`FILE` in the syntax of public_suffix_list.dat"

func rulesUpdateCommand(g *global) *cobra.Command {
	var psl string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "update --lake URL",
		Short: "Move a lake to another public suffix list",
		Long: `Update moves a lake to the public suffix list of this program, or of a file
(https://publicsuffix.org/list/public_suffix_list.dat). It requests a publish, which
moves the rows of the hosts whose domain changes, and waits until the version that
follows the new list is published. Only the Parquet files with such hosts are written
again. Older versions answer as before, by the list that they follow.

Update may be interrupted anywhere: the next publish, or the same command, goes on.
New rows follow the new list from the beginning.

With --dry-run nothing changes. It reads the hosts of all domains that the difference
of the lists can affect, and prints which domains move, with their hosts and rows.`,
		Example: `  starter rules update --lake s3://b/lake --dry-run
  starter rules update --lake s3://b/lake --psl public_suffix_list.dat`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			to := urlnorm.BuiltinSuffixes()
			if psl != "" {
				var err error
				if to, err = readListFile(psl); err != nil {
					return err
				}
			}
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if dryRun {
				return rulesDryRun(cmd, g, store, to)
			}
			return updateRules(cmd, g, store, url, to)
		},
	}
	cmd.Flags().StringVar(&psl, "psl", "", "public suffix list to move to, a "+pslUsage+" (default: that of this program)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print which domains would move, and change nothing")
	g.lakeFlag(cmd)
	return cmd
}

// rulesUpdated is what "rules update --json" prints. Publish is absent if nothing had to be
// published.
type rulesUpdated struct {
	From    lake.Rules               `json:"from"`
	To      lake.Rules               `json:"to"`
	Publish *workflows.PublishResult `json:"publish,omitempty"`
}

// updateRules sets the lake's list and has its batches moved.
func updateRules(cmd *cobra.Command, g *global, store blob.Store, url string, to *urlnorm.SuffixList) error {
	ctx := cmd.Context()
	from, err := catalog.ReadRules(ctx, store)
	if err != nil {
		return err
	}
	res := rulesUpdated{From: from, To: lake.RulesOf(to)}
	follows := from == res.To
	if from != (lake.Rules{}) && !follows {
		switch old, err := loadList(ctx, store, from.PublicSuffix); {
		case err != nil:
			return err
		case old != nil && old.SameRules(to):
			return finishUpdate(cmd, g, &res, fmt.Sprintf("Nothing to do: the lake follows the same rules as %s", from.PublicSuffix))
		}
	}
	behind, err := hasBatchesToMove(ctx, store, res.To, follows)
	if err != nil {
		return err
	}
	if !behind {
		if err := catalog.SetRules(ctx, store, from, to); err != nil {
			return err
		}
		if follows {
			return finishUpdate(cmd, g, &res, "Nothing to do: the lake follows this list")
		}
		return finishUpdate(cmd, g, &res, "The lake follows the list; it has no batches to move")
	}
	// The lake is changed only if Temporal can be reached.
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := catalog.SetRules(ctx, store, from, to); err != nil {
		return err
	}
	run, err := activities.SignalPublisher(ctx, c, url, activities.PublishRequest{})
	if err != nil {
		return err
	}
	res.Publish = &workflows.PublishResult{}
	if err := awaitPublish(cmd, c, run, res.Publish); err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	printPublish(cmd.OutOrStdout(), res.Publish)
	return nil
}

// finishUpdate prints the result of an update that publishes nothing.
func finishUpdate(cmd *cobra.Command, g *global, res *rulesUpdated, text string) error {
	if g.json {
		return printJSON(cmd.OutOrStdout(), res)
	}
	cli.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return nil
}

// hasBatchesToMove reports whether the current version follows other rules, or lacks a finished
// batch. If the registry names these rules already, the next publish moves finished batches
// anyway; then only the version counts.
func hasBatchesToMove(ctx context.Context, store blob.Store, to lake.Rules, follows bool) (bool, error) {
	_, v, err := openVersion(ctx, store, "")
	if err != nil && !errors.Is(err, catalog.ErrNoVersion) {
		return false, err
	}
	if differs := v != nil && v.PublicSuffix != to.PublicSuffix; differs || follows {
		return differs, nil
	}
	waiting, damaged, err := findWaiting(ctx, store, v)
	if err == nil && len(damaged) > 0 {
		err = damaged[0].Err
	}
	return err == nil && len(waiting) > 0, err
}
