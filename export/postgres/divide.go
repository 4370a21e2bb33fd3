package postgres

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/takedown"
)

// cacheBytes is what a step keeps of the frames of all segments.
const cacheBytes = 32 << 20

// batchName names a batch as the database does.
type batchName struct {
	dataset uint32
	name    string
}

// divide finds the parts with rows that are to be read, and groups them into chunks.
func (p *planner) divide() error {
	ids := map[batchName]*planBatch{}
	for i := range p.plan.Batches {
		b := &p.plan.Batches[i]
		ids[batchName{b.Dataset, b.Name}] = b
	}
	size := int64(chunkRows)
	for {
		if err := p.divideBy(ids, size); err != nil {
			return err
		}
		if len(p.plan.Chunks) <= maxChunks {
			return nil
		}
		size *= 2
	}
}

func (p *planner) divideBy(ids map[batchName]*planBatch, size int64) error {
	p.plan.Stored, p.plan.Chunks = nil, nil
	var open chunk
	add := func(r read) {
		open.Reads = append(open.Reads, r)
		if open.Rows += r.Rows; open.Rows >= size {
			p.plan.Chunks = append(p.plan.Chunks, open)
			open = chunk{}
		}
	}
	for i := range p.version.Segments {
		s := &p.version.Segments[i]
		// fresh are the new batches of what a part stores, kept the others.
		fresh, kept := map[batchName]int{}, map[batchName]int{}
		for b, err := range p.version.BatchesIn(p.ctx, s.ID) {
			if err != nil {
				return err
			}
			pb := ids[batchName{b.DatasetID, b.Batch}]
			if pb == nil {
				continue
			}
			name, _ := b.Stored()
			to := kept
			if pb.New {
				to = fresh
			}
			at, ok := to[batchName{b.DatasetID, name}]
			if !ok {
				at = len(p.plan.Stored)
				to[batchName{b.DatasetID, name}] = at
				p.plan.Stored = append(p.plan.Stored, stored{Members: map[string]int32{}})
				if b.Union == "" {
					p.plan.Stored[at].Batch = b.Batch
				}
			}
			p.plan.Stored[at].Members[b.Batch] = pb.ID
		}
		if len(fresh) == 0 && (len(kept) == 0 || len(p.plan.Reloaded) == 0) {
			continue
		}
		seg, err := p.open(i)
		if err != nil {
			return err
		}
		if len(p.domains) > 0 {
			if err := p.domainReads(seg, i, p.domains, fresh, add); err != nil {
				return err
			}
		} else if len(fresh) > 0 {
			files := seg.Files()
			for id := range files.Len() {
				f := files.Info(uint32(id))
				if at, ok := fresh[batchName{f.DatasetID, f.Batch}]; ok {
					add(read{Segment: i, File: uint32(id), Dataset: f.DatasetID, Stored: at, Rows: f.Rows})
				}
			}
		}
		if err := p.domainReads(seg, i, p.plan.Reloaded, kept, add); err != nil {
			return err
		}
	}
	if len(open.Reads) > 0 {
		p.plan.Chunks = append(p.plan.Chunks, open)
	}
	return nil
}

// open opens a segment of the version once.
func (p *planner) open(i int) (*segment.Segment, error) {
	if p.segments == nil {
		p.segments = make([]*segment.Segment, len(p.version.Segments))
	}
	if p.segments[i] == nil {
		s, err := scan.OpenSegment(p.ctx, p.store, &p.version.Segments[i], p.cache)
		if err != nil {
			return nil, err
		}
		p.segments[i] = s
	}
	return p.segments[i], nil
}

// domainReads adds the rows of domains in parts that store some batches.
func (p *planner) domainReads(
	seg *segment.Segment, at int, domains []string, batches map[batchName]int, add func(read),
) error {
	if len(batches) == 0 {
		return nil
	}
	for _, domain := range domains {
		entries, err := seg.Entries(p.ctx, segment.KeyOf(domain), 0, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if p.scope[e.Dataset] == nil {
				continue
			}
			tuples, err := seg.Tuples(p.ctx, e)
			if err != nil {
				return err
			}
			var r *read
			flush := func() {
				if r != nil {
					add(*r)
				}
				r = nil
			}
			for _, t := range tuples {
				f, err := seg.File(p.ctx, t.FileID)
				if err != nil {
					return err
				}
				stored, ok := batches[batchName{f.DatasetID, f.Batch}]
				if !ok {
					continue
				}
				if r != nil && r.File != t.FileID {
					flush()
				}
				if r == nil {
					r = &read{Segment: at, File: t.FileID, Dataset: f.DatasetID, Stored: stored}
				}
				r.Rows += t.Rows
				r.Runs = append(r.Runs, scan.Run{Group: t.RowGroup, First: t.FirstRow, Rows: t.Rows})
			}
			flush()
		}
	}
	return nil
}

