package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/serve/bulk"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
	shared "github.com/urlake/urlake/starter/command"
)

type find struct {
	file, cache, urls string
	csv, json         bool
	limit             int64
}

func findCommand() *cobra.Command {
	var o find
	cmd := &cobra.Command{
		Use:   "find LAKE DOMAIN… [--file LIST] [--csv | --json]",
		Short: "Say which datasets hold a domain, and how much of it",
		Long: `Find says for each domain which datasets hold it: the number of rows, which is exact,
the sum of their sizes, and their first and last time, as far as the dataset has sizes
and times. It reads the lake itself and needs no server.

A domain may be any spelling of a host or a URL: the answer is for the registrable
domain that it belongs to, so www.cdc.gov is answered for cdc.gov. --file reads a list:
a domain a line; CSV, whose first column is read, or one named domain, host or url; or
NDJSON. "-" is standard input. Empty lines and lines that begin with # are left out.
Answers are in the order of the questions.

With --urls DATASET it lists the URLs of the domains in one dataset instead.`,
		Example: `  urlake find ./lake cdc.gov nasa.gov
  urlake find ./lake --file optout.txt --csv > held.csv
  urlake find ./lake cdc.gov --urls eot2024-seeds`,
		RunE: func(cmd *cobra.Command, args []string) error {
			url, names, err := lakeArgument(args)
			if err != nil {
				return err
			}
			switch {
			case o.csv && o.json:
				return cli.Usagef("--csv and --json are two forms of the answer; choose one")
			case o.limit < 0:
				return cli.Usagef("--limit is %d; use a number of URLs, or 0 for all", o.limit)
			}
			asked, err := shared.Questions(names, o.file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return lake.Explained(url, o.run(cmd.Context(), url, args[0], asked, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "`LIST` of domains; - is standard input")
	f.BoolVar(&o.csv, "csv", false, "print CSV instead of a table for people")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table for people")
	f.StringVar(&o.urls, "urls", "", "list the URLs that this `DATASET` has of the domains")
	f.Int64Var(&o.limit, "limit", lookup.DefaultLimit, "with --urls: at most so many `URLS` of a domain; 0 is all")
	f.StringVar(&o.cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}

// String names the question of an answer in a message.
func (a *answer) String() string {
	if a.line > 0 {
		return fmt.Sprintf("line %d: %s", a.line, a.text)
	}
	return a.text
}

// answer is what the lake says about one question.
type answer struct {
	text string
	line int // in the list, from 1; 0 for an argument
	lookup.Answer
	datasets []lookup.DatasetTotals
	suffix   bool   // the host is a public suffix
	problem  string // why there is no answer
	urls     []foundURL
	total    int64 // of the list that urls begins
}

// foundURL is one row of a dataset.
type foundURL struct {
	url   string
	id    uint64
	ts    int64
	hasTS bool
}

// chunk is how many questions are answered before the answers are printed.
const chunk = 5000

func (o *find) run(ctx context.Context, url, name string, asked []bulk.Question, stdout, stderr io.Writer) error {
	store, err := blob.Open(ctx, url)
	if err != nil {
		return err
	}
	server, err := shortlived.New(store, url, o.cache, "urlake find "+cli.Version(), 0)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Refresh(ctx); errors.Is(err, catalog.ErrNoVersion) {
		if lost := catalog.CheckManifestPresent(ctx, store); lost != nil {
			return lost
		}
		return fmt.Errorf("nothing is published in %s yet; to ingest: urlake add %s FILE…", url, name)
	} else if err != nil {
		return err
	}
	snap, err := server.Acquire(ctx, "")
	if err != nil {
		return err
	}
	defer snap.Release()
	if snap.LacksSuffixes() {
		cli.Fprintf(stderr, "The lake has lost its public suffix list, so to which domain a host belongs is guessed. "+
			"To restore it: urlake rules update --lake %s\n", url)
	}
	if o.urls != "" {
		if o.urls, err = datasetName(ctx, snap, o.urls, name); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(stdout)
	p := o.printer(out)
	notes := notes{w: stderr}
	for len(asked) > 0 {
		n := min(len(asked), chunk)
		answers, err := o.answers(ctx, snap, asked[:n])
		if err != nil {
			return err
		}
		if err := errors.Join(p.print(answers), out.Flush()); err != nil {
			return err
		}
		for i := range answers {
			notes.add(&answers[i], o)
		}
		asked = asked[n:]
	}
	if err := errors.Join(p.end(), out.Flush()); err != nil {
		return err
	}
	return notes.end()
}

// datasetName returns the name of the dataset of the version with this id or name. A misspelt name
// is not a dataset without the URLs: the error names the nearest one. LakeName is the lake as the
// user wrote it.
func datasetName(ctx context.Context, snap *lookup.Snapshot, dataset, lakeName string) (string, error) {
	if d, ok := snap.FindDataset(dataset); ok {
		return d.Name, nil
	}
	names, err := shared.DatasetNames(ctx, snap)
	if err != nil {
		return "", err
	}
	meant := ""
	if name, ok := cli.Nearest(dataset, names); ok {
		meant = fmt.Sprintf("; did you mean %q?", name)
	}
	return "", fmt.Errorf("--urls: no dataset %q is published in this lake%s All of them: urlake datasets --lake %s", dataset,
		cmp.Or(meant, "."), cli.ShellWord(lakeName))
}

// answers asks several questions at once and returns the answers in their order.
func (o *find) answers(ctx context.Context, snap *lookup.Snapshot, asked []bulk.Question) ([]answer, error) {
	b, err := snap.Bulk(ctx, lookup.BulkQuery{})
	if err != nil {
		return nil, err
	}
	all := make([]answer, 0, len(asked))
	err = bulk.Each(ctx, b, asked, func(q *bulk.Question, found *lookup.BulkAnswer) error {
		a := answer{text: string(q.Text), line: q.Line, suffix: found.PublicSuffix, datasets: slices.Clone(found.Datasets)}
		if found.Reject != nil {
			a.problem = found.Reject.Error()
		} else {
			a.Answer = lookup.Answer{Domain: found.Domain, DomainID: found.DomainID, Version: b.Version,
				TakedownEpoch: b.TakedownEpoch, OtherDomains: found.OtherDomains}
		}
		all = append(all, a)
		return nil
	})
	if err != nil || o.urls == "" {
		return all, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range all {
		a := &all[i]
		at := slices.IndexFunc(a.datasets, func(d lookup.DatasetTotals) bool { return d.Name == o.urls })
		if at < 0 {
			continue
		}
		a.total = a.datasets[at].Rows
		group.Go(func() error {
			target, err := lookup.ParseTarget(a.text)
			if err == nil {
				err = o.list(ctx, snap, target, a.datasets[at].ID, a)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a, err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

// list reads the URLs of a domain in a dataset.
func (o *find) list(ctx context.Context, snap *lookup.Snapshot, target lookup.Target, dataset uint32, a *answer) error {
	q := lookup.URLsQuery{Target: target, Dataset: dataset, Limit: lookup.MaxLimit}
	for o.limit == 0 || int64(len(a.urls)) < o.limit {
		if left := o.limit - int64(len(a.urls)); o.limit > 0 && left < lookup.MaxLimit {
			q.Limit = int(left)
		}
		page, err := snap.URLs(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Len() {
			ts, ok := page.TS(i)
			a.urls = append(a.urls, foundURL{string(page.URL(i)), page.ID(i), ts, ok})
		}
		if page.Cursor == "" {
			break
		}
		q.Cursor = page.Cursor
	}
	return nil
}

// maxNotes is how many notes of a kind are printed; further ones are counted.
const maxNotes = 10

// notes are what a table has no room for.
type notes struct {
	w                         io.Writer
	suffixes, invalid, absent int
	more                      int
}

func (n *notes) add(a *answer, o *find) {
	switch {
	case a.problem != "":
		if n.invalid++; n.invalid <= maxNotes {
			cli.Fprintf(n.w, "%s: %s\n", a, a.problem)
		}
	case a.suffix:
		if n.suffixes++; n.suffixes <= maxNotes {
			cli.Fprintf(n.w, "%s is a public suffix: a site below it, such as example.%s, is a domain of its own. Ask for the site.\n",
				a.Domain, a.Domain)
		}
	case o.urls != "" && a.total == 0:
		held := "no dataset does"
		if len(a.datasets) > 0 {
			names := []string{}
			for _, d := range a.datasets[:min(len(a.datasets), 5)] {
				names = append(names, d.Name)
			}
			held = strings.Join(names, ", ")
			if more := len(a.datasets) - len(names); more > 0 {
				held += fmt.Sprintf(" and %d more", more)
			}
			held += " " + map[bool]string{true: "does", false: "do"}[len(a.datasets) == 1]
		}
		if n.absent++; n.absent <= maxNotes {
			cli.Fprintf(n.w, "%s: dataset %s holds no URL of it; %s.\n", a.Domain, o.urls, held)
		}
	case a.total > int64(len(a.urls)):
		if n.more++; n.more <= maxNotes {
			cli.Fprintf(n.w, "%s: %s of %s. All of them: --limit 0\n", a.Domain,
				cli.Plural(int64(len(a.urls)), "URL"), cli.Count(a.total))
		}
	}
	if len(a.OtherDomains) > 0 {
		cli.Fprintf(n.w, "%s may also belong to %s.\n", a, strings.Join(a.OtherDomains, ", "))
	}
}

// end says how many notes were left out. It returns an error if there were questions without an
// answer.
func (n *notes) end() error {
	for _, k := range []struct {
		count int
		what  string
	}{{n.suffixes, "are public suffixes"}, {n.absent, "are not in the dataset"}, {n.more, "have more URLs"}} {
		if k.count > maxNotes {
			cli.Fprintf(n.w, "and %s more %s\n", cli.Count(int64(k.count-maxNotes)), k.what)
		}
	}
	if n.invalid > 0 {
		return fmt.Errorf("%s not answered: no domain", cli.Plural(int64(n.invalid), "question"))
	}
	return nil
}
