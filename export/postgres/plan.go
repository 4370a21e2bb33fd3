package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// planFormat is the version of plans.
	planFormat = 1
	// chunkRows is about how many rows one Load copies in its transaction: some seconds of work
	// that a crash destroys. A chunk has at least one part.
	chunkRows = 2 << 20
	// maxChunks bounds the chunks of a plan, and so the history of its workflow.
	maxChunks = 4000
)

// plan is what Plan leaves for the other steps, in the staging of the run.
type plan struct {
	Format  int    `json:"format"`
	Spec    Spec   `json:"spec"`
	Run     string `json:"run"`
	Version string `json:"version"`
	// Takedowns are those that hide rows, nil for none.
	Takedowns     *catalog.TakedownRef `json:"takedowns,omitempty"`
	TakedownEpoch uint64               `json:"takedown_epoch"`
	Slice         string               `json:"slice"`
	// Exported is the end of the export that the plan was compared with, zero for none.
	Exported time.Time `json:"exported"`

	Datasets []exported  `json:"datasets"` // all of the slice
	Batches  []planBatch `json:"batches"`  // the batches of datasets that changed
	Rules    []rule      `json:"rules,omitempty"`
	// Partitions are those of each table that is loaded, none for tables with rows of their own.
	Partitions []partition `json:"partitions,omitempty"`
	Chunks     []chunk     `json:"chunks"`
}

// exported is a dataset of the slice, and how many rows the lake shows of it.
type exported struct {
	catalog.Dataset
	Shown   int64 `json:"shown"`
	Batches int32 `json:"batches"`
	// Digest is of everything that decides which rows the dataset has, except for takedowns.
	Digest string `json:"digest"`
	// Changed tells that the dataset is loaded.
	Changed bool `json:"changed,omitempty"`
	// Canonical is the field of the extras that has canonical URLs, "" for none.
	Canonical string `json:"canonical,omitempty"`

	urls int64 // of its table, while a Finish runs
}

// stays has the datasets that do not change.
func (p *plan) stays() map[uint32]bool {
	all := map[uint32]bool{}
	for i := range p.Datasets {
		all[p.Datasets[i].ID] = !p.Datasets[i].Changed
	}
	return all
}

