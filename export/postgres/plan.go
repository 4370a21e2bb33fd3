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
	"github.com/zeebo/xxh3"

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

// planFormat is the version of plans.
const planFormat = 1

// plan is what Plan leaves for the other steps, in the staging of the run.
type plan struct {
	Format  int    `json:"format"`
	Spec    Spec   `json:"spec"`
	Run     string `json:"run"`
	Version string `json:"version"`
	// Ref and Takedowns pin the version and the rules that hide rows.
	Ref           manifest.VersionRef `json:"ref"`
	Takedowns     *takedown.Ref       `json:"takedowns,omitempty"`
	TakedownEpoch uint64              `json:"takedown_epoch"`
	Slice         string              `json:"slice"`
	// Exported is the end of the export that the plan was compared with, zero for none.
	Exported time.Time `json:"exported"`

	Datasets []exported  `json:"datasets"` // all of the slice
	Batches  []planBatch `json:"batches"`  // those of datasets that changed
	Rules    []rule      `json:"rules,omitempty"`
	// Tables are those that are loaded, parents first.
	Tables []table  `json:"tables"`
	Stored []stored `json:"stored"`
	Chunks []chunk  `json:"chunks"`
}

// exported is a dataset of the slice, and how many rows the lake shows of it.
type exported struct {
	manifest.Dataset
	Shown   int64 `json:"shown"`
	Batches int32 `json:"batches"`
	// Digest is of everything that decides which rows the dataset has, except for takedowns.
	Digest string `json:"digest"`
	// Changed tells that the dataset is loaded.
	Changed bool `json:"changed,omitempty"`
	// Canonical is the field of the extras that has canonical URLs, "" for none.
	Canonical string `json:"canonical,omitempty"`
}

// loaded reports whether the dataset has tables of the load.
func (d *exported) loaded() bool { return d.Changed && d.Shown > 0 }

type planBatch struct {
	ID      int32  `json:"id"`
	Dataset uint32 `json:"dataset"`
	Name    string `json:"name"`
	Digest  string `json:"digest"`
}

// rule is a takedown in force, and the host that it names.
type rule struct {
	ID   string `json:"id"`
	Host string `json:"host"`
}

// Planned is the result of Plan.
type Planned struct {
	Version       string `json:"version"`
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Current tells that the database has the version already, so that there is nothing to do.
	Current bool `json:"current,omitempty"`
	// Datasets are how many datasets changed and are loaded.
	Datasets int `json:"datasets"`
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
	l, err := domain64.ParseLayout(p.Spec.Layout)
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
	// TempDir holds copies of index files of a lake in S3 while a plan is made; "" is the system's.
	TempDir string
	// Report, which may be nil, is called with how many rows a step has done.
	Report func(rows int64)
	// LockTimeout is how long a statement waits for a lock of a reader before it is tried again,
	// LockAttempts how often it is tried. Zero stands for the defaults.
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
	// stored has the places in plan.Stored of what each segment stores.
	stored []map[batchName]int
}

// Plan finds out which datasets of a version the database lacks or has otherwise, leaves a plan for
// the other steps in the staging of a run, and creates the schema and the tables of the load. A
// plan that exists stays.
func Plan(ctx context.Context, store blob.Store, spec Spec, run string, opt Options) (Planned, error) {
	if err := spec.Check(); err != nil {
		return Planned{}, err
	}
	c, err := connect(ctx, spec.target())
	if err != nil {
		return Planned{}, err
	}
	defer disconnect(ctx, c)
	p, err := readPlan(ctx, store, run)
	if errors.Is(err, blob.ErrNotExist) {
		m := &planner{
			ctx: ctx, store: store, opt: opt, c: c, cache: segment.NewFrameCache(cacheBytes),
			plan: &plan{Format: planFormat, Spec: spec, Run: run},
		}
		defer m.close()
		var current *Planned
		if current, err = m.make(); current != nil {
			return *current, nil
		}
		if err == nil {
			p, err = m.leave()
		}
	}
	if err == nil {
		err = opt.fail("before the load begins")
	}
	if err == nil {
		err = begin(ctx, c, p)
	}
	if errors.Is(err, errOutdated) {
		err = errors.Join(err, store.Delete(ctx, planKey(run)))
	}
	if err != nil {
		return Planned{}, err
	}
	out := Planned{
		Version: p.Version, TakedownEpoch: p.TakedownEpoch, Chunks: len(p.Chunks), Tables: len(p.leaves()),
	}
	for i := range p.Datasets {
		if p.Datasets[i].Changed {
			out.Datasets++
		}
	}
	for i := range p.Chunks {
		out.Rows += p.Chunks[i].Rows
	}
	return out, nil
}