// count finds out how many rows the lake shows of each dataset.
func (p *planner) count() error {
	doc, err := takedown.Read(p.ctx, p.store, p.plan.Takedowns)
	if err != nil {
		return err
	}
	all := map[uint32]int64{}
	for i := range p.plan.Datasets {
		all[p.plan.Datasets[i].ID] = p.plan.Datasets[i].Dataset.Rows
	}
	shown, err := scan.Count(p.ctx, p.store, p.version, doc, p.domains, all, p.cache)
	for i := range p.plan.Datasets {
		p.plan.Datasets[i].Shown = shown[p.plan.Datasets[i].ID]
	}
	return err
}

// sampled is about how many domains are looked at to estimate how large TLDs are.
const sampled = 1 << 20

// partitions chooses the TLDs, sites and subdomains that get a partition of their own.
func (p *planner) partitions() error {
	most := p.plan.Spec.PartitionRows
	total := int64(0)
	for _, b := range p.plan.Batches {
		total += b.Rows
	}
	var ranges []own
	if total >= most {
		sites, tlds, err := p.large(most)
		if err != nil {
			return err
		}
		if ranges, err = p.ranges(sites, tlds); err != nil {
			return err
		}
	}
	p.plan.Partitions = divide(ranges)
	return nil
}

type sized struct {
	name string
	rows int64
}