// loaded are the datasets that have a table of the load.
func (p *plan) loaded() (ids []uint32) {
	for i := range p.Datasets {
		if d := &p.Datasets[i]; d.Changed && d.Shown > 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

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

// chunk is what one Load copies: parts of some datasets, by dataset. Skip of these datasets' parts
// are in other chunks before it.
type chunk struct {
	Datasets []uint32 `json:"datasets"`
	Skip     int      `json:"skip,omitempty"`
	Parts    int      `json:"parts"`
	Rows     int64    `json:"rows"`
}

// Planned is the result of Plan.
type Planned struct {
	Version string `json:"version"`
	// Rows are about how many rows will be read, in so many chunks.
	Rows   int64 `json:"rows"`
	Chunks int   `json:"chunks"`
	// Have is what the database has, if that is the version already and there is nothing to do.
	Have *Result `json:"have,omitempty"`
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

// planner makes a plan.
type planner struct {
	*step
	slice *scan.Slice // without parts
}

// Plan finds out which datasets of a version the database lacks or has otherwise, leaves a plan for
// the other steps in the staging of a run, and creates the schema and the tables of the load. A
// plan that exists stays.
func Plan(ctx context.Context, store blob.Store, spec Spec, run string, opt Options) (Planned, error) {
	if err := spec.Check(); err != nil {
		return Planned{}, err
	}
	c, err := connect(ctx, &spec)
	if err != nil {
		return Planned{}, err
	}
	s := &step{ctx: ctx, store: store, opt: &opt, c: c}
	defer s.close()
	if s.plan, err = readPlan(ctx, store, run); errors.Is(err, blob.ErrNotExist) {
		s.plan = &plan{Format: planFormat, Spec: spec, Run: run}
		m := &planner{step: s}
		var have *Result
		if have, err = m.make(); have != nil {
			return Planned{Version: have.Version, Have: have}, nil
		}
		if err == nil {
			err = m.leave()
		}
	}
	if err == nil {
		err = opt.fail("before the load begins")
	}
	if err == nil {
		err = s.begin()
	}
	if errors.Is(err, errOutdated) {
		err = errors.Join(err, store.Delete(ctx, planKey(run)))
	}
	if err != nil {
		return Planned{}, err
	}
	out := Planned{Version: s.plan.Version, Chunks: len(s.plan.Chunks)}
	for i := range s.plan.Chunks {
		out.Rows += s.plan.Chunks[i].Rows
	}
	return out, nil
}

// leave writes the plan, and takes that of another attempt if there is one.
func (p *planner) leave() error {
	data, err := codec.Seal(p.plan)
	if err != nil {
		return err
	}
	_, err = p.store.Put(p.ctx, planKey(p.plan.Run), data, blob.Condition{IfAbsent: true})
	if errors.Is(err, blob.ErrPrecondition) {
		p.plan, err = readPlan(p.ctx, p.store, p.plan.Run)
	}
	return err
}

// make makes the plan. It returns what the database has if that is the version.
func (p *planner) make() (*Result, error) {
	if err := prepare(p.ctx, p.c, p.plan.Spec.Schema); err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	release, err := p.hold()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := p.choose(); err != nil {
		return nil, err
	}
	if have, err := p.state(); err != nil || have != nil {
		return have, err
	}
	for _, step := range []func() error{p.compare, p.batches, p.partitions, p.divide} {
		if err := step(); err != nil {
			return nil, p.collected(err)
		}
	}
	return nil, nil
}

// open pins the version and the takedowns.
func (p *planner) open() error {
	spec, pl := &p.plan.Spec, p.plan
	var err error
	p.slice, err = scan.Open(p.ctx, p.store, scan.Options{Version: spec.Version, Datasets: spec.Datasets, Hosts: spec.Domains, CountOnly: true})
	switch {
	case errors.Is(err, catalog.ErrNoVersion), errors.Is(err, catalog.ErrUnknownVersion):
		return inputf("%v; \"starter versions\" lists those that are kept", err)
	case errors.Is(err, scan.ErrUnknownDataset):
		return inputf("%v; \"starter datasets\" lists them", err)
	case err != nil:
		return err
	}
	for _, host := range spec.Domains {
		if !slices.Contains(p.slice.Domains, host) {
			return inputf("%s is no registrable domain but a host of one, which can be exported as a whole", host)
		}
	}
	pl.Version, pl.Takedowns, pl.TakedownEpoch = p.slice.Version, p.slice.Takedowns, p.slice.Epoch
	return nil
}

// slice opens the parts of some datasets as they were when the plan was made, by dataset.
func (s *step) slice(datasets []uint32) (*scan.Slice, error) {
	opt := scan.Options{Version: s.plan.Version, Hosts: s.plan.Spec.Domains, Pinned: true, Takedowns: s.plan.Takedowns}
	for _, id := range datasets {
		opt.Datasets = append(opt.Datasets, fmt.Sprint(id))
	}
	slice, err := scan.Open(s.ctx, s.store, opt)
	if err != nil {
		return nil, s.collected(err)
	}
	slices.SortStableFunc(slice.Tasks, func(a, b scan.Task) int { return cmp.Compare(a.Dataset, b.Dataset) })
	return slice, nil
}

// collected returns the error of reading takedowns, or of objects that they refer to. It is not
// damage if they were collected: a lease names a version, and takedowns that have changed are
// garbage.
func (s *step) collected(err error) error {
	if !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	m, _, readErr := catalog.ReadManifest(s.ctx, s.store)
	if was := s.plan.Takedowns; readErr == nil && was != nil && (m.Takedowns == nil || *m.Takedowns != *was) {
		return inputf("the takedowns have changed since the export began; start it again")
	}
	return err
}

// choose finds the datasets of the slice.
func (p *planner) choose() error {
	fields := map[string]string{}
	for _, m := range p.plan.Spec.IDMap {
		name, field, _ := strings.Cut(m, "=")
		fields[name] = field
	}
	var ids []uint32
	for _, d := range p.slice.Datasets {
		p.plan.Datasets = append(p.plan.Datasets, exported{Dataset: d, Shown: d.Rows, Canonical: fields[d.Name]})
		delete(fields, d.Name)
		ids = append(ids, d.ID)
	}
	for name := range fields {
		return inputf("id_map: version %s has no dataset %q in the slice", p.plan.Version, name)
	}
	if len(p.plan.Spec.Datasets) == 0 {
		ids = nil
	}
	idMap := slices.Clone(p.plan.Spec.IDMap)
	slices.Sort(idMap)
	p.plan.Slice = sliceName(ids, p.slice.Domains, idMap)
	return nil
}

// state checks that the schema is for this export, and returns what it has if that is the version.
func (p *planner) state() (*Result, error) {
	spec := &p.plan.Spec
	s, err := readState(p.ctx, p.c, "")
	if err == nil && s == nil {
		// Of several first exports at once, one decides what the schema has.
		if err = p.opt.fail("before the state is created"); err == nil {
			_, err = p.c.Exec(p.ctx, "INSERT INTO state (format, lake, slice, layout) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
				schemaFormat, spec.Lake, p.plan.Slice, spec.Layout)
			err = explain("write the table state", err)
		}
		if err == nil {
			s, err = readState(p.ctx, p.c, "")
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
	r := &Result{Version: s.version, TakedownEpoch: s.epoch, Current: true}
	return r, explain("read what is exported", r.totals(p.ctx, p.c))
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
	type dataset struct {
		ID     uint32
		Digest string
		Rows   int64
	}
	all, err := readTable[dataset](p.ctx, p.c, "datasets", "dataset_id, digest, rows")
	if err != nil {
		return err
	}
	known := map[uint32]dataset{}
	for _, d := range all {
		known[d.ID] = d
	}
	attached, err := partitionsOf(p.ctx, p.c)
	if err != nil {
		return explain("list the partitions of "+urlsTable, err)
	}
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		have, ok := known[d.ID]
		d.Changed = p.plan.Spec.Rebuild || !ok || have.Digest != d.Digest || have.Rows != d.Shown || touched(d.ID) ||
			attached[d.ID] == "" && have.Rows > 0 // detached by hand
	}
	return nil
}

// digests sets the digests of the datasets, and lists their batches.
func (p *planner) digests() error {
	rules := fmt.Sprint(p.plan.Rules)
	for i := range p.plan.Datasets {
		d := &p.plan.Datasets[i]
		h := xxh3.New()
		// The suffix list decides which domain, and so which number, a host has.
		fmt.Fprintf(h, "%s\n%q\n", p.slice.Manifest().PublicSuffix, d.Canonical)
		if d.Canonical != "" { // the rules of another site can hide a canonical URL
			fmt.Fprintln(h, rules)
		}
		for b, err := range p.slice.Manifest().BatchesOf(p.ctx, d.ID) {
			if err != nil {
				return err
			}
			d.Batches++
			p.plan.Batches = append(p.plan.Batches, planBatch{Dataset: d.ID, Name: b.Batch, Digest: b.Digest})
			fmt.Fprintf(h, "%q %s\n", b.Batch, b.Digest)
		}
		d.Digest = fmt.Sprintf("%x", h.Sum128().Bytes())
	}
	return nil
}

// compareRules compares the takedowns with those of the database. The number of rows that the lake
// shows of a dataset tells whether new rules hide any of them, and whether rules that were lifted
// did. If there are both, it may stay the same, and a dataset is touched if it has rows of a domain
// that one of these rules names.
func (p *planner) compareRules() (touched func(dataset uint32) bool, err error) {
	known, err := readTable[rule](p.ctx, p.c, "takedowns", "rule, host")
	if err != nil {
		return nil, err
	}
	if rules := p.slice.Rules(); rules != nil {
		for _, r := range rules.All() {
			p.plan.Rules = append(p.plan.Rules, rule{r.ID, r.Host})
		}
	}
	slices.SortFunc(p.plan.Rules, func(a, b rule) int { return strings.Compare(a.ID, b.ID) })
	without := func(some, others []rule) []rule {
		return slices.DeleteFunc(slices.Clone(some), func(r rule) bool { return slices.Contains(others, r) })
	}
	added, lifted := without(p.plan.Rules, known), without(known, p.plan.Rules)
	if len(added) == 0 || len(lifted) == 0 {
		return func(uint32) bool { return false }, nil
	}
	changed := append(added, lifted...)
	list, err := lake.LoadSuffixList(p.ctx, p.store, p.slice.Manifest().PublicSuffix)
	if err != nil {
		return nil, err
	}
	var domains []string
	for _, r := range changed {
		if list.Domain("a."+r.Host) == "a."+r.Host { // a public suffix: of all domains below it
			return func(uint32) bool { return true }, nil
		}
		domains = append(domains, (&catalog.Target{Host: r.Host}).Names()...)
	}
	having, err := p.slice.Having(p.ctx, domains)
	return func(dataset uint32) bool { _, ok := having[dataset]; return ok }, err
}

// batches gives numbers to the batches of datasets that changed. A batch that the database has
// keeps its number.
func (p *planner) batches() error {
	all, err := readTable[planBatch](p.ctx, p.c, "batches", "batch_id, dataset_id, name, digest")
	known := map[planBatch]planBatch{}
	next := int32(1)
	for _, b := range all {
		known[planBatch{Dataset: b.Dataset, Name: b.Name}] = b
		next = max(next, b.ID+1)
	}
	stays := p.plan.stays()
	p.plan.Batches = slices.DeleteFunc(p.plan.Batches, func(b planBatch) bool { return stays[b.Dataset] })
	for i := range p.plan.Batches {
		b := &p.plan.Batches[i]
		if was := known[planBatch{Dataset: b.Dataset, Name: b.Name}]; was.Digest == b.Digest {
			b.ID = was.ID
		} else {
			b.ID = next
			next++
		}
	}
	return err
}

// partitions divides the tables of the load.
func (p *planner) partitions() error {
	registry, err := p.plan.registry(p.store)
	if err != nil {
		return err
	}
	list, err := lake.LoadSuffixList(p.ctx, p.store, p.slice.Manifest().PublicSuffix)
	if err != nil {
		return err
	}
	var names []domain64.Name
	for _, host := range p.plan.Spec.Partitions {
		name, err := domain64.SplitHost(host, list.Domain(host))
		if err != nil {
			return inputf("partition %q: %v", host, err)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	codes, err := registry.Assign(p.ctx, names)
	if err == nil {
		p.plan.Partitions = divide(registry.Layout(), codes, names)
	}
	return explain("number the partitions", err)
}

// divide groups the parts of datasets that changed into chunks.
func (p *planner) divide() error {
	changed := p.plan.loaded()
	if len(changed) == 0 {
		return nil
	}
	s, err := p.step.slice(changed)
	if err != nil {
		return err
	}
	total := int64(0)
	for i := range s.Tasks {
		total += s.Tasks[i].Rows
	}
	size := max(chunkRows, total/maxChunks)
	var open chunk
	of := 0 // how many parts of the last dataset there were
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if i > 0 && t.Dataset != s.Tasks[i-1].Dataset {
			of = 0
		}
		if open.Parts == 0 {
			open.Skip = of
		}
		if n := len(open.Datasets); n == 0 || open.Datasets[n-1] != t.Dataset {
			open.Datasets = append(open.Datasets, t.Dataset)
		}
		open.Parts, open.Rows = open.Parts+1, open.Rows+t.Rows
		of++
		if open.Rows >= size || i == len(s.Tasks)-1 {
			p.plan.Chunks = append(p.plan.Chunks, open)
			open = chunk{}
		}
	}
	return nil
}
