package suppress

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// partsAtOnce is how many parts Inspect reads at the same time, pagesAtOnce how many pages of a
	// part are decoded together.
	partsAtOnce = 4
	pagesAtOnce = 8
)

// Holding is an object of the lake that still holds something that a rule hides.
type Holding struct {
	// Kind is "part", for rows; "index" or "postings", for the name of a domain; or "trees" or
	// "page keys", for hosts and paths.
	Kind   string `json:"kind"`
	Object string `json:"object"`
	Bytes  int64  `json:"bytes,omitempty"`
	// Rows are those that match, of a part.
	Rows      int64  `json:"rows,omitempty"`
	DatasetID uint32 `json:"dataset_id,omitempty"`
	// Versions are the kept versions that have the object.
	Versions []string `json:"versions,omitempty"`
	// Leases are the programs that hold a version with the object that is no longer kept.
	Leases []string `json:"leases,omitempty"`
	// Listed is when a garbage collection found that nothing needs the object.
	Listed *time.Time `json:"listed,omitempty"`
	// Until says what ends it.
	Until string `json:"until"`
}

// State is what Inspect found.
type State struct {
	catalog.TakedownRecord
	// Rule is nil if the rule is lifted.
	Rule *catalog.Takedown `json:"rule,omitempty"`
	// TakedownEpoch is the epoch that was looked at.
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Versions are the kept versions, each with the rows that the rule matches and those of them
	// that readers are shown, of which there must be none.
	Kept []KeptVersion `json:"kept_versions"`
	// Holdings are the objects that still hold something.
	Holdings []Holding `json:"holdings"`
	// PartsRead counts the parts that were read to look for rows, and Parts those of the lake.
	PartsRead int `json:"parts_read"`
	Parts     int `json:"parts"`
	// Staging counts the objects in staging, which are not looked into.
	Staging int `json:"staging_objects"`
	// Unknown are damaged objects, and others that could not be looked into.
	Unknown []string `json:"unknown,omitempty"`
	// ObjectVersions tells of the older versions of objects, if the store can keep them.
	ObjectVersions *ObjectVersions `json:"object_versions,omitempty"`
	// NotLookedAt names what is beyond the lake's objects.
	NotLookedAt []string `json:"not_looked_at"`
	// Gone tells that no object that was looked at holds anything.
	Gone bool `json:"gone"`
}

// KeptVersion is a version of the manifest.
type KeptVersion struct {
	Version string `json:"version"`
	// Rows match the rule, and Shown of them are not hidden.
	Rows  int64 `json:"rows"`
	Shown int64 `json:"shown"`
}

// notLookedAt are the places that Inspect cannot see.
var notLookedAt = []string{
	"copies of the lake, and what other programs have read from it",
	"memory and cache folders of servers: they show nothing that is hidden, and cache folders have no URLs",
	"raw objects that were ingested",
	"names of inputs: batch records, lists of rejects and the registry keep them, and a URL can be in one",
	"logs; servers and workers log no URLs",
	"the takedown itself: what it names is kept as long as it is in force, in index/takedowns/",
}

// inspector looks for what a rule hides.
type inspector struct {
	*applier
	manifest *catalog.Manifest
	rule     *catalog.Takedown
	probe    *catalog.Takedowns
	state    *State
	found    map[string]*Holding // by object
	seen     map[string]bool     // parts that a segment told of
	counted  map[string]bool     // segments of which all matching rows are in the holdings
}

