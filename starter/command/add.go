package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/workflows"
)

// Running is what runs for a lake while something is added to it.
type Running struct {
	// Page is the URL of the lake's web page. It is empty if no server runs.
	Page string
	// Stop stops what was started for this command.
	Stop func() error
}

// Add returns the verb add of urlake: ingest for one person on one machine. Run finds or starts
// what the ingest of some inputs needs, and sets TEMPORAL_ADDRESS.
func Add(run func(ctx context.Context, lakeURL string, inputs []string) (Running, error)) *cobra.Command {
	var g global
	var f ingestFlags
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "add LAKE INPUT… [--dataset NAME] [flags]",
		Short: "Ingest files, folders or s3://bucket/prefix/ as datasets",
		Long: `Add ingests inputs into a lake and waits until they can be found. An input is a file,
a glob, a folder, s3://bucket/key or s3://bucket/prefix/. Each becomes a dataset that is
named after it; with --dataset all become one. Formats and columns are detected from
the content, the result says what was chosen, and the flags below override it.

For thousands of inputs, urlake ingest --datasets-from files is faster.

Adding an input again replaces what it was before, so that a list that has grown is not
counted twice. Other inputs add to the dataset.

If "urlake up" runs for the lake, or TEMPORAL_ADDRESS is set, the work is done there.
Otherwise add starts what it needs and stops it at its end. Ctrl-C cancels the ingest;
nothing of it is published then.`,
		Example: `  urlake add ./lake seeds/ crawl.cdx.gz
  urlake add ./lake --dataset crawl 2026-11-20.cdx.gz`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("which lake? Name a folder, as in ./lake, or s3://bucket/prefix")
			}
			if f.datasetsFrom != "" {
				return cli.Usagef("add has no --datasets-from; use urlake ingest --lake %s --datasets-from %s",
					cli.ShellWord(args[0]), f.datasetsFrom)
			}
			g.lake = args[0]
			all, err := f.additions(&g, args[1:])
			if err != nil {
				return err
			}
			return add(cmd, all, args[0], run)
		},
	}
	f.register(&g, cmd)
	// The lake is an argument, and datasets are named as described above.
	for _, name := range []string{"lake", "datasets-from", "again"} {
		cmd.Flags().Lookup(name).Hidden = true
	}
	return cmd
}

// additions returns the ingests of inputs: one for each dataset.
func (f ingestFlags) additions(g *global, inputs []string) (all []workflows.IngestInput, err error) {
	switch {
	case len(inputs) == 0 && len(f.spec.Manifests) == 0:
		return nil, cli.Usagef("what to add? Name files, folders or s3://bucket/prefix/")
	case len(f.spec.Manifests) > 0 && f.spec.Dataset == "":
		return nil, cli.Usagef("which dataset do the inputs of the manifest belong to? Use --dataset NAME")
	}
	groups := [][]string{inputs}
	if f.spec.Dataset == "" {
		groups = nil
		for _, in := range inputs {
			groups = append(groups, []string{in})
		}
	}
	named, batch := f.spec.Dataset, f.spec.Batch
	from := map[string]string{}
	for _, group := range groups {
		if named == "" {
			if f.spec.Dataset, err = nameOf(group[0]); err != nil {
				return nil, err
			}
			if other, ok := from[f.spec.Dataset]; ok {
				return nil, cli.Usagef("%s and %s would both be dataset %s; name one with --dataset NAME, which adds both to it",
					other, group[0], f.spec.Dataset)
			}
			from[f.spec.Dataset] = group[0]
		}
		in, err := f.input(g, group)
		if err != nil {
			return nil, err
		}
		if batch == "" {
			in.Batch = batchOf(slices.Concat(in.Inputs, in.Manifests))
		}
		all = append(all, in)
	}
	return all, nil
}

// nameOf names a dataset after an input: its last element without extensions of formats and of
// compressions.
func nameOf(input string) (string, error) {
	base := path.Base(strings.TrimRight(filepath.ToSlash(input), "/"))
	if base == "." || base == ".." || base == "/" {
		abs, err := filepath.Abs(input)
		if err != nil {
			return "", err
		}
		base = filepath.Base(abs)
	}
	name, err := many.DatasetName([]string{base}, true, false)
	if err != nil {
		return "", cli.Usagef("%w, or use --dataset NAME", err)
	}
	return name, nil
}

// batchOf names a batch after where its inputs are, so that adding them again replaces it.
func batchOf(inputs []string) string {
	const maxBase, digits = 40, 12
	base := "inputs"
	if name, err := nameOf(inputs[0]); err == nil {
		base = name[:min(len(name), maxBase)]
	}
	return base + "-" + lake.Digest([]byte(strings.Join(inputs, "\n")))[:digits]
}

