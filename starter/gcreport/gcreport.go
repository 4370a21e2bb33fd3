// Package gcreport prints what a garbage collection has done. The verb gc of the starter calls it.
package gcreport

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
)

// Print prints the result of a garbage collection for people.
func Print(out io.Writer, res *activities.Garbage) {
	dropped, deleted, removed := "Dropped", "Deleted", "Removed"
	if res.DryRun {
		dropped, deleted, removed = "Would drop", "Would delete", "Would remove"
	}
	if s := res.Staging; len(s.Runs) > 0 {
		cli.Fprintf(out, "%s the staging of %s that nobody continues: %s, %s\n", removed,
			cli.Plural(int64(len(s.Runs)), "run"), cli.Plural(s.Objects, "object"), cli.Size(s.Bytes))
	}
	if n := res.Staging.Abandoned; n > 0 {
		cli.Fprintf(out, "%s %s from the order of ingests that never ended\n", removed, cli.Plural(int64(n), "ingest"))
	}
	if res.Nothing {
		cli.Fprintf(out, "Nothing was ever published in this lake, so nothing is collected\n")
		return
	}
	kept := "kept " + cli.Plural(int64(res.Kept), "version")
	if res.Tagged > 0 {
		kept += fmt.Sprintf(", %d of them for their tags", res.Tagged)
	}
	cli.Fprintf(out, "%s %s, %s\n", dropped, cli.Plural(int64(len(res.Dropped)), "version"), kept)
	for rest := res.Held; len(rest) > 0; {
		h, n := rest[0], 0 // by holder
		for n < len(rest) && rest[n].Holder == h.Holder {
			n++
		}
		cli.Fprintf(out, "Held: %s that %s still reads; if it has died, until %s\n",
			cli.Plural(int64(n), "dropped version"), h.Holder, h.Until.Local().Format(time.DateTime))
		rest = rest[n:]
	}
	if n := res.Deleted.Total(); n.Objects > 0 {
		cli.Fprintf(out, "%s %s, %s\n", deleted, cli.Plural(n.Objects, "object"), cli.Size(n.Bytes))
		names := slices.SortedFunc(maps.Keys(res.Deleted), func(a, b string) int {
			return cmp.Or(cmp.Compare(res.Deleted[b].Bytes, res.Deleted[a].Bytes), cmp.Compare(a, b))
		})
		for _, name := range names {
			n := res.Deleted[name]
			cli.Fprintf(out, "  %-17s %10s  %10s\n", name, cli.Count(n.Objects), cli.Size(n.Bytes))
		}
	} else {
		cli.Fprintf(out, "%s nothing\n", deleted)
	}
	if res.Spared.Objects > 0 {
		cli.Fprintf(out, "Needed again: %s, %s\n", cli.Plural(res.Spared.Objects, "object"), cli.Size(res.Spared.Bytes))
	}
	if n := res.Found.Total(); res.DryRun && n.Objects > 0 && res.Deleted.Total().Objects == 0 {
		cli.Fprintf(out, "Would write down %s, %s, to be deleted after the time of grace\n",
			cli.Plural(n.Objects, "object"), cli.Size(n.Bytes))
	}
	if n := res.Waiting; n.Objects > 0 {
		cli.Fprintf(out, "Waiting for the end of their time of grace: %s, %s; run gc again after %s\n",
			cli.Plural(n.Objects, "object"), cli.Size(n.Bytes), res.Next.Local().Format(time.DateTime))
	}
	for _, line := range res.Unreadable {
		cli.Fprintf(out, "Left alone, since it cannot be read: %s\n", line)
	}
}
