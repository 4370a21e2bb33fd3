package many

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/pieces"
)

// ReportRoot is the folder of the reports of all runs.
const ReportRoot = "reports/"

var reportForm = regexp.MustCompile(`^reports/([^/]+)/[0-9]{6,}\.ndjson\.zst$`)

// ReportRun returns the run that has written a report. Ok is false for other keys.
func ReportRun(key string) (run string, ok bool) {
	m := reportForm.FindStringSubmatch(key)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// HasPlan reports whether a run still has its plan, so that it may go on.
func HasPlan(ctx context.Context, store blob.Store, run string) (bool, error) {
	_, err := store.Stat(ctx, planKey(run))
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Running returns the batches of all ingests that have a plan in staging, of many datasets or of
// one: the ingest is under way, or the same ingest may continue it. It may have finished some of
// them.
func Running(ctx context.Context, store blob.Store) (all []catalog.BatchName, err error) {
	const root = "staging/"
	for info, err := range store.List(ctx, root) {
		if err != nil {
			return nil, err
		}
		run, file, _ := strings.Cut(strings.TrimPrefix(info.Key, root), "/")
		switch file {
		case "plan.json":
			name, ok, err := ingest.Writing(ctx, store, run)
			if err != nil {
				return nil, err
			}
			if ok {
				all = append(all, name)
			}
		case "many.json":
			some, err := writing(ctx, store, run)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// TakenPieces returns the keys of all pieces below TakenRoot that are needed. Ok is false if that
// cannot be told, because something is damaged; the next ingest mends it.
//
// An ingest that adds a piece does not wait for a garbage collection: if the content of a piece
// comes back at the moment at which the piece is deleted as garbage, the piece is lost. That loses
// no answer. A lost piece is as good as none, so its batches are taken up again, with the same
// result.
func TakenPieces(ctx context.Context, store blob.Store) (keys []string, ok bool, err error) {
	var t taken
	_, err = loadTakenStrict(ctx, store, &t)
	if err == nil {
		for key, nameErr := range pieces.Open(store, TakenRoot, t.Pieces).Names(ctx) {
			if err = nameErr; err != nil {
				break
			}
			keys = append(keys, key)
		}
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, false, nil
	}
	return keys, err == nil, err
}