// leave writes the plan, and returns that of another attempt if there is one.
func (p *planner) leave() (*plan, error) {
	data, err := codec.Seal(p.plan)
	if err != nil {
		return nil, err
	}
	_, err = p.store.Put(p.ctx, planKey(p.plan.Run), data, blob.Condition{IfAbsent: true})
	if errors.Is(err, blob.ErrPrecondition) {
		return readPlan(p.ctx, p.store, p.plan.Run)
	}
	return p.plan, err
}

// make makes the plan. It returns what Plan returns if the database has the version.
func (p *planner) make() (*Planned, error) {
	if err := p.pin(); err != nil {
		return nil, err
	}
	release, err := hold(p.ctx, p.store, p.plan.Version)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := prepare(p.ctx, p.c, p.plan.Spec.Schema); err != nil {
		return nil, err
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	if have, err := p.state(); err != nil || have != nil {
		return have, err
	}
	if err := p.count(); err != nil {
		return nil, collected(p.ctx, p.store, p.plan.Takedowns, err)
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	if err := p.divide(); err != nil {
		return nil, err
	}
	return nil, p.tables()
}

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

// collected returns the error of reading takedowns, or of objects that they refer to. It is not
// damage if they were collected: a lease names a version, and takedowns that have changed are
// garbage.
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
	fields := map[string]string{}
	for _, m := range spec.IDMap {
		name, field, _ := strings.Cut(m, "=")
		fields[name] = field
	}
	var ids []uint32
	for d, err := range p.version.Datasets(p.ctx, 0) {
		if err != nil {
			return err
		}
		_, byName := wanted[d.Name]
		_, byID := wanted[fmt.Sprint(d.ID)]
		if len(wanted) > 0 && !byName && !byID {
			continue
		}
		if byName {
			wanted[d.Name] = true
		}
		if byID {
			wanted[fmt.Sprint(d.ID)] = true
		}
		if len(wanted) > 0 {
			ids = append(ids, d.ID)
		}
		p.plan.Datasets = append(p.plan.Datasets, exported{Dataset: d, Canonical: fields[d.Name]})
		delete(fields, d.Name)
	}
	for name, found := range wanted {
		if !found {
			return inputf("version %s has no dataset %q; \"starter datasets\" lists them", p.version.ID, name)
		}
	}
	for name := range fields {
		return inputf("id_map: version %s has no dataset %q in the slice", p.version.ID, name)
	}
	p.scope = map[uint32]*exported{}
	for i := range p.plan.Datasets {
		p.scope[p.plan.Datasets[i].ID] = &p.plan.Datasets[i]
	}
	idMap := slices.Clone(spec.IDMap)
	slices.Sort(idMap)
	p.plan.Slice = sliceName(ids, p.domains, idMap)
	return nil
}

// state checks that the schema is for this export, and returns what Plan returns if it has the
// version already.
func (p *planner) state() (*Planned, error) {
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
	const other = "the schema %s has %s %s, and this export %s; use another --schema, or drop that one"
	switch {
	case s.lake != spec.Lake:
		return nil, inputf(other, spec.Schema, "the lake", s.lake, spec.Lake)
	case s.layout != spec.Layout:
		return nil, inputf(other, spec.Schema, "numbers of the layout", s.layout, spec.Layout)
	case s.slice != p.plan.Slice:
		return nil, inputf(other, spec.Schema, "the slice", s.slice, p.plan.Slice)
	}
	p.plan.Exported = s.exported
	if s.version != p.plan.Version || s.epoch != p.plan.TakedownEpoch || spec.Rebuild {
		return nil, nil
	}
	r := Result{Version: s.version, TakedownEpoch: s.epoch, Current: true}
	err = p.c.QueryRow(p.ctx, "SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(urls), 0)::bigint, count(*) FROM datasets").
		Scan(&r.Rows, &r.URLs, &r.Datasets)
	return &Planned{Version: s.version, TakedownEpoch: s.epoch, Current: true, Have: r}, explain("read what is exported", err)
}

// count finds out how many rows the lake shows of each dataset.
func (p *planner) count() error {
	doc, err := takedown.Read(p.ctx, p.store, p.plan.Takedowns)
	if err != nil {
		return err
	}
	all := map[uint32]int64{}
	for i := range p.plan.Datasets {
		all[p.plan.Datasets[i].ID] = p.plan.Datasets[i].Dataset.Rows
	}
	shown, err := scan.Count(p.ctx, p.store, p.version, doc, p.domains, all, p.cache)
	for i := range p.plan.Datasets {
		p.plan.Datasets[i].Shown = shown[p.plan.Datasets[i].ID]
	}
	return err
}

// compare finds the datasets that the database lacks or has otherwise.
func (p *planner) compare() error {
	touched, err := p.compareRules()
	if err != nil {
		return err
	}
	if err := p.digests(); err != nil {
		return err
	}
	known, err := readDatasets(p.ctx, p.c)
	if err != nil {
		return err
	}
	attached, err := partitionsOf(p.ctx, p.c, urlsTable)
	if err != nil {
		return explain("list the partitions of "+urlsTable, err)
	}
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		have, ok := known[d.ID]
		d.Changed = p.plan.Spec.Rebuild || !ok || have.digest != d.Digest || have.rows != d.Shown || touched[d.ID] ||
			attached[d.ID] == "" && have.rows > 0 // detached by hand
	}
	return p.batches()
}