// large returns the domains with at least so many rows, and the TLDs with about as many, largest
// first. Rows of batches that are no longer live are counted too: the numbers only choose tables.
func (p *planner) large(most int64) (sites, tlds []sized, err error) {
	bySite := map[segment.Key]int64{}
	byTLD := map[string]int64{}
	name := map[segment.Key]string{}
	temp, err := os.MkdirTemp(p.opt.TempDir, "export-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(temp)
	for i := range p.version.Segments {
		s := &p.version.Segments[i]
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		seg, err := segment.Open(p.ctx, p.store, ref, segment.Options{Cache: p.cache, CacheDir: temp})
		if err != nil {
			return nil, nil, err
		}
		if err := p.sum(seg, most, bySite, byTLD, name); err != nil {
			seg.Close()
			return nil, nil, err
		}
		seg.Close()
	}
	for k, rows := range bySite {
		if rows >= most && name[k] != "" {
			sites = append(sites, sized{name[k], rows})
		}
	}
	for tld, rows := range byTLD {
		if rows >= most {
			tlds = append(tlds, sized{tld, rows})
		}
	}
	for _, list := range [][]sized{sites, tlds} {
		slices.SortFunc(list, func(a, b sized) int { return cmp.Or(cmp.Compare(b.rows, a.rows), strings.Compare(a.name, b.name)) })
	}
	return sites, tlds, nil
}

// sum adds the rows of a segment. Of domains with few rows only those with small ids are looked at,
// which are a sample, since ids are hashes.
func (p *planner) sum(
	seg *segment.Segment, most int64, bySite map[segment.Key]int64, byTLD map[string]int64, name map[segment.Key]string,
) error {
	factor := max(1, seg.Info().Domains/sampled)
	limit := ^uint64(0) / uint64(factor)
	// A site may be in several segments, each with a part of its rows.
	part := max(1, most/int64(len(p.version.Segments)))
	wanted := map[segment.Key]bool{}
	for _, d := range p.domains {
		wanted[segment.KeyOf(d)] = true
	}
	scan := seg.ScanEntries(segment.Key{}, 0)
	var key segment.Key
	rows := int64(0)
	end := func() error {
		if rows == 0 || rows < part && key.ID > limit {
			return nil
		}
		ordinal, ok, err := seg.Ordinal(key)
		if err != nil || !ok {
			return err
		}
		domain, err := seg.Domain(p.ctx, ordinal)
		if err != nil {
			return err
		}
		split, err := domain64.SplitHost(domain, domain)
		if err != nil {
			return err
		}
		tld := split.TLD
		if rows >= part {
			bySite[key] += rows
			name[key] = strings.Clone(domain)
			byTLD[tld] += rows
		} else {
			byTLD[strings.Clone(tld)] += rows * factor
		}
		return nil
	}
	for {
		e, err := scan.Next(p.ctx)
		if err != nil {
			return err
		}
		if e == nil {
			return end()
		}
		if p.scope[e.Dataset] == nil || len(wanted) > 0 && !wanted[e.Key] {
			continue
		}
		if e.Key != key {
			if err := end(); err != nil {
				return err
			}
			key, rows = e.Key, 0
		}
		rows += e.Rows
	}
}

// ranges returns the ranges of partitions for the largest sites and TLDs, and for large subdomains
// of these sites.
func (p *planner) ranges(sites, tlds []sized) ([]own, error) {
	registry, err := p.plan.registry(p.store)
	if err != nil {
		return nil, err
	}
	l := registry.Layout()
	var ranges []own
	add := func(names []Name, level domain64.Level) error {
		codes, err := assign(p.ctx, registry, names[:min(len(names), maxRanges-len(ranges))])
		if err != nil {
			return err
		}
		for i, c := range codes {
			if at, ok := l.Level(c); ok && at == level {
				ranges = append(ranges, ownOf(l, c, names[i].Host))
			}
		}
		return nil
	}
	var names []Name
	for _, t := range tlds {
		if t.name != domain64.IPAddresses { // which no host is
			names = append(names, Name{t.name, t.name})
		}
	}
	if err := add(names, domain64.TLD); err != nil {
		return nil, err
	}
	names = names[:0]
	for _, s := range sites {
		names = append(names, Name{s.name, s.name})
	}
	if err := add(names, domain64.Domain); err != nil {
		return nil, err
	}
	for _, s := range sites {
		if len(ranges) == maxRanges {
			break // hosts are counted by reading the rows of their domain
		}
		hosts, err := p.hosts(s.name)
		if err != nil {
			return nil, err
		}
		names = names[:0]
		for _, h := range hosts {
			if h.name != s.name && h.rows >= p.plan.Spec.PartitionRows {
				names = append(names, Name{h.name, s.name})
			}
		}
		if err := add(names, domain64.Sub); err != nil {
			return nil, err
		}
	}
	return ranges, nil
}

// hostCounts counts the rows of hosts. It knows at most maxCounted of them: when there are more, it
// forgets those with the fewest rows. So a count can be too small, which only chooses tables.
type hostCounts struct {
	rows map[string]int64
	all  int64
}

// maxCounted bounds the memory of hostCounts to some 64 MiB.
const maxCounted = 1 << 19

func (h *hostCounts) add(host string, n int64) {
	h.all += n
	if have, ok := h.rows[host]; ok {
		h.rows[host] = have + n
		return
	}
	if len(h.rows) >= maxCounted {
		few := 4 * h.all / maxCounted // which at most a quarter of them exceed
		maps.DeleteFunc(h.rows, func(_ string, n int64) bool { return n <= few })
	}
	h.rows[strings.Clone(host)] = n // the host is a view of a page
}

// hosts counts the rows of the hosts of a domain, largest first.
func (p *planner) hosts(domain string) ([]sized, error) {
	rows := hostCounts{rows: map[string]int64{}}
	for i := range p.version.Segments {
		seg, err := p.open(i)
		if err != nil {
			return nil, err
		}
		entries, err := seg.Entries(p.ctx, segment.KeyOf(domain), 0, 0)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if p.scope[e.Dataset] == nil {
				continue
			}
			tuples, err := seg.Tuples(p.ctx, e)
			if err != nil {
				return nil, err
			}
			for _, t := range tuples {
				if err := p.tupleHosts(seg, t, &rows); err != nil {
					return nil, err
				}
			}
		}
	}
	var out []sized
	for host, n := range rows.rows {
		out = append(out, sized{host, n})
	}
	slices.SortFunc(out, func(a, b sized) int { return cmp.Or(cmp.Compare(b.rows, a.rows), strings.Compare(a.name, b.name)) })
	return out, nil
}

func (p *planner) tupleHosts(seg *segment.Segment, t segment.Tuple, counts *hostCounts) error {
	f, err := seg.File(p.ctx, t.FileID)
	if err != nil {
		return err
	}
	blocks, err := seg.PageBlocks(p.ctx, t.FileID, t.RowGroup, t.FirstRow, t.Rows)
	if err != nil {
		return err
	}
	// Rows of other batches, or hidden ones, count as well.
	from := scan.Part{Key: f.Path, Batch: f.Batch}
	for rows, err := range from.Read(p.ctx, p.store, blocks, []scan.Run{{Group: t.RowGroup, First: t.FirstRow, Rows: t.Rows}}, part.ColHost) {
		if err != nil {
			return err
		}
		for i := 0; i < len(rows.Host); {
			first := i
			for i++; i < len(rows.Host) && rows.Host[i] == rows.Host[first]; i++ {
			}
			counts.add(rows.Host[first], int64(i-first))
		}
	}
	return nil
}
