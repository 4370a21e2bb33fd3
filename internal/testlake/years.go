package testlake

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
)

// Rows of each batch of Years: so many in the dataset's own domain, then so many in
// EverywhereDomain.
const (
	OwnRows        = 6
	EverywhereRows = 4
	// EverywhereDomain is in every batch of Years.
	EverywhereDomain = "everywhere.test"

	yearsPartBytes = 4096
	yearsStart     = int64(1_790_000_000_000_000_000)
)

// YearsDomain is the domain that only one dataset of Years has.
func YearsDomain(dataset uint32) string { return fmt.Sprintf("site%06d.test", dataset) }

// Years makes a lake of datasets 1 to datasets, named d1 and so on, with a number of batches each.
// They are published in one version with one segment over everything. All documents and the segment
// are as a publish writes them, but there are no parts, records and postings: a version can be
// opened and the next one be published, but no URL be listed. The lake must be empty.
func Years(tb testing.TB, store blob.Store, datasets, batches int) {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	ctx := context.Background()
	all := make([]lake.Dataset, datasets)
	for i := range all {
		all[i] = lake.Dataset{Name: fmt.Sprint("d", i+1), Title: "One of many"}
	}
	all, err := catalog.RegisterDatasets(ctx, store, all)
	must(err)
	names := make([]string, batches)
	for i := range names {
		names[i] = fmt.Sprintf("2026-%04d", i)
	}
	refs := make([]segment.BatchRef, 0, datasets*batches)
	for _, d := range all {
		digest := lake.Digest([]byte(d.Name))
		for _, name := range names {
			refs = append(refs, segment.BatchRef{DatasetID: d.ID, Batch: name, Digest: digest})
		}
	}
	rules, err := catalog.ReadRules(ctx, store)
	must(err)
	ref := yearsSegment(tb, store, rules, all, refs)
	described := make([]catalog.Dataset, len(all))
	for i, d := range all {
		described[i] = catalog.Dataset{ID: d.ID, Name: d.Name, Title: d.Title}
	}
	commit := catalog.Commit{ID: lake.Digest([]byte("years")), BuiltBy: "urlake test",
		Build: func(context.Context, *catalog.Version) (*catalog.Next, error) {
			return &catalog.Next{
				CanonicalForm: rules.CanonicalForm, PublicSuffix: rules.PublicSuffix, Datasets: described,
				Segments: []catalog.Segment{catalog.NewSegment(ref.ID, ref.XXH64, ref.Bytes, ref.Domains, ref.Rows)},
				Batches: map[string]iter.Seq2[catalog.Batch, error]{ref.ID: func(yield func(catalog.Batch, error) bool) {
					for _, r := range refs {
						b := catalog.Batch{
							BatchName: catalog.BatchName{DatasetID: r.DatasetID, Batch: r.Batch}, Digest: r.Digest,
							Rows: OwnRows + EverywhereRows, Parts: 1, Bytes: yearsPartBytes, Start: yearsStart,
						}
						if !yield(b, nil) {
							return
						}
					}
				}},
			}, nil
		}}
	_, err = commit.Apply(ctx, store)
	must(err)
}