// digests sets the digests of the datasets.
func (p *planner) digests() error {
	rules := ""
	for _, r := range p.plan.Rules {
		rules += r.ID + "\n"
	}
	sums := map[uint32]*xxh3.Hasher{}
	for b, err := range p.version.Batches(p.ctx) {
		if err != nil {
			return err
		}
		d := p.scope[b.DatasetID]
		if d == nil {
			continue
		}
		if sums[d.ID] == nil {
			sums[d.ID] = xxh3.New()
		}
		d.Batches++
		fmt.Fprintf(sums[d.ID], "%q %s\n", b.Batch, b.Digest)
	}
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		h := cmp.Or(sums[d.ID], xxh3.New())
		// The suffix list decides which domain, and so which number, a host has.
		fmt.Fprintf(h, "%s\n%q\n", p.version.PublicSuffix, d.Canonical)
		if d.Canonical != "" { // the rules of another site can hide a canonical URL
			fmt.Fprint(h, rules)
		}
		sum := h.Sum128().Bytes()
		d.Digest = fmt.Sprintf("%x", sum)
	}
	return nil
}

// compareRules compares the takedowns with those of the database. The number of rows that the lake
// shows of a dataset tells whether new rules hide any of them, and whether rules that were lifted
// did. If there are both, it may stay the same, and compareRules returns the datasets that have
// rows of a domain that one of these rules names.
func (p *planner) compareRules() (touched map[uint32]bool, err error) {
	known, err := readRules(p.ctx, p.c)
	if err != nil {
		return nil, err
	}
	var added, lifted []string // the hosts of rules
	if p.rules != nil {
		for _, r := range p.rules.All() {
			if r.DatasetID != 0 && p.scope[r.DatasetID] == nil {
				continue
			}
			p.plan.Rules = append(p.plan.Rules, rule{r.ID, r.Host})
			if _, ok := known[r.ID]; !ok {
				added = append(added, r.Host)
			}
			delete(known, r.ID)
		}
	}
	slices.SortFunc(p.plan.Rules, func(a, b rule) int { return strings.Compare(a.ID, b.ID) })
	for _, host := range known {
		lifted = append(lifted, host)
	}
	touched = map[uint32]bool{}
	if len(added) == 0 || len(lifted) == 0 {
		return touched, nil
	}
	for _, host := range append(added, lifted...) {
		if p.list.Domain("a."+host) == "a."+host { // a public suffix: of all domains below it
			for id := range p.scope {
				touched[id] = true
			}
			return touched, nil
		}
		t := takedown.Target{Host: host}
		for i := range p.version.Segments {
			seg, err := p.open(i)
			if err != nil {
				return nil, err
			}
			for _, name := range t.Names() {
				entries, err := seg.Entries(p.ctx, segment.KeyOf(name), 0, 0)
				if err != nil {
					return nil, err
				}
				for _, e := range entries {
					touched[e.Dataset] = true
				}
			}
		}
	}
	return touched, nil
}

// batches gives numbers to the batches of datasets that changed. A batch that the database has
// keeps its number.
func (p *planner) batches() error {
	known, err := readBatches(p.ctx, p.c)
	if err != nil {
		return err
	}
	next := int32(1)
	for _, b := range known {
		next = max(next, b.ID+1)
	}
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		if !d.Changed {
			continue
		}
		for b, err := range p.version.BatchesOf(p.ctx, d.ID) {
			if err != nil {
				return err
			}
			pb := known[batchName{d.ID, b.Batch}]
			if pb.Digest != b.Digest {
				pb = planBatch{ID: next, Dataset: d.ID, Name: b.Batch, Digest: b.Digest}
				next++
			}
			p.plan.Batches = append(p.plan.Batches, pb)
		}
	}
	return nil
}
