package registry

import (
	"fmt"
	"testing"
)

// Of the ingests without an end only the newest stay; finished ones all do.
func TestNewestUnfinishedIngestsStay(t *testing.T) {
	r := batchRegistry{Format: registryFormat, DatasetID: 1}
	const finished, tooMany = 10, 3
	for n := range keepUnfinished + tooMany + finished {
		e := entry{Seq: int64(n), Batch: fmt.Sprint("b", n), Run: fmt.Sprint("r", n)}
		if n < finished {
			e.Digest = "0123"
		}
		r.Ingests = append(r.Ingests, e)
	}
	r.dropUnfinished()
	if len(r.Ingests) != finished+keepUnfinished || r.Ingests[finished].Seq != finished+tooMany {
		t.Errorf("%d ingests, the first without an end is %d", len(r.Ingests), r.Ingests[finished].Seq)
	}
}
