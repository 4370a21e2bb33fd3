package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// minRatedBytes is the size of the inputs from which a report has a rate. Smaller ones are read in
// less than a second, so that a rate would measure Temporal, or the wait for a worker.
const minRatedBytes = 4 << 20

// printIngest prints the result of an ingest for people.
func printIngest(w io.Writer, r *workflows.IngestResult, took time.Duration) {
	if r.Nothing {
		cli.Fprintf(w, "Nothing is new: other batches of %s have read %s of these names and sizes\n", r.Dataset,
			cli.Plural(int64(r.Known), "object"))
		return
	}
	cli.Fprintf(w, "Dataset %s (id %d), batch %s\n", r.Dataset, r.DatasetID, r.Batch)
	cli.Fprintf(w, "  read      %12s records, %s in %s\n", cli.Count(r.Records), cli.Size(r.Bytes), cli.Plural(int64(r.Objects), "object"))
	for _, group := range r.Groups {
		if r.GroupCount == 1 {
			cli.Fprintf(w, "    as %s\n", group.Choice)
			break
		}
		cli.Fprintf(w, "    %s as %s; the first: %s\n", cli.Plural(int64(group.Objects), "object"), group.Choice, group.First)
	}
	if more := r.GroupCount - len(r.Groups); more > 0 {
		cli.Fprintf(w, "    and objects of %s\n", cli.Plural(int64(more), "other kind"))
	}
	if r.UnreadCount > 0 {
		cli.Fprintf(w, "  unread    %12s, named in the record of the batch\n", cli.Plural(r.UnreadCount, "file"))
	}
	for _, u := range r.Unread {
		cli.Fprintf(w, "    %s: %s\n", u.Name, u.Reason)
	}
	row := strings.TrimLeft(cli.Plural(r.Rows, "row"), "0123456789,") // the number has a column of its own
	cli.Fprintf(w, "  kept      %12s%s of %s\n", cli.Count(r.Rows), row, cli.Plural(r.Domains, "domain"))
	if r.Unwrapped > 0 {
		cli.Fprintf(w, "  unwrapped %12s URLs of archives' copies\n", cli.Count(r.Unwrapped))
	}
	cli.Fprintf(w, "  merged    %12s equal to a kept row\n", cli.Count(r.Merged))
	reportRejects(w, r)
	perRow := float64(r.PartBytes) / float64(max(1, r.Rows))
	cli.Fprintf(w, "  written   %12s of Parquet, %.1f bytes a row\n", cli.Size(r.PartBytes), perRow)
	for _, n := range r.Notes {
		cli.Fprintf(w, "  note: %s\n", n)
	}
	switch {
	case r.Superseded && r.Effect != nil && r.Effect.Retired:
		cli.Fprintf(w, "The batch was retired after the ingest began, and stays so; to bring it back: %s\n",
			cli.Typed("starter restore --dataset "+r.Dataset+" --batch "+r.Batch))
	case r.Superseded:
		cli.Fprintf(w, "A later ingest of this batch finished first; its content is kept.\n")
	case r.Unchanged:
		cli.Fprintf(w, "The content of the batch is unchanged; its objects were written again.\n")
	}
	printEffect(w, r)
	after := ""
	if took > 0 {
		after = fmt.Sprintf(" after %s", took.Round(100*time.Millisecond))
		if took >= 5*time.Second && r.Bytes >= minRatedBytes {
			after += fmt.Sprintf(", %s records a second", cli.Count(int64(float64(r.Records)/took.Seconds())))
		}
	}
	if r.Version != "" {
		cli.Fprintf(w, "In version %s%s\n", r.Version, after)
	} else {
		cli.Fprintf(w, "Finished%s; the next publish adds the batch to a version\n", after)
	}
}

// reportRejects prints how many records were rejected, and the files with the most.
func reportRejects(w io.Writer, r *workflows.IngestResult) {
	var rejected int64
	for _, n := range r.Rejected {
		rejected += n
	}
	cli.Fprintf(w, "  rejected  %12s", cli.Count(rejected))
	if rejected > 0 {
		listed := "listed"
		if r.ListedRejects > 0 {
			listed = "the first " + cli.Count(r.ListedRejects) + " are listed"
		}
		cli.Fprintf(w, " (%s); %s in %s (%s)", countsByReason(r.Rejected), listed, r.RejectsKey, cli.Typed("starter rejects"))
	}
	cli.Fprintf(w, "\n")
	for i := range r.WorstFiles {
		cli.Fprintf(w, "    %s\n", &r.WorstFiles[i])
	}
}

// printEffect prints what the ingest did to the dataset.
func printEffect(w io.Writer, r *workflows.IngestResult) {
	e := r.Effect
	if e == nil || r.Superseded {
		return
	}
	rest := "the dataset has no other batch"
	switch {
	case e.OtherBatches > 0 && e.OtherRows >= 0:
		rest = fmt.Sprintf("the dataset has %s in %s", cli.Plural(e.OtherRows, "row"), cli.Plural(e.OtherBatches, "other batch"))
	case e.OtherBatches > 0:
		rest = "the dataset has " + cli.Plural(e.OtherBatches, "other batch")
	}
	switch {
	case r.Unchanged:
	case e.Replaced && e.ReplacedRows >= 0:
		cli.Fprintf(w, "It replaces an earlier ingest of the batch with %s; %s.\n", cli.Plural(e.ReplacedRows, "row"), rest)
	case e.Replaced:
		cli.Fprintf(w, "It replaces an earlier ingest of the batch; %s.\n", rest)
	case e.Returned:
		cli.Fprintf(w, "The batch was retired, and is back; %s.\n", rest)
	default:
		cli.Fprintf(w, "The batch is new; %s.\n", rest)
	}
	if e.Displaced > 0 {
		cli.Fprintf(w, "It replaces the dataset: %s with %s retired with it.\n",
			cli.Plural(e.Displaced, "other batch"), cli.Plural(e.DisplacedRows, "row"))
	}
	for _, s := range e.Shared {
		cli.Fprintf(w, "Warning: batch %s was made from %s of the same name and size; if the content is the same, "+
			"its rows count twice; to take them out: %s\n", s.Batch, cli.Plural(int64(s.Inputs), "input"),
			cli.Typed(fmt.Sprintf("starter retire --dataset %s --batch %s", r.Dataset, s.Batch)))
	}
	if more := e.SharedBatches - len(e.Shared); more > 0 {
		cli.Fprintf(w, "Warning: %s were made from such inputs, too\n", cli.Plural(int64(more), "other batch"))
	}
	if e.Uncompared > 0 {
		cli.Fprintf(w, "It is not known whether %s were made from the same inputs: their records are too many, or damaged.\n",
			cli.Plural(e.Uncompared, "other batch"))
	}
}

// countsByReason lists counts of rejects: "host 3, no_url 1,204".
func countsByReason(counts map[string]int64) string {
	var s []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		s = append(s, fmt.Sprintf("%s %s", reason, cli.Count(counts[reason])))
	}
	return strings.Join(s, ", ")
}
