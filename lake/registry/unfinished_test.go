package registry

import (
	"fmt"
	"testing"
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
