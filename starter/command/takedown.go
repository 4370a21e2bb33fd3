package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/starter/find"
)

// newTakedownCommand returns "starter takedown" with its verbs.
func newTakedownCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "takedown",
		Short: "Hide a site or a URL in every version of the lake",
		Long: `Takedown hides a domain, a host, a URL or all URLs with a prefix, in every kept version
at once and in what is ingested later. Counts, totals and lists of datasets are exact
without the hidden rows. Servers follow with their next refresh.

The rows are hidden, not deleted: they stay in the lake's Parquet files, which other
programs can read. "starter compact" writes the batches that have them again without
them, and then "starter gc" deletes the old files. A bucket with versioning keeps these
as older versions; "takedown purge" deletes them. "takedown status" looks what still
holds the rows.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose add, list, status, purge or lift")
		},
	}
	cmd.AddCommand(g.addTakedownCommand(), g.listTakedownCommand(), g.statusTakedownCommand(), g.purgeTakedownCommand(), g.liftTakedownCommand())
	return cmd
}

// verb completes a verb with what it does.
func (g *global) takedownVerb(cmd *cobra.Command, o *options, do func(ctx context.Context, store blob.Store, args []string, out io.Writer) error) *cobra.Command {
	g.lakeFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.json = g.json
		store, url, err := g.store(cmd.Context())
		if err == nil {
			err = requireLake(cmd.Context(), store, url)
		}
		if err != nil {
			return err
		}
		return lake.Explained(url, do(cmd.Context(), store, args, cmd.OutOrStdout()))
	}
	return cmd
}

func (g *global) addTakedownCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "add --lake URL (--domain D | --host H | --url U | --prefix P) --reason TEXT",
		Short: "Hide rows in every version",
		Long: `Add hides rows in every kept version with one change of the manifest, and those that are
ingested later. It reads the rows of the domain in question, no others.

  --domain  a registrable domain with all hosts below it, e.g. example.com
  --host    one host with all its URLs, without the hosts below it
  --url     one URL
  --prefix  all URLs of one host that begin with this text

Any spelling is taken to the canonical form that the lake has. A URL or a prefix without
a scheme is meant with http, https and ftp. With --from or --to, rows without a time are
not hidden; the command says how many there are.

An equal takedown that is in force already is named, and nothing changes. The record of a
takedown has no URL: when it is lifted, a digest of what it named stays.`,
		Example: `  starter takedown add --lake /data/lake --domain example.com --reason "request 17" --dry-run
  starter takedown add --lake /data/lake --domain example.com --reason "request 17"
  starter takedown add --lake s3://b/lake --prefix https://example.org/user/ada/ --reason GDPR --by legal
  starter takedown add --lake s3://b/lake --host a.example.org --dataset crawl --to 2020-01-01 --reason old`,
		Args: cli.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&o.domain, "domain", "", "hide this `DOMAIN` with all its hosts")
	f.StringVar(&o.host, "host", "", "hide this `HOST`")
	f.StringVar(&o.url, "url", "", "hide this `URL`")
	f.StringVar(&o.prefix, "prefix", "", "hide all URLs that begin with this `TEXT`: a host, a slash, perhaps more")
	f.StringVar(&o.dataset, "dataset", "", "only in this dataset, by `NAME` or id (default: in all)")
	f.StringVar(&o.from, "from", "", "only rows of this `TIME` or later, e.g. 2024-11-20")
	f.StringVar(&o.to, "to", "", "only rows before this `TIME`")
	f.StringVar(&o.reason, "reason", "", "why, for the record; no URLs: it stays (`TEXT`)")
	f.StringVar(&o.by, "by", userName(), "who asked for it, for the record (`NAME`)")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be hidden")
	return g.takedownVerb(cmd, o, func(ctx context.Context, store blob.Store, _ []string, out io.Writer) error {
		return o.add(ctx, store, out)
	})
}

func (g *global) listTakedownCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "list --lake URL",
		Short: "List the takedowns",
		Example: `  starter takedown list --lake /data/lake
  starter takedown list --lake /data/lake --all --json`,
		Args: cli.Args(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "also those that were lifted, without what they named")
	return g.takedownVerb(cmd, o, func(ctx context.Context, store blob.Store, _ []string, out io.Writer) error {
		return o.list(ctx, store, out)
	})
}

