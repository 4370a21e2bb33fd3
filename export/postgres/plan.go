package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// planFormat is the version of plans.
	// 1: first.
	// 2: the batch of what is not a union.
	planFormat = 2
	// chunkRows is about how many rows one Load copies in its transaction: some seconds of work
	// that a crash destroys. A chunk has at least one part.
	chunkRows = 2 << 20
	// maxChunks bounds the chunks of a plan, and so the history of its workflow.
	maxChunks = 4000
	// rebuildShare is the share of the batches' rows from which on a load of everything is faster
	// than adding to tables with indexes.
	rebuildShare = 2
	// maxReloaded is how many domains are loaded again when takedowns change. Of more, everything
	// is.
	maxReloaded = 10_000
)

// plan is what Plan leaves for the other steps, in the staging of the run.
type plan struct {
	Format  int    `json:"format"`
	Spec    Spec   `json:"spec"`
	Layout  string `json:"layout"`
	Version string `json:"version"`
	// Ref and Takedowns pin the version and the rules that hide rows.
	Ref           manifest.VersionRef `json:"ref"`
	Takedowns     *takedown.Ref       `json:"takedowns,omitempty"`
	TakedownEpoch uint64              `json:"takedown_epoch"`
	// Load is the number of the load in the database.
	Load  int64  `json:"load"`
	Slice string `json:"slice"`
	// Whole tells that everything is loaded, into partitions that take the place of those that are
	// there. Otherwise rows are added to and removed from these.
	Whole      bool        `json:"whole"`
	Partitions []partition `json:"partitions,omitempty"`

	Datasets []exported  `json:"datasets"`
	Batches  []planBatch `json:"batches"` // all of the slice
	// Drop are the batches whose rows go, Reloaded the domains whose rows go and are loaded again.
	Drop     []int32  `json:"drop,omitempty"`
	Reloaded []string `json:"reloaded,omitempty"`
	Rules    []rule   `json:"rules,omitempty"`

	Stored []stored `json:"stored"`
	Chunks []chunk  `json:"chunks"`
}

// exported is a dataset of the slice, and how many rows the lake shows of it.
type exported struct {
	manifest.Dataset
	Shown int64 `json:"shown"`
	// Canonical is the field of the extras that has canonical URLs, "" for none.
	Canonical string `json:"canonical,omitempty"`
}

type planBatch struct {
	ID      int32  `json:"id"`
	Dataset uint32 `json:"dataset"`
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	Rows    int64  `json:"rows"`
	New     bool   `json:"new,omitempty"`
}

// rule is a takedown in force, and the host that it names.
type rule struct {
	ID   string `json:"id"`
	Host string `json:"host"`
}

// stored are the batches that parts have rows of: one, or those of a union that are wanted.
type stored struct {
	// Batch is the one, "" for a union.
	Batch string `json:"batch,omitempty"`
	// Members are the numbers of the batches in the database.
	Members map[string]int32 `json:"members"`
}

// chunk is what one Load copies.
type chunk struct {
	Rows  int64  `json:"rows"`
	Reads []read `json:"reads"`
}

// read is a part, or some rows of it.
type read struct {
	Segment int    `json:"segment"`
	File    uint32 `json:"file"`
	Dataset uint32 `json:"dataset"`
	Stored  int    `json:"stored"`
	Rows    int64  `json:"rows"`
	// Runs are the rows, nil for all of the part.
	Runs []scan.Run `json:"runs,omitempty"`
}

// Planned is the result of Plan.
type Planned struct {
	Version       string `json:"version"`
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Current tells that the database has the version already, so that there is nothing to do.
	Current bool `json:"current,omitempty"`
	// Whole tells that everything is loaded anew.
	Whole bool `json:"whole,omitempty"`
	// Rows are about how many rows will be read, in so many chunks. Tables are those that get their
	// indexes in steps of their own.
	Rows   int64 `json:"rows"`
	Chunks int   `json:"chunks"`
	Tables int   `json:"tables"`
	// Have is what the database has already, if Current.
	Have Result `json:"have,omitzero"`
}

func planKey(run string) string { return "staging/" + run + "/postgres-export.json" }

// registry is the registry of the plan's numbers.
func (p *plan) registry(store blob.Store) (*numbers.Registry, error) {
	l, err := domain64.ParseLayout(p.Layout)
	return numbers.Open(store, l), err
}