// Inspect looks whether the lake still holds rows that a rule matches: by the index in the parts of
// all versions that are kept or held by a server, and by reading all other parts in which they can
// be. If deep is set, it reads every part, and trusts no index. For a domain, it also looks for
// objects that have its name. For all rules it looks into the path trees and page keys of segments
// that no such version has: a build that ended after a collection can have left them.
func Inspect(ctx context.Context, store blob.Store, id string, deep bool) (*State, error) {
	in, doc, err := newInspector(ctx, store, id)
	if err != nil {
		return nil, err
	}
	if in.rule == nil {
		return in.state, nil
	}
	if err := in.kept(ctx, in.manifest, doc); err != nil {
		return nil, err
	}
	if err := in.leased(ctx, in.manifest); err != nil {
		return nil, err
	}
	if err := in.allParts(ctx, deep); err != nil {
		return nil, err
	}
	if err := in.indexes(ctx); err != nil {
		return nil, err
	}
	if in.namesGo() {
		if err := in.names(ctx); err != nil {
			return nil, err
		}
	}
	for info, err := range store.List(ctx, "staging/") {
		if err != nil {
			return nil, err
		}
		if isStaged(info.Key) {
			in.state.Staging++
		}
	}
	if err := in.olderVersions(ctx); err != nil {
		return nil, err
	}
	if err := in.finish(ctx); err != nil {
		return nil, err
	}
	return in.state, nil
}

// isStaged reports whether a run has left an object in staging. Others there are about sweeping.
func isStaged(key string) bool {
	return strings.HasPrefix(key, "staging/") && strings.Count(key, "/") > 1
}

// newInspector reads the takedown that has an id. The inspector has no rule if it was lifted.
func newInspector(ctx context.Context, store blob.Store, id string) (*inspector, *catalog.TakedownDocument, error) {
	m, _, err := catalog.ReadManifest(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
	if err != nil {
		return nil, nil, err
	}
	rec, ok, err := doc.Record(ctx, store, id)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, fmt.Errorf("%w, and none was lifted: %s", ErrUnknown, id)
	}
	rules, err := doc.Rules(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	state := &State{
		TakedownRecord: rec, TakedownEpoch: m.TakedownEpoch, Kept: []KeptVersion{}, Holdings: []Holding{}, NotLookedAt: notLookedAt,
	}
	in := &inspector{
		applier: newApplier(store, ""), manifest: m, state: state, found: map[string]*Holding{}, seen: map[string]bool{},
		counted: map[string]bool{},
	}
	if r, ok := rules.Find(id); ok {
		state.Rule, in.rule, in.probe = &r, &r, catalog.NewTakedowns(r)
	}
	return in, doc, nil
}

// namesGo reports whether the name of a domain has to go too: a takedown of some of its rows leaves
// it to the others.
func (in *inspector) namesGo() bool {
	return in.rule.Kind == catalog.DomainTarget && in.rule.DatasetID == 0 && in.rule.From == nil && in.rule.To == nil
}

// holding returns the holding of an object.
func (in *inspector) holding(kind, object string) *Holding {
	h := in.found[object]
	if h == nil {
		h = &Holding{Kind: kind, Object: object}
		in.found[object] = h
	}
	return h
}

// matchesIn is what a rule matches in a segment.
type matchesIn struct {
	rows, shown int64
	parts       map[string]int64  // rows by part
	datasets    map[string]uint32 // of parts
	files       []string          // all parts of the segment
}

// kept looks into the versions of the manifest.
func (in *inspector) kept(ctx context.Context, m *catalog.Manifest, doc *catalog.TakedownDocument) error {
	versions, err := in.readVersions(ctx, m)
	if err != nil {
		return err
	}
	bySegment := map[string]*matchesIn{}
	for _, s := range viewsOf(versions...) {
		covered, ok := doc.Find(s.View())
		if !ok {
			return codec.Corrupt(m.Takedowns.Object, "segments", -1, "segment "+s.ID+", which a version has", "none")
		}
		if bySegment[s.View()], err = in.segment(ctx, &s, covered); err != nil {
			return err
		}
	}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		k := KeptVersion{Version: v.ID}
		for _, s := range v.Segments {
			got := bySegment[s.View()]
			k.Rows += got.rows
			k.Shown += got.shown
			in.note(got, func(h *Holding) { h.Versions = append(h.Versions, v.ID) })
		}
		in.state.Kept = append(in.state.Kept, k)
	}
	return nil
}

