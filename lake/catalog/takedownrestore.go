package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// RestoreTakedowns returns a document of all rules and records that intact pieces in a store have,
// but for the rules that were lifted, and without segments. It is for a lake whose document is
// lost, or a piece of it. Rules of changes that were never finished are among them: it is better to
// hide a row too many than to show it. If a rule in force is lost, which its record shows, the
// error is a *codec.CorruptError.
func RestoreTakedowns(ctx context.Context, store blob.Store, epoch uint64) (*TakedownDocument, error) {
	rules, records := map[string]Takedown{}, map[string]TakedownRecord{}
	for e, err := range pieces.Leaves(ctx, store, TakedownPiecesRoot) {
		if err != nil {
			return nil, err
		}
		var r Takedown
		if decodeJSON(e.Value, &r) == nil && r.check() == nil && bytes.Equal(ruleKey(&r), e.Key) {
			rules[r.ID] = r
		} else if rec, err := decodeRecord(e); err == nil && (records[rec.ID].ID == "" || rec.Lifted != nil) {
			records[rec.ID] = rec
		}
	}
	if len(rules)+len(records) == 0 {
		return nil, codec.Corrupt(TakedownPiecesRoot, "pieces", -1, "intact ones", "none")
	}
	ruleEntries, recordEntries := map[string]any{}, map[string]any{}
	for id, r := range rules {
		rec, ok := records[id]
		if !ok {
			rec = NewTakedownRecord(&r, epoch, nil, nil)
			records[id] = rec
		}
		if rec.Lifted == nil {
			ruleEntries[string(ruleKey(&r))] = r
		}
	}
	for id, rec := range records {
		if _, ok := rules[id]; !ok && rec.Lifted == nil {
			return nil, codec.Corrupt(TakedownPiecesRoot, "rule "+id, -1, "one in an intact piece, since it has a record", "none")
		}
		recordEntries[id] = rec
	}
	d := &TakedownDocument{Format: takedownFormat, Epoch: epoch}
	m, err := pieces.Build(ctx, store, TakedownPiecesRoot, sortedJSON(ruleEntries))
	if err != nil {
		return nil, err
	}
	d.RulePieces = m.Ref()
	if m, err = pieces.Build(ctx, store, TakedownPiecesRoot, sortedJSON(recordEntries)); err != nil {
		return nil, err
	}
	d.RecordPieces = m.Ref()
	return d, nil
}

// sortedJSON yields values as JSON in the order of their keys.
func sortedJSON(values map[string]any) iter.Seq2[pieces.Entry, error] {
	return func(yield func(pieces.Entry, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			value, err := json.Marshal(values[key])
			if !yield(pieces.Entry{Key: []byte(key), Value: value}, err) {
				return
			}
		}
	}
}
