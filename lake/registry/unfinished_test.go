package registry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

// Of the ingests without an end only the newest stay; finished ones all do.
func TestNewestUnfinishedIngestsStay(t *testing.T) {
	s := newShard(1)
	const finished, tooMany = 10, 3
	for n := range keepUnfinished + tooMany + finished {
		e := openIngest{1, fmt.Sprint("b", n), Ingest{Seq: int64(n), Run: fmt.Sprint("r", n)}}
		if n < finished {
			e.Digest = "0123"
		}
		s.Open = append(s.Open, e)
	}
	s.dropUnfinished()
	if len(s.Open) != finished+keepUnfinished || s.Open[finished].Seq != finished+tooMany {
		t.Errorf("%d ingests, the first without an end is %d", len(s.Open), s.Open[finished].Seq)
	}
}

// A store that is away is one error, however many ingests wait for it: errors of steps are small.
func TestManyThatCannotBeAbandonedAreOneError(t *testing.T) {
	inner := blob.NewMemory()
	ingests := make([]IngestID, 1000)
	for i := range ingests {
		ingests[i] = IngestID{DatasetID: uint32(i + 1), Batch: "b", Run: "r"}
	}
	for _, out := range RegisterIngests(t.Context(), inner, ingests) {
		if out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	store := blobtest.NewFaulty(inner)
	store.CrashAfter(0)
	err := AbandonIngests(t.Context(), store, ingests)
	if !errors.Is(err, blobtest.ErrCrashed) || len(err.Error()) > 500 {
		t.Errorf("%.1000v", err)
	}
	if err := AbandonIngests(t.Context(), inner, ingests); err != nil {
		t.Fatal(err)
	}
	if running, err := Running(t.Context(), inner); err != nil || len(running) > 0 {
		t.Errorf("%d datasets run, %v", len(running), err)
	}
}
