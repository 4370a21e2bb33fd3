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
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// verified is what `verify --json` prints.
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
	cmd := inspecting(g, "verify", "Check a published version, from the manifest down", func(cmd *cobra.Command, store blob.Store, _ string) error {
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
				fmt.Fprintln(out, p)
			}
			for _, s := range v.Segments {
				for _, id := range s.Uncounted {
					fmt.Fprintf(out, "Segment %s: postings of dataset %d could not be counted again without the part\n", s.Segment, id)
				}
			}
			var bytes, domains, entries int64
			for _, s := range v.Segments {
				bytes, domains, entries = bytes+s.Bytes, domains+s.Domains, entries+s.Entries
			}
			if v.Version != "" {
				fmt.Fprintf(out, "Version %s: %s (%s), %s, %s; %s, %s, %s\n", v.Version, plural(int64(len(v.Segments)), "segment"), size(bytes),
					plural(domains, "domain"), plural(entries, "posting"), plural(int64(v.Batches), "batch"), plural(v.Parts, "part"), plural(v.Rows, "row"))
			}
		}
		if n := len(v.Problems); n > 0 {
			return errors.New(plural(int64(n), "problem"))
		}
		if !g.json {
			if deep {
				fmt.Fprintln(out, "Everything is right in the manifest, the version, the registries, the batch records, their postings, the index and all Parquet.")
			} else {
				fmt.Fprintln(out, "Everything is right in the manifest, the version, the registries, the batch records and the index. Of batches' postings only")
				fmt.Fprintln(out, "the directories were read, of Parquet files only the sizes: --deep reads all.")
			}
		}
		return nil
	})
	cmd.Long = `Verify reads the manifest, the version, every file of its segments, the registries, its batch records and the
directories of their postings, and checks every checksum, order, posting and total. With --deep it also reads all
postings and every page of all Parquet and counts everything again.
It prints each problem with its file and place, and exits 1 if there is one.`
	cmd.Example = `  starter verify --lake s3://b/lake --deep`
	cmd.Flags().BoolVar(&deep, "deep", false, "also read all Parquet and count everything again")
	cmd.Flags().StringVar(&version, "version-id", "", "the `VERSION` (default: the current one)")
	return cmd
}

// problems collects what is wrong, each object once.
type problems struct {
	list []string
	told map[string]bool // objects
}

// add keeps what says that an object is damaged, unless that has been told. Any other error ends the check.
func (p *problems) add(err error) error {
	var c *codec.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	if !p.told[c.File] {
		p.told[c.File] = true
		p.list = append(p.list, c.Error())
	}
	return nil
}

// absent makes the absence of an object that has to be there a *codec.CorruptError.
func absent(key string, err error) error {
	if errors.Is(err, blob.ErrNotExist) {
		return codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	return err
}

// verify checks a version. Corruption is a problem in the answer; the error is about what could not be checked at all.
func verifyVersion(ctx context.Context, store blob.Store, id string, deep bool) (*verified, error) {
	out := &verified{Problems: []string{}}
	found := &problems{list: []string{}, told: map[string]bool{}}
	err := out.check(ctx, store, id, deep, found)
	out.Problems = found.list
	return out, err
}

func (out *verified) check(ctx context.Context, store blob.Store, id string, deep bool, found *problems) error {
	_, v, err := openVersion(ctx, store, id)
	if errors.Is(err, manifest.ErrNoVersion) {
		if lost := lostManifest(ctx, store); lost != nil {
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
		told := maps.Clone(found.told)
		for _, p := range report.Problems {
			if !told[p.Object] {
				found.told[p.Object] = true
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
	return verifyRegistries(ctx, store, v, found)
}

// batch compares a batch record with the version, with the parts that are there and with its postings.
func (out *verified) batch(ctx context.Context, store blob.Store, live manifest.Batch, deep bool, found *problems) error {
	key := live.Record()
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return found.add(absent(key, err))
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
		if err := found.add(absent(p.Key, err)); err != nil {
			return err
		}
		rows += p.Rows
	}
	out.Parts += int64(len(b.Parts))
	out.Rows += rows
	if rows != b.Rows || rows != live.Rows {
		return found.add(codec.Corrupt(key, "rows", -1, fmt.Sprintf("%d as in the version", live.Rows), fmt.Sprintf("%d, %d in its parts", b.Rows, rows)))
	}
	gone := false
	for _, o := range b.Postings {
		info, err := store.Stat(ctx, o.Key)
		if err == nil && info.Size != o.Bytes {
			err = codec.Corrupt(o.Key, "size", -1, o.Bytes, info.Size)
		}
		gone = gone || err != nil
		if err := found.add(absent(o.Key, err)); err != nil {
			return err
		}
	}
	if gone {
		return nil
	}
	ref := segment.BatchRef{DatasetID: live.DatasetID, Batch: live.Batch, Digest: live.Digest}
	_, err = indexbuild.CheckBatch(ctx, store, ref, deep)
	return found.add(err)
}

// verifyRegistries reads the registry and the batch registries, and compares the former's ids and names and the latter's batches with a version.
func verifyRegistries(ctx context.Context, store blob.Store, v *manifest.Version, found *problems) error {
	registered, err := lake.Registry(ctx, store)
	if err == nil && len(registered) == 0 {
		err = lake.CheckPresent(ctx, store, lake.RegistryKey)
	}
	if err := found.add(err); err != nil {
		return err
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
			if err := found.add(codec.Corrupt(lake.RegistryKey, fmt.Sprintf("dataset %d", d.ID), -1, d.Name+" as in version "+v.ID, got)); err != nil {
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