func (g *global) statusTakedownCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "status ID --lake URL",
		Short: "Look what still holds rows of a takedown",
		Long: `Status looks at the objects of the lake: for each kept version, how many rows the
takedown matches, and that none of them is shown; and which objects still hold such rows,
or the name of the domain, and which commands end that. It reads the parts of kept versions by their
index, and the other parts, those of a failed ingest for example, as a whole. With --deep
it reads all parts in which the rows can be. In a bucket that keeps older versions of
objects it reads those too.

It ends with exit code 0 if nothing holds anything any more, and with 3 if something does,
or if that is not known.`,
		Example: `  starter takedown status 20261120-0f3c9a7152 --lake /data/lake`,
		Args:    cli.Args(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&o.deep, "deep", false, "trust no index; read every part in which the rows can be")
	return g.takedownVerb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.status(ctx, store, args[0], out)
	})
}

func (g *global) purgeTakedownCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "purge ID --lake URL",
		Short: "Delete older versions of objects that hold hidden rows",
		Long: `Purge is for buckets with versioning, which keep what "starter gc" deletes. It deletes
the older versions of objects that hold rows of a takedown, or the name of the domain, and
no others, and never the current version of an object. Run it after "starter compact" and
"starter gc", which make the versions older. No program that uses the lake needs an older
version, so it may run beside all of them, be stopped, and be repeated.

The role needs s3:ListBucketVersions, s3:GetObjectVersion and s3:DeleteObjectVersion. What
it may not delete is named. The exit code is 3 if an older version is left that holds
something, or could not be looked into.`,
		Example: `  starter takedown purge 20261120-0f3c9a7152 --lake s3://b/lake --dry-run
  starter takedown purge 20261120-0f3c9a7152 --lake s3://b/lake`,
		Args: cli.Args(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be deleted")
	return g.takedownVerb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.purge(ctx, store, args[0], out)
	})
}

func (g *global) liftTakedownCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "lift ID --lake URL",
		Short: "End a takedown",
		Long: `Lift ends a takedown. Its rows are shown again in all versions that still have them,
unless another takedown hides them. Rows that a compaction has dropped do not come back:
retire their batch, publish, and ingest it again. A compaction that has not ended drops
nothing of a takedown that is lifted. The record of the takedown stays.`,
		Example: `  starter takedown lift 20261120-0f3c9a7152 --lake /data/lake --reason "withdrawn"`,
		Args:    cli.Args(cobra.ExactArgs(1)),
	}
	f := cmd.Flags()
	f.StringVar(&o.reason, "reason", "", "why, for the record (`TEXT`)")
	f.StringVar(&o.by, "by", userName(), "who asked for it, for the record (`NAME`)")
	return g.takedownVerb(cmd, o, func(ctx context.Context, store blob.Store, args []string, out io.Writer) error {
		return o.lift(ctx, store, args[0], out)
	})
}

// options are the flags of all verbs.
type options struct {
	domain, host, url, prefix string
	dataset, from, to         string
	reason, by                string
	dryRun, all, deep         bool
	json                      bool
}

// target returns what the flags name.
func (o *options) target(list *urlnorm.SuffixList) (catalog.Target, error) {
	var kind catalog.TargetKind
	var text string
	n := 0
	for _, f := range []struct {
		kind catalog.TargetKind
		text string
	}{{catalog.DomainTarget, o.domain}, {catalog.HostTarget, o.host}, {catalog.URLTarget, o.url}, {catalog.PrefixTarget, o.prefix}} {
		if f.text != "" {
			kind, text = f.kind, f.text
			n++
		}
	}
	if n != 1 {
		return catalog.Target{}, cli.Usagef("give one of --domain, --host, --url and --prefix")
	}
	t, err := catalog.ParseTarget(list, kind, text)
	if err != nil {
		return t, &cli.UsageError{Err: err}
	}
	return t, nil
}

// timeForms are the spellings of a time, with how long the named span is.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02", "2006-01", "2006"}

