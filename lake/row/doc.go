// Package row has the rows of a lake: their fields and sort keys, and how the rows of a batch are
// sorted within a memory budget and passed to a Sink in the order of their keys, one row of each
// record.
//
// Comparing two keys as bytes compares the rows field by field; docs/formats/run.md describes the
// bytes. A Suffix has the fields after the path.
//
// A Buffer collects the rows of a split in memory and sorts them. If a batch has more splits, or
// more rows than fit into a buffer, the rows go through staging. A shuffle file holds the rows of
// one split by partition, unsorted; a merge task loads its partitions of all shuffle files into a
// Buffer. A run holds sorted rows that a merge task spilled, and MergeRuns merges runs. PlanMerge
// chooses how a batch is partitioned and divides the partitions into tasks; FromShuffle is a task's
// Source of sorted rows. docs/formats/shuffle.md and docs/formats/run.md describe both files.
//
// The rows that reach the Sink depend on the rows that were added alone: not on their order, the
// budget, the files or the processor. Rows are added by assembly for AVX-512 (*_amd64.s), and by Go
// on other processors; both write the same bytes.
package row
