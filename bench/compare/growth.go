package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/urlake/urlake/bench/steps"
	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

const (
	// lateRows is the number of lines of a batch that is added to a finished lake; for a small
	// lake, a tenth of its lines.
	lateRows = 100_000
	// lates is how many such batches are added: one more than the segments that a publish leaves
	// without compaction.
	lates    = 9
	lateName = "late"
	// mergedSegments is how many segments are built before the one that replaces them.
	mergedSegments = 8
)

// addition is the cost of adding one batch to a lake and publishing it.
type addition struct {
	Ingest, Publish           float64 // seconds
	IngestBytes, PublishBytes int64   // bytes written, staging included
}

// late writes lists to add to a lake: further pages of the sites that are in the list from.
func late(from, dir string, rows int) (lists []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	urls := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	for k := range lates {
		var list bytes.Buffer
		for i := range rows {
			url := urls[(k*rows+i)%len(urls)]
			mark := byte('?')
			if bytes.IndexByte(url, '?') >= 0 {
				mark = '&'
			}
			fmt.Fprintf(&list, "%s%clate=%d-%d\n", url, mark, k+1, (k*rows+i)/len(urls))
		}
		name := filepath.Join(dir, fmt.Sprintf("late%d.txt", k+1))
		if err := os.WriteFile(name, list.Bytes(), 0o666); err != nil {
			return nil, err
		}
		lists = append(lists, name)
	}
	return lists, nil
}

// add ingests lists into the lake in dir, each as a batch of one dataset, and publishes after each.
func add(ctx context.Context, dir string, lists []string) (all []addition, err error) {
	b, err := steps.New(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		var a addition
		started := time.Now()
		if _, err := b.Batch(ctx, lateName, filepath.Base(list), list); err != nil {
			return nil, err
		}
		a.Ingest = time.Since(started).Seconds()
		for _, s := range b.TakeStages() {
			a.IngestBytes += s.Written
		}
		started = time.Now()
		if _, err := b.Publish(ctx); err != nil {
			return nil, err
		}
		a.Publish = time.Since(started).Seconds()
		for _, s := range b.TakeStages() {
			a.PublishBytes += s.Written
		}
		all = append(all, a)
	}
	return all, nil
}

// merged is the cost of building mergedSegments segments over all batches of a lake, and then the
// one that replaces them.
type merged struct {
	Domains, Entries int64
	Rows             int64
	Parts            float64 // seconds for mergedSegments segments
	Whole            float64 // seconds for the one
	CPU              float64 // seconds of all threads for the one
	Read, Written    int64   // bytes for the one
	Disk             float64 // bytes a second that the disk writes and flushes
	Peak             int64   // bytes
}

// mergeSegments builds segments over an eighth of a lake's batches each, and then the one that
// replaces them. Every segment is built from its batches' postings.
func mergeSegments(ctx context.Context, dir string) (*merged, error) {
	b, err := steps.New(ctx, dir)
	if err != nil {
		return nil, err
	}
	datasets, err := catalog.Datasets(ctx, b.Store)
	if err != nil {
		return nil, err
	}
	var refs, extra []segment.BatchRef
	for _, d := range datasets {
		state, err := catalog.LookBatches(ctx, b.Store, d.ID)
		if err != nil {
			return nil, err
		}
		current, err := state.Current(ctx, d.ID)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(current)) {
			ref := segment.BatchRef{DatasetID: d.ID, Batch: name, Digest: current[name]}
			if d.Name == lateName {
				extra = append(extra, ref)
			} else {
				refs = append(refs, ref)
			}
		}
	}
	groups := make([][]segment.BatchRef, mergedSegments)
	for i, r := range refs {
		groups[i%mergedSegments] = append(groups[i%mergedSegments], r)
	}
	out := new(merged)
	started := time.Now()
	for _, g := range groups {
		if len(g) > 0 {
			if _, err := indexbuild.BuildSegment(ctx, b.Store, g, indexbuild.Options{TempDir: b.Temp}); err != nil {
				return nil, err
			}
		}
	}
	out.Parts = time.Since(started).Seconds()
	// The segment of refs exists already, as they are published together. One more batch makes it
	// another.
	refs = append(refs, extra[len(extra)-1])
	store := blob.NewCounting(b.Store)
	_, before, err := used()
	if err != nil {
		return nil, err
	}
	started = time.Now()
	ref, err := indexbuild.BuildSegment(ctx, store, refs, indexbuild.Options{TempDir: b.Temp})
	if err != nil {
		return nil, err
	}
	out.Whole = time.Since(started).Seconds()
	if _, out.CPU, err = used(); err != nil {
		return nil, err
	}
	out.CPU -= before
	if out.Read, out.Written = store.Reads().Bytes, store.Writes().Bytes; out.Written == 0 {
		return nil, fmt.Errorf("segment %s existed already, so nothing was measured", ref.ID)
	}
	report, err := verify.Segment(ctx, b.Store, ref, false, b.Temp)
	if err != nil {
		return nil, err
	}
	out.Domains, out.Entries, out.Rows = report.Domains, report.Entries, report.Rows
	if out.Peak, _, err = used(); err != nil {
		return nil, err
	}
	out.Disk, err = diskRate(b.Temp)
	return out, err
}

