package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

const (
	// TakedownRoot is the folder of all objects about takedowns but deletion tables.
	TakedownRoot = "index/takedowns/"
	// TakedownDocumentRoot and PiecesRoot are the folders of documents and of the pieces of their
	// maps.
	TakedownDocumentRoot = TakedownRoot + "documents/"
	TakedownPiecesRoot   = TakedownRoot + "pieces/"

	// takedownFormat is the format version of documents.
	// 1: first.
	takedownFormat = 1

	// MaxTakedowns is the most rules in force.
	MaxTakedowns = 1_000_000
)

// TakedownRef names a document and vouches for its bytes. It is a part of a manifest.
type TakedownRef struct {
	Object string `json:"object"`
	Bytes  int64  `json:"bytes"`
	XXH64  string `json:"xxh64"` // 16 hex digits
}

// TakedownSegment is a segment that the rules were applied to.
type TakedownSegment struct {
	// ID is the id of the segment, or names what versions leave of it (catalog.Segment.View).
	ID string `json:"id"`
	// Hidden is the number of rows that the rules hide. Table names the deletion table that also
	// lacks these, in the place of the one that the version names. It is nil if there are none.
	Hidden int64             `json:"hidden,omitempty"`
	Table  *lake.FrameObject `json:"table,omitempty"`
}

// TakedownDocument is the state of a lake's takedowns.
type TakedownDocument struct {
	Format int `json:"format"`
	// Epoch grows by one whenever a rule is added or lifted.
	Epoch uint64 `json:"epoch"`
	// RulePieces has the rules in force, RecordPieces the records of all rules that there were.
	RulePieces   pieces.Ref `json:"rule_pieces"`
	RecordPieces pieces.Ref `json:"record_pieces"`
	// Segments are those that the rules were applied to, ascending: at least all of the versions
	// that the manifest lists, unless there is no rule.
	Segments []TakedownSegment `json:"segments"`
}

// TakedownRecord tells of a rule that is or was in force. It has no text of the rule.
type TakedownRecord struct {
	ID   string     `json:"id"`
	Kind TargetKind `json:"kind"`
	// Digest is the digest of the rule's target.
	Digest    string    `json:"digest"`
	DatasetID uint32    `json:"dataset_id,omitempty"`
	Dataset   string    `json:"dataset,omitempty"`
	From      *int64    `json:"from,omitempty"`
	To        *int64    `json:"to,omitempty"`
	Reason    string    `json:"reason"`
	By        string    `json:"by,omitempty"`
	Created   time.Time `json:"created"`
	// Epoch is the first one with the rule.
	Epoch uint64 `json:"epoch"`
	// Versions and Datasets are what the rule matched when it was added, whether other rules hid it
	// or not. Datasets has each dataset as in the newest version with matching rows of it. Both end
	// after some hundred; More tells how many are left out.
	Versions []Matched `json:"versions,omitempty"`
	Datasets []Matched `json:"datasets,omitempty"`
	More     int       `json:"more,omitempty"`
	// Lifted, LiftedBy and LiftReason are set when the rule was lifted.
	Lifted     *time.Time `json:"lifted,omitempty"`
	LiftedBy   string     `json:"lifted_by,omitempty"`
	LiftReason string     `json:"lift_reason,omitempty"`
}

// Matched is how many rows a rule matched in a version or a dataset, and of how many domains and
// datasets.
type Matched struct {
	Version   string `json:"version,omitempty"`
	DatasetID uint32 `json:"dataset_id,omitempty"`
	Dataset   string `json:"dataset,omitempty"`
	Rows      int64  `json:"rows"`
	Domains   int64  `json:"domains"`
	Datasets  int64  `json:"datasets,omitempty"`
	// Undated are the rows that only their missing time keeps from being matched.
	Undated int64 `json:"undated,omitempty"`
}

// maxMatched is the most versions, and the most datasets, that a record has.
const maxMatched = 200

