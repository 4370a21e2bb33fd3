package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
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
		totals, fails, err = many.Previews(cmd.Context(), f.many(in).Spec, show)
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
			countsByReason(p.Rejected), p.First)
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
