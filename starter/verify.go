package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// verified is what `verify --json` prints.
type verified struct {
	Version  string              `json:"version"`
	Segments []indexbuild.Report `json:"segments"`
	Batches  int                 `json:"batches"`
	Parts    int64               `json:"parts"`
	Rows     int64               `json:"rows"`
	Problems []string            `json:"problems"`
}

func verifyCommand(g *global) *cobra.Command {
	var deep bool
	var version string
	cmd := inspecting(g, "verify", "Check a published version, from the manifest down", func(cmd *cobra.Command, store blob.Store, _ string) error {
		v, err := verify(cmd.Context(), store, version, deep)
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
				fmt.Fprintln(out, p)
			}
			var bytes, domains, entries int64
			for _, s := range v.Segments {
				bytes, domains, entries = bytes+s.Bytes, domains+s.Domains, entries+s.Entries
			}
			fmt.Fprintf(out, "Version %s: %s (%s), %s, %s; %s, %s, %s\n", v.Version, plural(int64(len(v.Segments)), "segment"), size(bytes),
				plural(domains, "domain"), plural(entries, "posting"), plural(int64(v.Batches), "batch"), plural(v.Parts, "part"), plural(v.Rows, "row"))
		}
		if n := len(v.Problems); n > 0 {
			return errors.New(plural(int64(n), "problem"))
		}
		if !g.json {
			if deep {
				fmt.Fprintln(out, "Every checksum, order and count is right, in the index and in all Parquet.")
			} else {
				fmt.Fprintln(out, "Every checksum, order and count of the index is right. The Parquet was not read: --deep does.")
			}
		}
		return nil
	})
	cmd.Long = `Verify reads the manifest, the version, every file of its segments and its batch records, and checks every
checksum, order, posting and total. With --deep it also reads every page of all Parquet and counts everything again.
It prints each problem with its file and place, and exits 1 if there is one.`
	cmd.Example = `  starter verify --lake s3://b/lake --deep`
	cmd.Flags().BoolVar(&deep, "deep", false, "also read all Parquet and count everything again")
	cmd.Flags().StringVar(&version, "version-id", "", "the `VERSION` (default: the current one)")
	return cmd
}

// verify checks a version. Corruption is a problem in the answer; the error is about what could not be checked at all.
func verify(ctx context.Context, store blob.Store, id string, deep bool) (*verified, error) {
	out := &verified{Problems: []string{}}
	// problem keeps corruption and absence; anything else ends the check.
	problem := func(err error) error {
		if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
			out.Problems = append(out.Problems, err.Error())
			return nil
		}
		return err
	}
	_, v, err := openVersion(ctx, store, id)
	if err != nil {
		return out, problem(err)
	}
	out.Version, out.Batches = v.ID, len(v.Batches)
	for _, s := range v.Segments {
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		report, err := indexbuild.VerifySegment(ctx, store, ref, deep, "")
		out.Segments = append(out.Segments, report)
		if err != nil && len(report.Problems) == 0 {
			if err := problem(err); err != nil {
				return nil, err
			}
		}
		for _, p := range report.Problems {
			out.Problems = append(out.Problems, p.Text)
		}
		if more := report.Found - int64(len(report.Problems)); more > 0 {
			out.Problems = append(out.Problems, fmt.Sprintf("segment %s: %d more problems", s.ID, more))
		}
	}
	for _, live := range v.Batches {
		if err := problem(verifyBatch(ctx, store, live, out)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// verifyBatch compares a batch record with the version and with the parts that are there.
func verifyBatch(ctx context.Context, store blob.Store, live manifest.Batch, out *verified) error {
	key := live.Record()
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return err
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		return err
	}
	rows := int64(0)
	for _, p := range b.Parts {
		info, err := store.Stat(ctx, p.Key)
		if err != nil {
			return err
		}
		if info.Size != p.Bytes {
			return codec.Corrupt(p.Key, "size", -1, p.Bytes, info.Size)
		}
		rows += p.Rows
	}
	out.Parts += int64(len(b.Parts))
	out.Rows += rows
	if rows != b.Rows || rows != live.Rows {
		return codec.Corrupt(key, "rows", -1, fmt.Sprintf("%d as in the version", live.Rows), fmt.Sprintf("%d, %d in its parts", b.Rows, rows))
	}
	return nil
}