// parseTime returns a time in milliseconds, nil for "".
func parseTime(flag, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			ms := t.UnixMilli()
			return &ms, nil
		}
	}
	return nil, cli.Usagef("--%s %q is no time; use e.g. 2024-11-20 or 2024-11-20T10:00:00Z", flag, text)
}

// rule makes the rule that the flags describe.
func (o *options) rule(ctx context.Context, store blob.Store) (catalog.Takedown, error) {
	r := catalog.Takedown{Reason: strings.TrimSpace(o.reason), By: o.by, Created: time.Now().UTC().Truncate(time.Second)}
	if r.Reason == "" && !o.dryRun {
		return r, cli.Usagef("no reason given; use --reason TEXT. It stays on record, so do not write URLs into it")
	}
	r.Reason = max(r.Reason, "-")
	var err error
	if r.From, err = parseTime("from", o.from); err != nil {
		return r, err
	}
	if r.To, err = parseTime("to", o.to); err != nil {
		return r, err
	}
	if r.From != nil && r.To != nil && *r.From >= *r.To {
		return r, cli.Usagef("--from %s is not before --to %s", o.from, o.to)
	}
	list, err := suffixList(ctx, store)
	if err != nil {
		return r, err
	}
	if r.Target, err = o.target(list); err != nil {
		return r, err
	}
	if o.dataset != "" {
		d, err := find.Dataset(ctx, store, o.dataset)
		if err != nil {
			return r, err
		}
		r.Dataset, r.DatasetID = d.Name, d.ID
	}
	r.ID = catalog.NewTakedownID(r.Created)
	return r, nil
}

// suffixList returns the list that the current version follows, or that of this program.
func suffixList(ctx context.Context, store blob.Store) (*urlnorm.SuffixList, error) {
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		if lost := catalog.CheckManifestPresent(ctx, store); lost != nil {
			return nil, lost
		}
		return nil, fmt.Errorf("%w; takedowns are kept beside versions, so publish first", err)
	}
	if err != nil {
		return nil, err
	}
	ref, err := m.Version("")
	if err != nil {
		return nil, err
	}
	v, err := catalog.ReadVersion(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	list, err := lake.LoadSuffixList(ctx, store, v.PublicSuffix)
	var missing *lake.MissingListError
	if errors.As(err, &missing) || errors.Is(err, codec.ErrCorrupt) {
		return urlnorm.BuiltinSuffixes(), nil
	}
	return list, err
}

// userName is who runs the program.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func (o *options) add(ctx context.Context, store blob.Store, out io.Writer) error {
	r, err := o.rule(ctx, store)
	if err != nil {
		return err
	}
	do := suppress.Add
	if o.dryRun {
		do = suppress.Preview
	}
	res, err := do(ctx, store, r, suppress.Options{})
	if err != nil {
		return err
	}
	if o.json {
		return cli.WriteJSON(out, res, true)
	}
	switch {
	case res.Existed:
		cli.Fprintf(out, "Takedown %s hides %s already.\n", res.ID, describeTakedown(&res.Rule))
		return nil
	case o.dryRun:
		cli.Fprintf(out, "A takedown of %s would hide", describeTakedown(&res.Rule))
	default:
		cli.Fprintf(out, "Takedown %s of %s hides", res.ID, describeTakedown(&res.Rule))
	}
	o.matched(res, out)
	if !o.dryRun {
		cli.Fprintf(out, "It is epoch %d. Servers follow it with their next refresh, after 2 seconds by default.\n"+
			"The rows are hidden, and still stored. %s drops them, and then %s deletes them;\n"+
			"%s looks what still holds them.\n", res.Epoch, cli.Typed("starter compact"), cli.Typed("starter gc"),
			cli.Typed("starter takedown status "+res.ID))
	}
	return nil
}

