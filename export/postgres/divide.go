package postgres

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/part"
)

const (
	// cacheBytes is what a step keeps of the frames of all segments.
	cacheBytes = 32 << 20
	// chunkRows is about how many rows one Load copies in its transaction: some seconds of work
	// that a crash destroys. A chunk has at least one part.
	chunkRows = 2 << 20
	// maxChunks bounds the chunks of a plan, and so the history of its workflow.
	maxChunks = 4000
)

// batchName names a batch as the database does.
type batchName struct {
	dataset uint32
	name    string
}

// stored are the batches that parts have rows of: one, or those of a union that are live.
type stored struct {
	// Batch is the one, "" for a union.
	Batch string `json:"batch,omitempty"`
	// Members are the numbers of the batches in the database.
	Members map[string]int32 `json:"members"`
}

// chunk is what one Load copies.
type chunk struct {
	Rows  int64  `json:"rows"`
	Reads []read `json:"reads"` // by dataset
}

// read is a part, or some rows of it.
type read struct {
	Segment int    `json:"segment"`
	File    uint32 `json:"file"`
	Dataset uint32 `json:"dataset"`
	Stored  int    `json:"stored"`
	Rows    int64  `json:"rows"`
	// Runs are the rows, nil for all of the part.
	Runs []scan.Run `json:"runs,omitempty"`
}

// divide finds the parts with rows of datasets that changed, and groups them into chunks.
func (p *planner) divide() error {
	ids := map[batchName]int32{}
	for _, b := range p.plan.Batches {
		if p.scope[b.Dataset].loaded() {
			ids[batchName{b.Dataset, b.Name}] = b.ID
		}
	}
	var reads []read
	for i := range p.version.Segments {
		here := map[batchName]int{}
		p.stored = append(p.stored, here)
		for b, err := range p.version.BatchesIn(p.ctx, p.version.Segments[i].ID) {
			if err != nil {
				return err
			}
			id, ok := ids[batchName{b.DatasetID, b.Batch}]
			if !ok {
				continue
			}
			name, _ := b.Stored()
			at, ok := here[batchName{b.DatasetID, name}]
			if !ok {
				at = len(p.plan.Stored)
				here[batchName{b.DatasetID, name}] = at
				p.plan.Stored = append(p.plan.Stored, stored{Members: map[string]int32{}})
				if b.Union == "" {
					p.plan.Stored[at].Batch = b.Batch
				}
			}
			p.plan.Stored[at].Members[b.Batch] = id
		}
		if len(here) == 0 {
			continue
		}
		more, err := p.reads(i, p.domains)
		if err != nil {
			return err
		}
		reads = append(reads, more...)
	}
	slices.SortStableFunc(reads, func(a, b read) int { return cmp.Compare(a.Dataset, b.Dataset) })
	total := int64(0)
	for i := range reads {
		total += reads[i].Rows
	}
	size := max(chunkRows, total/maxChunks)
	var open chunk
	for i, r := range reads {
		open.Reads, open.Rows = append(open.Reads, r), open.Rows+r.Rows
		if open.Rows >= size || i == len(reads)-1 {
			p.plan.Chunks = append(p.plan.Chunks, open)
			open = chunk{}
		}
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

// reads returns the parts of a segment with rows to load: all of their rows, or those of some
// domains.
func (p *planner) reads(at int, domains []string) ([]read, error) {
	batches := p.stored[at]
	seg, err := p.open(at)
	if err != nil {
		return nil, err
	}
	var reads []read
	if len(domains) == 0 {
		files := seg.Files()
		for id := range files.Len() {
			f := files.Info(uint32(id))
			if stored, ok := batches[batchName{f.DatasetID, f.Batch}]; ok {
				reads = append(reads, read{Segment: at, File: uint32(id), Dataset: f.DatasetID, Stored: stored, Rows: f.Rows})
			}
		}
		return reads, nil
	}
	for _, domain := range domains {
		entries, err := seg.Entries(p.ctx, segment.KeyOf(domain), 0, 0)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			tuples, err := seg.Tuples(p.ctx, e)
			if err != nil {
				return nil, err
			}
			last := -1 // the read of this entry that may go on
			for _, t := range tuples {
				f, err := seg.File(p.ctx, t.FileID)
				if err != nil {
					return nil, err
				}
				stored, ok := batches[batchName{f.DatasetID, f.Batch}]
				if !ok {
					continue
				}
				if last < 0 || reads[last].File != t.FileID {
					last = len(reads)
					reads = append(reads, read{Segment: at, File: t.FileID, Dataset: f.DatasetID, Stored: stored})
				}
				r := &reads[last]
				r.Rows += t.Rows
				r.Runs = append(r.Runs, scan.Run{Group: t.RowGroup, First: t.FirstRow, Rows: t.Rows})
			}
		}
	}
	return reads, nil
}

// tables chooses the tables of the datasets that changed, and the TLDs, sites and subdomains in
// them that get a partition of their own.
func (p *planner) tables() error {
	large := map[uint32]*sizes{}
	for i := range p.plan.Datasets {
		if d := &p.plan.Datasets[i]; d.loaded() && d.Shown >= p.plan.Spec.PartitionRows {
			large[d.ID] = &sizes{tlds: map[string]int64{}, sites: map[string]int64{}}
		}
	}
	if len(large) > 0 {
		if err := p.measure(large); err != nil {
			return err
		}
	}
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		if !d.loaded() {
			continue
		}
		var ranges []own
		if s := large[d.ID]; s != nil {
			var err error
			if ranges, err = p.ranges(d.ID, s); err != nil {
				return err
			}
		}
		p.plan.Tables = append(p.plan.Tables, divide(d.ID, ranges)...)
		if d.Canonical != "" {
			p.plan.Tables = append(p.plan.Tables, table{Of: idMapTable, Dataset: d.ID, Range: everything})
		}
	}
	return nil
}

