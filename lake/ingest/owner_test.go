package ingest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// claimed is a lake with an ingest that was claimed, planned and not finished.
type claimed struct {
	store blob.Store
	input string
	spec  ingest.Spec
}

var (
	firstOwner = ingest.Owner{Namespace: "n", WorkflowID: "first"}
	nextOwner  = ingest.Owner{Namespace: "n", WorkflowID: "next"}
)

func newClaimed(t *testing.T) *claimed {
	c := &claimed{store: blob.NewMemory(), input: filepath.Join(t.TempDir(), "list.txt")}
	c.spec = ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{c.input}}
	c.write(t, "http://a.example/\n")
	if run := c.claim(t, "run1", firstOwner, true); run != "run1" {
		t.Fatalf("the first run got %q", run)
	}
	if _, err := ingest.MakePlan(t.Context(), c.store, "run1", c.spec); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *claimed) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(c.input, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *claimed) claim(t *testing.T, run string, owner ingest.Owner, ended bool) string {
	t.Helper()
	got, err := ingest.Claim(t.Context(), c.store, run, c.spec, owner, func(context.Context, ingest.Owner) (bool, error) {
		return ended, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if o, ok, err := ingest.ReadOwner(t.Context(), c.store, got); err != nil || !ok || o != owner {
		t.Errorf("owner of %s: %+v, %v, %v; want %+v", got, o, ok, err, owner)
	}
	return got
}

// TestClaimContinuesAnEndedRun checks that the same ingest continues a run that has ended, and when
// it does not.
func TestClaimContinuesAnEndedRun(t *testing.T) {
	for _, test := range []struct {
		name   string
		live   bool
		change func(t *testing.T, c *claimed)
		want   string
	}{
		{"the same ingest", false, func(*testing.T, *claimed) {}, "run1"},
		{"with another deadline", false, func(_ *testing.T, c *claimed) { c.spec.Deadline = "30d" }, "run1"},
		{"its workflow lives", true, func(*testing.T, *claimed) {}, "run2"},
		{"with another flag", false, func(_ *testing.T, c *claimed) { c.spec.KeepRaw = true }, "run2"},
		{"of another batch", false, func(_ *testing.T, c *claimed) { c.spec.Batch = "other" }, "run2"},
		{"of another dataset", false, func(_ *testing.T, c *claimed) { c.spec.Dataset = "other" }, "run2"},
		{"of changed inputs", false, func(t *testing.T, c *claimed) { c.write(t, "http://b.example/ and more\n") }, "run2"},
		{"without its plan", false, func(t *testing.T, c *claimed) {
			if err := c.store.Delete(t.Context(), "staging/run1/plan.json"); err != nil {
				t.Fatal(err)
			}
		}, "run2"},
		{"with a damaged owner", false, func(t *testing.T, c *claimed) {
			if _, err := c.store.Put(t.Context(), "staging/run1/owner.json", []byte("damaged"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}, "run2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClaimed(t)
			test.change(t, c)
			got := c.claim(t, "run2", nextOwner, !test.live)
			if got != test.want {
				t.Errorf("continues %s, want %s", got, test.want)
			}
			// A repetition gives the same answer, and the plan is accepted.
			if again := c.claim(t, "run2", nextOwner, !test.live); again != got {
				t.Errorf("then %s", again)
			}
			if _, err := ingest.MakePlan(t.Context(), c.store, got, c.spec); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResetClaimsItsRunAgain claims a run again with the same name, as a reset workflow does.
func TestResetClaimsItsRunAgain(t *testing.T) {
	c := newClaimed(t)
	if got := c.claim(t, "run1", firstOwner, false); got != "run1" {
		t.Errorf("claimed %s", got)
	}
}

// TestResetDoesNotShareItsRun resets a workflow whose run another one has taken over.
func TestResetDoesNotShareItsRun(t *testing.T) {
	c := newClaimed(t)
	if got := c.claim(t, "run2", nextOwner, true); got != "run1" {
		t.Fatalf("claimed %s", got)
	}
	ended := false
	claim := func() (string, error) {
		return ingest.Claim(t.Context(), c.store, "run1", c.spec, firstOwner, func(context.Context, ingest.Owner) (bool, error) {
			return ended, nil
		})
	}
	if got, err := claim(); err == nil || !strings.Contains(err.Error(), "belongs to workflow next") {
		t.Errorf("claimed %s, %v", got, err)
	}
	if o, _, err := ingest.ReadOwner(t.Context(), c.store, "run1"); err != nil || o != nextOwner {
		t.Errorf("owner %+v, %v", o, err)
	}
	ended = true
	if got, err := claim(); err != nil || got != "run1" {
		t.Errorf("claimed %s, %v after the other workflow ended", got, err)
	}
}

// TestSweepSparesARunThatIsClaimed claims a run after the sweep has asked for its state.
func TestSweepSparesARunThatIsClaimed(t *testing.T) {
	c := newClaimed(t)
	out, err := ingest.Sweep(t.Context(), c.store, time.Now(), ingest.SweepOptions{Interval: ingest.SweepInterval}, func(context.Context, string, ingest.Owner, bool) (ingest.RunState, error) {
		if got := c.claim(t, "run2", nextOwner, true); got != "run1" {
			t.Errorf("claimed %s", got)
		}
		return ingest.RunOver, nil
	}, ingest.Cleanup)
	if err != nil || len(out.Runs) != 0 || out.Kept != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := c.store.Stat(t.Context(), "staging/run1/plan.json"); err != nil {
		t.Error(err)
	}
}

// TestRunThatIsBeingSweptIsNotClaimed ends a sweep before it has removed a run's objects.
func TestRunThatIsBeingSweptIsNotClaimed(t *testing.T) {
	sweep := func(c *claimed, store blob.Store, after time.Duration) (ingest.Swept, error) {
		return ingest.Sweep(t.Context(), store, time.Now().Add(after), ingest.SweepOptions{Interval: ingest.SweepInterval},
			func(context.Context, string, ingest.Owner, bool) (ingest.RunState, error) { return ingest.RunOver, nil }, ingest.Cleanup)
	}
	begun := func() *claimed {
		c := newClaimed(t)
		if _, err := sweep(c, &keeping{c.store}, 0); !errors.Is(err, errKeeping) {
			t.Fatal(err)
		}
		return c
	}
	c := begun()
	if got := c.claim(t, "run2", nextOwner, true); got != "run2" {
		t.Errorf("another workflow claimed %s, which is being removed", got)
	}
	if out, err := sweep(c, c.store, time.Minute); err != nil || !slices.Contains(out.Runs, "run1") {
		t.Errorf("the next sweep: %+v, %v", out, err)
	}
	c = begun()
	if got := c.claim(t, "run1", firstOwner, true); got != "run1" {
		t.Errorf("its own workflow claimed %s", got)
	}
	if _, err := c.store.Stat(t.Context(), "staging/run1/plan.json"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("its plan: %v, want that it begins anew", err)
	}
}

// keeping is a store that removes nothing.
type keeping struct{ blob.Store }

var errKeeping = errors.New("the process dies")

func (*keeping) Delete(context.Context, ...string) error { return errKeeping }

func TestUnnamedBatchIsContinued(t *testing.T) {
	c := newClaimed(t)
	c.spec.Batch = ""
	if got := c.claim(t, "run2", firstOwner, true); got != "run2" {
		t.Fatalf("claimed %s", got)
	}
	if _, err := ingest.MakePlan(t.Context(), c.store, "run2", c.spec); err != nil {
		t.Fatal(err)
	}
	if got := c.claim(t, "run3", nextOwner, true); got != "run2" {
		t.Errorf("claimed %s, want the run of the same unnamed batch", got)
	}
}

// TestSweepRemovesWhatNobodyContinues sweeps a lake with runs in each state.
func TestSweepRemovesWhatNobodyContinues(t *testing.T) {
	ctx := t.Context()
	store := blob.NewMemory()
	put := func(run, name string) {
		t.Helper()
		if _, err := store.Put(ctx, "staging/"+run+"/"+name, []byte(name), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"live", "over", "lost", "writes"} {
		put(run, "plan.json")
	}
	states := map[string]ingest.RunState{"live": ingest.RunLive, "over": ingest.RunOver}
	start := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	sweep := func(after time.Duration) []string {
		t.Helper()
		out, err := ingest.Sweep(ctx, store, start.Add(after), ingest.SweepOptions{Interval: ingest.SweepInterval}, func(_ context.Context, run string, _ ingest.Owner, _ bool) (ingest.RunState, error) {
			return states[run], nil
		}, ingest.Cleanup)
		if err != nil {
			t.Fatal(err)
		}
		return out.Runs
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, []string{"over"}},
		{10 * time.Minute, nil}, // too soon for another sweep
		{12 * time.Hour, nil},
		{7*24*time.Hour - time.Minute, nil},
		{7*24*time.Hour + time.Hour, []string{"lost"}},
		{7*24*time.Hour + 11*time.Hour, nil},
		{7*24*time.Hour + 12*time.Hour, []string{"writes"}},
		{1000 * time.Hour, nil},
	} {
		if step.after == 12*time.Hour {
			put("writes", "shuffle")
		}
		if got := sweep(step.after); !slices.Equal(got, step.want) {
			t.Errorf("after %s: removed %v, want %v", step.after, got, step.want)
		}
	}
	var left []string
	for info, err := range store.List(ctx, "staging/") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, info.Key)
	}
	if want := []string{"staging/live/plan.json", "staging/sweep.json"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// TestSweepForgetsLastRuns sweeps the names of runs without staging.
func TestSweepForgetsLastRuns(t *testing.T) {
	c := newClaimed(t)
	left := func() (n int) {
		for range c.store.List(t.Context(), "staging/last-") {
			n++
		}
		return n
	}
	sweep := func() {
		t.Helper()
		_, err := ingest.Sweep(t.Context(), c.store, time.Now(), ingest.SweepOptions{},
			func(context.Context, string, ingest.Owner, bool) (ingest.RunState, error) { return ingest.RunLive, nil }, ingest.Cleanup)
		if err != nil {
			t.Fatal(err)
		}
	}
	if sweep(); left() != 1 {
		t.Errorf("%d are left of a run with staging", left())
	}
	if err := lake.DeleteStaging(t.Context(), c.store, "run1"); err != nil {
		t.Fatal(err)
	}
	if sweep(); left() != 0 {
		t.Errorf("%d are left", left())
	}
}