// matched prints what a rule matches.
func (o *options) matched(res *suppress.Result, out io.Writer) {
	if len(res.Versions) == 0 {
		cli.Fprintf(out, " nothing that is in the lake now, and what is ingested later.\n")
		return
	}
	cli.Fprintf(out, " %s", cli.Plural(res.Current.Rows, "row"))
	if res.Current.Rows > 0 {
		cli.Fprintf(out, " of %s in %s", cli.Plural(res.Current.Domains, "domain"), cli.Plural(res.Current.Datasets, "dataset"))
	}
	cli.Fprintf(out, " of the current version.\n")
	older := int64(0)
	for _, v := range res.Versions {
		if v.Rows > 0 && v.Version != res.Version {
			older++
		}
	}
	switch older {
	case 0:
	case 1:
		cli.Fprintf(out, "1 version kept before has rows of it too.\n")
	default:
		cli.Fprintf(out, "%d versions kept before have rows of it too.\n", older)
	}
	if n := res.Current.Undated; n > 0 {
		cli.Fprintf(out, "%s without a time cannot be told to be from that span, and are not hidden.\n", cli.Plural(n, "row"))
	}
	const most = 12
	rows := [][]string{}
	for _, d := range res.Datasets[:min(len(res.Datasets), most)] {
		rows = append(rows, []string{d.Dataset, cli.Count(d.Rows)})
	}
	if n := len(res.Datasets) - most; n > 0 {
		rows = append(rows, []string{fmt.Sprintf("… %d more", n), ""})
	}
	_ = cli.Table(out, "DATASET ROWS", rows)
}

// describeTakedown names what a rule hides.
func describeTakedown(r *catalog.Takedown) string {
	s := string(r.Kind) + " " + r.Target.String()
	if r.Dataset != "" {
		s += " in " + r.Dataset
	}
	if r.From != nil {
		s += " from " + stamp(*r.From)
	}
	if r.To != nil {
		s += " before " + stamp(*r.To)
	}
	return s
}

func stamp(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if t.Truncate(24 * time.Hour).Equal(t) {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}

// listedTakedowns is a line of the list.
type listedTakedowns struct {
	catalog.TakedownRecord
	// Target is the text of a rule that is in force.
	Target string `json:"target,omitempty"`
}

func (o *options) list(ctx context.Context, store blob.Store, out io.Writer) error {
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		m, err = &catalog.Manifest{}, catalog.CheckManifestPresent(ctx, store)
	}
	if err != nil {
		return err
	}
	doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
	if err != nil {
		return err
	}
	inForce, err := doc.Rules(ctx, store)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for _, r := range inForce.All() {
		texts[r.ID] = describeTakedown(&r)
	}
	all := []listedTakedowns{}
	for rec, err := range doc.Records(ctx, store) {
		if err != nil {
			return err
		}
		if text, ok := texts[rec.ID]; ok || o.all {
			all = append(all, listedTakedowns{rec, text})
		}
	}
	slices.SortStableFunc(all, func(a, b listedTakedowns) int { return a.Created.Compare(b.Created) })
	if o.json {
		return cli.WriteJSON(out, all, true)
	}
	if len(all) == 0 {
		cli.Fprintf(out, "No takedown is in force.\n")
		return nil
	}
	rows := make([][]string, len(all))
	for i, l := range all {
		what := l.Target
		if l.Lifted != nil {
			what = fmt.Sprintf("lifted %s; %s, sha256 %.12s…", l.Lifted.Format(time.DateOnly), l.Kind, l.Digest)
		}
		rows[i] = []string{l.ID, l.Created.Format(time.DateOnly), what, l.By, l.Reason}
	}
	return cli.Table(out, "ID ADDED HIDES BY REASON", rows)
}

func (o *options) lift(ctx context.Context, store blob.Store, id string, out io.Writer) error {
	res, err := suppress.Lift(ctx, store, id, o.by, strings.TrimSpace(o.reason), suppress.Options{})
	if err != nil {
		return err
	}
	if o.json {
		return cli.WriteJSON(out, res, true)
	}
	cli.Fprintf(out, "Takedown %s of %s is lifted, in epoch %d.\n", id, describeTakedown(&res.Rule), res.Epoch)
	cli.Fprintf(out, "%s of it are in the current version; those that no other takedown hides are shown again.\n",
		cli.Plural(res.Current.Rows, "row"))
	cli.Fprintf(out, "Rows that a compaction has dropped do not come back. To have them again, retire their batch, publish,\n"+
		"and ingest it again.\n")
	return nil
}

