package command

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish/lakecheck"
)

func verifyCommand(g *global) *cobra.Command {
	var opt lakecheck.Options
	const short = "Check that a lake is complete and intact"
	cmd := inspectCommand(g, "verify", short, func(cmd *cobra.Command, store blob.Store, _ string) error {
		v, err := lakecheck.Lake(cmd.Context(), store, opt)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if g.json {
			if err := printJSON(out, v); err != nil {
				return err
			}
		} else {
			for _, p := range v.Problems {
				cli.Fprintf(out, "%s\n", p)
			}
			for _, s := range v.Segments {
				for _, id := range s.Uncounted {
					cli.Fprintf(out, "Segment %s: the postings of dataset %d were not recounted, "+
						"because a part is damaged or missing\n", s.Segment, id)
				}
			}
			var bytes, domains, entries int64
			for _, s := range v.Segments {
				bytes, domains, entries = bytes+s.Bytes, domains+s.Domains, entries+s.Entries
			}
			if v.Version != "" {
				cli.Fprintf(out, "Version %s: %s (%s), %s, %s; %s, %s, %s\n", v.Version,
					plural(int64(len(v.Segments)), "segment"), size(bytes), plural(domains, "domain"),
					plural(entries, "posting"), plural(int64(v.Batches), "batch"), plural(v.Parts, "part"), plural(v.Rows, "row"))
			}
			if v.Unpublished > 0 {
				cli.Fprintf(out, "Not published yet: %s\n", plural(int64(v.Unpublished), "finished batch"))
			}
		}
		if n := len(v.Problems); n > 0 {
			return errors.New(plural(int64(n), "problem"))
		}
		if !g.json {
			printChecked(out, opt)
		}
		return nil
	})
	cmd.Long = `Verify reads the manifest and its versions, every file of the version's segments, the
registries, the public suffix lists, and of all finished batches, published or not, the
record, the directories of the postings, and the sizes of the Parquet and of the lists
of rejects. It checks every checksum, order, posting and total. With --deep it also
reads all postings and all Parquet pages and recounts everything. With --all-versions
it also checks the segments and batches that only earlier versions need.

It prints each problem with the file, the position in it, the batches, rows and versions
that need it, and the command that mends it.
The exit code is 1 if there is a problem.`
	cmd.Example = `  starter verify --lake s3://b/lake --deep`
	cmd.Flags().BoolVar(&opt.Deep, "deep", false, "also read all postings and Parquet, and recount everything")
	cmd.Flags().BoolVar(&opt.AllVersions, "all-versions", false, "also check what only earlier versions need")
	cmd.Flags().StringVar(&opt.Version, "version-id", "", "`VERSION` to check (default: the current one)")
	return cmd
}

// printChecked prints what a check that has found nothing has read.
func printChecked(out io.Writer, opt lakecheck.Options) {
	if opt.Deep {
		cli.Fprintf(out, "No problems found in the manifest, the version, the registries, the batch records, their postings,\n"+
			"the index and all Parquet.\n")
	} else {
		cli.Fprintf(out, "No problems found in the manifest, the version, the registries, the batch records and the index.\n"+
			"Only the directories of postings and the sizes of Parquet files were checked; --deep reads them whole.\n")
	}
	if !opt.AllVersions {
		cli.Fprintf(out, "What only earlier versions need was not checked; --all-versions does.\n")
	}
}