func readPlan(ctx context.Context, store blob.Store, run string) (*plan, error) {
	key := planKey(run)
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("plan of the export: %w", err)
	}
	var p plan
	return &p, codec.Unseal(data, key, planFormat, &p)
}

// Options are what all steps need besides the lake.
type Options struct {
	// TempDir holds copies of index files of a lake in S3 while a plan is made, and rows of the
	// tables beside urls while a chunk is loaded; "" is the system's.
	TempDir string
	// Report, which may be nil, is called with how many rows a step has done.
	Report func(rows int64)
	// LockTimeout is how long a statement waits for a lock of somebody else before it is tried
	// again, LockAttempts how often it is tried. Zero stands for the defaults.
	LockTimeout  time.Duration
	LockAttempts int

	// Of tests.
	weaken func(uint64) uint64
	failed func(at string) error
	wait   time.Duration // instead of stepWait
}

func (o *Options) report(rows int64) {
	if o.Report != nil {
		o.Report(rows)
	}
}

// fail is where tests make a step fail.
func (o *Options) fail(at string) error {
	if o.failed == nil {
		return nil
	}
	return o.failed(at)
}

// planner makes a plan.
type planner struct {
	ctx   context.Context
	store blob.Store
	opt   Options
	plan  *plan
	c     *pgx.Conn

	version  *manifest.Version
	rules    *takedown.Rules
	list     *urlnorm.SuffixList
	scope    map[uint32]*exported // the datasets of the slice
	domains  []string             // nil for all domains
	segments []*segment.Segment
	cache    *segment.FrameCache // of all segments
	seen     *state              // of the database when it was compared
}

// Plan finds out what the database lacks of a version, creates the schema if it is missing, and
// leaves a plan for the other steps in the staging of a run. A plan that exists stays.
func Plan(ctx context.Context, store blob.Store, spec Spec, run string, opt Options) (Planned, error) {
	if err := spec.Check(); err != nil {
		return Planned{}, err
	}
	if p, err := readPlan(ctx, store, run); err == nil {
		return p.planned(), nil
	} else if !errors.Is(err, blob.ErrNotExist) {
		return Planned{}, err
	}
	p := &planner{
		ctx: ctx, store: store, opt: opt, plan: &plan{Format: planFormat, Spec: spec, Layout: spec.Layout},
		cache: segment.NewFrameCache(cacheBytes),
	}
	defer p.close()
	if err := p.pin(); err != nil {
		return Planned{}, err
	}
	release, err := hold(ctx, store, p.plan.Version)
	if err != nil {
		return Planned{}, err
	}
	defer release()
	if p.c, err = connect(ctx, spec.target()); err != nil {
		return Planned{}, err
	}
	defer disconnect(ctx, p.c)
	if err := prepare(ctx, p.c, spec.Schema); err != nil {
		return Planned{}, err
	}
	if err := p.choose(); err != nil {
		return Planned{}, err
	}
	if current, err := p.compare(); err != nil || current != nil {
		if current != nil {
			return *current, nil
		}
		return Planned{}, err
	}
	if err := p.divide(); err != nil {
		return Planned{}, err
	}
	if p.plan.Whole {
		if err := p.partitions(); err != nil {
			return Planned{}, err
		}
	}
	if err := p.count(); err != nil {
		return Planned{}, collected(ctx, store, p.plan.Takedowns, err)
	}
	if err := opt.fail("before the load begins"); err != nil {
		return Planned{}, err
	}
	if err := begin(ctx, p.c, p.plan, p.seen); err != nil {
		return Planned{}, err
	}
	data, err := codec.Seal(p.plan)
	if err != nil {
		return Planned{}, err
	}
	_, err = store.Put(ctx, planKey(run), data, blob.Condition{IfAbsent: true})
	if errors.Is(err, blob.ErrPrecondition) { // of another attempt, which the steps will follow
		stored, err := readPlan(ctx, store, run)
		if err != nil {
			return Planned{}, err
		}
		return stored.planned(), nil
	}
	return p.plan.planned(), err
}

func (p *plan) planned() Planned {
	out := Planned{Version: p.Version, TakedownEpoch: p.TakedownEpoch, Whole: p.Whole, Chunks: len(p.Chunks), Tables: len(p.leaves())}
	for i := range p.Chunks {
		out.Rows += p.Chunks[i].Rows
	}
	return out
}

// leaves are the tables that rows are copied into.
func (p *plan) leaves() []string {
	if !p.Whole {
		return []string{staged}
	}
	var names []string
	for _, t := range p.Partitions {
		if !t.Divided {
			names = append(names, loadName(t.Name))
		}
	}
	return names
}

