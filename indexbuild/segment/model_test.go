package segment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// model is the oracle: it holds in maps what a segment must answer.
type model struct {
	files  []FileInfo
	groups [][]int64 // rows of each file's row groups
	// domain → dataset → posting, without First and Inline
	domains map[string]map[uint32]*Posting
	keyOf   func(string) Key
}

// modelOptions are the options of a random model.
type modelOptions struct {
	datasets, files, domains int
	groupRows                int64
	sizes, times             float64 // shares of files that have sizes and ts
}

func randomModel(rng *rand.Rand, o modelOptions) *model {
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	names := make([]string, o.domains)
	for i := range names {
		label := rng.Uint64() >> rng.IntN(60)
		end := []string{"", "-shop", "blog"}[rng.IntN(3)]
		suffix := []string{"com", "org", "co.uk", "xn--p1ai"}[rng.IntN(4)]
		names[i] = fmt.Sprintf("%x%s.%s", label, end, suffix)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	datasets := make([]uint32, o.files)
	for i := range datasets {
		datasets[i] = uint32(1 + rng.IntN(o.datasets)*7)
	}
	slices.Sort(datasets)
	for id, dataset := range datasets {
		m.addFile(rng, id, dataset, names, o)
	}
	return m
}

// addFile adds a file with rows of some of the domains, in their order.
func (m *model) addFile(rng *rand.Rand, id int, dataset uint32, names []string, o modelOptions) {
	hasSize, hasTS := rng.Float64() < o.sizes, rng.Float64() < o.times
	share := rng.Float64()
	var groups []int64
	var rows int64
	for i, name := range names {
		if rng.Float64() > share && !(i == len(names)-1 && rows == 0) {
			continue
		}
		t := Totals{Rows: 1 + int64(rng.ExpFloat64()*float64(o.groupRows)/10)}
		if hasSize && rng.IntN(10) > 0 {
			t.HasSize, t.Size = true, rng.Int64N(1<<(1+rng.IntN(40)))
		}
		if hasTS && rng.IntN(10) > 0 {
			t.HasTS, t.FirstTS = true, 1.5e12+rng.Int64N(1e6)*1000
			t.LastTS = t.FirstTS + rng.Int64N(t.Rows)*1000
		}
		var tuples []Tuple
		for left := t.Rows; left > 0; {
			if len(groups) == 0 || groups[len(groups)-1] == o.groupRows {
				groups = append(groups, 0)
			}
			g := len(groups) - 1
			n := min(left, o.groupRows-groups[g])
			tuples = append(tuples, Tuple{FileID: uint32(id), RowGroup: uint32(g), FirstRow: groups[g], Rows: n})
			groups[g] += n
			left -= n
		}
		rows += t.Rows
		m.add(name, dataset, t, tuples)
	}
	m.groups = append(m.groups, groups)
	path := lake.PartKey(dataset, "any", "b", lake.Digest([]byte{byte(id), byte(id >> 8)}), 0)
	m.files = append(m.files, FileInfo{
		DatasetID: dataset, DomainPrefix: "any", Path: path, Batch: "b", Bytes: 1 << 20, Rows: rows,
	})
}

func (m *model) add(domain string, dataset uint32, t Totals, tuples []Tuple) {
	if m.domains[domain] == nil {
		m.domains[domain] = map[uint32]*Posting{}
	}
	p := m.domains[domain][dataset]
	if p == nil {
		p = &Posting{Entry: Entry{Key: m.keyOf(domain), Dataset: dataset}}
		m.domains[domain][dataset] = p
	}
	p.Totals.Add(t)
	p.Tuples = append(p.Tuples, tuples...)
}

func (m *model) names() []string { return slices.Sorted(maps.Keys(m.domains)) }

// reversed returns the domains with their bytes reversed, sorted.
func (m *model) reversed() []string {
	var all []string
	for name := range m.domains {
		text := []byte(name)
		slices.Reverse(text)
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
}

// postings returns all postings in the order of a segment.
func (m *model) postings() []*Posting {
	var all []*Posting
	for _, sets := range m.domains {
		for _, p := range sets {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Posting) int {
		return cmp.Or(CompareKeys(a.Key, b.Key), cmp.Compare(a.Dataset, b.Dataset))
	})
	return all
}

// batches returns the batches of the files.
func (m *model) batches() []BatchRef {
	var refs []BatchRef
	for _, f := range m.files {
		ref := BatchRef{DatasetID: f.DatasetID, Batch: f.Batch, Digest: lake.Digest([]byte(f.Batch))}
		if len(refs) == 0 || refs[len(refs)-1] != ref {
			refs = append(refs, ref)
		}
	}
	return refs
}

// modelKeys are the keys that the model has of a block's pages, nil if there are none.
func modelKeys(file uint32, b *part.PageIndexBlock) *part.PageKeyBlock {
	k := &part.PageKeyBlock{RowGroup: b.RowGroup, FirstRow: b.FirstRow, Keys: make([]part.PageKey, b.Pages())}
	some := false
	for i := range k.Keys {
		page := int(b.PageStart(i)+b.FirstRow) + int(file)
		if b.FirstRow+b.PageStart(i) == 0 || page%3 == 0 {
			continue
		}
		some = true
		k.Keys[i] = part.PageKey{Host: fmt.Sprintf("www%d.site.test", page/100), Path: fmt.Sprintf("/p%d", page), Port: part.NoPort}
		if page%5 == 0 {
			k.Keys[i].Scheme, k.Keys[i].Port = "https", int32(page)
		}
	}
	if !some {
		return nil
	}
	return k
}

// pageBlocks returns page index blocks for the row groups of a file, each of at most pages pages of
// 8 rows.
func pageBlocks(tb testing.TB, groups []int64, pages int64) [][]byte {
	const pageRows, pageBytes = 8, 20
	var blocks [][]byte
	off := uint64(4)
	for g, rows := range groups {
		for first := int64(0); first < rows; first += pages * pageRows {
			left := min(rows-first, pages*pageRows)
			n := (left + pageRows - 1) / pageRows
			b := codec.AppendUvarint(nil, uint64(g))
			b = codec.AppendUvarint(b, uint64(first))
			b = codec.AppendUvarint(b, uint64(n))
			for i := range n {
				b = codec.AppendUvarint(b, uint64(min(pageRows, left-i*pageRows)))
			}
			b = codec.AppendUvarint(b, uint64(part.NumColumns))
			for range part.NumColumns {
				b = codec.AppendUvarint(b, off)
				for range n {
					b = codec.AppendUvarint(b, pageBytes)
					off += pageBytes
				}
				for i := range n {
					b = codec.AppendU32(b, uint32(off)*uint32(i+1))
				}
			}
			if _, err := part.DecodePageIndexBlock(b, "test"); err != nil {
				tb.Fatal(err)
			}
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// write writes the model's segment.
func (m *model) write(tb testing.TB, store blob.Store, shardBits int) Ref {
	tb.Helper()
	return m.writeFormats(tb, store, shardBits, fileFormats)
}

// extraData is what writeFormats writes into files that are not in fileFormats.
const extraData = "something that a newer build knows"

// writeFormats writes the model's segment as a build with other formats does.
func (m *model) writeFormats(tb testing.TB, store blob.Store, shardBits int, formats []fileFormat) Ref {
	tb.Helper()
	ctx := context.Background()
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	w := newWriter(ctx, store, m.batches(), formats, Unnamed)
	create := func(name string) *FileWriter {
		f, err := w.Create(name)
		check(err)
		tb.Cleanup(f.Abort)
		return f
	}
	info := Info{
		CanonicalForm: "urlake-1", PublicSuffix: "test",
		ShardBits: shardBits, Parts: int64(len(m.files)),
	}

	for _, extra := range formats {
		if formatOf(fileFormats, extra.kind) == nil {
			f := create(extra.kind)
			_, err := f.Write([]byte(extraData))
			check(err)
			check(f.FinishMapped())
		}
	}

	f := create(DomainsName)
	domains := NewDomainsWriter(f)
	hash := mph.NewBuilder(mph.Options{})
	defer hash.Close()
	sets := membership.NewWriter(tb.TempDir())
	defer sets.Close()
	for _, name := range m.names() {
		check(domains.Add([]byte(name)))
		k := m.keyOf(name)
		check(hash.Add(k.ID, k.Check))
		check(sets.Add(slices.Sorted(maps.Keys(m.domains[name]))))
	}
	ff, err := domains.Finish()
	check(err)
	check(f.FinishFrames(ff))
	info.Domains = domains.Count()
	f = create(DomainStartsName)
	starts, err := domains.Starts().Write(f)
	check(err)
	check(f.FinishFrames(starts))
	f = create(ReversedName)
	domains = NewDomainsWriter(f)
	for _, name := range m.reversed() {
		check(domains.Add([]byte(name)))
	}
	reversed, err := domains.Finish()
	check(err)
	check(f.FinishFrames(reversed))
	f = create(ReversedStartsName)
	starts, err = domains.Starts().Write(f)
	check(err)
	check(f.FinishFrames(starts))

	f = create(MembershipName)
	check(sets.Write(f))
	check(f.FinishMapped())
	f = create(MPHFName)
	_, err = hash.Finish(ctx, f, ff.XXH64)
	check(err)
	check(f.FinishMapped())

	f = create(FilesName)
	ff, err = WriteFiles(f, m.files)
	check(err)
	check(f.FinishFrames(ff))

	f = create(PartsName)
	parts := NewPartsWriter(f)
	for id, groups := range m.groups {
		for _, data := range pageBlocks(tb, groups, 4) {
			b, err := part.DecodePageIndexBlock(data, "test")
			check(err)
			check(parts.Add(uint32(id), b, data))
		}
	}
	ff, err = parts.Finish()
	check(err)
	check(f.FinishFrames(ff))

	f = create(PageKeysName)
	keys := NewPageKeysWriter(f)
	for id, groups := range m.groups {
		for _, data := range pageBlocks(tb, groups, 4) {
			b, err := part.DecodePageIndexBlock(data, "test")
			check(err)
			if k := modelKeys(uint32(id), b); k != nil {
				check(keys.Add(uint32(id), k))
			}
		}
	}
	ff, err = keys.Finish()
	check(err)
	check(f.FinishFrames(ff))

	all := m.postings()
	for shard := range 1 << shardBits {
		idx, dat := create(PostingsName(shard)), create(PayloadsName(shard))
		w := NewPostingsWriter(idx, dat, shard, shardBits)
		for len(all) > 0 && shardOf(all[0].ID, shardBits) == shard {
			check(w.Add(all[0].Entry, all[0].Tuples))
			info.Rows += all[0].Rows
			all = all[1:]
		}
		i, d, err := w.Finish()
		check(err)
		entries, inline := w.Entries()
		info.Entries, info.Inline = info.Entries+entries, info.Inline+inline
		check(idx.FinishFrames(i))
		check(dat.FinishFrames(d))
	}
	ref, err := w.Finish(info)
	check(err)
	return ref
}

// mapCache is a Cache that evicts nothing.
type mapCache map[CacheKey]any

func (c mapCache) Get(k CacheKey) (any, bool)     { v, ok := c[k]; return v, ok }
func (c mapCache) Again(k CacheKey) (any, bool)   { return c.Get(k) }
func (c mapCache) Add(k CacheKey, v any, _ int64) { c[k] = v }