// NewTakedownRecord returns the record of a rule.
func NewTakedownRecord(r *Takedown, epoch uint64, versions, datasets []Matched) TakedownRecord {
	more := max(0, len(versions)-maxMatched) + max(0, len(datasets)-maxMatched)
	return TakedownRecord{
		ID: r.ID, Kind: r.Kind, Digest: r.Digest(), DatasetID: r.DatasetID, Dataset: r.Dataset, From: r.From, To: r.To,
		Reason: r.Reason, By: r.By, Created: r.Created, Epoch: epoch,
		Versions: versions[:min(len(versions), maxMatched)], Datasets: datasets[:min(len(datasets), maxMatched)], More: more,
	}
}

var (
	hex16       = regexp.MustCompile(`^[0-9a-f]{16}$`)
	segmentID   = regexp.MustCompile(`^[0-9a-f]{32}$`)
	takedownKey = regexp.MustCompile(`^` + TakedownDocumentRoot + `([0-9]{12})-[0-9a-f]{32}\.json$`)
)

// IsTakedownDocument reports whether a key is that of a document.
func IsTakedownDocument(key string) bool { return takedownKey.MatchString(key) }

// Check returns a *codec.CorruptError, which names file, if the reference cannot name a document of
// an epoch.
func (r *TakedownRef) Check(file string, epoch uint64) error {
	m := takedownKey.FindStringSubmatch(r.Object)
	if m == nil || r.Bytes < 1 || !hex16.MatchString(r.XXH64) {
		return codec.Corrupt(file, "takedowns", -1, "a reference to a document", fmt.Sprintf("%+v", *r))
	}
	if n, err := strconv.ParseUint(m[1], 10, 64); err != nil || n != epoch {
		return codec.Corrupt(file, "takedowns", -1, fmt.Sprintf("a document of epoch %d", epoch), r.Object)
	}
	return nil
}

func (d *TakedownDocument) check(key string) error {
	c := checker{file: key}
	c.equal("format", takedownFormat, d.Format)
	if c.err == nil {
		c.err = cmp.Or(d.RulePieces.Check(key), d.RecordPieces.Check(key))
	}
	c.that("rule_pieces", d.RulePieces.Entries <= MaxTakedowns, fmt.Sprintf("at most %d", MaxTakedowns), d.RulePieces.Entries)
	for i, s := range d.Segments {
		section := "segments[" + strconv.Itoa(i) + "]"
		c.that(section, segmentID.MatchString(s.ID) && (i == 0 || d.Segments[i-1].ID < s.ID), "ascending ids", s.ID)
		c.that(section, (s.Table != nil) == (s.Hidden > 0), "hidden rows with a deletion table", s.Hidden)
		if s.Table != nil && c.err == nil {
			c.err = s.Table.CheckDeletion(key, section, s.ID)
		}
	}
	return c.err
}

// decodeTakedowns decodes and checks the bytes of a document.
func decodeTakedowns(data []byte, key string) (*TakedownDocument, error) {
	var d TakedownDocument
	if err := codec.Unseal(data, key, takedownFormat, &d); err != nil {
		return nil, err
	}
	return &d, d.check(key)
}

// Write stores the document and returns its reference.
func (d *TakedownDocument) Write(ctx context.Context, store blob.Store) (TakedownRef, error) {
	d.Format = takedownFormat
	if d.Segments == nil {
		d.Segments = []TakedownSegment{}
	}
	data, err := codec.Seal(d)
	if err != nil {
		return TakedownRef{}, err
	}
	ref := TakedownRef{
		Object: fmt.Sprintf("%s%012d-%s.json", TakedownDocumentRoot, d.Epoch, lake.Digest(data)),
		Bytes:  int64(len(data)), XXH64: xxh64(data),
	}
	if err := d.check(ref.Object); err != nil {
		return TakedownRef{}, fmt.Errorf("encode: %w", err)
	}
	_, err = store.Put(ctx, ref.Object, data, blob.Condition{})
	return ref, err
}