// loadName is the name of a partition until it is part of urls.
func loadName(name string) string { return "load_" + name }

func (p *planner) close() {
	for _, s := range p.segments {
		if s != nil {
			s.Close()
		}
	}
}

// pin reads the version and the takedowns.
func (p *planner) pin() error {
	m, _, err := manifest.Read(p.ctx, p.store)
	if err != nil {
		return err
	}
	ref, err := m.Version(cmp.Or(p.plan.Spec.Version, manifest.Current))
	if err != nil {
		return inputf("%v; \"starter versions\" lists those that are kept", err)
	}
	if p.version, err = manifest.ReadVersion(p.ctx, p.store, ref); err != nil {
		return err
	}
	p.plan.Ref, p.plan.Version, p.plan.Takedowns, p.plan.TakedownEpoch = ref, ref.ID, m.Takedowns, m.TakedownEpoch
	if p.rules, err = rulesOf(p.ctx, p.store, m.Takedowns); err != nil {
		return err
	}
	p.list, err = lake.LoadSuffixList(p.ctx, p.store, p.version.PublicSuffix)
	return err
}

func rulesOf(ctx context.Context, store blob.Store, ref *takedown.Ref) (*takedown.Rules, error) {
	if ref == nil {
		return nil, nil
	}
	doc, err := takedown.Read(ctx, store, ref)
	if err != nil {
		return nil, collected(ctx, store, ref, err)
	}
	rules, err := doc.Rules(ctx, store)
	return rules, collected(ctx, store, ref, err)
}

// collected returns the error of reading takedowns, or of objects that they refer to. Damage it is
// not if they were collected: a lease names a version, and takedowns that have changed are garbage.
func collected(ctx context.Context, store blob.Store, ref *takedown.Ref, err error) error {
	if !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	m, _, readErr := manifest.Read(ctx, store)
	if readErr == nil && ref != nil && (m.Takedowns == nil || *m.Takedowns != *ref) {
		return inputf("the takedowns have changed since the export began; start it again")
	}
	return err
}

// choose finds the datasets and the domains of the slice.
func (p *planner) choose() error {
	spec := &p.plan.Spec
	var err error
	if p.domains, err = spec.domains(p.list); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range spec.Datasets {
		wanted[name] = false
	}
	p.scope = map[uint32]*exported{}
	fields := map[string]string{}
	for _, m := range spec.IDMap {
		name, field, _ := strings.Cut(m, "=")
		fields[name] = field
	}
	for d, err := range p.version.Datasets(p.ctx, 0) {
		if err != nil {
			return err
		}
		byName, byID := has(wanted, d.Name), has(wanted, fmt.Sprint(d.ID))
		if len(wanted) > 0 && !byName && !byID {
			continue
		}
		if byName {
			wanted[d.Name] = true
		}
		if byID {
			wanted[fmt.Sprint(d.ID)] = true
		}
		e := exported{Dataset: d, Canonical: fields[d.Name]}
		delete(fields, d.Name)
		p.plan.Datasets = append(p.plan.Datasets, e)
	}
	for name, found := range wanted {
		if !found {
			return inputf("version %s has no dataset %q; \"starter datasets\" lists them", p.version.ID, name)
		}
	}
	for name := range fields {
		return inputf("id_map: version %s has no dataset %q in the slice", p.version.ID, name)
	}
	var ids []uint32
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		p.scope[d.ID] = d
		ids = append(ids, d.ID)
	}
	if len(wanted) == 0 {
		ids = nil
	}
	idMap := slices.Clone(spec.IDMap)
	slices.Sort(idMap)
	p.plan.Slice = sliceName(ids, p.domains, idMap)
	return nil
}

func has(m map[string]bool, key string) bool {
	_, ok := m[key]
	return ok
}

