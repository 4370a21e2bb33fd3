package row

import (
	"context"
	"slices"

	"github.com/urlake/urlake/lake/blob"
)

// PartitionSize counts the rows of one partition and the bytes of their keys, before equal rows are
// merged.
type PartitionSize struct {
	Rows     int64 `json:"rows"`
	KeyBytes int64 `json:"key_bytes"`
}

// MergeTask is some partitions whose parts one task writes.
type MergeTask struct {
	// Prefixes are the domain_prefixes with rows, in ascending order.
	Prefixes []string `json:"prefixes"`
	PartitionSize
}

// MergeLimits are the sizes, in bytes of keys, by which PlanMerge divides a batch. Only tests use
// others than DefaultMergeLimits.
type MergeLimits struct {
	// AnyPrefix and OneDigit are the sizes from which a batch is partitioned by one hex digit and
	// by two.
	AnyPrefix, OneDigit int64
	// Task is the size of a task.
	Task int64
}

// DefaultMergeLimits are the limits of every lake, since the parts of a batch depend on them.
var DefaultMergeLimits = MergeLimits{AnyPrefix: 64 << 20, OneDigit: 1 << 30, Task: 64 << 20}

// MergeArena is the memory for the rows of one task, in bytes. Rows beyond it are sorted in pieces.
const MergeArena = 192 << 20

// PlanMerge chooses the width of prefixes, 0 to 2 hex digits, and groups those with rows, in order,
// into tasks of similar size. Both depend on the counts alone.
func PlanMerge(parts *[Partitions]PartitionSize, lim MergeLimits) (width int, tasks []MergeTask) {
	var total int64
	for _, p := range parts {
		total += p.KeyBytes
	}
	switch {
	case total < lim.AnyPrefix:
		width = 0
	case total < lim.OneDigit:
		width = 1
	default:
		width = 2
	}
	size := Partitions >> (4 * width)
	for first := 0; first < Partitions; first += size {
		var sum PartitionSize
		for _, p := range parts[first : first+size] {
			sum.add(p)
		}
		if sum.Rows == 0 {
			continue
		}
		if n := len(tasks); n == 0 || tasks[n-1].KeyBytes+sum.KeyBytes > lim.Task {
			tasks = append(tasks, MergeTask{})
		}
		t := &tasks[len(tasks)-1]
		t.Prefixes = append(t.Prefixes, PrefixOf(first, width))
		t.add(sum)
	}
	return width, tasks
}

func (p *PartitionSize) add(q PartitionSize) {
	p.Rows += q.Rows
	p.KeyBytes += q.KeyBytes
}

// Source passes the rows of a range of partitions to sink, sorted and without duplicates. prefix is
// the domain_prefix of these partitions.
type Source func(prefix string, first, last byte, sink Sink) error

// FromShuffle returns a Source of the rows in shuffle files, for a task with these prefixes. Rows
// beyond arena bytes are sorted in runs, whose keys spill returns: pass 0 has the runs of a prefix,
// others those merged from them. The caller calls release when it needs the Source no longer.
func FromShuffle(
	ctx context.Context, store blob.Store, files []ShuffleFile, arena int64, prefixes []string,
	spill func(prefix string, pass, n int) string,
) (source Source, release func(), err error) {
	ctx, cancel := context.WithCancel(ctx) // ends prefetches that were not used
	shuffle, err := OpenShuffle(ctx, store, files)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	buffer := NewBuffer(arena)
	source = func(prefix string, first, last byte, sink Sink) error {
		var runs []Run
		writeRun := func() error {
			r, err := buffer.WriteRun(ctx, store, spill(prefix, 0, len(runs)))
			runs = append(runs, r)
			return err
		}
		if err := buffer.Load(ctx, shuffle, first, last, writeRun); err != nil {
			return err
		}
		if len(runs) == 0 {
			if next := slices.Index(prefixes, prefix) + 1; next < len(prefixes) {
				if first, last, err := PartitionsOf(prefixes[next]); err == nil { // an error is returned at their turn
					buffer.Prefetch(ctx, shuffle, first, last)
				}
			}
			defer buffer.Empty()
			return buffer.Rows(ctx, first, last, sink)
		}
		if err := writeRun(); err != nil {
			return err
		}
		buffer.Shrink() // MergeRuns allocates its own memory
		return MergeRuns(ctx, store, runs, func(pass, n int) string { return spill(prefix, 1+pass, n) }, sink)
	}
	return source, func() { cancel(); buffer.Release() }, nil
}