// ReadTakedowns reads the document of a reference. A missing one is a *codec.CorruptError. Nil
// stands for the lake that has never had a takedown.
func ReadTakedowns(ctx context.Context, store blob.Store, ref *TakedownRef) (*TakedownDocument, error) {
	if ref == nil {
		return &TakedownDocument{Format: takedownFormat}, nil
	}
	data, _, err := store.Get(ctx, ref.Object)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, codec.Corrupt(ref.Object, "object", -1, "one that exists, since the manifest names it", "none")
	}
	if err != nil {
		return nil, err
	}
	if got := xxh64(data); got != ref.XXH64 || int64(len(data)) != ref.Bytes {
		return nil, codec.Corrupt(ref.Object, "hash", -1, "xxh64 "+ref.XXH64, got)
	}
	return decodeTakedowns(data, ref.Object)
}

// takedownKeys returns the keys of the documents in a store, those of the highest epoch first.
func takedownKeys(ctx context.Context, store blob.Store) (keys []string, err error) {
	for info, err := range store.List(ctx, TakedownDocumentRoot) {
		if err != nil {
			return nil, err
		}
		if IsTakedownDocument(info.Key) {
			keys = append(keys, info.Key)
		}
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	return keys, nil
}

// newestEpoch returns the highest epoch of the documents in a store, 0 if there is none. It reads
// none of them.
func newestEpoch(ctx context.Context, store blob.Store) (epoch uint64, err error) {
	keys, err := takedownKeys(ctx, store)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return strconv.ParseUint(takedownKey.FindStringSubmatch(keys[0])[1], 10, 64)
}

// newestTakedowns returns the reference of the intact document with the highest epoch in a store,
// nil if there is none, and its epoch. Of several of one epoch it takes the one with the most
// rules, and then with the most segments: those of commits that lost a race can be in the store. It
// is for a lake whose manifest is lost. It is better to hide a row too many than to show it.
func newestTakedowns(ctx context.Context, store blob.Store) (best *TakedownRef, epoch uint64, err error) {
	keys, err := takedownKeys(ctx, store)
	if err != nil {
		return nil, 0, err
	}
	var have *TakedownDocument
	for _, key := range keys {
		data, _, err := store.Get(ctx, key)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		d, err := decodeTakedowns(data, key)
		switch {
		case codec.IsUnsealed(err):
		case err != nil:
			return nil, 0, err
		case have != nil && d.Epoch < have.Epoch:
			return best, have.Epoch, nil
		case have == nil || d.RulePieces.Entries > have.RulePieces.Entries ||
			d.RulePieces.Entries == have.RulePieces.Entries && len(d.Segments) > len(have.Segments):
			have, best = d, &TakedownRef{Object: key, Bytes: int64(len(data)), XXH64: xxh64(data)}
		}
	}
	if have == nil {
		return nil, 0, nil
	}
	return best, have.Epoch, nil
}

// Find returns the segment with an id, if the rules were applied to it.
func (d *TakedownDocument) Find(id string) (TakedownSegment, bool) {
	i, ok := slices.BinarySearchFunc(d.Segments, id, func(s TakedownSegment, id string) int { return strings.Compare(s.ID, id) })
	if !ok {
		return TakedownSegment{}, false
	}
	return d.Segments[i], true
}

// Hidden is the number of rows that are hidden in segments, by their ids.
func (d *TakedownDocument) Hidden(segments []string) (rows int64) {
	for _, id := range segments {
		s, _ := d.Find(id)
		rows += s.Hidden
	}
	return rows
}

// ruleKey is the key of a rule: the host with its labels in reverse, and the id, so that the rules
// of a domain are neighbours.
func ruleKey(r *Takedown) []byte {
	host := r.Host
	if !strings.HasPrefix(host, "[") {
		labels := strings.Split(host, ".")
		slices.Reverse(labels)
		host = strings.Join(labels, ".")
	}
	return append(append([]byte(host), 0), r.ID...)
}

// rules and records return the maps of the document.
func (d *TakedownDocument) rules(store blob.Store) *pieces.Map {
	return pieces.Open(store, TakedownPiecesRoot, d.RulePieces)
}

func (d *TakedownDocument) records(store blob.Store) *pieces.Map {
	return pieces.Open(store, TakedownPiecesRoot, d.RecordPieces)
}

// Rules reads all rules in force.
func (d *TakedownDocument) Rules(ctx context.Context, store blob.Store) (*Takedowns, error) {
	rules := NewTakedowns()
	for r, err := range entries(ctx, d.rules(store), nil, nil, decodeRule) {
		if err != nil {
			return nil, err
		}
		rules.add(r)
	}
	return rules, nil
}

// Records yields the records of all rules by id, which is by date.
func (d *TakedownDocument) Records(ctx context.Context, store blob.Store) iter.Seq2[TakedownRecord, error] {
	return entries(ctx, d.records(store), nil, nil, decodeRecord)
}

// Record returns the record of a rule.
func (d *TakedownDocument) Record(ctx context.Context, store blob.Store, id string) (r TakedownRecord, ok bool, err error) {
	found, err := find(ctx, d.records(store), [][]byte{[]byte(id)}, decodeRecord)
	if len(found) == 0 {
		return r, false, err
	}
	return found[0], true, nil
}

func decodeRule(e pieces.Entry) (r Takedown, err error) {
	want := "a rule"
	if err = decodeJSON(e.Value, &r); err == nil {
		want = "a rule with this key"
		err = r.check()
	}
	if err != nil || !bytes.Equal(ruleKey(&r), e.Key) {
		err = codec.Corrupt(TakedownDocumentRoot, "rule "+strconv.Quote(string(e.Key)), -1, want, err)
	}
	return r, err
}

func decodeRecord(e pieces.Entry) (r TakedownRecord, err error) {
	if err = decodeJSON(e.Value, &r); err != nil || r.ID != string(e.Key) {
		err = codec.Corrupt(TakedownDocumentRoot, "record "+strconv.Quote(string(e.Key)), -1, "a record with this id", err)
	}
	return r, err
}

// Edit returns the document with one rule more, or less, and with a record: of the next epoch and
// without segments. It writes pieces.
func (d *TakedownDocument) Edit(
	ctx context.Context, store blob.Store, add, remove *Takedown, rec TakedownRecord,
) (*TakedownDocument, error) {
	var edits []pieces.Edit
	if add != nil {
		if err := add.check(); err != nil {
			return nil, fmt.Errorf("takedown: %w", err)
		}
		value, err := json.Marshal(add)
		if err != nil {
			return nil, err
		}
		edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: ruleKey(add), Value: value}})
	}
	if remove != nil {
		edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: ruleKey(remove)}, Delete: true})
	}
	rules, err := d.rules(store).Apply(ctx, edits)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(&rec)
	if err != nil {
		return nil, err
	}
	records, err := d.records(store).Apply(ctx, []pieces.Edit{{Entry: pieces.Entry{Key: []byte(rec.ID), Value: value}}})
	if err != nil {
		return nil, err
	}
	return &TakedownDocument{
		Format: takedownFormat, Epoch: d.Epoch + 1, RulePieces: rules.Ref(), RecordPieces: records.Ref(),
	}, nil
}

// Objects yields the keys of all objects that the document refers to: pieces and deletion tables.
// An error is the last thing that it yields.
func (d *TakedownDocument) Objects(ctx context.Context, store blob.Store) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for key, err := range names(ctx, d.rules(store), d.records(store)) {
			if !yield(key, err) || err != nil {
				return
			}
		}
		for _, s := range d.Segments {
			if s.Table != nil && !yield(s.Table.Key, nil) {
				return
			}
		}
	}
}

func decodeJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

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
		if r, err := decodeRule(e); err == nil {
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
	inForce, err := pieces.Build(ctx, store, TakedownPiecesRoot, sortedJSON(ruleEntries))
	if err != nil {
		return nil, err
	}
	ever, err := pieces.Build(ctx, store, TakedownPiecesRoot, sortedJSON(recordEntries))
	if err != nil {
		return nil, err
	}
	return &TakedownDocument{Format: takedownFormat, Epoch: epoch, RulePieces: inForce.Ref(), RecordPieces: ever.Ref()}, nil
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
