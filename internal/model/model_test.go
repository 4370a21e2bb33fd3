package model

import (
	"flag"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// setDefault sets a flag of rapid unless the command line has.
func setDefault(t *testing.T, name, value string) {
	t.Helper()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if !set {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLakeEqualsMap runs random sequences, with the tag soak other ones each time. One that fails
// is made shorter, and is repeated with the -rapid.seed that is printed.
func TestLakeEqualsMap(t *testing.T) {
	sequences, steps := size(t)
	setDefault(t, "rapid.nofailfile", "true")
	setDefault(t, "rapid.seed", seed)
	setDefault(t, "rapid.checks", strconv.Itoa(sequences))
	setDefault(t, "rapid.steps", strconv.Itoa(steps))
	done, began := map[string]int{}, time.Now()
	defer func() {
		for _, name := range slices.Sorted(maps.Keys(done)) {
			t.Logf("%6d %s", done[name], name)
		}
		t.Logf("%d steps in %v", done["steps"], time.Since(began).Round(time.Second))
	}()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, rt, done)
		defer m.close()
		rt.Repeat(map[string]func(*rapid.T){"": m.check, "step": m.step})
		m.verify()
	})
}

// action is something that can happen to a lake.
type action struct {
	name string
	// weight is how often it happens, as a share of the sum of those that can.
	weight int
	can    bool
	do     func()
}

// step lets something happen.
func (m *machine) step(*rapid.T) {
	w := m.world
	any := func(batchID, *content, bool) bool { return true }
	published := w.newest() != nil
	var can []action
	for _, a := range []action{
		{"ingest", 8, true, m.ingest},
		{"publish", 7, true, m.publish},
		{"ingest again", 2, len(w.ids(any)) > 0, m.ingestAgain},
		{"retire", 3, len(w.ids(any)) > 0, m.retire},
		{"restore", 3, len(w.ids(m.restorable)) > 0, m.restore},
		{"compact", 4, published, m.compact},
		{"build trees", 2, published, m.buildTrees},
		{"begin", 3, len(m.pending) < 2, m.begin},
		{"commit", 4, len(m.pending) > 0, m.commit},
		{"takedown", 3, published && len(w.rules) < 6, m.takedown},
		{"lift", 2, len(w.rules) > 0, m.lift},
		{"rules", 1, true, m.setRules},
		{"tag", 1, published, m.tag},
		{"collect", 3, true, m.collect},
		{"damage", 2, published && len(m.pending) == 0, m.damage},
		{"rebuild", 1, published, m.rebuild},
		{"restart", 1, true, m.restartServer},
	} {
		for range a.weight {
			if a.can {
				can = append(can, a)
			}
		}
	}
	a := one(can).Draw(m.rt, "action")
	a.do()
}

// GoString is what rapid prints.
func (a action) GoString() string { return a.name }
