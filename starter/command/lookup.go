package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/bulk"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
)

// newLookupCommand returns the verb.
func newLookupCommand(g *global) *cobra.Command {
	var o lookupOptions
	cmd := &cobra.Command{
		Use:   "lookup DOMAIN… | --file LIST --lake URL",
		Short: "Say which datasets hold domains, and how much of them",
		Long: `Lookup says for each domain which datasets hold it: the number of rows, which is exact,
the sum of their sizes, and their first and last time. It reads the lake itself and
needs no server; the answers are those of the server's POST /v1/domains:lookup.

A domain may be any spelling of a host or a URL; the answer is for its registrable
domain. --file reads a list: a domain a line; CSV, whose first column is read, or one
named domain, host or url; or NDJSON. "-" is standard input. A list may have any
length. Answers are in the order of the questions. They are a table on a terminal, and
otherwise a line of JSON for each.

With --matrix there is one row for each question, with a column for each dataset.

A question that is no domain is answered with the reason. If there is one, the exit
code is 1 after all have been answered.`,
		Example: `  starter lookup cdc.gov nasa.gov --lake /data/lake
  starter lookup --file optout.txt --lake s3://bucket/lake --csv > held.csv
  starter lookup --file list.csv --matrix --csv --lake /data/lake > matrix.csv
  zcat hosts.gz | starter lookup --file - --presence --lake /data/lake | jq -r 'select(.total_datasets > 0).asked'`,
		Args: cli.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.JSON = g.json; o.CSV && o.JSON {
				return cli.Usagef("--csv and --json are two forms of the answer; choose one")
			}
			questions, err := Questions(args, o.File, cmd.InOrStdin())
			if err != nil {
				return err
			}
			store, url, err := g.store(cmd.Context())
			if err != nil {
				return err
			}
			if err := requireLake(cmd.Context(), store, url); err != nil {
				return err
			}
			err = o.Print(cmd.Context(), store, url, questions, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return lake.Explained(url, noVersion(cmd.Context(), store, err))
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.File, "file", "", "`LIST` of domains; - is standard input")
	f.StringVar(&o.Datasets, "dataset", "", "count only these datasets: `NAMES` or ids, separated by commas")
	f.StringVar(&o.Version, "at", "", "ask this `VERSION`, an id or a name, instead of the current one")
	f.BoolVar(&o.CSV, "csv", false, "print CSV")
	f.BoolVar(&o.Matrix, "matrix", false, "print a column for each dataset")
	f.BoolVar(&o.Presence, "presence", false, "say only which datasets hold a domain, which reads next to nothing")
	f.StringVar(&o.Cache, "cache", shortlived.DefaultCache(), "`FOLDER` for copies of the mapped index files of an S3 lake")
	return cmd
}

// lookupOptions say what to ask, and how to print it.
type lookupOptions struct {
	// File is a list of domains, "-" for standard input, "" for none.
	File string
	// Datasets are the only datasets that count, by id or name, separated by commas; "" for all.
	Datasets string
	// Version is an id or a tag, "" for the current version.
	Version string
	// CSV and JSON are forms of the answer. Without one it is a table on a terminal, and otherwise
	// JSON, a line for each question.
	CSV, JSON bool
	// Matrix prints a row for each question, with a column for each dataset. Presence leaves out
	// the counts.
	Matrix, Presence bool
	// Cache is a folder for copies of the mapped index files of an S3 lake.
	Cache string
}

// Questions returns the arguments and then what the list has. File is as in Options.
func Questions(names []string, file string, stdin io.Reader) (all []bulk.Question, err error) {
	for _, n := range names {
		all = append(all, bulk.Question{Text: []byte(n)})
	}
	if file == "" {
		if len(all) == 0 {
			return nil, cli.Usagef("which domain? Add one, as in example.com, or --file LIST")
		}
		return all, nil
	}
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	list, err := bulk.Parse(data, bulk.Detect(data), bulk.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if all = append(all, list...); len(all) == 0 {
		return nil, fmt.Errorf("%s has no domains", file)
	}
	return all, nil
}

// Print asks the lake in store, whose URL is url.
func (o lookupOptions) Print(ctx context.Context, store blob.Store, url string, questions []bulk.Question, stdout, stderr io.Writer) error {
	server, err := shortlived.New(store, url, o.Cache, "starter lookup "+cli.Version(), 0)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Refresh(ctx); err != nil {
		return fmt.Errorf("lake %s: %w", url, err)
	}
	snap, err := server.Acquire(ctx, o.Version)
	if err != nil {
		return err
	}
	defer snap.Release()
	q := bulk.Query{Matrix: o.Matrix, Presence: o.Presence, Form: bulk.NDJSON}
	if o.Datasets != "" {
		for name := range strings.SplitSeq(o.Datasets, ",") {
			id, err := datasetNamed(ctx, name, snap)
			if err != nil {
				return err
			}
			if slices.Contains(q.Datasets, id) {
				return cli.Usagef("--dataset names %s twice", name)
			}
			q.Datasets = append(q.Datasets, id)
		}
	}
	if o.CSV {
		q.Form = bulk.CSV
	}
	out := bufio.NewWriter(stdout)
	var sums bulk.Sums
	if f, ok := stdout.(*os.File); !o.CSV && !o.JSON && ok && isatty.IsTerminal(f.Fd()) {
		sums, err = o.tables(ctx, snap, questions, q, out)
	} else {
		sums, err = bulk.Answers(ctx, snap, questions, q, out)
	}
	var wide *bulk.TooWideError
	if errors.As(err, &wide) {
		return cli.Usagef("--matrix: %v with --dataset", err)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if snap.LacksSuffixes() {
		cli.Fprintf(stderr, "The lake has lost its public suffix list, so to which domain a host belongs is guessed. "+
			"To restore it: starter rules update --lake %s\n", cli.ShellWord(url))
	}
	if sums.Invalid > 0 {
		return fmt.Errorf("%s not answered: no domain; the answers say why", cli.Plural(int64(sums.Invalid), "question"))
	}
	return nil
}

// datasetNamed returns the id of a dataset of one of the versions, by its id or its name. The error
// names the nearest one if there is none.
func datasetNamed(ctx context.Context, name string, versions ...*lookup.Snapshot) (uint32, error) {
	var names []string
	for _, v := range versions {
		if d, ok := v.FindDataset(name); ok {
			return d.ID, nil
		}
		some, err := DatasetNames(ctx, v)
		if err != nil {
			return 0, err
		}
		names = append(names, some...)
	}
	of := "version " + versions[0].Version().ID + " has no"
	if len(versions) > 1 {
		of = "neither version has a"
	}
	if meant, ok := cli.Nearest(name, names); ok {
		return 0, fmt.Errorf("--dataset: %s dataset %q; did you mean %q?", of, name, meant)
	}
	return 0, fmt.Errorf("--dataset: %s dataset %q; %s lists them", of, name, cli.Typed("starter datasets"))
}

// suffixNote says how many domains are below a public suffix, and which come first.
func suffixNote(ctx context.Context, snap *lookup.Snapshot, host string) (string, error) {
	const named = 5
	below, err := snap.DomainsBelow(ctx, host)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s is a public suffix: names below it are domains of their own. The lake has %s below it", host,
		cli.Plural(below, "domain"))
	if below == 0 {
		return text + ".", nil
	}
	first, err := snap.Domains(ctx, lookup.DomainsQuery{Suffix: "." + host, Limit: named})
	if err != nil {
		return "", err
	}
	names := make([]string, len(first.Domains))
	for i := range names {
		names[i] = first.Domains[i].Domain
	}
	if text += ": " + strings.Join(names, ", "); below > int64(len(names)) {
		text += ", …"
	}
	return text, nil
}

// DatasetNames returns the names of all datasets of a version.
func DatasetNames(ctx context.Context, snap *lookup.Snapshot) (names []string, err error) {
	for cursor := ""; ; {
		page, err := snap.Datasets(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for i := range page.Datasets {
			names = append(names, page.Datasets[i].Name)
		}
		if cursor = page.Cursor; cursor == "" {
			return names, nil
		}
	}
}

const (
	// tableQuestions is how many questions have one table.
	tableQuestions = 5000
	// notedSuffixes is of how many public suffixes a table says what is below them.
	notedSuffixes = 10
)

// tables prints the answers for people.
func (o lookupOptions) tables(ctx context.Context, snap *lookup.Snapshot, questions []bulk.Question, q bulk.Query, out io.Writer) (sums bulk.Sums, err error) {
	only := slices.Sorted(slices.Values(q.Datasets))
	b, err := snap.Bulk(ctx, lookup.BulkQuery{Datasets: only, PresenceOnly: q.Presence})
	if err != nil {
		return sums, err
	}
	for from := 0; from < len(questions); from += tableQuestions {
		var rows []Row
		var suffixes []string
		err := bulk.Each(ctx, b, questions[from:min(from+tableQuestions, len(questions))], func(q *bulk.Question, a *lookup.BulkAnswer) error {
			r := newRow(q, a)
			if r.Problem == "" {
				sums.Answered++
			} else {
				sums.Invalid++
				r.Problem = "(" + r.Problem + ")"
			}
			if a.PublicSuffix && len(suffixes) < notedSuffixes && !slices.Contains(suffixes, a.Host) {
				suffixes = append(suffixes, strings.Clone(a.Host))
			}
			rows = append(rows, r)
			return nil
		})
		if err != nil {
			return sums, err
		}
		if from > 0 {
			cli.Fprintf(out, "\n") // another table, as columns may differ in width
		}
		if o.Matrix {
			err = matrixTable(out, rows, q.Presence)
		} else {
			err = Table(out, rows, q.Presence)
		}
		for _, host := range suffixes {
			var note string
			if err == nil {
				note, err = suffixNote(ctx, snap, host)
			}
			cli.Fprintf(out, "%s\n", note)
		}
		if err != nil {
			return sums, err
		}
	}
	return sums, nil
}

// Row is one question and its answer.
type Row struct {
	Asked, Domain string
	Datasets      []lookup.DatasetTotals
	// Problem is why there is no answer, or empty.
	Problem string
}

// newRow returns a row that stays valid.
func newRow(q *bulk.Question, a *lookup.BulkAnswer) Row {
	r := Row{Asked: string(q.Text), Domain: a.Domain, Datasets: slices.Clone(a.Datasets)}
	if a.Reject != nil {
		r.Problem = a.Reject.Detail
	}
	return r
}

// Table prints a line for each dataset of each row, and one for a row without datasets. A column in
// which nothing would stand is left out, and so are the counts if presence is set.
func Table(w io.Writer, all []Row, presence bool) error {
	var asked, sizes, times bool
	for _, r := range all {
		asked = asked || r.Asked != r.Domain
		for _, d := range r.Datasets {
			sizes, times = sizes || d.HasSize, times || d.HasTS
		}
	}
	header := "DOMAIN DATASET"
	if asked {
		header = "ASKED " + header
	}
	if !presence {
		header += " >ROWS"
	}
	if sizes {
		header += " >SIZE"
	}
	if times {
		header += " FIRST LAST"
	}
	var rows [][]string
	for _, r := range all {
		begin := []string{r.Domain}
		if asked {
			begin = []string{r.Asked, r.Domain}
		}
		add := func(dataset string, d *lookup.DatasetTotals) {
			row := append(slices.Clone(begin), dataset)
			cells := [4]string{}
			if d != nil {
				cells[0] = cli.Count(d.Rows)
				if d.HasSize {
					cells[1] = cli.Count(d.Size)
				}
				if d.SizeOverflows() {
					cells[1] = "over " + cells[1]
				}
				if d.HasTS {
					cells[2], cells[3] = day(d.FirstTS), day(d.LastTS)
				}
			}
			if !presence {
				row = append(row, cells[0])
			}
			if sizes {
				row = append(row, cells[1])
			}
			if times {
				row = append(row, cells[2:]...)
			}
			rows = append(rows, row)
		}
		for i := range r.Datasets {
			add(r.Datasets[i].Name, &r.Datasets[i])
		}
		if len(r.Datasets) == 0 {
			add(cmp.Or(r.Problem, "(none)"), nil)
		}
	}
	return cli.Table(w, header, rows)
}

func day(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateOnly) }

// matrixTable prints the number of rows that each dataset has of each domain, or an x.
func matrixTable(w io.Writer, all []Row, presence bool) error {
	var columns []lookup.DatasetTotals
	seen := map[uint32]bool{}
	for _, r := range all {
		for _, d := range r.Datasets {
			if !seen[d.ID] {
				seen[d.ID] = true
				columns = append(columns, d)
			}
		}
	}
	slices.SortFunc(columns, func(a, b lookup.DatasetTotals) int { return cmp.Compare(a.ID, b.ID) })
	at := map[uint32]int{}
	header := "DOMAIN"
	for i, d := range columns {
		at[d.ID] = i + 1
		header += " >" + d.Name
	}
	var rows [][]string
	for _, r := range all {
		row := make([]string, len(columns)+1)
		if row[0] = r.Domain; r.Problem != "" {
			row[0] = r.Asked + " " + r.Problem
		}
		for _, d := range r.Datasets {
			if row[at[d.ID]] = "x"; !presence {
				row[at[d.ID]] = cli.Count(d.Rows)
			}
		}
		rows = append(rows, row)
	}
	return cli.Table(w, header, rows)
}
