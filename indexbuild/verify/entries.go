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

// tiling adds up the tuples of one row group.
type tiling struct {
	rows int64
	// ends is the sum of mix(end) - mix(start) over all tuples. Tuples that cover each row of the
	// row group exactly once add up to mix(rows) - mix(0), in any order; other tuples do so with a
	// probability of 2^-64.
	ends uint64
}

func (t *tiling) add(firstRow, rows int64) {
	t.rows += rows
	t.ends += mix(firstRow+rows) - mix(firstRow)
}

// mix hashes a number.
func mix(v int64) uint64 {
	hi, lo := bits.Mul64(uint64(v)^0x9e3779b97f4a7c15, 0xd1b54a32d192ed02)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// mixSet hashes a domain and its datasets; sum is the sum of mix over these. Two lists of domains
// and datasets have the same sum of mixSet if they are the same in any order, and otherwise with a
// probability of 2^-64.
func mixSet(k segment.Key, sum uint64) uint64 {
	return mix(int64(k.ID ^ mix(int64(sum+uint64(k.Check)))))
}

// domainSets is a domain and its datasets.
type domainSets struct {
	key      segment.Key
	entries  int
	sum      uint64   // of mix over the datasets
	datasets []uint32 // only if domains are looked up
}

// entryRange is what a job has found in some frames of a shard. Its first and its last domain may
// continue in other frames.
type entryRange struct {
	run          *segment.PostingsRun
	first, last  domainSets // last is empty if there is only one domain
	domains      int64      // between first and last
	sets         uint64     // sum of mixSet over them
	entries      int64
	rows, tuples int64
	unread       bool
	found        findings
}

// endDomain takes a domain that has ended before the end of the range, or none.
func (r *entryRange) endDomain(d domainSets) {
	switch {
	case d.entries == 0:
	case r.first.entries == 0:
		r.first = d
	default:
		r.domains++
		r.sets += mixSet(d.key, d.sum)
	}
}

// endRange takes the last domain.
func (r *entryRange) endRange(d domainSets) {
	if r.first.entries == 0 {
		r.first = d
	} else {
		r.last = d
	}
}

// postings checks all entries: domains have the sets of datasets of domain_to_datasets, and tuples
// cover each row of each row group exactly once.
//
// If nothing has been wrong so far, it compares the sum over all domains with their sets, which is
// much faster than looking up each domain. If the sums differ or anything is wrong, it reads the
// postings again, looks up each domain, and reports what that finds.
func (v *verifier) postings() error {
	if v.setsKnown && v.found.n == 0 && len(v.changed) == 0 {
		before := v.report
		valid, err := v.allEntries(false)
		if valid || err != nil {
			return err
		}
		v.report, v.found, v.partial.postings = before, findings{}, false
	}
	_, err := v.allEntries(true)
	return err
}

// allEntries reads all entries and returns whether nothing is wrong. It looks up each domain if
// lookUp, and otherwise compares sums.
func (v *verifier) allEntries(lookUp bool) (valid bool, err error) {
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
	// The checkers and tilings of the workers. The last checker is for domains at the ends of
	// ranges.
	checkers := make([]*membershipChecker, runtime.GOMAXPROCS(0)+1)
	tilings := make([][]tiling, len(checkers)-1)
	if lookUp {
		seen := make([]atomic.Uint64, v.info.Domains/64+1)
		for i := range checkers {
			checkers[i] = &membershipChecker{v: v, seen: seen}
		}
	}
	for i := range tilings {
		tilings[i] = make([]tiling, groups)
	}
	runs := sync.Pool{New: func() any { return new(segment.PostingsRun) }}

	var domains int64
	var sets uint64
	var open domainSets // the last domain, which may continue in the next range
	endDomain := func() error {
		ended := open
		open = domainSets{}
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
	unread := false // a range of this shard
	endShard := func(shard int) error {
		if !unread {
			if err := v.problem(v.key(segment.PayloadsName(shard)), v.seg.EndPostings(shard, end)); err != nil {
				return err
			}
		}
		end, unread = segment.PostingsEnd{}, false
		return nil
	}
	err = inOrder(v.ctx, len(jobs), func(ctx context.Context, worker, i int) (r entryRange, err error) {
		j := jobs[i]
		r.run = runs.Get().(*segment.PostingsRun)
		var plain func(*segment.PlainBlock)
		var p plainRange
		if !lookUp {
			plain = func(b *segment.PlainBlock) { v.plainBlock(&r, &p, b, j.shard, tilings[worker]) }
		}
		if err := v.seg.ReadPostings(ctx, j.shard, j.lo, j.hi, r.run, plain); err != nil {
			r = entryRange{run: r.run, unread: true}
			return r, r.found.problem(ctx, v.key(segment.PostingsName(j.shard)), err)
		}
		if r.entries > 0 {
			r.endRange(p.open)
			return r, nil
		}
		return r, v.entryRange(ctx, &r, j.shard, checkers[worker], tilings[worker])
	}, func(i int, r entryRange) error {
		v.found.addAll(&r.found)
		j := jobs[i]
		if r.unread {
			unread, v.partial.postings = true, true
			open = domainSets{}
		} else {
			if err := v.seg.Follow(j.shard, r.run, &end); err != nil && !unread {
				if err := v.problem(v.key(segment.PostingsName(j.shard)), err); err != nil {
					return err
				}
			}
			v.report.Entries += r.entries
			v.report.Rows += r.rows
			v.report.Tuples += r.tuples
			domains += r.domains
			sets += r.sets
			if r.first.key != open.key {
				if err := endDomain(); err != nil {
					return err
				}
			}
			open = domainSets{
				key: r.first.key, entries: open.entries + r.first.entries, sum: open.sum + r.first.sum,
				datasets: append(open.datasets, r.first.datasets...),
			}
			if r.last.entries > 0 {
				if err := endDomain(); err != nil {
					return err
				}
				open = r.last
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
	if !v.partial.pages {
		v.checkTilings(tilings)
	}
	return sets == v.sets && v.found.n == 0, nil
}

// checkTilings checks that tuples cover each row of each row group exactly once.
func (v *verifier) checkTilings(tilings [][]tiling) {
	for id, groups := range v.groups {
		for n, g := range groups {
			var sum tiling
			for _, t := range tilings {
				sum.rows += t[g.number].rows
				sum.ends += t[g.number].ends
			}
			if sum.rows == g.rows && sum.ends == mix(g.rows)-mix(0) {
				continue
			}
			got := fmt.Sprintf("%d rows", sum.rows)
			if sum.rows == g.rows {
				got = "some rows twice, others never"
			}
			path := v.seg.Files().Info(uint32(id)).Path
			v.wrong(v.key("postings"), fmt.Sprintf("tuples of row group %d of %s", n, path),
				fmt.Sprintf("all %d rows once", g.rows), got)
		}
	}
}

// entryRange checks entries of a shard, and the sets of datasets of all domains but the first and
// the last. c looks domains up; it may be nil.
func (v *verifier) entryRange(
	ctx context.Context, r *entryRange, shard int, c *membershipChecker, tilings []tiling,
) error {
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
				v.tuple(&r.found, shard, t, tilings)
			}
		}
		var datasets []uint32
		if c != nil {
			c.scratch = c.scratch[:0]
			for i := range entries[from:to] {
				c.scratch = append(c.scratch, entries[from+i].Dataset)
			}
			datasets = c.scratch
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

// tuple checks that a tuple is inside its row group, and adds it to the tiling.
func (v *verifier) tuple(found *findings, shard int, t segment.Tuple, tilings []tiling) {
	if v.partial.pages {
		return
	}
	if int64(t.FileID) >= int64(len(v.groups)) || int64(t.RowGroup) >= int64(len(v.groups[t.FileID])) {
		found.wrong(v.key(segment.PostingsName(shard)), "tuples", "a row group of a file of the segment",
			fmt.Sprintf("row group %d of file %d", t.RowGroup, t.FileID))
		return
	}
	g := &v.groups[t.FileID][t.RowGroup]
	if t.FirstRow < 0 || t.Rows < 1 || t.Rows > g.rows-t.FirstRow {
		found.wrong(v.key(segment.PostingsName(shard)),
			fmt.Sprintf("tuples of row group %d of file %d", t.RowGroup, t.FileID),
			fmt.Sprintf("rows below %d", g.rows), describeRows(t))
		return
	}
	tilings[g.number].add(t.FirstRow, t.Rows)
}

// describeRows describes the rows of a tuple in an error.
func describeRows(t segment.Tuple) string {
	return fmt.Sprintf("rows %d to %d", t.FirstRow, t.FirstRow+t.Rows-1)
}

// plainRange is the state of plainBlock over the blocks of a range.
type plainRange struct {
	open   domainSets // the domain of the last entry
	files  []plainFile
	starts []uint32 // of the domains' entries
	sums   []uint64 // of the datasets of the entries before each
}

// plainFile is what the entries of a file have in common.
type plainFile struct {
	mixed  uint64 // the dataset
	groups []rowGroup
}

// plainBlock is entryRange for a block whose entries are in columns, without looking up domains.
// Most of the time of verifying postings is spent here.
func (v *verifier) plainBlock(r *entryRange, p *plainRange, b *segment.PlainBlock, shard int, tilings []tiling) {
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
	for i, file := range b.FileIndexes {
		f := &p.files[file]
		sums[i] = sets
		sets += f.mixed
		rows, first := allRows[i], firsts[i]
		r.rows += rows
		if group := groups[i]; uint64(group) < uint64(len(f.groups)) {
			if g := &f.groups[group]; first >= 0 && rows >= 1 && rows <= g.rows-first {
				tilings[g.number].add(first, rows)
				continue
			}
		}
		v.tuple(&r.found, shard, segment.Tuple{
			FileID: b.FileIDs[file], RowGroup: uint32(groups[i]), FirstRow: first, Rows: rows,
		}, tilings)
	}
	p.sums[n] = sets
	p.starts = b.Starts(p.starts)
	open := p.open
	for i, k := range b.Keys {
		from, to := p.starts[i], p.starts[i+1]
		if k != open.key { // otherwise the open domain continues in this block
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

// membershipBatch is how many domains are looked up at once.
const membershipBatch = 1 << 10

// membershipChecker looks up domains and compares their sets of datasets with those of their
// entries. It is for one goroutine.
type membershipChecker struct {
	v        *verifier
	seen     []atomic.Uint64 // a bit for each ordinal, shared by all checkers
	keys     []segment.Key
	ends     []int    // of each key's datasets
	flat     []uint32 // the datasets of all keys
	ordinals []uint32
	scratch  []uint32 // datasets
}

// add adds a domain and the datasets of its entries.
func (c *membershipChecker) add(k segment.Key, datasets []uint32) {
	if c.ordinals == nil {
		c.ordinals = make([]uint32, membershipBatch)
	}
	c.keys = append(c.keys, k)
	c.flat = append(c.flat, datasets...)
	c.ends = append(c.ends, len(c.flat))
}

// check checks the added domains and forgets them.
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
			found.wrong(v.key(segment.MPHFName), describeKey(k), "an ordinal", "none")
			continue
		}
		bit := uint64(1) << (ordinal % 64)
		if c.seen[ordinal/64].Or(bit)&bit != 0 {
			found.wrong(v.key(segment.MPHFName), describeKey(k), "an ordinal of its own", ordinal)
		}
		set, err := v.seg.Datasets(ordinal)
		if err != nil {
			return found.problem(ctx, v.key(segment.MembershipName), err)
		}
		if set := set.ToArray(); !slices.Equal(set, datasets) {
			found.wrong(v.key(segment.MembershipName), describeKey(k),
				"datasets "+describeDatasets(datasets), describeDatasets(set))
		}
	}
	return nil
}

// describeKey describes a domain in an error.
func describeKey(k segment.Key) string { return fmt.Sprintf("domain %016x/%08x", k.ID, k.Check) }

// describeDatasets lists the first datasets in an error.
func describeDatasets(datasets []uint32) string {
	const most = 10
	if len(datasets) <= most {
		return fmt.Sprint(datasets)
	}
	return fmt.Sprintf("%v and %d more", datasets[:most], len(datasets)-most)
}
