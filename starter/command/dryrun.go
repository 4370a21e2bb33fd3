package command

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
)

// dryRun prints what an ingest would do with each of its inputs. It returns an error if it would
// fail.
func dryRun(cmd *cobra.Command, g *global, spec ingest.Spec) error {
	w := cmd.OutOrStdout()
	show := func(p *ingest.Preview) error {
		preview(w, p)
		return nil
	}
	if g.json {
		// One object a line, as there may be a million.
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		show = func(p *ingest.Preview) error { return lines.Encode(p) }
	}
	totals, err := ingest.Previews(cmd.Context(), spec, show)
	if err != nil {
		return err
	}
	if !g.json {
		for _, n := range totals.Notes {
			cli.Fprintf(w, "note: %s\n", n)
		}
		cli.Fprintf(w, "%s, %s. Nothing was written.\n", plural(int64(totals.Objects), "object"), size(totals.Bytes))
	}
	switch {
	case totals.Refused > 0:
		return fmt.Errorf("%d of %d objects would fail the ingest; mend them, or leave them out (--exclude, --skip-unreadable)",
			totals.Refused, totals.Objects)
	case totals.Unread == totals.Objects && totals.Rows == 0:
		return fmt.Errorf("the inputs hold no records that can be read")
	}
	return nil
}

// preview prints one object for people.
func preview(w io.Writer, p *ingest.Preview) {
	cli.Fprintf(w, "%s\n", p.Object)
	if p.Refused != "" {
		cli.Fprintf(w, "  refused: %s\n", p.Refused)
		return
	}
	cli.Fprintf(w, "  %s, %s", p.Choice, size(p.Bytes))
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
	if len(p.Sample) > 0 {
		var rows [][]string
		for _, r := range p.Sample {
			row := []string{" ", r.URL, "-", "-"}
			if r.Time != nil {
				row[2] = r.Time.Format(time.RFC3339)
			}
			if r.Size != nil {
				row[3] = count(*r.Size)
			}
			rows = append(rows, row)
		}
		_ = table(w, "\u00a0 URL TIME >SIZE", rows)
	}
	if len(p.Rejected) > 0 {
		var all int64
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(p.Rejected)) {
			all += p.Rejected[reason]
			reasons = append(reasons, fmt.Sprintf("%s %s", reason, count(p.Rejected[reason])))
		}
		cli.Fprintf(w, "  rejected of the first %s: %s (%s); the first: %s\n", plural(p.Records, "record"), count(all),
			strings.Join(reasons, ", "), p.First)
	}
	for _, n := range p.Notes {
		cli.Fprintf(w, "  note: %s\n", n)
	}
}
