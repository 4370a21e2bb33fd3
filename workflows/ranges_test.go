package workflows

import (
	"context"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/segment"
)

// rangesPublisher is a publisher whose plans are large.
type rangesPublisher struct {
	*publisher
	mu     sync.Mutex
	steps  []string // activities of the build, without repetitions of the last one
	tasks  int
	merges int                           // of the split
	merge  func(task int) publish.Ranged // result of a task
}

func newRangesPublisher(t *testing.T) *rangesPublisher {
	p := &rangesPublisher{publisher: newPublisher(t), merges: 3}
	p.large = true
	step := func(name string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tasks++
		if !slices.Contains(p.steps, name) || p.steps[len(p.steps)-1] != name {
			p.steps = append(p.steps, name)
		}
	}
	a := mock.Anything
	p.env.OnActivity("SplitBuild", a, a, a, a).Return(func(context.Context, string, string, int) (activities.Split, error) {
		step("split")
		r := activities.Split{Ranges: publish.Ranges{Merges: p.merges, Writes: p.merges}}
		switch {
		case p.merges > 0:
			r.Splits = []indexbuild.Split{{Key: "k", Merges: p.merges, Writes: p.merges}}
		default:
			p.builds++
			r.Built = &publish.Built{Segment: segment.Ref{ID: "s"}}
		}
		return r, nil
	})
	p.env.OnActivity("MergeRange", a, a, a, a, a, a).Return(func(_ context.Context, _, _ string, _ publish.Ranges, i, _ int) (publish.Ranged, error) {
		step("merge")
		if p.merge != nil {
			return p.merge(i), nil
		}
		return publish.Ranged{}, nil
	}).Maybe()
	p.env.OnActivity("WriteRange", a, a, a, a, a, a).Return(func(_ context.Context, _, _ string, r publish.Ranges, _, _ int) (publish.Ranged, error) {
		if len(r.Splits) != 1 || r.Splits[0].Key != "k" {
			t.Errorf("a task gets %+v", r)
		}
		step("write")
		return publish.Ranged{}, nil
	}).Maybe()
	p.env.OnActivity("FinishBuild", a, a, a, a, a).Return(func(context.Context, string, string, publish.Ranges, int) (publish.Built, error) {
		step("finish")
		return publish.Built{Segment: segment.Ref{ID: "s"}}, nil
	}).Maybe()
	return p
}

func (p *rangesPublisher) run(t *testing.T) PublishResult {
	t.Helper()
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	return res
}

// TestLargeSegmentsAreBuiltInRanges checks the order of the tasks, and that no other build is made.
func TestLargeSegmentsAreBuiltInRanges(t *testing.T) {
	p := newRangesPublisher(t)
	res := p.run(t)
	if diff := gocmp.Diff([]string{"split", "merge", "write", "finish"}, p.steps); diff != "" {
		t.Error(diff)
	}
	if p.tasks != 8 || p.builds != 0 || res.Rounds != 1 || res.Batches != 1 {
		t.Errorf("%d tasks, %d builds, %+v", p.tasks, p.builds, res)
	}
}

// TestSegmentsThatAreNotSplitAreBuiltInOnePiece covers segments that turn out to be small, and
// those that another build of urlake began.
func TestSegmentsThatAreNotSplitAreBuiltInOnePiece(t *testing.T) {
	for name, c := range map[string]struct {
		merges int
		merge  func(int) publish.Ranged
		steps  []string
	}{
		"small":              {0, nil, []string{"split"}},
		"begun by another":   {3, func(int) publish.Ranged { return publish.Ranged{Other: true} }, []string{"split", "merge"}},
		"partly, by another": {3, func(i int) publish.Ranged { return publish.Ranged{Other: i == 2} }, []string{"split", "merge"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRangesPublisher(t)
			p.merges, p.merge = c.merges, c.merge
			res := p.run(t)
			if diff := gocmp.Diff(c.steps, p.steps); diff != "" {
				t.Error(diff)
			}
			if p.builds != 1 || p.plans != 1 || res.Version != "v1" {
				t.Errorf("%d builds, %d plans, %+v", p.builds, p.plans, res)
			}
		})
	}
}

// TestRangesWithDamagedBatchesArePlannedAgain checks that a task that finds damaged batches ends
// the build, and that the next plan is built.
func TestRangesWithDamagedBatchesArePlannedAgain(t *testing.T) {
	p := newRangesPublisher(t)
	found := false
	p.merge = func(int) publish.Ranged {
		p.mu.Lock()
		defer p.mu.Unlock()
		if found {
			return publish.Ranged{}
		}
		found = true
		return publish.Ranged{Damaged: 1}
	}
	res := p.run(t)
	if diff := gocmp.Diff([]string{"split", "merge", "split", "merge", "write", "finish"}, p.steps); diff != "" {
		t.Error(diff)
	}
	if p.plans != 2 || p.builds != 0 || res.Rounds != 1 {
		t.Errorf("%d plans, %d builds, %+v", p.plans, p.builds, res)
	}
}
