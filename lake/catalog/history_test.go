package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// replaceBatch returns a commit that puts one batch of other rows and parts in the place of the one
// that addBatch(n) adds.
func replaceBatch(n int) Commit {
	c := addBatch(n)
	c.ID = id32(5000 + n)
	c.BuiltBy = "urlake another"
	add := c.Build
	c.Build = func(ctx context.Context, parent *Version) (*Next, error) {
		next, err := add(ctx, nil)
		if err != nil {
			return nil, err
		}
		const rows = 40
		added := NewSegment(id32(3000+n), "00112233445566aa", 4000, 10, rows)
		next.Segments = append([]Segment{added}, parent.Segments...)
		for i := range next.Segments {
			if next.Segments[i].ID == id32(n) {
				next.Segments = append(next.Segments[:i:i], next.Segments[i+1:]...)
				break
			}
		}
		next.Batches = map[string]iter.Seq2[Batch, error]{added.ID: sequenceOf([]Batch{{
			BatchName: BatchName{DatasetID: uint32(1 + n%3), Batch: fmt.Sprintf("b%d", n)}, Digest: id32(2000 + n),
			Rows: rows, Parts: 1, Bytes: 700,
		}})}
		return next, nil
	}
	return c
}

// history commits five versions, of which the fourth replaces the batch of the second.
func history(t *testing.T) (*blob.Memory, *Manifest) {
	t.Helper()
	store := blob.NewMemory()
	for _, c := range []Commit{addBatch(0), addBatch(1), addBatch(3), replaceBatch(1), addBatch(2)} {
		apply(t, store, c)
	}
	m, _ := current(t, store)
	return store, m
}

func TestSummariesSayWhatChanged(t *testing.T) {
	store, m := history(t)
	var want []Summary
	// Segments, datasets, batches, parts, rows, bytes of parts and of the index.
	for i, change := range []Counts{
		{1, 1, 1, 2, 100, 9000, 5000}, {1, 1, 1, 2, 101, 9000, 5000}, {1, 0, 1, 2, 103, 9000, 5000},
		{0, 0, 0, -1, -61, -8300, -1000}, {1, 1, 1, 2, 102, 9000, 5000},
	} {
		s := Summary{
			VersionRef: m.Versions[i], Created: "2026-11-20T10:11:12.123Z", BuiltBy: "urlake test",
			CanonicalForm: "urlake-1", PublicSuffix: "20261101", Counts: change, Change: &change,
		}
		if i == 3 {
			s.BuiltBy = "urlake another"
		}
		if i > 0 {
			before := want[i-1].Counts
			s.Parent = want[i-1].ID
			s.Counts = Counts{
				before.Segments + change.Segments, before.Datasets + change.Datasets, before.Batches + change.Batches,
				before.Parts + change.Parts, before.Rows + change.Rows,
				before.PartBytes + change.PartBytes, before.IndexBytes + change.IndexBytes,
			}
		}
		v, err := ReadVersion(t.Context(), store, s.VersionRef)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Segments {
			s.Views = append(s.Views, v.Segments[i].View())
		}
		want = append(want, s)
	}
	want[4].Current = true
	want[1].Tags = []string{"production", "release-1"}
	for _, tag := range want[1].Tags {
		if _, _, err := SetTag(t.Context(), store, tag, want[1].ID, false); err != nil {
			t.Fatal(err)
		}
	}
	m, _ = current(t, store)
	for from := range len(want) + 1 {
		for to := from; to <= len(want); to++ {
			var reads atomic.Int64
			got, err := m.Summaries(t.Context(), from, to, func(ctx context.Context, ref VersionRef) (Summary, error) {
				reads.Add(1)
				return ReadSummary(ctx, store, ref)
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]Summary{}, want[from:to]...), got); diff != "" {
				t.Fatalf("[%d:%d] (-want +got):\n%s", from, to, diff)
			}
			most := to - from
			if from > 0 && to > from {
				most++
			}
			if reads.Load() != int64(most) {
				t.Errorf("[%d:%d]: %d reads, want %d", from, to, reads.Load(), most)
			}
		}
	}
}

// A version whose parent is not listed has no change; one whose parent is listed anywhere has.
func TestChangeIsOfTheParent(t *testing.T) {
	store, m := history(t)
	if err := store.Delete(t.Context(), m.Versions[1].Object); err != nil {
		t.Fatal(err)
	}
	if _, err := DropLost(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	m, _ = current(t, store)
	read := func(ctx context.Context, ref VersionRef) (Summary, error) { return ReadSummary(ctx, store, ref) }
	list, err := m.Summaries(t.Context(), 0, len(m.Versions), read)
	if err != nil || len(list) != 4 {
		t.Fatal(list, err)
	}
	for i, s := range list {
		if (s.Change == nil) != (i == 1) {
			t.Errorf("version %d of parent %s: %+v", i, s.Parent, s.Change)
		}
	}
	list, err = m.Summaries(t.Context(), 3, 4, func(ctx context.Context, ref VersionRef) (Summary, error) {
		s, err := read(ctx, ref)
		if ref == m.Versions[3] {
			s.Parent = m.Versions[0].ID
		}
		return s, err
	})
	if err != nil || list[0].Change == nil || list[0].Change.Rows != 103+40+102 {
		t.Errorf("a version that follows the first: %+v, %v", list, err)
	}
}

func TestSummaryOfALostVersionNamesIt(t *testing.T) {
	for _, damage := range []string{"missing", "flipped", "truncated"} {
		store, m := history(t)
		key := m.Versions[2].Object
		data := get(t, store, key)
		switch damage {
		case "missing":
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		case "flipped":
			data[len(data)/2] ^= 4
			put(t, store, key, data)
		case "truncated":
			put(t, store, key, data[:len(data)-1])
		}
		read := func(ctx context.Context, ref VersionRef) (Summary, error) { return ReadSummary(ctx, store, ref) }
		for from, fails := range []bool{true, true, true, true, false} { // version 3 needs its parent
			_, err := m.Summaries(t.Context(), from, len(m.Versions), read)
			var corrupt *codec.CorruptError
			if named := errors.As(err, &corrupt) && corrupt.File == key; named != fails || !fails && err != nil {
				t.Errorf("%s, from %d: %v", damage, from, err)
			}
		}
	}
}

// Summaries reads summaryReads versions at once, and never more.
func TestSummariesAreReadConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manifest{Versions: make([]VersionRef, 2*summaryReads+1)}
		for i := range m.Versions {
			m.Versions[i].ID = fmt.Sprintf("%03d", i)
		}
		var waiting atomic.Int64
		resume := make(chan struct{})
		done := make(chan []Summary)
		go func() {
			list, err := m.Summaries(t.Context(), 0, len(m.Versions), func(_ context.Context, ref VersionRef) (Summary, error) {
				waiting.Add(1)
				<-resume
				return Summary{VersionRef: ref}, nil
			})
			if err != nil {
				t.Error(err)
			}
			done <- list
		}()
		for _, want := range []int64{summaryReads, summaryReads, 1} {
			synctest.Wait() // for all reads that start
			if got := waiting.Swap(0); got != want {
				t.Errorf("%d reads at once, want %d", got, want)
			}
			for range want {
				resume <- struct{}{}
			}
		}
		for i, s := range <-done {
			if s.ID != m.Versions[i].ID {
				t.Errorf("summary %d is of %s", i, s.ID)
			}
		}
	})
}