// yearsSegment writes the segment over all batches, which are those of the datasets in order.
func yearsSegment(tb testing.TB, store blob.Store, rules lake.Rules, datasets []lake.Dataset, batches []segment.BatchRef) segment.Ref {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	ctx := context.Background()
	w := segment.NewWriter(ctx, store, batches, "")
	create := func(name string) *segment.FileWriter {
		f, err := w.Create(name)
		must(err)
		return f
	}
	perDataset := len(batches) / len(datasets)

	files := make([]segment.FileInfo, len(batches))
	path := ""
	for i, b := range batches {
		if i%perDataset == 0 {
			path = lake.PartKey(b.DatasetID, lake.AnyPrefix, b.Batch, b.Digest, 0)
		}
		files[i] = segment.FileInfo{
			DatasetID: b.DatasetID, DomainPrefix: lake.AnyPrefix, Path: path, Batch: b.Batch,
			Bytes: yearsPartBytes, Rows: OwnRows + EverywhereRows,
		}
	}
	f := create(segment.FilesName)
	ff, err := segment.WriteFiles(f, files)
	must(err)
	must(f.FinishFrames(ff))

	f = create(segment.PartsName)
	parts := segment.NewPartsWriter(f)
	block := part.NewPageIndex(0, []int64{0, OwnRows + EverywhereRows})[0]
	for col := range part.NumColumns {
		block.SetPage(part.Column(col), 0, int64(4+20*col), 20, uint32(col))
	}
	data := block.Append(nil)
	for id := range batches {
		must(parts.Add(uint32(id), &block, data))
	}
	ff, err = parts.Finish()
	must(err)
	must(f.FinishFrames(ff))

	f = create(segment.PageKeysName)
	ff, err = segment.NewPageKeysWriter(f).Finish()
	must(err)
	must(f.FinishFrames(ff))

	// Domains in their order: everywhere.test comes before site….test.
	f = create(segment.DomainsName)
	domains := segment.NewDomainsWriter(f)
	hash := mph.NewBuilder(mph.Options{})
	defer hash.Close()
	sets := membership.NewWriter(tb.TempDir())
	defer sets.Close()
	var ids []uint32
	for _, d := range datasets {
		ids = append(ids, d.ID)
	}
	var reversed []string
	add := func(domain string, datasets []uint32) {
		must(domains.Add([]byte(domain)))
		backwards := []byte(domain)
		slices.Reverse(backwards)
		reversed = append(reversed, string(backwards))
		k := segment.KeyOf(domain)
		must(hash.Add(k.ID, k.Check))
		must(sets.Add(datasets))
	}
	add(EverywhereDomain, ids)
	for _, id := range ids {
		add(YearsDomain(id), []uint32{id})
	}
	ff, err = domains.Finish()
	must(err)
	must(f.FinishFrames(ff))
	f = create(segment.DomainStartsName)
	starts, err := domains.Starts().Write(f)
	must(err)
	must(f.FinishFrames(starts))
	slices.Sort(reversed)
	f = create(segment.ReversedName)
	names := segment.NewDomainsWriter(f)
	for _, name := range reversed {
		must(names.Add([]byte(name)))
	}
	rf, err := names.Finish()
	must(err)
	must(f.FinishFrames(rf))
	f = create(segment.ReversedStartsName)
	starts, err = names.Starts().Write(f)
	must(err)
	must(f.FinishFrames(starts))
	f = create(segment.MembershipName)
	must(sets.Write(f))
	must(f.FinishMapped())
	f = create(segment.MPHFName)
	_, err = hash.Finish(ctx, f, ff.XXH64)
	must(err)
	must(f.FinishMapped())

	type posting struct {
		segment.Key
		at          int // of the dataset
		first, rows int64
	}
	var list []posting
	for i, d := range datasets {
		list = append(list, posting{segment.KeyOf(YearsDomain(d.ID)), i, 0, OwnRows},
			posting{segment.KeyOf(EverywhereDomain), i, OwnRows, EverywhereRows})
	}
	slices.SortFunc(list, func(a, b posting) int {
		if c := segment.CompareKeys(a.Key, b.Key); c != 0 {
			return c
		}
		return a.at - b.at
	})
	idx, dat := create(segment.PostingsName(0)), create(segment.PayloadsName(0))
	postings := segment.NewPostingsWriter(idx, dat, 0, 0)
	info := segment.Info{
		CanonicalForm: rules.CanonicalForm, PublicSuffix: rules.PublicSuffix,
		Domains: domains.Count(), Parts: int64(len(batches)),
	}
	var tuples []segment.Tuple
	for _, p := range list {
		tuples = tuples[:0]
		for i := range perDataset {
			tuples = append(tuples, segment.Tuple{FileID: uint32(p.at*perDataset + i), FirstRow: p.first, Rows: p.rows})
		}
		e := segment.Entry{Key: p.Key, Dataset: datasets[p.at].ID}
		e.Rows = p.rows * int64(perDataset)
		must(postings.Add(e, tuples))
		info.Rows += e.Rows
	}
	i, d, err := postings.Finish()
	must(err)
	info.Entries, info.Inline = postings.Entries()
	must(idx.FinishFrames(i))
	must(dat.FinishFrames(d))
	ref, err := w.Finish(info)
	must(err)
	return ref
}
