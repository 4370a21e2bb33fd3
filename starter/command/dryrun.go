package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/starter/ingestreport"
	"github.com/urlake/urlake/workflows"
)

// preview prints what an ingest would do with each of its inputs. It returns an error if the ingest
// would fail.
func (f *ingestFlags) preview(cmd *cobra.Command, g *global, in workflows.IngestInput) error {
	w := cmd.OutOrStdout()
	show := func(p *ingest.Preview) error { return printPreview(w, p) }
	if g.json {
		// An object a line, as there may be a million.
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		show = func(p *ingest.Preview) error { return lines.Encode(p) }
	}
	var totals ingest.PreviewTotals
	var fails string
	var err error
	if f.datasetsFrom != "" {
		totals, fails, err = previewMany(cmd, f.many(in).Spec, show)
	} else {
		totals, err = ingest.Previews(cmd.Context(), in.Spec, show)
		fails = totals.Fails(&in.Spec)
	}
	if err != nil {
		return err
	}
	for _, n := range totals.Notes {
		cli.Fprintf(cmd.ErrOrStderr(), "note: %s\n", n)
	}
	if !g.json {
		cli.Fprintf(w, "%s, %s. Nothing was written.\n", plural(int64(totals.Objects), "object"), size(totals.Bytes))
	}
	if fails != "" {
		return errors.New(fails)
	}
	return nil
}

// previewMany is ingest.Previews for an ingest of many datasets. fails says why the first of those
// datasets would fail that would.
func previewMany(cmd *cobra.Command, spec many.Spec, show func(*ingest.Preview) error) (
	all ingest.PreviewTotals, fails string, err error,
) {
	datasets, notes, err := many.Datasets(cmd.Context(), spec)
	if err != nil {
		return all, "", err
	}
	var objects []ingest.Object
	var of []string // the dataset of each
	refused := 0
	for _, d := range datasets {
		if d.Refused != "" {
			refused++
			if err := show(&ingest.Preview{Dataset: d.Name, Object: d.From, Refused: d.Refused}); err != nil {
				return all, "", err
			}
		}
		for _, o := range d.Objects {
			objects, of = append(objects, o), append(of, d.Name)
		}
	}
	n := 0
	each := map[string]*ingest.PreviewTotals{}
	all, err = ingest.PreviewObjects(cmd.Context(), &spec.Spec, objects, func(p *ingest.Preview) error {
		p.Dataset = of[n]
		n++
		if each[p.Dataset] == nil {
			each[p.Dataset] = &ingest.PreviewTotals{}
		}
		each[p.Dataset].Add(p)
		return show(p)
	})
	all.Notes = notes
	all.Objects += refused
	all.Refused += refused
	if all.Refused > 0 {
		return all, all.Fails(&spec.Spec), err
	}
	for _, d := range datasets {
		if t := each[d.Name]; t != nil && fails == "" {
			if why := t.Fails(&spec.Spec); why != "" {
				fails = fmt.Sprintf("dataset %q: %s", d.Name, why)
			}
		}
	}
	return all, fails, err
}

// printPreview prints one object for people.
func printPreview(w io.Writer, p *ingest.Preview) error {
	if p.Dataset != "" {
		cli.Fprintf(w, "%s: ", p.Dataset)
	}
	cli.Fprintf(w, "%s\n", p.Object)
	if p.Refused != "" {
		cli.Fprintf(w, "  refused: %s\n", p.Refused)
		return nil
	}
	cli.Fprintf(w, "  %s, %s", size(p.Bytes), p.Choice)
	if len(p.Extras) > 0 {
		cli.Fprintf(w, ", keeps %s", strings.Join(p.Extras, ", "))
	}
	cli.Fprintf(w, "\n")
	for _, m := range p.Members {
		cli.Fprintf(w, "  %s: %s\n", m.Name, m.Choice)
	}
	for _, u := range p.Unread {
		cli.Fprintf(w, "  skipped: %s\n", u)
	}
	if p.Empty != "" {
		cli.Fprintf(w, "  no records: %s\n", p.Empty)
	}
	if len(p.Sample) > 0 {
		if err := printSample(w, p.Sample); err != nil {
			return err
		}
	}
	if len(p.Rejected) > 0 {
		cli.Fprintf(w, "  rejected of the first %s: %s; the first: %s\n", plural(p.Records, "record"),
			ingestreport.CountsByReason(p.Rejected), p.First)
	}
	for _, n := range p.Notes {
		cli.Fprintf(w, "  note: %s\n", n)
	}
	return nil
}

// printSample prints rows as an indented table.
func printSample(w io.Writer, sample []ingest.PreviewRow) error {
	var rows [][]string
	for _, r := range sample {
		row := []string{r.URL, "-", "-"}
		if r.Time != nil {
			row[1] = r.Time.Format(time.RFC3339)
		}
		if r.Size != nil {
			row[2] = count(*r.Size)
		}
		rows = append(rows, row)
	}
	var text bytes.Buffer
	if err := table(&text, "URL TIME >SIZE", rows); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		cli.Fprintf(w, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
	return nil
}