// add ingests one dataset after the other. If one fails, the others are ingested nevertheless.
func add(
	cmd *cobra.Command, all []workflows.IngestInput, lakeName string,
	run func(ctx context.Context, lakeURL string, inputs []string) (Running, error),
) (err error) {
	ctx := cmd.Context()
	out := cmd.OutOrStdout()
	var inputs []string
	for _, in := range all {
		inputs = append(inputs, in.Inputs...)
	}
	for _, in := range all {
		if err := previewOne(cmd, in); err != nil {
			return err
		}
	}
	services, err := run(ctx, all[0].Lake, inputs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var last *workflows.IngestResult
	var failures []error
	for _, in := range all {
		if len(all) > 1 {
			cli.Fprintf(cmd.ErrOrStderr(), "Dataset %s\n", in.Dataset)
		}
		res, err := addOne(cmd, c, in)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			if len(all) > 1 {
				err = fmt.Errorf("%s: %w", in.Dataset, err)
			}
			failures = append(failures, err)
			continue
		}
		if last == nil || res.Rows > last.Rows {
			last = res
		}
	}
	if last != nil && last.Version != "" {
		domain, err := topDomain(ctx, last, all[0].Lake)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if domain != "" {
			cli.Fprintf(out, "\nThe two questions:\n  urlake find %s %s\n  urlake find %s %s --urls %s\n",
				cli.ShellWord(lakeName), domain, cli.ShellWord(lakeName), domain, last.Dataset)
			if services.Page != "" {
				cli.Fprintf(out, "or in a browser: %s?domain=%s\n", services.Page, domain)
			} else {
				cli.Fprintf(out, "or in a browser: urlake up %s\n", cli.ShellWord(lakeName))
			}
		}
	}
	return errors.Join(failures...)
}

// maxShown is how many objects of a dataset add shows before it begins.
const maxShown = 3

// errShown ends a preview.
var errShown = errors.New("enough is shown")

// previewOne shows how the first objects of an ingest are read. If one of them cannot be, the
// ingest would fail, and so does the preview.
func previewOne(cmd *cobra.Command, in workflows.IngestInput) error {
	out := cmd.OutOrStdout()
	cli.Fprintf(out, "Dataset %s, from %s\n", in.Dataset, strings.Join(slices.Concat(in.Inputs, in.Manifests), " "))
	shown := 0
	var refused string
	_, err := ingest.Previews(cmd.Context(), in.Spec, func(p *ingest.Preview) error {
		if shown++; shown > maxShown {
			return errShown
		}
		if p.Refused != "" && !in.SkipUnreadable {
			refused = p.Refused
		}
		return printPreview(out, p)
	})
	switch {
	case errors.Is(err, errShown):
		cli.Fprintf(out, "and further objects; urlake ingest --dry-run shows all\n")
	case err != nil:
		return err
	}
	cli.Fprintf(out, "\n")
	if refused != "" {
		return errors.New("nothing was ingested; convert what is refused, or leave it out (--exclude, --skip-unreadable)")
	}
	return nil
}

// cancelTimeout is how long a cancelled ingest may take to remove its staging.
const cancelTimeout = 15 * time.Second

// addOne ingests one dataset and prints the result. An ingest of the same inputs that an earlier
// command left running is followed instead of another being started.
func addOne(cmd *cobra.Command, c client.Client, in workflows.IngestInput) (*workflows.IngestResult, error) {
	ctx := cmd.Context()
	run, err := startIngest(ctx, c, in)
	if errors.Is(err, errIngesting) {
		cli.Fprintf(cmd.ErrOrStderr(), "An earlier ingest of these inputs goes on.\n")
		run = c.GetWorkflow(ctx, ingestID(in, in.Batch), "")
		err = nil
	}
	if err != nil {
		return nil, err
	}
	var res workflows.IngestResult
	bar := newIngestBar(cmd.ErrOrStderr(), false)
	waits := newWaitLog(cmd.ErrOrStderr(), bar.bar, c, run)
	err = await(cmd, run, &res, true, c, bar.bar, func(ctx context.Context) {
		publisher := ""
		if p, ok := progress(ctx, c, run); ok {
			bar.update(p, time.Now())
			publisher = p.Waiting
		}
		waits.update(ctx, publisher)
	})
	bar.finish(err)
	if ctx.Err() != nil {
		// The worker has to remove the staging before it is stopped.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer stop()
		switch ended := run.Get(ctx, &res); {
		case ended == nil:
			printIngest(cmd.OutOrStdout(), &res, 0)
			return nil, errors.New("stopped; the ingest had ended already")
		case ctx.Err() != nil:
			return nil, err
		}
		return nil, errors.New("stopped; nothing of the ingest is published")
	}
	if err != nil {
		return nil, err
	}
	printIngest(cmd.OutOrStdout(), &res, duration(ctx, c, run))
	return &res, nil
}

// maxCompared is how many domains of a batch are compared to find one with many rows.
const maxCompared = 200_000

// topDomain returns the domain with the most rows among the first ones of a batch, "" if it has
// none.
func topDomain(ctx context.Context, r *workflows.IngestResult, lakeURL string) (string, error) {
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return "", err
	}
	key := lake.BatchKey(r.DatasetID, r.Batch, r.Digest)
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return "", err
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		return "", err
	}
	ref := segment.BatchRef{DatasetID: r.DatasetID, Batch: r.Batch, Digest: r.Digest}
	var best, domain []byte
	var most, rows int64
	compared := 0
	end := func() {
		if rows > most {
			best, most = bytes.Clone(domain), rows
		}
	}
	for _, o := range b.Postings {
		object, err := postings.Open(ctx, store, ref, o)
		if err != nil {
			return "", err
		}
		for n := range object.Parts() {
			for d, err := range object.PartDomains(ctx, n) {
				switch {
				case err != nil:
					return "", err
				case !bytes.Equal(d.Name, domain): // a domain may go on in the next part
					end()
					domain, rows = append(domain[:0], d.Name...), 0
					compared++
				}
				rows += d.Totals.Rows
				if compared > maxCompared {
					return cmp.Or(string(best), string(domain)), nil
				}
			}
		}
	}
	end()
	return string(best), nil
}
