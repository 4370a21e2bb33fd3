package suppress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// ErrUnknown means that the lake has no rule in force with that id.
var ErrUnknown = errors.New("no takedown in force with that id")

// ErrTaken means that another rule has or had that id. Its record must not be overwritten.
var ErrTaken = errors.New("the id is that of another takedown")

// Options of a change.
type Options struct {
	// TempDir holds copies of index files while many rules are applied at once; "" is the system's.
	TempDir string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (o *Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// Result is what a change did.
type Result struct {
	ID    string `json:"id"`
	Epoch uint64 `json:"epoch"`
	// Rule is the rule in its canonical form.
	Rule catalog.Takedown `json:"rule"`
	// Version is the current one, and Current what the rule matches there.
	Version string          `json:"version"`
	Current catalog.Matched `json:"current"`
	// Versions and Datasets are what the rule matches, see catalog.TakedownRecord.
	Versions []catalog.Matched `json:"versions"`
	Datasets []catalog.Matched `json:"datasets"`
	// Segments is the number of segments that the versions have, Tables of how many of them rows
	// are hidden, by any rule.
	Segments int `json:"segments"`
	Tables   int `json:"tables"`
	// DryRun tells that nothing was changed.
	DryRun bool `json:"dry_run,omitempty"`
	// Existed tells that an equal rule was in force already, whose id this is.
	Existed bool `json:"existed,omitempty"`
}

// probes returns rules of which matches are counted: the rule, and the same without its times if it
// has any.
func probes(r *catalog.Takedown) (probe, undated *catalog.Takedowns) {
	probe = catalog.NewTakedowns(*r)
	if r.From != nil || r.To != nil {
		always := *r
		always.From, always.To = nil, nil
		undated = catalog.NewTakedowns(always)
	}
	return probe, undated
}

// Add adds a rule. When it returns, no reader that has read the manifest since shows a row that the
// rule matches, unless somebody else has lifted it since. If an equal rule is in force, nothing
// changes, and the result says so; of two callers that add equal rules at once, one adds it. The
// error is ErrTaken if the id is not new.
func Add(ctx context.Context, store blob.Store, r catalog.Takedown, opt Options) (*Result, error) {
	res, err := add(ctx, store, r, opt, false)
	if err != nil {
		return nil, fmt.Errorf("add takedown: %w", err)
	}
	return res, nil
}

// Preview returns what Add would do. It changes nothing.
func Preview(ctx context.Context, store blob.Store, r catalog.Takedown, opt Options) (*Result, error) {
	res, err := add(ctx, store, r, opt, true)
	if err != nil {
		return nil, fmt.Errorf("look for what a takedown matches: %w", err)
	}
	return res, nil
}

func add(ctx context.Context, store blob.Store, r catalog.Takedown, opt Options, dryRun bool) (*Result, error) {
	a := newApplier(store, opt.TempDir)
	var res *Result
	change := func(ctx context.Context, m *catalog.Manifest) (*catalog.TakedownRef, uint64, error) {
		doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
		if err != nil {
			return nil, 0, err
		}
		rules, err := doc.Rules(ctx, store)
		if err != nil {
			return nil, 0, err
		}
		rec, taken, err := doc.Record(ctx, store, r.ID)
		if err != nil {
			return nil, 0, err
		}
		if taken && res != nil && rec.Epoch == res.Epoch {
			// An earlier attempt made it, and its reply was lost. It may have been lifted since.
			return nil, 0, nil
		}
		equal := slices.IndexFunc(rules.All(), func(have catalog.Takedown) bool { return have.Same(&r) })
		if equal >= 0 && !dryRun {
			have := rules.All()[equal]
			rec, _, err := doc.Record(ctx, store, have.ID)
			res = &Result{
				ID: have.ID, Rule: have, Epoch: m.TakedownEpoch, Version: m.CurrentVersion, Existed: true,
				Versions: rec.Versions, Datasets: rec.Datasets,
			}
			return nil, 0, err
		}
		if taken {
			return nil, 0, fmt.Errorf("%w: %s", ErrTaken, r.ID)
		}
		if rules.Len() == catalog.MaxTakedowns {
			return nil, 0, fmt.Errorf("the lake has %d takedowns, which is the most", rules.Len())
		}
		if dryRun {
			a.store = noPuts{store}
		}
		var done []applied
		if res, done, err = a.change(ctx, m, doc, rules.With(r), &r); err != nil {
			return nil, 0, err
		}
		if dryRun {
			res.ID, res.Rule.ID, res.Epoch, res.DryRun = "", "", m.TakedownEpoch, true
			return nil, 0, nil
		}
		next, err := doc.Edit(ctx, store, &r, nil, catalog.NewTakedownRecord(&r, doc.Epoch+1, res.Versions, res.Datasets))
		if err != nil {
			return nil, 0, err
		}
		res.Epoch = next.Epoch
		return finish(ctx, store, next, done)
	}
	if dryRun {
		m, _, err := catalog.ReadManifest(ctx, store)
		if err == nil {
			_, _, err = change(ctx, m)
		}
		return res, err
	}
	if err := catalog.SetTakedowns(ctx, store, change); err != nil {
		return nil, err
	}
	return res, nil
}

// change applies rules that differ from those before in r to all versions, and counts what r
// matches.
func (a *applier) change(
	ctx context.Context, m *catalog.Manifest, doc *catalog.TakedownDocument, rules *catalog.Takedowns, r *catalog.Takedown,
) (*Result, []applied, error) {
	versions, err := a.readVersions(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	probe, undated := probes(r)
	views := viewsOf(versions...)
	done, err := a.apply(ctx, views, doc.Find, work{
		Rules: deletion.Rules{InForce: rules, Changed: probe, Probe: probe, Undated: undated}, spare: earlierOnly(m, versions),
	})
	if err != nil {
		return nil, nil, err
	}
	res := &Result{ID: r.ID, Rule: *r, Version: m.CurrentVersion, Segments: len(views)}
	res.count(versions, done)
	return res, done, res.name(ctx, versions)
}

// finish writes a document that covers the segments of done.
func finish(
	ctx context.Context, store blob.Store, doc *catalog.TakedownDocument, done []applied,
) (*catalog.TakedownRef, uint64, error) {
	doc.Segments = make([]catalog.TakedownSegment, len(done))
	for i := range done {
		doc.Segments[i] = done[i].TakedownSegment
	}
	ref, err := doc.Write(ctx, store)
	return &ref, doc.Epoch, err
}

// count sets what was matched.
func (r *Result) count(versions []*catalog.Version, done []applied) {
	bySegment := map[string]map[uint32]*deletion.Match{}
	for i := range done {
		bySegment[done[i].ID] = done[i].matched
		if done[i].Table != nil {
			r.Tables++
		}
	}
	r.Versions, r.Datasets = matches(versions, bySegment)
	for _, v := range r.Versions {
		if v.Version == r.Version {
			r.Current = v
		}
	}
	r.Current.Version = ""
}

// name sets the names of datasets: those in the newest version that has the dataset.
func (r *Result) name(ctx context.Context, versions []*catalog.Version) error {
	missing := map[uint32]*catalog.Matched{}
	for i := range r.Datasets {
		missing[r.Datasets[i].DatasetID] = &r.Datasets[i]
	}
	for i := len(versions) - 1; i >= 0 && len(missing) > 0; i-- {
		ids := make([]uint32, 0, len(missing))
		for id := range missing {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		found, err := versions[i].FindDatasets(ctx, ids)
		if err != nil {
			return err
		}
		for id, d := range found {
			missing[id].Dataset = d.Name
			delete(missing, id)
		}
	}
	return nil
}

// Lift takes a rule out of force. When it returns, readers that have read the manifest since show
// the rows again that no other rule hides, unless a compaction has dropped them. Of several callers
// that lift one rule at once, one does, and the record names it. The others get ErrUnknown.
func Lift(ctx context.Context, store blob.Store, id, by, reason string, opt Options) (*Result, error) {
	a := newApplier(store, opt.TempDir)
	now := opt.now().UTC().Truncate(time.Second)
	var res *Result
	err := catalog.SetTakedowns(ctx, store, func(ctx context.Context, m *catalog.Manifest) (*catalog.TakedownRef, uint64, error) {
		doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
		if err != nil {
			return nil, 0, err
		}
		rules, err := doc.Rules(ctx, store)
		if err != nil {
			return nil, 0, err
		}
		rec, recorded, err := doc.Record(ctx, store, id)
		if err != nil {
			return nil, 0, err
		}
		r, ok := rules.Find(id)
		switch {
		case ok && !recorded:
			rec = catalog.NewTakedownRecord(&r, doc.Epoch, nil, nil)
		case ok:
		case !recorded || rec.Lifted == nil:
			return nil, 0, fmt.Errorf("%w: %s", ErrUnknown, id)
		case res != nil && rec.Lifted.Equal(now) && rec.LiftedBy == by && rec.LiftReason == reason:
			return nil, 0, nil // an earlier attempt did it, and its reply was lost
		default:
			return nil, 0, fmt.Errorf("%w: %s, which %s lifted on %s", ErrUnknown, id, cmp.Or(rec.LiftedBy, "somebody"),
				rec.Lifted.Format(time.RFC3339))
		}
		rec.Lifted, rec.LiftedBy, rec.LiftReason = &now, by, reason
		var done []applied
		if res, done, err = a.change(ctx, m, doc, rules.Without(id), &r); err != nil {
			return nil, 0, err
		}
		next, err := doc.Edit(ctx, store, nil, &r, rec)
		if err != nil {
			return nil, 0, err
		}
		res.Epoch = next.Epoch
		return finish(ctx, store, next, done)
	})
	if err != nil {
		return nil, fmt.Errorf("lift takedown: %w", err)
	}
	return res, nil
}

// Reapply applies all rules again to all segments of all kept versions. If the document that the
// manifest names is lost, or a piece of it, all rules that can be found in the store are in force.
// Lost says what could not be read: objects of the takedowns, and segments of earlier versions,
// which nobody can read any more. A lake whose takedowns are intact is not changed.
func Reapply(ctx context.Context, store blob.Store, tempDir string) (lost []error, err error) {
	a := newApplier(store, tempDir)
	err = catalog.SetTakedowns(ctx, store, func(ctx context.Context, m *catalog.Manifest) (*catalog.TakedownRef, uint64, error) {
		lost = nil
		if m.Takedowns == nil {
			return nil, 0, nil
		}
		doc, rules, err := read(ctx, store, m.Takedowns)
		if lake.IsDamage(err) { // bytes can be damaged on their way
			doc, rules, err = read(ctx, store, m.Takedowns)
		}
		if lake.IsDamage(err) {
			lost = append(lost, err)
			if doc, err = catalog.RestoreTakedowns(ctx, store, m.TakedownEpoch+1); err == nil {
				rules, err = doc.Rules(ctx, store)
			}
			// A rule less would show what was taken down.
			if named, readErr := catalog.ReadTakedowns(ctx, store, m.Takedowns); err == nil && readErr == nil &&
				named.RulePieces.Entries > doc.RulePieces.Entries {
				err = lost[0]
			}
		}
		if err != nil {
			return nil, 0, err
		}
		versions, err := a.readVersions(ctx, m)
		if err != nil {
			return nil, 0, err
		}
		none := func(string) (catalog.TakedownSegment, bool) { return catalog.TakedownSegment{}, false }
		views := viewsOf(versions...)
		var mu sync.Mutex
		done, err := a.apply(ctx, views, none, work{Rules: deletion.Rules{InForce: rules}, spare: func(s *catalog.Segment, err error) (catalog.TakedownSegment, bool) {
			have, ok := doc.Find(s.View())
			if ok && have.Table != nil {
				_, damage := deletion.Open(ctx, store, *have.Table, nil)
				ok = damage == nil
			}
			if ok { // the rules are as they were
				return have, true
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, err)
			return catalog.TakedownSegment{}, true
		}})
		if err != nil {
			return nil, 0, err
		}
		covered := map[string]catalog.TakedownSegment{}
		for i := range done {
			covered[done[i].ID] = done[i].TakedownSegment
		}
		if doc.Epoch == m.TakedownEpoch && !slices.ContainsFunc(views, func(s view) bool {
			have, _ := doc.Find(s.View())
			return !reflect.DeepEqual(have, covered[s.View()])
		}) {
			return nil, 0, nil // all tables have been written again
		}
		return finish(ctx, store, doc, done)
	})
	if err != nil {
		return nil, fmt.Errorf("apply the takedowns again: %w", err)
	}
	return lost, nil
}

// read reads a document with its rules and all its records.
func read(ctx context.Context, store blob.Store, ref *catalog.TakedownRef) (*catalog.TakedownDocument, *catalog.Takedowns, error) {
	doc, err := catalog.ReadTakedowns(ctx, store, ref)
	if err != nil {
		return nil, nil, err
	}
	rules, err := doc.Rules(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	for _, err := range doc.Records(ctx, store) {
		if err != nil {
			return nil, nil, err
		}
	}
	return doc, rules, nil
}

// earlierOnly leaves damaged segments out that the current version lacks: readers answer from no
// segment that the takedowns do not cover.
func earlierOnly(m *catalog.Manifest, versions []*catalog.Version) func(*catalog.Segment, error) (catalog.TakedownSegment, bool) {
	current := map[string]bool{}
	for _, v := range versions {
		for i := range v.Segments {
			if v.ID == m.CurrentVersion {
				current[v.Segments[i].View()] = true
			}
		}
	}
	return func(s *catalog.Segment, _ error) (catalog.TakedownSegment, bool) {
		return catalog.TakedownSegment{}, !current[s.View()]
	}
}

// Covering returns what applies the takedowns to the segments that a commit adds: the Cover of a
// catalog.Commit. It keeps what it has made from one attempt to the next, unless the rules or the
// last sweep of a garbage collection have changed.
func Covering(store blob.Store, tempDir string) func(context.Context, *catalog.Manifest, *catalog.Version) (*catalog.TakedownRef, error) {
	a := newApplier(store, tempDir)
	made := map[string]applied{}
	rulesOf, swept := "", uint64(0)
	return func(ctx context.Context, m *catalog.Manifest, v *catalog.Version) (*catalog.TakedownRef, error) {
		doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
		if err != nil {
			return nil, err
		}
		if doc.RulePieces.Root != rulesOf || m.Swept != swept {
			clear(made)
			rulesOf, swept = doc.RulePieces.Root, m.Swept
		}
		missing := viewsOf(v)
		missing = slices.DeleteFunc(missing, func(s view) bool {
			_, ok := doc.Find(s.View())
			return ok
		})
		if len(missing) == 0 {
			return m.Takedowns, nil
		}
		rules, err := doc.Rules(ctx, store)
		if err != nil {
			return nil, err
		}
		todo := slices.DeleteFunc(slices.Clone(missing), func(s view) bool {
			_, ok := made[s.View()]
			return ok
		})
		none := func(string) (catalog.TakedownSegment, bool) { return catalog.TakedownSegment{}, false }
		done, err := a.apply(ctx, todo, none, work{Rules: deletion.Rules{InForce: rules}})
		if err != nil {
			return nil, err
		}
		for _, d := range done {
			made[d.ID] = d
		}
		next := *doc
		next.Segments = slices.Clone(doc.Segments)
		if len(doc.Segments) > looseSegments+len(v.Segments) {
			if next.Segments, err = a.kept(ctx, m, doc); err != nil {
				return nil, err
			}
		}
		for _, s := range missing {
			next.Segments = append(next.Segments, made[s.View()].TakedownSegment)
		}
		slices.SortFunc(next.Segments, func(a, b catalog.TakedownSegment) int { return strings.Compare(a.ID, b.ID) })
		ref, err := next.Write(ctx, store)
		return &ref, err
	}
}

// kept returns the segments of a document that versions of the manifest have.
func (a *applier) kept(ctx context.Context, m *catalog.Manifest, doc *catalog.TakedownDocument) ([]catalog.TakedownSegment, error) {
	versions, err := a.readVersions(ctx, m)
	if err != nil {
		return nil, err
	}
	var kept []catalog.TakedownSegment
	for _, s := range viewsOf(versions...) {
		if have, ok := doc.Find(s.View()); ok {
			kept = append(kept, have)
		}
	}
	return kept, nil
}

// noPuts is a store that accepts and forgets puts.
type noPuts struct{ blob.Store }

// Put implements blob.Store.
func (noPuts) Put(context.Context, string, []byte, blob.Condition) (blob.Info, error) {
	return blob.Info{}, nil
}
