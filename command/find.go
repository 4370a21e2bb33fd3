package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/remedy"
	"github.com/urlake/urlake/serve/lookup"
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
domain that it belongs to, so www.cdc.gov is answered for cdc.gov. --file reads a list,
one domain a line; "-" is standard input. Empty lines and lines that begin with # are
left out. Answers are in the order of the questions.

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
			asked, err := o.questions(names, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return remedy.Explained(url, o.run(cmd.Context(), url, args[0], asked, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "`LIST` of domains, one a line; - is standard input")
	f.BoolVar(&o.csv, "csv", false, "print CSV instead of a table for people")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table for people")
	f.StringVar(&o.urls, "urls", "", "list the URLs that this `DATASET` has of the domains")
	f.Int64Var(&o.limit, "limit", lookup.DefaultLimit, "with --urls: at most so many `URLS` of a domain; 0 is all")
	f.StringVar(&o.cache, "cache", lookup.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}

// question is one domain that was asked about.
type question struct {
	text string
	line int // in the list, from 1; 0 for an argument
}

// String names the question in a message.
func (q question) String() string {
	if q.line > 0 {
		return fmt.Sprintf("line %d: %s", q.line, q.text)
	}
	return q.text
}

// maxLine is the longest line of a list, in bytes: longer than the longest URL.
const maxLine = 1 << 20

// questions returns the arguments and then the lines of the list.
func (o *find) questions(names []string, stdin io.Reader) (all []question, err error) {
	for _, n := range names {
		all = append(all, question{text: n})
	}
	if o.file == "" {
		if len(all) == 0 {
			return nil, cli.Usagef("which domain? Add one, as in example.com, or --file LIST")
		}
		return all, nil
	}
	in := stdin
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		text := lines.Text()
		if n == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		if text = strings.TrimSpace(text); text != "" && text[0] != '#' {
			all = append(all, question{text, n})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s, line %d: %w", o.file, n+1, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no domains", o.file)
	}
	return all, nil
}

// answer is what the lake says about one question.
type answer struct {
	question
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

func (o *find) run(ctx context.Context, url, name string, asked []question, stdout, stderr io.Writer) error {
	store, err := blob.Open(ctx, url)
	if err != nil {
		return err
	}
	opt := lookup.Options{
		Log:      slog.New(slog.DiscardHandler),
		LeaseTTL: lookup.DefaultLeaseTTL, LeaseAll: true, Program: "urlake find " + cli.Version(),
	}
	if strings.HasPrefix(url, "s3:") {
		opt.CacheDir = lookup.CacheOf(o.cache, url)
		if err := os.MkdirAll(opt.CacheDir, 0o777); err != nil {
			return fmt.Errorf("cache folder: %w", err)
		}
	}
	server := lookup.NewServer(store, opt)
	defer server.Close()
	if err := server.Refresh(ctx); errors.Is(err, manifest.ErrNoVersion) {
		if lost := manifest.CheckPresent(ctx, store); lost != nil {
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
		if err := hasDataset(ctx, snap, o.urls, name); err != nil {
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

// hasDataset returns an error that names the nearest dataset if the version has none of this name.
// A misspelt name is not a dataset without the URLs. LakeName is the lake as the user wrote it.
func hasDataset(ctx context.Context, snap *lookup.Snapshot, dataset, lakeName string) error {
	var names []string
	for cursor := ""; ; {
		page, err := snap.Datasets(ctx, cursor)
		if err != nil {
			return err
		}
		for i := range page.Datasets {
			if page.Datasets[i].Name == dataset {
				return nil
			}
			names = append(names, page.Datasets[i].Name)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	meant := ""
	if name, ok := cli.Nearest(dataset, names); ok {
		meant = fmt.Sprintf("; did you mean %q?", name)
	}
	return fmt.Errorf("--urls: no dataset %q is published in this lake%s All of them: urlake datasets --lake %s", dataset,
		cmp.Or(meant, "."), cli.ShellWord(lakeName))
}

// answers asks several questions at once and returns the answers in their order.
func (o *find) answers(ctx context.Context, snap *lookup.Snapshot, asked []question) ([]answer, error) {
	all := make([]answer, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	const share = 64 // questions that one goroutine asks
	for from := 0; from < len(asked); from += share {
		group.Go(func() error {
			for i := from; i < min(from+share, len(asked)); i++ {
				all[i].question = asked[i]
				if err := o.ask(ctx, snap, &all[i]); err != nil {
					return fmt.Errorf("%s: %w", asked[i], err)
				}
			}
			return nil
		})
	}
	return all, group.Wait()
}

// ask answers one question.
func (o *find) ask(ctx context.Context, snap *lookup.Snapshot, a *answer) error {
	target, err := lookup.ParseTarget(a.text)
	if err != nil {
		a.problem = err.Error()
		return nil //nolint:nilerr // the answer says so, and the other questions are asked
	}
	a.suffix = snap.IsPublicSuffix(target)
	for cursor := ""; ; {
		page, err := snap.Domain(ctx, target, cursor)
		if err != nil {
			if isReject(err) {
				a.problem = err.Error()
				return nil
			}
			return err
		}
		a.Answer = page.Answer
		a.datasets = append(a.datasets, page.Datasets...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(a.datasets) == 0 && strings.ContainsFunc(target.Host, isOdd) {
		// The rules for URLs allow such hosts, but this is more likely a list of domains.
		a.Answer, a.problem = lookup.Answer{}, "no name of a host; give one domain at a time"
		return nil
	}
	if o.urls == "" {
		return nil
	}
	for _, d := range a.datasets {
		if d.Name == o.urls {
			a.total = d.Rows
			return o.list(ctx, snap, target, d.ID, a)
		}
	}
	return nil
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

// isOdd reports whether names of hosts do not have a character, although the host of a URL may.
func isOdd(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_[]:", r))
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
			cli.Fprintf(n.w, "%s: %s\n", a.question, a.problem)
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
		cli.Fprintf(n.w, "%s may also belong to %s.\n", a.question, strings.Join(a.OtherDomains, ", "))
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
