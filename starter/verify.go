package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// verified is what "verify --json" prints.
type verified struct {
	Version  string          `json:"version"`
	Segments []verify.Report `json:"segments"`
	Batches  int             `json:"batches"`
	Parts    int64           `json:"parts"`
	Rows     int64           `json:"rows"`
	Problems []string        `json:"problems"`
}

func verifyCommand(g *global) *cobra.Command {
	var deep bool
	var version string
	const short = "Check that a published version is complete and intact"
	cmd := inspectCommand(g, "verify", short, func(cmd *cobra.Command, store blob.Store, _ string) error {
		v, err := verifyVersion(cmd.Context(), store, version, deep)
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
		}
		if n := len(v.Problems); n > 0 {
			return errors.New(plural(int64(n), "problem"))
		}
		if !g.json {
			if deep {
				cli.Fprintf(out, "No problems found in the manifest, the version, the registries, the batch records, their postings,\n"+
					"the index and all Parquet.\n")
			} else {
				cli.Fprintf(out, "No problems found in the manifest, the version, the registries, the batch records and the index.\n"+
					"Only the directories of postings and the sizes of Parquet files were checked; --deep reads them whole.\n")
			}
		}
		return nil
	})
	cmd.Long = `Verify reads the manifest, the version, every file of its segments, the registries,
the public suffix list, the batch records and the directories of their postings. It
checks every checksum, order, posting and total. With --deep it also reads all postings and all Parquet pages
and recounts everything.

It prints each problem with the file and the position in it. The exit code is 1 if
there is a problem.`
	cmd.Example = `  starter verify --lake s3://b/lake --deep`
	cmd.Flags().BoolVar(&deep, "deep", false, "also read all postings and Parquet, and recount everything")
	cmd.Flags().StringVar(&version, "version-id", "", "`VERSION` to check (default: the current one)")
	return cmd
}

// problems collects the damage that a check finds, at most one problem for each object.
type problems struct {
	list []string
	seen map[string]bool // keys of damaged objects
}

// add keeps an error that is a *codec.CorruptError, unless the object has a problem already. It
// returns any other error, which ends the check.
func (p *problems) add(err error) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	if !p.seen[c.File] {
		p.seen[c.File] = true
		p.list = append(p.list, c.Error())
	}
	return nil
}