// diskRate returns the bytes a second at which a file is written and flushed.
func diskRate(dir string) (float64, error) {
	const size = 256 << 20
	f, err := os.CreateTemp(dir, "rate-*.tmp")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 131)
	}
	started := time.Now()
	for range size / len(block) {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return size / time.Since(started).Seconds(), nil
}

// millionLists is how many lists a million lines have in lakes that grow by more lists, 125,000
// lines each on average.
const millionLists = 8

// growth builds lakes of a million rows, ten million and so on up to most, adds batches to each,
// and merges segments of each. A lake grows in two ways: its lists become longer, or they become
// more.
func growth(ctx context.Context, most int64, dir string) error {
	defer os.RemoveAll(dir)
	fmt.Printf("\nGrowth: lakes of growing size, two threads; in %d lists, which become longer, and in %d lists a million lines, which become more\n",
		usualLists, millionLists)
	const row = "  %12s %7s %9s %9s %10s %10s %9s %10s %11s %11s\n"
	fmt.Printf(row, "lines", "lists", "seconds", "µs a line", "CPU a line", "peak, MB", "domains", "pairs", "Parquet, MB", "index, MB")
	var additions [][]addition
	var merges []merged
	var sizes []int64
	var lists []string
	smallest := min(int64(1e6), most)
	batch := min(lateRows, smallest/10)
	for rows := smallest; rows <= most; rows *= 10 {
		at := filepath.Join(dir, strconv.FormatInt(rows, 10))
		raw, lakeDir := filepath.Join(at, "lists"), filepath.Join(at, "lake")
		// The lake of the usual lists comes last, as it is the one that the batches are added to.
		for _, n := range []int{max(int(rows/1e6), 1) * millionLists, usualLists} {
			if err := os.RemoveAll(at); err != nil {
				return err
			}
			var size int64
			if err := child(ctx, &size, "lists", strconv.FormatInt(rows, 10), strconv.Itoa(n), raw); err != nil {
				return err
			}
			var b built
			if err := child(ctx, &b, "ingest", raw, lakeDir, ""); err != nil {
				return err
			}
			_, _, parquet, err := columnBytes(filepath.Join(lakeDir, "urls"))
			if err != nil {
				return err
			}
			_, index, err := indexBytes(filepath.Join(lakeDir, "index", "segments"))
			if err != nil {
				return err
			}
			lines := float64(rows)
			fmt.Printf(row, strconv.FormatInt(rows, 10), strconv.Itoa(options(rows, n).Datasets), fmt.Sprintf("%.1f", b.Seconds),
				fmt.Sprintf("%.2f", b.Seconds/lines*1e6), fmt.Sprintf("%.2f", b.CPU/lines*1e6), fmt.Sprintf("%.0f", float64(b.Peak)/1e6),
				strconv.FormatInt(b.Domains, 10), strconv.FormatInt(b.Entries, 10), fmt.Sprintf("%.1f", float64(parquet)/1e6),
				fmt.Sprintf("%.1f", float64(index)/1e6))
		}
		if lists == nil {
			// All sizes get the same batches, and so does an empty lake.
			var err error
			if lists, err = late(filepath.Join(raw, "ds1.txt"), filepath.Join(dir, "late"), int(batch)); err != nil {
				return err
			}
			var empty []addition
			if err := child(ctx, &empty, "add", append([]string{filepath.Join(dir, "empty", "lake")}, lists[0])...); err != nil {
				return err
			}
			additions, sizes = append(additions, empty), append(sizes, 0)
		}
		if err := os.RemoveAll(raw); err != nil {
			return err
		}
		var added []addition
		if err := child(ctx, &added, "add", append([]string{lakeDir}, lists...)...); err != nil {
			return err
		}
		additions, sizes = append(additions, added), append(sizes, rows)
		var m merged
		if err := child(ctx, &m, "segments", lakeDir); err != nil {
			return err
		}
		merges = append(merges, m)
		if err := os.RemoveAll(at); err != nil {
			return err
		}
	}

	fmt.Printf("\nPublish: a batch of %d lines is added to each, then %d more; seconds, and bytes written, staging included\n", batch, lates-1)
	const cost = "  %12s %9s %9s %12s %14s %9s %26s %14s\n"
	fmt.Printf(cost, "lake, lines", "ingest", "publish", "by ingest", "by publish", "of empty", "more: publish, largest", "all, of empty")
	empty := additions[0][0]
	for i, added := range additions {
		var publishes []float64
		written := int64(0)
		for _, a := range added {
			publishes = append(publishes, a.Publish)
			written += a.IngestBytes + a.PublishBytes
		}
		a, more := added[0], ""
		if rest := publishes[1:]; len(rest) > 0 {
			more = fmt.Sprintf("%.2f, %.2f", median(rest), slices.Max(rest))
		}
		of := func(bytes int64, n int) string {
			return ratio(float64(bytes) / float64(int64(n)*(empty.IngestBytes+empty.PublishBytes)))
		}
		fmt.Printf(cost, strconv.FormatInt(sizes[i], 10), fmt.Sprintf("%.2f", a.Ingest), fmt.Sprintf("%.2f", a.Publish),
			strconv.FormatInt(a.IngestBytes, 10), strconv.FormatInt(a.PublishBytes, 10), of(a.IngestBytes+a.PublishBytes, 1), more, of(written, len(added)))
	}
	fmt.Println("  the ninth segment takes in the small ones, which the last column includes; a batch alone is to write at most 1.2 of empty")

	fmt.Printf("\nSegments: all batches of a lake in %d segments, then in the one that replaces them\n", mergedSegments)
	const line = "  %12s %9s %10s %9s %9s %10s %10s %10s %12s %12s %9s\n"
	fmt.Printf(line, "rows", "domains", "pairs", "eight, s", "one, s", "ns a pair", "of CPU", "read, MB", "written, MB", "MB/s, both", "peak, MB")
	for _, m := range merges {
		fmt.Printf(line, strconv.FormatInt(m.Rows, 10), strconv.FormatInt(m.Domains, 10), strconv.FormatInt(m.Entries, 10),
			fmt.Sprintf("%.2f", m.Parts), fmt.Sprintf("%.2f", m.Whole), fmt.Sprintf("%.0f", m.Whole/float64(m.Entries)*1e9),
			fmt.Sprintf("%.0f", m.CPU/float64(m.Entries)*1e9), fmt.Sprintf("%.1f", float64(m.Read)/1e6), fmt.Sprintf("%.1f", float64(m.Written)/1e6),
			fmt.Sprintf("%.0f", float64(m.Read+m.Written)/m.Whole/1e6), fmt.Sprintf("%.0f", float64(m.Peak)/1e6))
	}
	if n := len(merges); n > 0 {
		fmt.Printf("  the disk writes and flushes %.0f MB/s\n", merges[n-1].Disk/1e6)
	}
	return nil
}