func (o *options) status(ctx context.Context, store blob.Store, id string, w io.Writer) error {
	s, err := suppress.Inspect(ctx, store, id, o.deep)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if o.json {
		err = cli.WriteJSON(out, s, true)
	} else {
		printTakedown(s, out)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if s.Rule != nil && !s.Gone {
		return cli.ErrPending
	}
	return nil
}

// mostHoldings is how many objects are listed for people.
const mostHoldings = 20

// kinds counts the objects that hold something, by kind.
func kinds(holdings []suppress.Holding) string {
	var names []string
	counts := map[string]int64{}
	for _, h := range holdings {
		if counts[h.Kind] == 0 {
			names = append(names, h.Kind)
		}
		counts[h.Kind]++
	}
	for i, name := range names {
		switch name {
		case "index":
			names[i] = cli.Plural(counts[name], "list") + " of domains"
		case "trees":
			names[i] = cli.Plural(counts[name], "file") + " of path trees"
		case "page keys":
			names[i] = cli.Plural(counts[name], "file") + " of page keys"
		case "postings":
			names[i] = cli.Plural(counts[name], "postings object")
		default:
			names[i] = cli.Plural(counts[name], name)
		}
	}
	return strings.Join(names, ", ")
}

// printTakedown prints a state for people.
func printTakedown(s *suppress.State, out io.Writer) {
	if s.Rule == nil {
		cli.Fprintf(out, "Takedown %s was lifted on %s", s.ID, s.Lifted.Format(time.DateOnly))
		if s.LiftedBy != "" {
			cli.Fprintf(out, " by %s", s.LiftedBy)
		}
		if s.LiftReason != "" {
			cli.Fprintf(out, ": %s", s.LiftReason)
		}
		cli.Fprintf(out, ". It hides nothing.\n")
		return
	}
	cli.Fprintf(out, "Takedown %s: %s, added %s by %s: %s\n\n", s.ID, describeTakedown(s.Rule), s.Created.Format(time.DateOnly), s.By, s.Reason)
	rows := [][]string{}
	for _, v := range s.Kept {
		rows = append(rows, []string{v.Version, cli.Count(v.Rows), cli.Count(v.Shown)})
	}
	_ = cli.Table(out, "KEPT_VERSION STORED_ROWS SHOWN_ROWS", rows)
	cli.Fprintf(out, "\n%s in the lake; %s read for rows that no index of a kept version knows.\n",
		cli.Plural(int64(s.Parts), "part"), cli.Count(int64(s.PartsRead)))
	if len(s.Holdings) == 0 {
		cli.Fprintf(out, "No object that was looked at holds any of it.\n")
	} else {
		cli.Fprintf(out, "\nSomething of it is still in %s:\n", kinds(s.Holdings))
	}
	for i, h := range s.Holdings {
		if i == mostHoldings {
			cli.Fprintf(out, "… %d more; --json lists all\n", len(s.Holdings)-i)
			break
		}
		what := "the name of the domain"
		switch h.Kind {
		case "part":
			what = cli.Plural(h.Rows, "row")
		case "trees", "page keys":
			what = "hosts and paths"
		}
		cli.Fprintf(out, "  %s: %s\n", h.Object, what)
		cli.Fprintf(out, "    until %s", h.Until)
		if n := len(h.Versions); n > 0 {
			cli.Fprintf(out, " (%s: %s", cli.Plural(int64(n), "version"), h.Versions[0])
			if n > 1 {
				cli.Fprintf(out, " … %s", h.Versions[n-1])
			}
			cli.Fprintf(out, ")")
		}
		cli.Fprintf(out, "\n")
		for _, l := range h.Leases {
			cli.Fprintf(out, "    held by %s\n", l)
		}
	}
	if s.Staging > 0 {
		cli.Fprintf(out, "\n%s in staging were not looked into. Those of an ingest or a compaction go when it ends, those of a\n"+
			"failed one with %s.\n", cli.Plural(int64(s.Staging), "object"), cli.Typed("starter gc"))
	}
	printPurgeVersions(s, out)
	for _, u := range s.Unknown {
		cli.Fprintf(out, "Not known: %s\n", u)
	}
	cli.Fprintf(out, "\nNot looked at: %s.\n", strings.Join(s.NotLookedAt, "; "))
}

// printPurgeVersions prints what was found in the older versions of objects.
func printPurgeVersions(s *suppress.State, out io.Writer) {
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
