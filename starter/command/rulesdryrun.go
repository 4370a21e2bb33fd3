package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/rewrite"
)

const (
	// shownMoves is how many domains a dry run prints for people.
	shownMoves = 20
	// dryRunBatches is how many batches a dry run reads at once.
	dryRunBatches = 4
)

// moved counts what moves: hosts, each once, and their rows in all batches.
type moved struct {
	Hosts int64 `json:"hosts"`
	Rows  int64 `json:"rows"`
}

// movedDomain is the part of a domain that another domain gets.
type movedDomain struct {
	From string `json:"from"`
	To   string `json:"to"`
	moved
}

// movedByRule is what a changed rule moves.
type movedByRule struct {
	Rule string `json:"rule"`
	// Change is "added" or "removed".
	Change string `json:"change"`
	moved
}

// rulesPlan is what "rules update --dry-run --json" prints.
type rulesPlan struct {
	From lake.Rules `json:"from"`
	To   lake.Rules `json:"to"`
	// Added and Removed are the rules that only the new and only the old list has. They and Rules
	// are absent if the old list is missing.
	Added   []string      `json:"added,omitempty"`
	Removed []string      `json:"removed,omitempty"`
	Rules   []movedByRule `json:"rules,omitempty"`
	moved
	// Batches is the number of batches with rows that move.
	Batches int           `json:"batches"`
	Domains []movedDomain `json:"domains"`
	// Damaged are batches that could not be read. What they hold is not counted.
	Damaged []string `json:"damaged,omitempty"`
}

// followed is a batch and the list by which the domains of its rows were found.
type followed struct {
	segment.BatchRef
	list string
}

func rulesDryRun(cmd *cobra.Command, g *global, store blob.Store, to *urlnorm.SuffixList) error {
	p, err := planRules(cmd.Context(), store, to)
	if err != nil {
		return err
	}
	if g.json {
		err = printJSON(cmd.OutOrStdout(), p)
	} else {
		err = printRulesPlan(cmd, p)
	}
	if n := len(p.Damaged); err == nil && n > 0 {
		err = fmt.Errorf("%s could not be read", plural(int64(n), "batch"))
	}
	return err
}

