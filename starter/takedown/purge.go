package takedown

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish/suppress"
)

// printVersions prints what was found in the older versions of objects.
func printVersions(s *suppress.State, out io.Writer) {
	v := s.ObjectVersions
	switch {
	case v == nil || v.Versioning == string(blob.Unversioned):
		return
	case len(v.Holdings) == 0:
		cli.Fprintf(out, "\nThe versioning of the bucket is %s: none of %s of objects that was read holds any of it.\n",
			v.Versioning, cli.Plural(int64(v.Looked), "older version"))
		return
	}
	cli.Fprintf(out, "\nThe versioning of the bucket is %s: %s of objects, of %s that can, hold something of it,\n"+
		"until %s:\n", v.Versioning, cli.Plural(int64(len(v.Holdings)), "older version"), cli.Count(int64(v.Looked)),
		cli.Typed("starter takedown purge "+s.ID))
	printOlder(v.Holdings, out)
}

// printOlder lists older versions.
func printOlder(all []suppress.OlderVersion, out io.Writer) {
	for i, v := range all {
		if i == mostHoldings {
			cli.Fprintf(out, "… %d more; --json lists all\n", len(all)-i)
			break
		}
		cli.Fprintf(out, "  %s version %s, %s, of %s\n", v.Object, v.ID, cli.Plural(v.Bytes, "byte"),
			v.Modified.Format(time.RFC3339))
	}
}

func (o *options) purge(ctx context.Context, store blob.Store, id string, w io.Writer) error {
	p, err := suppress.Purge(ctx, store, id, o.dryRun)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if o.json {
		err = cli.WriteJSON(out, p, true)
	} else {
		printPurged(p, out)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if !p.Complete() {
		return cli.ErrPending
	}
	return nil
}

func printPurged(p *suppress.Purged, out io.Writer) {
	what := cli.Plural(int64(p.Objects), "older version") + " with " + cli.Plural(p.Bytes, "byte")
	switch {
	case p.Versioning == string(blob.Unversioned):
		cli.Fprintf(out, "The lake is in no bucket with versioning: nothing to delete.\n")
	case p.DryRun:
		cli.Fprintf(out, "It would delete %s.\n", what)
		printOlder(p.Versions, out)
	default:
		cli.Fprintf(out, "Deleted %s.\n", what)
	}
	for i, r := range p.Refused {
		if i == mostHoldings {
			cli.Fprintf(out, "… %d more; --json lists all\n", len(p.Refused)-i)
			break
		}
		cli.Fprintf(out, "Not deleted: %s version %s, %s: %s\n", r.Object, r.ID, cli.Plural(r.Bytes, "byte"), r.Reason)
	}
	for _, u := range p.Unknown {
		cli.Fprintf(out, "Not known: %s\n", u)
	}
}