// note adds the parts of a segment with matching rows to the holdings.
func (in *inspector) note(got *matchesIn, each func(*Holding)) {
	for _, key := range got.files {
		in.seen[key] = true
	}
	for key, rows := range got.parts {
		h := in.holding("part", key)
		h.Rows, h.DatasetID = rows, got.datasets[key]
		each(h)
	}
}

// segment looks into what versions have of a segment.
func (in *inspector) segment(ctx context.Context, s *view, covered catalog.TakedownSegment) (*matchesIn, error) {
	out := &matchesIn{parts: map[string]int64{}, datasets: map[string]uint32{}}
	in.counted[s.ID] = true
	if s.Rows == 0 {
		return out, nil
	}
	seg, err := segment.Open(ctx, in.store, deletion.SegmentRef(&s.Segment), segment.Options{
		Cache: segment.NewFrameCache(cacheBytes), PostingsOnly: true, WholeFiles: true,
	})
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	for id := range seg.Files().Len() {
		out.files = append(out.files, seg.Files().Info(uint32(id)).Path)
	}
	table, err := deletion.OpenView(ctx, in.store, &s.Segment, covered, nil)
	if err != nil {
		return nil, err
	}
	list, err := in.suffixList(ctx, s.list)
	if err != nil {
		return nil, err
	}
	domains, err := deletion.Domains(ctx, seg, in.probe, list)
	if err != nil {
		return nil, err
	}
	for _, d := range domains {
		entries, err := seg.Entries(ctx, d.Key, 0, 0)
		if err != nil {
			return nil, err
		}
		m := in.probe.For(d.Name)
		for _, e := range entries {
			if !m.May(e.Dataset) {
				continue
			}
			tuples, err := seg.Tuples(ctx, e)
			if err != nil {
				return nil, err
			}
			matching, err := deletion.Count(ctx, in.store, seg, d.Name, e.Dataset, tuples, m)
			if err != nil {
				return nil, err
			}
			for part, rows := range matching {
				out.rows += rows
				out.parts[part] += rows
				out.datasets[part] = e.Dataset
			}
			left, ok, err := table.Entry(ctx, e.Key, e.Dataset)
			if err == nil && ok {
				if tuples, err = left.Tuples(); err == nil {
					matching, err = deletion.Count(ctx, in.store, seg, d.Name, e.Dataset, tuples, m)
				}
			}
			if err != nil {
				return nil, err
			}
			for _, rows := range matching {
				out.shown += rows
			}
		}
	}
	return out, nil
}

