package lookup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup/filter"
	"github.com/urlake/urlake/serve/turns"
)

// notedLake returns a lake whose dataset alpha has n rows of site.test, each with other extras: a
// number and a long note.
func notedLake(t *testing.T, n, note int) *blob.Memory {
	t.Helper()
	store := blob.NewMemory()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"url":"https://site.test/%06d","n":%d,"note":"%06d%s"}`+"\n", i, i, i, strings.Repeat("x", note))
	}
	path := filepath.Join(t.TempDir(), "noted.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	spec := testlake.Spec(t, store, "alpha", "b", nil)
	spec.Inputs, spec.Extras = []string{path}, []string{"n", "note"}
	testlake.IngestSpec(t, store, spec)
	testlake.Publish(t, store)
	return store
}

// filtered is the query of the rows of notedLake that meet conditions.
func filtered(t *testing.T, unique bool, conditions ...string) URLsQuery {
	t.Helper()
	q := URLsQuery{Target: target(t, "site.test"), Dataset: 1, Limit: 1000, Unique: unique}
	for _, text := range conditions {
		if err := q.Selection.AddFilter(text); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// TestFiltersEndPages follows a list whose filters take more work than a page may.
func TestFiltersEndPages(t *testing.T) {
	const rows = 60
	snap := acquire(t, serve(t, notedLake(t, rows, 2800), Options{}), "")
	for _, unique := range []bool{false, true} {
		// The last two alternatives make a match a large one that takes no time.
		q := filtered(t, unique, "n~[02468]$", "note~^0|a{500}|b{480}")
		var got []string
		pages := 0
		for {
			page, err := snap.URLs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Len() {
				got = append(got, string(page.URL(i)))
			}
			pages++
			if q.Cursor = page.Cursor; q.Cursor == "" {
				break
			}
			if page.StoppedBy != "filter" {
				t.Errorf("a page of %d ended by %q", page.Len(), page.StoppedBy)
			}
		}
		var want []string
		for i := 0; i < rows; i += 2 {
			want = append(want, fmt.Sprintf("https://site.test/%06d", i))
		}
		if !slices.Equal(got, want) || pages < 3 || pages > rows/4 {
			t.Errorf("unique %v: %d pages with %q", unique, pages, got)
		}
	}
}

// TestFiltersStopWithTheRequest asks for rows that are cached, without time for them.
func TestFiltersStopWithTheRequest(t *testing.T) {
	snap := acquire(t, serve(t, notedLake(t, 500, 100), Options{}), "")
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, unique := range []bool{false, true} {
		for i, ctx := range []context.Context{t.Context(), gone} {
			q := filtered(t, unique, "note~a{100}")
			list, err := snap.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			_, err = list.Next(ctx, 1000)
			work := list.q.Selection.Filters.Work()
			switch {
			case i == 0 && (err != nil || work < 500*100*100):
				t.Errorf("unique %v: %d steps, %v", unique, work, err)
			case i == 1 && (!errors.Is(err, context.Canceled) || work > 20*100*100):
				t.Errorf("unique %v, without time: %d steps, %v", unique, work, err)
			}
		}
	}
}

func TestValuesTooLongForAFilter(t *testing.T) {
	snap := acquire(t, serve(t, notedLake(t, 5, 3100), Options{}), "")
	for _, unique := range []bool{false, true} {
		var large *filter.TooLargeError
		if _, err := snap.URLs(t.Context(), filtered(t, unique, "note~a{1000}")); !errors.As(err, &large) {
			t.Errorf("unique %v: %v", unique, err)
		}
		// A row that another condition rules out needs no match.
		if page, err := snap.URLs(t.Context(), filtered(t, unique, "n=7", "note~a{1000}")); err != nil || page.Len() != 0 {
			t.Errorf("unique %v: %v", unique, err)
		}
	}
}

// TestFiltersTakeTurns asks for rows that are cached while all turns are taken.
func TestFiltersTakeTurns(t *testing.T) {
	inner := notedLake(t, 500, 100)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, inner, Options{Deadline: 20 * time.Minute})
		snap := acquire(t, s, "")
		for _, unique := range []bool{false, true} {
			ask := func(ctx context.Context) (*URLsPage, error) {
				return snap.URLs(ctx, filtered(t, unique, "n~7$", "note~x"))
			}
			if _, err := ask(t.Context()); err != nil {
				t.Fatal(err)
			}
			give := holdTurns(t, s)
			var page *URLsPage
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				ctx, turn := turns.With(t.Context(), s.Turns())
				defer turn.Give()
				page, err = ask(ctx)
			}()
			synctest.Wait()
			select {
			case <-done:
				t.Errorf("unique %v: filtered without a turn", unique)
			default:
			}
			give()
			<-done
			if err != nil || page.Len() != 50 {
				t.Errorf("unique %v: %v", unique, err)
			}
		}
		holdTurns(t, s)()
	})
}