// planRules finds out what a move to a list changes. It reads the postings of all batches, and the
// hosts of the domains that can be affected.
func planRules(ctx context.Context, store blob.Store, to *urlnorm.SuffixList) (*rulesPlan, error) {
	from, err := catalog.ReadRules(ctx, store)
	if err != nil {
		return nil, err
	}
	p := &rulesPlan{From: from, To: lake.RulesOf(to), Domains: []movedDomain{}}
	if from == (lake.Rules{}) {
		return p, nil // a new lake
	}
	old, err := loadList(ctx, store, from.PublicSuffix)
	if err != nil {
		return nil, err
	}
	if old != nil {
		c := urlnorm.NewSuffixChange(old, to)
		p.Added, p.Removed = c.Added(), c.Removed()
	}
	batches, err := batchesAndLists(ctx, store, p)
	if err != nil {
		return nil, err
	}
	changes := map[string]*urlnorm.SuffixChange{}
	for _, b := range batches {
		if changes[b.list] != nil {
			continue
		}
		list, err := loadList(ctx, store, b.list)
		if err != nil {
			return nil, err
		}
		changes[b.list] = urlnorm.NewSuffixChange(list, to)
	}
	t := tally{hosts: map[[2]string]*movedHost{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dryRunBatches)
	for _, b := range batches {
		group.Go(func() error {
			c := changes[b.list]
			found := false
			err := rewrite.Hosts(ctx, store, b.BatchRef,
				&rewrite.Change{To: to.Identity(), Domain: to.Domain, Affected: c.Affects},
				func(h rewrite.MovedHost) error { found = true; t.add(h, c); return nil })
			t.Lock()
			defer t.Unlock()
			var damage *postings.DamageError
			if errors.As(err, &damage) {
				p.Damaged = append(p.Damaged, err.Error())
				return nil
			}
			if found {
				p.Batches++
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(p.Damaged)
	t.sum(p)
	return p, nil
}

// batchesAndLists returns the batches that the next publish would move, with the list that each
// follows: those of the current version, and the finished ones that it lacks.
func batchesAndLists(ctx context.Context, store blob.Store, p *rulesPlan) ([]followed, error) {
	_, v, err := openVersion(ctx, store, "")
	if err != nil && !errors.Is(err, catalog.ErrNoVersion) {
		return nil, err
	}
	var out []followed
	replaced := map[catalog.BatchName]bool{}
	waiting, err := findUnpublished(ctx, store, v)
	if err != nil {
		return nil, err
	}
	for _, u := range waiting {
		ref := segment.BatchRef{DatasetID: u.id, Batch: u.Batch, Digest: u.Digest}
		if u.Damage != "" {
			p.Damaged = append(p.Damaged, fmt.Sprintf("batch %s of dataset %d: %s", u.Batch, ref.DatasetID, u.Damage))
			continue
		}
		if u.Retired {
			replaced[catalog.BatchName{DatasetID: ref.DatasetID, Batch: ref.Batch}] = true
			continue
		}
		data, _, err := store.Get(ctx, ref.Key())
		if err != nil {
			return nil, err
		}
		b, err := lake.DecodeBatch(data, ref.Key())
		if err != nil {
			return nil, err
		}
		replaced[catalog.BatchName{DatasetID: ref.DatasetID, Batch: ref.Batch}] = true
		out = append(out, followed{ref, b.PublicSuffix})
	}
	if v == nil {
		return out, nil
	}
	for b, err := range v.Batches(ctx) {
		if err != nil {
			return nil, err
		}
		if !replaced[b.BatchName] {
			out = append(out, followed{
				segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}, v.PublicSuffix})
		}
	}
	return out, nil
}

// movedHost is a host that moves.
type movedHost struct {
	to    string
	rule  string
	added bool
	rows  int64
}

// tally counts hosts that move, by their names and domains.
type tally struct {
	sync.Mutex
	hosts map[[2]string]*movedHost
}

func (t *tally) add(h rewrite.MovedHost, c *urlnorm.SuffixChange) {
	t.Lock()
	defer t.Unlock()
	key := [2]string{h.Host, h.From}
	m := t.hosts[key]
	if m == nil {
		m = &movedHost{to: h.To}
		m.rule, m.added = c.Rule(h.Host)
		t.hosts[key] = m
	}
	m.rows += h.Rows
}

// sum adds the totals to p, the largest first.
func (t *tally) sum(p *rulesPlan) {
	domains := map[[2]string]*movedDomain{}
	rules := map[movedByRule]*moved{}
	for key, h := range t.hosts {
		pair := [2]string{key[1], h.to}
		d := domains[pair]
		if d == nil {
			d = &movedDomain{From: pair[0], To: pair[1]}
			domains[pair] = d
		}
		r := movedByRule{Rule: h.rule, Change: "removed"}
		if h.added {
			r.Change = "added"
		}
		if rules[r] == nil {
			rules[r] = &moved{}
		}
		for _, sum := range []*moved{&p.moved, &d.moved, rules[r]} {
			sum.Hosts++
			sum.Rows += h.rows
		}
	}
	for r, sum := range rules {
		if r.Rule != "" {
			r.moved = *sum
			p.Rules = append(p.Rules, r)
		}
	}
	slices.SortFunc(p.Rules, func(a, b movedByRule) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Change, b.Change))
	})
	for _, d := range domains {
		p.Domains = append(p.Domains, *d)
	}
	slices.SortFunc(p.Domains, func(a, b movedDomain) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

func printRulesPlan(cmd *cobra.Command, p *rulesPlan) error {
	out := cmd.OutOrStdout()
	cli.Fprintf(out, "From   %s\nTo     %s\n", p.From.PublicSuffix, p.To.PublicSuffix)
	switch {
	case p.From == (lake.Rules{}):
		cli.Fprintf(out, "Rules  the lake is new and has no list yet\n")
	case p.Added == nil && p.Removed == nil:
		cli.Fprintf(out, "Rules  the lake's list is missing, so all domains were looked at\n")
	default:
		cli.Fprintf(out, "Rules  %s added, %s removed\n", count(int64(len(p.Added))), count(int64(len(p.Removed))))
	}
	for _, d := range p.Damaged {
		cli.Fprintf(out, "Not read: %s\n", d)
	}
	if p.Hosts == 0 {
		cli.Fprintf(out, "Moves  nothing\n")
		return nil
	}
	from := map[string]bool{}
	for _, d := range p.Domains {
		from[d.From] = true
	}
	cli.Fprintf(out, "Moves  %s with %s out of %s, in %s\n", plural(p.Hosts, "host"), plural(p.Rows, "row"),
		plural(int64(len(from)), "domain"), plural(int64(p.Batches), "batch"))
	if len(p.Rules) > 0 {
		rows := make([][]string, 0, len(p.Rules))
		for _, r := range p.Rules[:min(len(p.Rules), shownMoves)] {
			rows = append(rows, []string{r.Change, r.Rule, count(r.Hosts), count(r.Rows)})
		}
		cli.Fprintf(out, "\n")
		if err := table(out, "CHANGE RULE >HOSTS >ROWS", rows); err != nil {
			return err
		}
		printMore(cmd, len(p.Rules), "rule")
	}
	rows := make([][]string, 0, shownMoves)
	for _, d := range p.Domains[:min(len(p.Domains), shownMoves)] {
		rows = append(rows, []string{d.From, d.To, count(d.Hosts), count(d.Rows)})
	}
	cli.Fprintf(out, "\n")
	if err := table(out, "DOMAIN BECOMES >HOSTS >ROWS", rows); err != nil {
		return err
	}
	printMore(cmd, len(p.Domains), "domain")
	return nil
}

// printMore says how many of all things are not shown.
func printMore(cmd *cobra.Command, all int, thing string) {
	if more := all - shownMoves; more > 0 {
		cli.Fprintf(cmd.OutOrStdout(), "… and %s; --json prints all\n", plural(int64(more), "more "+thing))
	}
}