// sizes are how many rows the TLDs and the largest sites of a dataset have, about. Rows of batches
// that are no longer live are counted too: the numbers only choose tables.
type sizes struct{ tlds, sites map[string]int64 }

// sampled is about how many domains of a segment are looked at to estimate how large TLDs are.
const sampled = 1 << 20

// measure finds out how large the TLDs and the largest sites of datasets are.
func (p *planner) measure(large map[uint32]*sizes) error {
	temp, err := os.MkdirTemp(p.opt.TempDir, "export-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for i := range p.version.Segments {
		s := &p.version.Segments[i]
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		seg, err := segment.Open(p.ctx, p.store, ref, segment.Options{Cache: p.cache, CacheDir: temp})
		if err != nil {
			return err
		}
		err = p.measureSegment(seg, large)
		seg.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// measureSegment adds the rows of a segment. Of domains with few rows only those with small ids are
// looked at, which are a sample, since ids are hashes.
func (p *planner) measureSegment(seg *segment.Segment, large map[uint32]*sizes) error {
	factor := max(1, seg.Info().Domains/sampled)
	limit := ^uint64(0) / uint64(factor)
	// A site may be in several segments, each with a part of its rows.
	most := max(1, p.plan.Spec.PartitionRows/int64(len(p.version.Segments)))
	wanted := map[segment.Key]bool{}
	for _, d := range p.domains {
		wanted[segment.KeyOf(d)] = true
	}
	entries := seg.ScanEntries(segment.Key{}, 0)
	for {
		e, err := entries.Next(p.ctx)
		if err != nil || e == nil {
			return err
		}
		s := large[e.Dataset]
		if s == nil || e.Rows < most && e.Key.ID > limit || len(wanted) > 0 && !wanted[e.Key] {
			continue
		}
		ordinal, ok, err := seg.Ordinal(e.Key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		domain, err := seg.Domain(p.ctx, ordinal)
		if err != nil {
			return err
		}
		split, err := domain64.SplitHost(domain, domain)
		if err != nil {
			return err
		}
		if e.Rows >= most {
			s.sites[strings.Clone(domain)] += e.Rows
			s.tlds[strings.Clone(split.TLD)] += e.Rows
		} else {
			s.tlds[strings.Clone(split.TLD)] += e.Rows * factor
		}
	}
}

// ranges returns the ranges of partitions for the largest TLDs and sites of a dataset, and for
// large subdomains of these sites.
func (p *planner) ranges(dataset uint32, s *sizes) ([]own, error) {
	registry, err := p.plan.registry(p.store)
	if err != nil {
		return nil, err
	}
	var ranges []own
	add := func(names []domain64.Name) error {
		names = names[:min(len(names), maxRanges-len(ranges))]
		codes, err := assign(p.ctx, registry, names)
		for i, c := range codes {
			ranges = append(ranges, ownOf(registry.Layout(), c, names[i]))
		}
		return err
	}
	var tlds, sites []domain64.Name
	for _, name := range p.largest(s.tlds) {
		if name != domain64.IPAddresses { // which no host is
			tlds = append(tlds, domain64.Name{TLD: name})
		}
	}
	large := p.largest(s.sites)
	for _, name := range large {
		if n, err := domain64.SplitHost(name, name); err != nil {
			return nil, err
		} else if n.Level() == domain64.Domain {
			sites = append(sites, n)
		}
	}
	if err := add(tlds); err != nil {
		return nil, err
	}
	if err := add(sites); err != nil {
		return nil, err
	}
	for _, site := range large {
		if len(ranges) == maxRanges {
			break // hosts are counted by reading the rows of their domain
		}
		hosts, err := p.hosts(dataset, site)
		if err != nil {
			return nil, err
		}
		var subs []domain64.Name
		for _, host := range p.largest(hosts) {
			if n, err := domain64.SplitHost(host, site); err != nil {
				return nil, err
			} else if n.Level() == domain64.Sub {
				subs = append(subs, n)
			}
		}
		if err := add(subs); err != nil {
			return nil, err
		}
	}
	return ranges, nil
}

// largest returns the names with enough rows for a partition, largest first.
func (p *planner) largest(rows map[string]int64) (names []string) {
	for name, n := range rows {
		if n >= p.plan.Spec.PartitionRows {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rows[b], rows[a]), strings.Compare(a, b)) })
	return names
}

// hosts counts the rows of the hosts of a domain in a dataset. Runs of rows that are too short to
// matter are left out, so that the map is small.
func (p *planner) hosts(dataset uint32, domain string) (map[string]int64, error) {
	src, err := newSource(p.ctx, p.store, p.plan, p.opt)
	if err != nil {
		return nil, err
	}
	defer src.close()
	var reads []read
	for i := range p.version.Segments {
		more, err := p.reads(i, []string{domain})
		if err != nil {
			return nil, err
		}
		reads = append(reads, more...)
	}
	reads = slices.DeleteFunc(reads, func(r read) bool { return r.Dataset != dataset })
	rows := map[string]int64{}
	short := p.plan.Spec.PartitionRows / int64(8*max(1, len(reads)))
	for i := range reads {
		host, n := "", int64(0)
		end := func() {
			if n > short {
				rows[host] += n
			}
		}
		for page, err := range src.read(&reads[i], nil, part.ColHost) {
			if err != nil {
				return nil, err
			}
			for at := range page.Columns.Rows {
				if h := page.Host[at]; h != host {
					end()
					host, n = strings.Clone(h), 0
				}
				n++
			}
		}
		end()
	}
	return rows, nil
}