// missing turns blob.ErrNotExist, of an object that must exist, into a *codec.CorruptError.
func missing(key string, err error) error {
	if errors.Is(err, blob.ErrNotExist) {
		return codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	return err
}

// verifyVersion checks a version, the current one for "". Damage becomes a problem in the answer;
// an error
// means that the check could not be finished.
func verifyVersion(ctx context.Context, store blob.Store, id string, deep bool) (*verified, error) {
	out := &verified{Problems: []string{}}
	found := &problems{list: []string{}, seen: map[string]bool{}}
	err := out.check(ctx, store, id, deep, found)
	out.Problems = found.list
	return out, err
}

func (out *verified) check(ctx context.Context, store blob.Store, id string, deep bool, found *problems) error {
	_, v, err := openVersion(ctx, store, id)
	if errors.Is(err, manifest.ErrNoVersion) {
		if lost := checkManifestLost(ctx, store); lost != nil {
			err = lost
		}
	}
	if err != nil {
		return found.add(err)
	}
	out.Version, out.Batches = v.ID, len(v.Batches)
	for _, s := range v.Segments {
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		report, err := verify.Segment(ctx, store, ref, deep, "")
		out.Segments = append(out.Segments, report)
		if err != nil && len(report.Problems) == 0 {
			if err := found.add(err); err != nil {
				return err
			}
		}
		seen := maps.Clone(found.seen) // one report may have several problems of an object
		for _, p := range report.Problems {
			if !seen[p.Object] {
				found.seen[p.Object] = true
				found.list = append(found.list, p.Text)
			}
		}
		if more := report.Found - int64(len(report.Problems)); more > 0 {
			found.list = append(found.list, fmt.Sprintf("segment %s: %d more problems", s.ID, more))
		}
	}
	for _, live := range v.Batches {
		if err := out.batch(ctx, store, live, deep, found); err != nil {
			return err
		}
	}
	if err := found.add(lake.CheckSuffixList(ctx, store, v.PublicSuffix)); err != nil {
		return err
	}
	return verifyRegistries(ctx, store, v, found)
}

// batch compares a batch record with the version, with its parts and with its postings.
func (out *verified) batch(ctx context.Context, store blob.Store, live manifest.Batch, deep bool, found *problems) error {
	key := live.Record()
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return found.add(missing(key, err))
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		return found.add(err)
	}
	rows := int64(0)
	for _, p := range b.Parts {
		info, err := store.Stat(ctx, p.Key)
		if err == nil && info.Size != p.Bytes {
			err = codec.Corrupt(p.Key, "size", -1, p.Bytes, info.Size)
		}
		if err := found.add(missing(p.Key, err)); err != nil {
			return err
		}
		rows += p.Rows
	}
	out.Parts += int64(len(b.Parts))
	out.Rows += rows
	if rows != b.Rows || rows != live.Rows {
		return found.add(codec.Corrupt(key, "rows", -1, fmt.Sprintf("%d as in the version", live.Rows),
			fmt.Sprintf("%d, %d in its parts", b.Rows, rows)))
	}
	damaged := false
	for _, o := range b.Postings {
		info, err := store.Stat(ctx, o.Key)
		if err == nil && info.Size != o.Bytes {
			err = codec.Corrupt(o.Key, "size", -1, o.Bytes, info.Size)
		}
		damaged = damaged || err != nil
		if err := found.add(missing(o.Key, err)); err != nil {
			return err
		}
	}
	if damaged {
		return nil
	}
	ref := segment.BatchRef{DatasetID: live.DatasetID, Batch: live.Batch, Digest: live.Digest}
	_, err = indexbuild.CheckBatch(ctx, store, ref, deep)
	return found.add(err)
}

// verifyRegistries checks the registry and the batch registries: that the ids and names of datasets
// are those of the version, and that its batches are registered.
func verifyRegistries(ctx context.Context, store blob.Store, v *manifest.Version, found *problems) error {
	registered, err := lake.Registry(ctx, store)
	if err == nil && len(registered) == 0 {
		err = lake.CheckPresent(ctx, store, lake.RegistryKey)
	}
	if err := found.add(err); err != nil {
		return err
	}
	if rules, err := lake.ReadRules(ctx, store); err == nil && rules.PublicSuffix != v.PublicSuffix {
		if err := found.add(lake.CheckSuffixList(ctx, store, rules.PublicSuffix)); err != nil {
			return err
		}
	}
	names := map[uint32]string{}
	for _, d := range registered {
		names[d.ID] = d.Name
	}
	for _, d := range v.Datasets {
		if got, ok := names[d.ID]; got != d.Name {
			if !ok {
				got = "none"
			}
			err := codec.Corrupt(lake.RegistryKey, fmt.Sprintf("dataset %d", d.ID), -1, d.Name+" as in version "+v.ID, got)
			if err := found.add(err); err != nil {
				return err
			}
		}
		names[d.ID] = d.Name
	}
	for _, id := range slices.Sorted(maps.Keys(names)) {
		key := lake.BatchRegistryKey(id)
		current, err := lake.CurrentBatches(ctx, store, id)
		if err == nil && len(current) == 0 {
			err = lake.CheckPresent(ctx, store, key)
		}
		for _, b := range v.Batches {
			if _, ok := current[b.Batch]; b.DatasetID == id && err == nil && !ok {
				err = codec.Corrupt(key, "batch "+b.Batch, -1, "a finished ingest, as in version "+v.ID, "none")
			}
		}
		if err := found.add(err); err != nil {
			return err
		}
	}
	return nil
}
