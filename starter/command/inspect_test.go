package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// One damaged document hides the batches of many datasets, and an ingest of many lists leaves as
// many batches waiting. Status stays a screen of text.
func TestStatusOfManyDatasetsStaysShort(t *testing.T) {
	var s lakeStatus
	for i := range 1250 {
		s.Unpublished = append(s.Unpublished, unpublished{Dataset: fmt.Sprint("hidden", i), Damage: "the document is damaged"})
	}
	for i := range 25 {
		s.Unpublished = append(s.Unpublished, unpublished{Dataset: fmt.Sprint("d", i), Batch: "b"})
	}
	s.Unpublished[1250+24].Damage = "lost"
	var want strings.Builder
	want.WriteString(`Waiting     25 finished batches to be published
            batches of hidden0, hidden1, hidden2 and 1,247 other datasets: the document is damaged
            d24 b is damaged: lost
`)
	for i := range shownWaiting - 1 {
		fmt.Fprintf(&want, "            d%d b\n", i)
	}
	want.WriteString("            and 5 other batches; --json lists all\n")
	var got strings.Builder
	s.printWaiting(&got)
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