// compare compares the version with what the database has. It returns what Plan returns if that is
// the same.
func (p *planner) compare() (*Planned, error) {
	spec := &p.plan.Spec
	s, err := readState(p.ctx, p.c)
	if err == nil && s == nil {
		// Of several first exports at once, one decides what the schema has.
		if err = p.opt.fail("before the state is created"); err == nil {
			err = createState(p.ctx, p.c, p.plan)
		}
		if err == nil {
			s, err = readState(p.ctx, p.c)
		}
	}
	if err != nil {
		return nil, err
	}
	p.seen = s
	const other = "the schema %s has %s %s, and this export %s; use another --schema, or drop that one"
	switch {
	case s.lake != spec.Lake:
		return nil, inputf(other, spec.Schema, "the lake", s.lake, spec.Lake)
	case s.layout != spec.Layout:
		return nil, inputf(other, spec.Schema, "numbers of the layout", s.layout, spec.Layout)
	case s.slice != p.plan.Slice:
		return nil, inputf(other, spec.Schema, "the slice", s.slice, p.plan.Slice)
	}
	if s.version == p.plan.Version && s.epoch == p.plan.TakedownEpoch && !spec.Rebuild {
		have, err := p.have(s)
		if err != nil {
			return nil, err
		}
		return &Planned{Version: s.version, TakedownEpoch: s.epoch, Current: true, Have: have}, nil
	}
	known, err := readBatches(p.ctx, p.c)
	if err != nil {
		return nil, err
	}
	next := int32(1)
	for _, b := range known {
		next = max(next, b.ID+1)
	}
	added, total := int64(0), int64(0)
	live := map[batchName]bool{}
	for b, err := range p.version.Batches(p.ctx) {
		if err != nil {
			return nil, err
		}
		if p.scope[b.DatasetID] == nil {
			continue
		}
		name := batchName{b.DatasetID, b.Batch}
		pb := planBatch{ID: known[name].ID, Dataset: b.DatasetID, Name: b.Batch, Digest: b.Digest, Rows: b.Rows}
		live[name] = true
		total += b.Rows
		if old, ok := known[name]; !ok || old.Digest != b.Digest {
			if ok {
				p.plan.Drop = append(p.plan.Drop, old.ID)
			}
			pb.ID, pb.New = next, true
			next++
			added += b.Rows
		}
		p.plan.Batches = append(p.plan.Batches, pb)
	}
	for name, b := range known {
		if !live[name] {
			p.plan.Drop = append(p.plan.Drop, b.ID)
		}
	}
	slices.Sort(p.plan.Drop)
	if err := p.compareRules(); err != nil {
		return nil, err
	}
	p.plan.Whole = p.plan.Whole || spec.Rebuild || s.version == "" || added > 0 && added >= total/rebuildShare || len(p.plan.Reloaded) > maxReloaded
	if p.plan.Whole {
		p.plan.Drop, p.plan.Reloaded = nil, nil
		for i := range p.plan.Batches {
			p.plan.Batches[i].New = true
		}
	}
	return nil, nil
}

// compareRules finds the domains whose rows may be hidden otherwise than in the database.
func (p *planner) compareRules() error {
	known, err := readRules(p.ctx, p.c)
	if err != nil {
		return err
	}
	reloaded := map[string]bool{} // by the host of the rule
	now := map[string]bool{}
	if p.rules != nil {
		for _, r := range p.rules.All() {
			if r.DatasetID != 0 && p.scope[r.DatasetID] == nil {
				continue
			}
			now[r.ID] = true
			p.plan.Rules = append(p.plan.Rules, rule{r.ID, r.Host})
			if _, ok := known[r.ID]; !ok {
				reloaded[r.Host] = true
			}
		}
	}
	for id, host := range known {
		if !now[id] {
			reloaded[host] = true
		}
	}
	slices.SortFunc(p.plan.Rules, func(a, b rule) int { return strings.Compare(a.ID, b.ID) })
	for host := range reloaded {
		// Rules about a domain that is a public suffix by the list hide rows of all domains below.
		// An entry of id_map depends on the rules of two domains, and only one of them has its row.
		if p.list.Domain("a."+host) == "a."+host || len(p.plan.Spec.IDMap) > 0 {
			p.plan.Whole = true
		}
		t := takedown.Target{Host: host}
		for _, name := range t.Names() {
			if len(p.domains) == 0 || slices.Contains(p.domains, name) {
				p.plan.Reloaded = append(p.plan.Reloaded, name)
			}
		}
	}
	slices.Sort(p.plan.Reloaded)
	p.plan.Reloaded = slices.Compact(p.plan.Reloaded)
	return nil
}

// have is what the database has of the version already.
func (p *planner) have(s *state) (Result, error) {
	r := Result{Version: s.version, TakedownEpoch: s.epoch, Current: true}
	err := p.c.QueryRow(p.ctx, "SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(urls), 0)::bigint, count(*) FROM datasets").
		Scan(&r.Rows, &r.URLs, &r.Datasets)
	return r, explain("read what is exported", err)
}
