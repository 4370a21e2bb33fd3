package verify

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
)

// tiled is what the tuples of one row group add up to.
type tiled struct {
	rows int64
	// tiles is the sum over all tuples of mix(end) - mix(start). Tuples that tile the row group
	// leave mix(rows) - mix(0), whatever their order; others do not, but for a chance of 2^-64.
	tiles uint64
}

func mix(v int64) uint64 {
	hi, lo := bits.Mul64(uint64(v)^0x9e3779b97f4a7c15, 0xd1b54a32d192ed02)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// mixSet is the part of one domain in a sum over all domains with their datasets. Sum is that of mix over its datasets. Two lists of domains and
// datasets that have the same sum are the same in another order, but for a chance of 2^-64.
func mixSet(k segment.Key, sum uint64) uint64 {
	return mix(int64(k.ID ^ mix(int64(sum+uint64(k.Check)))))
}

// postingsRange is what was found in some frames of a shard.
type postingsRange struct {
	run          *segment.PostingsRun
	first, last  domainSets // last is empty where there is but one
	domains      int64      // between those two
	sets         uint64     // sum of mixSet over them
	entries      int64
	rows, tuples int64
	broken       bool // could not be read
	found        findings
}

// endRange takes the range's last domain.
func (r *postingsRange) endRange(d domainSets) {
	if r.first.entries == 0 {
		r.first = d
	} else {
		r.last = d
	}
}

// endDomain counts a domain that has ended, and is not the range's last. It does nothing for none.
func (r *postingsRange) endDomain(d domainSets) {
	switch {
	case d.entries == 0:
	case r.first.entries == 0:
		r.first = d
	default:
		r.domains++
		r.sets += mixSet(d.key, d.sum)
	}
}

// domainSets is a domain and its datasets.
type domainSets struct {
	key      segment.Key
	entries  int
	sum      uint64   // of mix over the datasets
	datasets []uint32 // where each domain is looked up
}

// postings goes over all entries: domains have the sets of datasets that they have in domain_to_datasets, and tuples lie in the row groups of
// their files and tile them. Sets are compared by their sum over all domains, each of which has its own ordinal, as was seen. What is not sound
// is looked at again, domain by domain, and what that finds is reported.
func (v *verifier) postings() error {
	if v.setsKnown && v.found.n == 0 && len(v.changed) == 0 {
		before := v.report
		sound, err := v.allEntries(false)
		if sound || err != nil {
			return err
		}
		v.report, v.found, v.partial.postings = before, findings{}, false
	}
	_, err := v.allEntries(true)
	return err
}

// allEntries goes over all entries and tells whether nothing was wrong. It looks up each domain, or sums them up.
func (v *verifier) allEntries(lookUp bool) (sound bool, err error) {
	type frames struct{ shard, lo, hi int }
	var jobs []frames
	for shard := range 1 << v.info.ShardBits {
		for _, r := range v.seg.PostingsRuns(shard) {
			jobs = append(jobs, frames{shard, r[0], r[1]})
		}
	}
	groups := 0
	for _, g := range v.groups {
		groups += len(g)
	}
	checkers := make([]*membershipChecker, runtime.GOMAXPROCS(0)+1) // the last one is for domains between runs
	tiles := make([][]tiled, len(checkers)-1)
	if lookUp {
		seen := make([]atomic.Uint64, v.info.Domains/64+1)
		for i := range checkers {
			checkers[i] = &membershipChecker{v: v, seen: seen}
		}
	}
	for i := range tiles {
		tiles[i] = make([]tiled, groups)
	}
	runs := sync.Pool{New: func() any { return new(segment.PostingsRun) }}

	var domains int64
	var sets uint64
	var pending domainSets // may go on in the next frames
	endDomain := func() error {
		ended := pending
		pending = domainSets{}
		if ended.entries == 0 {
			return nil
		}
		domains++
		sets += mixSet(ended.key, ended.sum)
		if !lookUp {
			return nil
		}
		c := checkers[len(checkers)-1]
		c.add(ended.key, ended.datasets)
		return c.check(v.ctx, &v.found)
	}
	var end segment.PostingsEnd
	lost := false // frames of this shard
	endShard := func(shard int) error {
		if !lost {
			if err := v.problem(v.key(segment.PayloadsName(shard)), v.seg.EndPostings(shard, end)); err != nil {
				return err
			}
		}
		end, lost = segment.PostingsEnd{}, false
		return nil
	}
	err = inOrder(v.ctx, len(jobs), func(ctx context.Context, worker, i int) (r postingsRange, err error) {
		j := jobs[i]
		r.run = runs.Get().(*segment.PostingsRun)
		var plain func(*segment.PlainBlock)
		var p plainRange
		if !lookUp {
			plain = func(b *segment.PlainBlock) { v.plainBlock(&r, &p, b, j.shard, tiles[worker]) }
		}
		if err := v.seg.ReadPostings(ctx, j.shard, j.lo, j.hi, r.run, plain); err != nil {
			r = postingsRange{run: r.run, broken: true}
			return r, r.found.problem(ctx, v.key(segment.PostingsName(j.shard)), err)
		}
		if r.entries > 0 {
			r.endRange(p.open)
			return r, nil
		}
		return r, v.postingsRange(ctx, &r, j.shard, checkers[worker], tiles[worker])
	}, func(i int, r postingsRange) error {
		v.found.addAll(&r.found)
		j := jobs[i]
		if r.broken {
			lost, v.partial.postings = true, true
			pending = domainSets{}
		} else {
			if err := v.seg.Follow(j.shard, r.run, &end); err != nil && !lost {
				if err := v.problem(v.key(segment.PostingsName(j.shard)), err); err != nil {
					return err
				}
			}
			v.report.Entries += r.entries
			v.report.Rows += r.rows
			v.report.Tuples += r.tuples
			domains += r.domains
			sets += r.sets
			if r.first.key != pending.key {
				if err := endDomain(); err != nil {
					return err
				}
			}
			pending = domainSets{r.first.key, pending.entries + r.first.entries, pending.sum + r.first.sum, append(pending.datasets, r.first.datasets...)}
			if r.last.entries > 0 {
				if err := endDomain(); err != nil {
					return err
				}
				pending = r.last
			}
		}
		runs.Put(r.run)
		if i == len(jobs)-1 || jobs[i+1].shard != j.shard {
			return endShard(j.shard)
		}
		return nil
	})
	if err == nil {
		err = endDomain()
	}
	if err != nil || v.partial.postings {
		return false, err
	}
	if domains != v.report.Domains && !v.partial.domains {
		v.wrong(v.key("postings"), "entries", fmt.Sprintf("%d domains", v.report.Domains), domains)
	}
	if v.partial.pages {
		return sets == v.sets && v.found.n == 0, nil
	}
	for id, groups := range v.groups {
		for n, g := range groups {
			var sum tiled
			for _, t := range tiles {
				sum.rows += t[g.number].rows
				sum.tiles += t[g.number].tiles
			}
			if sum.rows != g.rows || sum.tiles != mix(g.rows)-mix(0) {
				got := fmt.Sprintf("%d rows", sum.rows)
				if sum.rows == g.rows {
					got = "some twice"
				}
				v.wrong(v.key("postings"), fmt.Sprintf("tuples of row group %d of %s", n, v.seg.Files().Info(uint32(id)).Path), fmt.Sprintf("all %d rows once", g.rows), got)
			}
		}
	}
	return sets == v.sets && v.found.n == 0, nil
}

// postingsRange checks what was read of a shard but for the first and the last domain's sets of datasets, which may go on in other frames.
// C looks up domains, where not nil.
func (v *verifier) postingsRange(ctx context.Context, r *postingsRange, shard int, c *membershipChecker, tiles []tiled) error {
	entries := r.run.Entries
	r.entries = int64(len(entries))
	for from := 0; from < len(entries); {
		key, to, sum := entries[from].Key, from, uint64(0)
		for ; to < len(entries) && entries[to].Key == key; to++ {
			e := &entries[to]
			sum += mix(int64(e.Dataset))
			r.rows += e.Rows
			tuples := r.run.Tuples(to)
			r.tuples += int64(len(tuples))
			for _, t := range tuples {
				v.tuple(&r.found, shard, t, tiles)
			}
		}
		var datasets []uint32
		if c != nil {
			c.datasets = c.datasets[:0]
			for i := range entries[from:to] {
				c.datasets = append(c.datasets, entries[from+i].Dataset)
			}
			datasets = c.datasets
		}
		switch {
		case from == 0:
			r.first = domainSets{key, to - from, sum, slices.Clone(datasets)}
		case to == len(entries):
			r.last = domainSets{key, to - from, sum, slices.Clone(datasets)}
		default:
			r.domains++
			r.sets += mixSet(key, sum)
			if c == nil {
				break
			}
			c.add(key, datasets)
			if len(c.keys) == membershipBatch {
				if err := c.check(ctx, &r.found); err != nil {
					return err
				}
			}
		}
		from = to
	}
	if c == nil {
		return nil
	}
	return c.check(ctx, &r.found)
}

// plainRange is what is known while the blocks of a range are gone over.
type plainRange struct {
	open   domainSets // the domain of the entry that was last seen
	files  []plainFile
	starts []uint32
	sums   []uint64 // of what the entries before each add
}

// plainFile is what the entries of a file have in common.
type plainFile struct {
	mixed  uint64 // the dataset
	groups []rowGroup
}

// plainBlock is postingsRange, without looking up domains, for one block of a range: most of what verifying postings takes is here.
func (v *verifier) plainBlock(r *postingsRange, p *plainRange, b *segment.PlainBlock, shard int, tiles []tiled) {
	p.files = p.files[:0]
	for i, id := range b.FileIDs {
		f := plainFile{mixed: mix(int64(b.Datasets[i]))}
		if int64(id) < int64(len(v.groups)) && !v.partial.pages {
			f.groups = v.groups[id]
		}
		p.files = append(p.files, f)
	}
	n := len(b.FileIndexes)
	allRows, groups, firsts := b.Rows[:n], b.Groups[:n], b.Firsts[:n]
	p.sums = slices.Grow(p.sums[:0], n+1)[:n+1]
	sets, sums := uint64(0), p.sums[:n]
	for i, place := range b.FileIndexes {
		f := &p.files[place]
		sums[i] = sets
		sets += f.mixed
		rows, first := allRows[i], firsts[i]
		r.rows += rows
		if group := groups[i]; uint64(group) < uint64(len(f.groups)) {
			if g := &f.groups[group]; first >= 0 && rows >= 1 && rows <= g.rows-first {
				sum := &tiles[g.number]
				sum.rows += rows
				sum.tiles += mix(first+rows) - mix(first)
				continue
			}
		}
		v.tuple(&r.found, shard, segment.Tuple{FileID: b.FileIDs[place], RowGroup: uint32(groups[i]), FirstRow: first, Rows: rows}, tiles)
	}
	p.sums[n] = sets
	p.starts = b.Starts(p.starts)
	open := p.open
	for i, k := range b.Keys {
		from, to := p.starts[i], p.starts[i+1]
		if k != open.key { // else it goes on in this block
			r.endDomain(open)
			open = domainSets{key: k}
		}
		open.entries += int(to - from)
		open.sum += p.sums[to] - p.sums[from]
	}
	p.open = open
	r.entries += int64(n)
	r.tuples += int64(n)
}

// membershipChecker holds the sets of datasets of domains against those of their entries. It is for one goroutine.
type membershipChecker struct {
	v        *verifier
	seen     []atomic.Uint64 // a bit for each ordinal, of all checkers
	keys     []segment.Key
	ends     []int    // of each key's datasets
	flat     []uint32 // datasets of all keys
	ordinals []uint32
	datasets []uint32 // scratch memory
}

// membershipBatch is how many domains are looked up at once.
const membershipBatch = 1 << 10

func (c *membershipChecker) add(k segment.Key, datasets []uint32) {
	if c.ordinals == nil {
		c.ordinals = make([]uint32, membershipBatch)
	}
	c.keys = append(c.keys, k)
	c.flat = append(c.flat, datasets...)
	c.ends = append(c.ends, len(c.flat))
}

// check checks the domains added.
func (c *membershipChecker) check(ctx context.Context, found *findings) error {
	v := c.v
	defer func() { c.keys, c.ends, c.flat = c.keys[:0], c.ends[:0], c.flat[:0] }()
	if len(c.keys) == 0 {
		return nil
	}
	if err := v.seg.Ordinals(c.keys, c.ordinals); err != nil {
		return found.problem(ctx, v.key(segment.MPHFName), err)
	}
	from := 0
	for i, k := range c.keys {
		datasets, ordinal := c.flat[from:c.ends[i]], c.ordinals[i]
		from = c.ends[i]
		if ordinal == mph.Absent {
			found.wrong(v.key(segment.MPHFName), domainName(k), "an ordinal", "none")
			continue
		}
		bit := uint64(1) << (ordinal % 64)
		if c.seen[ordinal/64].Or(bit)&bit != 0 {
			found.wrong(v.key(segment.MPHFName), domainName(k), "an ordinal of its own", ordinal)
		}
		set, err := v.seg.Datasets(ordinal)
		if err != nil {
			return found.problem(ctx, v.key(segment.MembershipName), err)
		}
		if set := set.ToArray(); !slices.Equal(set, datasets) {
			found.wrong(v.key(segment.MembershipName), domainName(k), "datasets "+listed(datasets), listed(set))
		}
	}
	return nil
}

func domainName(k segment.Key) string { return fmt.Sprintf("domain %016x/%08x", k.ID, k.Check) }

// listed prints the first of many numbers.
func listed(numbers []uint32) string {
	const most = 10
	if len(numbers) <= most {
		return fmt.Sprint(numbers)
	}
	return fmt.Sprintf("%v and %d more", numbers[:most], len(numbers)-most)
}

// tuple holds a tuple against its row group.
func (v *verifier) tuple(found *findings, shard int, t segment.Tuple, tiles []tiled) {
	if v.partial.pages {
		return
	}
	if int64(t.FileID) >= int64(len(v.groups)) || int64(t.RowGroup) >= int64(len(v.groups[t.FileID])) {
		found.wrong(v.key(segment.PostingsName(shard)), "tuples", "a row group that there is", fmt.Sprintf("row group %d of file %d", t.RowGroup, t.FileID))
		return
	}
	g := &v.groups[t.FileID][t.RowGroup]
	if t.FirstRow < 0 || t.Rows < 1 || t.Rows > g.rows-t.FirstRow {
		found.wrong(v.key(segment.PostingsName(shard)), fmt.Sprintf("tuples of row group %d of file %d", t.RowGroup, t.FileID), fmt.Sprintf("rows below %d", g.rows), rowRange(t))
		return
	}
	sum := &tiles[g.number]
	sum.rows += t.Rows
	sum.tiles += mix(t.FirstRow+t.Rows) - mix(t.FirstRow)
}

func rowRange(t segment.Tuple) string {
	return fmt.Sprintf("rows %d to %d", t.FirstRow, t.FirstRow+t.Rows-1)
}