// leased looks into the versions that servers hold although the manifest lists them no longer.
func (in *inspector) leased(ctx context.Context, m *catalog.Manifest) error {
	leases, err := lease.All(ctx, in.store)
	if err != nil {
		return err
	}
	holders := map[string][]string{}
	for _, l := range leases {
		if !l.Live(time.Now(), lease.MaxSkew) {
			continue
		}
		if l.Err != nil {
			in.state.Unknown = append(in.state.Unknown, l.Object.Key+": "+l.Err.Error())
			continue
		}
		for _, id := range l.Versions {
			if _, err := m.Version(id); err != nil && catalog.ValidVersionID(id) {
				holders[id] = append(holders[id], fmt.Sprintf("%s (%s), until %s if it is not renewed", l.Holder, l.Program,
					l.Expires.Add(lease.MaxSkew).UTC().Format(time.RFC3339)))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(holders)) {
		data, _, err := in.store.Get(ctx, catalog.VersionKey(id))
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		v, err := catalog.DecodeVersion(in.store, data, catalog.VersionKey(id))
		if err != nil {
			in.state.Unknown = append(in.state.Unknown, err.Error())
			continue
		}
		for _, s := range viewsOf(v) {
			got, err := in.segment(ctx, &s, catalog.TakedownSegment{})
			if err != nil {
				return err
			}
			in.note(got, func(h *Holding) {
				for _, holder := range holders[id] {
					if !slices.Contains(h.Leases, holder) {
						h.Leases = append(h.Leases, holder)
					}
				}
			})
		}
	}
	return nil
}

var partKey = regexp.MustCompile(`^urls/dataset_id=([0-9]+)/domain_prefix=([^/]+)/.+\.parquet$`)

// partMay returns the dataset of a part, and whether rows that the rule matches can be in it. Ok is
// false for other objects.
func (in *inspector) partMay(key string) (dataset uint32, may, ok bool) {
	m := partKey.FindStringSubmatch(key)
	if m == nil {
		return 0, false, false
	}
	n, err := strconv.ParseUint(m[1], 10, 32)
	dataset = uint32(n)
	if err != nil || in.rule.DatasetID != 0 && dataset != in.rule.DatasetID {
		return dataset, false, true
	}
	// A domain below the rule's can have any id.
	may = m[2] == lake.AnyPrefix || in.rule.Kind == catalog.DomainTarget ||
		slices.ContainsFunc(in.rule.Names(), func(name string) bool {
			return strings.HasPrefix(urlnorm.FormatID(urlnorm.DomainID(name)), m[2])
		})
	return dataset, may, true
}

// allParts reads the parts that no segment told of, or all if deep is set.
func (in *inspector) allParts(ctx context.Context, deep bool) error {
	type candidate struct {
		info    blob.Info
		dataset uint32
	}
	var todo []candidate
	for info, err := range in.store.List(ctx, "urls/") {
		if err != nil {
			return err
		}
		dataset, may, ok := in.partMay(info.Key)
		if !ok {
			continue
		}
		in.state.Parts++
		if may && (deep || !in.seen[info.Key]) {
			todo = append(todo, candidate{info, dataset})
		}
	}
	in.state.PartsRead = len(todo)
	rows := make([]int64, len(todo))
	failed := make([]error, len(todo))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i, c := range todo {
		group.Go(func() error {
			var err error
			rows[i], err = in.part(groupCtx, in.store, c.info, c.dataset)
			if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
				failed[i] = err
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, c := range todo {
		h := in.found[c.info.Key]
		switch {
		case errors.Is(failed[i], blob.ErrNotExist): // deleted meanwhile
			continue
		case failed[i] != nil:
			in.state.Unknown = append(in.state.Unknown, failed[i].Error())
			continue
		case rows[i] > 0 && h == nil:
			h = in.holding("part", c.info.Key)
			h.Rows, h.DatasetID, h.Bytes = rows[i], c.dataset, c.info.Size
		case h != nil && h.Rows != rows[i]:
			in.state.Unknown = append(in.state.Unknown, fmt.Sprintf("%s: it has %d matching rows, its index says %d",
				c.info.Key, rows[i], h.Rows))
		}
	}
	return nil
}

// readerAt reads an object by ranges.
type readerAt struct {
	ctx   context.Context
	store blob.Store
	key   string
}

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	data, err := r.store.ReadRange(r.ctx, r.key, off, int64(len(p)))
	return copy(p, data), err
}

// part counts the matching rows of a part by reading it.
func (in *inspector) part(ctx context.Context, store blob.Store, info blob.Info, dataset uint32) (rows int64, err error) {
	blocks, err := part.BuildPageIndex(readerAt{ctx, store, info.Key}, info.Size, info.Key)
	if err != nil {
		return 0, err
	}
	matchers := map[string]*catalog.Matcher{}
	for i := range blocks {
		b := &blocks[i]
		for from := 0; from < b.Pages(); from += pagesAtOnce {
			first, end := b.PageStart(from), b.PageStart(min(from+pagesAtOnce, b.Pages()))
			c, err := part.ReadColumns(ctx, store, info.Key, b, b.FirstRow+first, end-first, part.ColDomain, part.ColHost)
			if err != nil {
				return 0, err
			}
			may := false
			for j := range c.Rows {
				name := c.Domain[j]
				if _, known := matchers[name]; !known {
					if len(matchers) > 1<<16 {
						clear(matchers)
					}
					name = strings.Clone(name)
					matchers[name] = in.probe.For(name)
				}
				may = may || matchers[name].May(dataset)
			}
			if !may {
				continue
			}
			more, err := part.ReadColumns(ctx, store, info.Key, b, b.FirstRow+first, end-first,
				part.ColScheme, part.ColPort, part.ColTS, part.ColPathQuery)
			if err != nil {
				return 0, err
			}
			for j := range c.Rows {
				row := catalog.Row{
					Dataset: dataset, Scheme: more.Scheme[j], Host: c.Host[j], Path: more.PathQuery[j], Port: more.Port[j],
					TS: more.TS[j], HasTS: more.HasTS[j],
				}
				if matchers[c.Domain[j]].Hides(&row) {
					rows++
				}
			}
		}
	}
	return rows, nil
}

var (
	segmentKey  = regexp.MustCompile(`^index/segments/[0-9a-f]{32}/domains\.txt\.zst$`)
	treeKey     = regexp.MustCompile(`^index/segments/[0-9a-f]{32}/tree-[0-9a-f]{32}\.zst$`)
	pageKeysKey = regexp.MustCompile(`^index/segments/[0-9a-f]{32}/parts\.keys\.zst$`)
	postingsKey = regexp.MustCompile(`^batches/dataset_id=([0-9]+)/[^/]+/postings-[0-9a-f]{32}\.zst$`)
)

// segmentRoot is what keys of segments begin with.
const segmentRoot = "index/segments/"

// indexes looks into lists of domains, path trees and page keys, also of segments that no version
// has. What a counted segment has of some rows of a domain is that of rows, whose parts are among
// the holdings.
func (in *inspector) indexes(ctx context.Context) error {
	for info, err := range in.store.List(ctx, segmentRoot) {
		if err != nil {
			return err
		}
		kind, may := in.kindOf(info.Key)
		id, _, _ := strings.Cut(strings.TrimPrefix(info.Key, segmentRoot), "/")
		if !may || in.counted[id] && (kind == "page keys" || !in.namesGo()) {
			continue
		}
		has, _, err := in.versionHolds(ctx, in.store, kind, info)
		if errors.Is(err, codec.ErrCorrupt) {
			in.state.Unknown = append(in.state.Unknown, err.Error())
			continue
		}
		if errors.Is(err, blob.ErrNotExist) || err == nil && !has {
			continue
		}
		if err != nil {
			return err
		}
		h := in.holding(kind, info.Key)
		h.Bytes = info.Size
		for ref, v := range in.versions {
			if slices.ContainsFunc(v.Segments, func(s catalog.Segment) bool { return s.ID == id }) {
				h.Versions = append(h.Versions, ref.ID)
			}
		}
		slices.Sort(h.Versions)
	}
	return nil
}

// names looks for the name of a domain in postings.
func (in *inspector) names(ctx context.Context) error {
	// A batch's postings have the names of its domains in the order of its parts.
	held := map[string]bool{}
	for key, h := range in.found {
		if h.Kind == "part" {
			if m := partBatch.FindStringSubmatch(key); m != nil {
				held["batches/dataset_id="+m[1]+"/"+m[2]+"/"] = true
			}
		}
	}
	for prefix := range held {
		for info, err := range in.store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if postingsKey.MatchString(info.Key) {
				in.holding("postings", info.Key).Bytes = info.Size
			}
		}
	}
	return nil
}

// postingsHave reports whether a postings object has the rule's domain, or a name below it.
func (in *inspector) postingsHave(
	ctx context.Context, store blob.Store, ref segment.BatchRef, o lake.FrameObject,
) (bool, error) {
	r, err := postings.Open(ctx, store, ref, o)
	if err != nil {
		return false, err
	}
	for n := range r.Parts() {
		for d, err := range r.PartDomains(ctx, n) {
			if err != nil {
				return false, err
			}
			if in.covers(string(d.Name)) {
				return true, nil
			}
		}
	}
	return false, nil
}

// covers reports whether a name is the rule's domain, or below it.
func (in *inspector) covers(name string) bool {
	return name == in.rule.Host || strings.HasSuffix(name, "."+in.rule.Host)
}

var partBatch = regexp.MustCompile(`^urls/dataset_id=([0-9]+)/domain_prefix=[^/]+/part-(.+)-[0-9a-f]{32}-[0-9]+\.parquet$`)

// finish sorts the holdings and says what ends them.
func (in *inspector) finish(ctx context.Context) error {
	listed := map[string]time.Time{}
	lists, err := lease.TrashLists(ctx, in.store)
	if err != nil {
		return err
	}
	for _, ref := range lists {
		l, err := ref.Read(ctx, in.store)
		if errors.Is(err, blob.ErrNotExist) {
			continue
		}
		if errors.Is(err, codec.ErrCorrupt) {
			in.state.Unknown = append(in.state.Unknown, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		for _, o := range l.Objects {
			if _, ok := listed[o.Key]; !ok {
				listed[o.Key] = l.Created
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(in.found)) {
		h := in.found[key]
		at, isListed := listed[key]
		switch {
		case slices.Contains(h.Versions, in.manifest.CurrentVersion):
			h.Until = `"starter compact" makes a version without it, and "starter gc" drops the earlier versions and deletes it`
		case len(h.Versions) > 0:
			h.Until = `"starter gc" drops the versions that have it and deletes it` + in.tags(h.Versions)
		case len(h.Leases) > 0:
			h.Until = `the server has gone on to a later version and "starter gc" deletes it`
		case isListed:
			h.Listed = &at
			h.Until = `"starter gc", after its --grace, counted from ` + at.UTC().Format(time.RFC3339)
		default:
			h.Until = `"starter gc" deletes it, unless an ingest that runs, or was not published yet, needs it; ` +
				`then "starter publish" and "starter compact" come first`
		}
		in.state.Holdings = append(in.state.Holdings, *h)
	}
	slices.SortStableFunc(in.state.Holdings, func(a, b Holding) int { return cmp.Compare(b.Kind, a.Kind) })
	shown := int64(0)
	for _, k := range in.state.Kept {
		shown += k.Shown
	}
	in.state.Gone = len(in.state.Holdings) == 0 && len(in.state.Unknown) == 0 && in.state.Staging == 0 && shown == 0 &&
		(in.state.ObjectVersions == nil || len(in.state.ObjectVersions.Holdings) == 0)
	return nil
}

// tags says which tags keep versions.
func (in *inspector) tags(versions []string) string {
	var names []string
	for _, t := range in.manifest.Tags {
		if slices.Contains(versions, t.Version) {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(`; it keeps versions with a tag until "starter tag --remove" removes it: %s`, strings.Join(names, ", "))
}

// listHas reports whether a list of domains has the rule's domain, or a name below it.
func (in *inspector) listHas(ctx context.Context, store blob.Store, info blob.Info) (bool, error) {
	stream, err := store.Open(ctx, info.Key, 0, info.Size)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	dec, err := zstd.NewReader(stream, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(seekable.MaxFrame))
	if err != nil {
		return false, err
	}
	defer dec.Close()
	lines := bufio.NewScanner(dec)
	for lines.Scan() {
		name := lines.Text()
		if in.covers(name) {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return false, codec.Corrupt(info.Key, "content", -1, "lines in zstd frames", err)
	}
	return false, ctx.Err()
}
