package model

import (
	"context"
	"slices"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/publish"
)

// pending is a publish or a compaction that is built and not committed.
type building struct {
	run        string
	compaction bool
	planKey    string
	built      publish.Built
	// before and after are the batches of the version of which it was planned, and those that it
	// has to make of them.
	before, after map[batchID]*content
	list          int
	step          int // in which it was begun
}

// begin does all of a publish, or of a compaction, but its commit. Other things happen before that.
func (m *machine) begin() {
	p := &building{run: testlake.Run(), compaction: uniform(3).Draw(m.rt, "compaction") == 2}
	if p.compaction && m.rowsMayReturn(m.world.published(), dropped(m.world.published(), m.world.rules)) {
		return
	}
	m.count(map[bool]string{false: "begin of a publish", true: "begin of a compaction"}[p.compaction])
	p.before, p.after, p.list = m.world.published(), m.world.live(), m.world.list
	if p.compaction {
		p.after = dropped(p.before, m.world.rules)
	}
	p.step = m.steps
	for id := range p.after {
		m.published[id] = true
	}
	var builds int
	for {
		plan, err := p.plan(m)
		if err != nil {
			m.Fatalf("plan: %v", err)
		}
		if len(plan.Skipped) > 0 {
			m.Fatalf("the plan leaves out %+v", plan.Skipped)
		}
		if plan.Nothing {
			m.drop(p)
			return
		}
		if plan.RewriteTasks == 0 {
			p.planKey, builds = plan.PlanKey, plan.Builds
			break
		}
		for task := range plan.RewriteTasks {
			done, err := publish.Rewrite(m.Context(), m.store, plan.RewriteKey, task, m.temp, nil)
			if err != nil {
				m.Fatalf("rewrite: %v", err)
			}
			m.ahead = m.ahead || done.Batches > 0
		}
	}
	tasks := make([]publish.Built, builds)
	for i := range tasks {
		var err error
		if tasks[i], err = publish.Build(m.Context(), m.store, p.planKey, i, m.temp); err != nil || tasks[i].Damaged > 0 {
			m.Fatalf("build: %+v, %v", tasks[i], err)
		}
	}
	p.built = publish.Join(tasks)
	m.pending = append(m.pending, p)
}

func (p *building) plan(m *machine) (publish.Summary, error) {
	if p.compaction {
		return publish.PlanCompaction(m.Context(), m.store, p.run, 0, publish.Compaction{Full: true})
	}
	return publish.Plan(m.Context(), m.store, p.run, 0)
}

// drop removes what a publish or a compaction has in staging.
func (m *machine) drop(p *building) {
	m.pending = slices.DeleteFunc(slices.Clone(m.pending), func(o *building) bool { return o == p })
	if err := lake.DeleteStaging(context.WithoutCancel(m.Context()), m.store, p.run); err != nil {
		m.Fatal(err)
	}
}

// rowsMayReturn reports whether rows that a compaction drops come back with the next publish,
// hidden as long as the takedown is in force: with batches that were moved already, and with those
// that were ingested again and have another record, which depends on the lists.
func (m *machine) rowsMayReturn(before, after map[batchID]*content) bool {
	for id, c := range before {
		o := m.world.orders[id]
		if after[id] != c && (m.ahead || len(o) > 0 && o[len(o)-1].again) {
			return true
		}
	}
	return false
}

// commit commits a publish or a compaction that was begun before. It may be stale if the version is
// no longer the one of which it was planned, or if what it adds or removes is not what the ledger
// has any more.
func (m *machine) commit() {
	p := m.pending[uniform(len(m.pending)).Draw(m.rt, "of")]
	defer m.drop(p)
	if p.compaction && m.rowsMayReturn(p.before, p.after) {
		return
	}
	done, err := publish.Commit(m.Context(), m.store, p.planKey, p.built, m.temp)
	if err != nil {
		m.Fatalf("commit: %v", err)
	}
	if done.Stale {
		m.count("stale commit")
		if m.steps == p.step+1 {
			m.Fatalf("a commit is stale, although nothing has happened since its plan")
		}
		return
	}
	if done.Existed {
		m.count("commit of another's plan")
		return
	}
	m.count("commit")
	m.ahead = m.ahead && p.compaction
	// What the plan adds or removes is done to the version that was the current one.
	next := map[batchID]*content{}
	for id, c := range m.world.published() {
		next[id] = c
	}
	for id, c := range p.after {
		if have := p.before[id]; have == nil || have.name != c.name || have != c && next[id] == have {
			next[id] = c
		}
	}
	for id := range p.before {
		if p.after[id] == nil {
			delete(next, id)
		}
	}
	list := p.list
	if v := m.world.newest(); v != nil && p.compaction {
		list = v.list
	}
	m.world.add(next, list)
	for id, c := range next {
		if o := m.world.orders[id]; len(o) > 0 && !o[len(o)-1].retired && o[len(o)-1].name == c.name {
			o[len(o)-1].published, o[len(o)-1].again = true, o[len(o)-1].again && p.compaction
		}
	}
}
