package workflows

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"go.temporal.io/sdk/workflow"
)

// summaries say what each activity does, in the words of the command line. Temporal's pages show
// them beside the activities of a workflow.
var summaries = map[string]string{
	"BuildSegment":      "build a segment of the index",
	"CleanUp":           "remove the staging of the run",
	"CollectGarbage":    "delete what nothing needs any more",
	"CollectVisits":     "collect the visits of a crawl",
	"CommitVersion":     "publish the version",
	"FindVersion":       "find the version that has what was ingested",
	"FinishIngest":      "record the batch",
	"FinishMany":        "record the batches",
	"FinishPostgres":    "index and count the rows, and make them visible",
	"IngestGroup":       "ingest a group of lists",
	"IngestSmall":       "ingest a small batch",
	"InspectForRebuild": "look for damage, and make lost postings again",
	"LoadPostgres":      "load rows into PostgreSQL",
	"MergePartitions":   "sort the rows of partitions into Parquet",
	"MigrateFrontier":   "copy the URLs of a frontier",
	"NormalizeSplit":    "read inputs, and normalise their URLs",
	"NoteLarge":         "note what became of a large list",
	"PlanCompaction":    "plan the compaction",
	"PlanIngest":        "find the inputs",
	"PlanLarge":         "find the inputs of a large list",
	"PlanMany":          "find the lists",
	"PlanMerge":         "divide the partitions",
	"PlanMigration":     "plan the migration",
	"PlanPostgres":      "plan the export",
	"PlanPublish":       "plan the version",
	"PlanRebuild":       "plan the rebuild",
	"PlanSeed":          "plan the seeds",
	"RequestPublish":    "ask for a version",
	"RewriteParts":      "write parts again",
	"SeedFrontier":      "send URLs to the frontier",
	"SettleVisits":      "settle the visits of a batch",
	"StartRebuild":      "make lost documents again",
	"SweepStaging":      "remove the staging of runs that ended",
	"TellIngests":       "tell the ingests that wait",
	"VerifyLake":        "verify the lake",
	"VerifyMigration":   "compare the frontier with its source",
	"VerifySegment":     "verify a segment",
	"HasFinished":       "look whether the ingest has finished",
}

// nameOf returns the name of an activity, which is a method.
func nameOf(activity any) string {
	name := runtime.FuncForPC(reflect.ValueOf(activity).Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}

// place is the place of a step in its fan-out.
type place struct{ index, of int }

// placeKey is the key of the place in a context.
type placeKey struct{}

// at returns a context whose steps are step i of n.
func at(ctx workflow.Context, i, n int) workflow.Context {
	return workflow.WithValue(ctx, placeKey{}, place{i, n})
}

// details are what Temporal's pages show of a workflow: its steps so far, the latest last. A step
// that is repeated, as in the rounds of a publisher, is shown once.
type details struct{ stages []stage }

// stage is a step, or a fan-out of it.
type stage struct {
	summary           string
	running, done, of int
}

// begin counts a step that begins. It returns what its activity is called, and what counts its end.
func (d *details) begin(ctx workflow.Context, activity any) (summary string, end func(err error)) {
	summary = summaries[nameOf(activity)]
	p, ok := ctx.Value(placeKey{}).(place)
	if !ok {
		p.of = 1
	}
	s := stage{summary: summary, of: p.of}
	for i := range d.stages {
		if d.stages[i].summary == summary {
			if d.stages[i].running > 0 || d.stages[i].done < d.stages[i].of && d.stages[i].of == p.of {
				s = d.stages[i]
			}
			d.stages = append(d.stages[:i], d.stages[i+1:]...)
			break
		}
	}
	s.running++
	s.done = max(s.done, p.index+1-s.running) // after a continuation
	d.stages = append(d.stages, s)
	d.show(ctx)
	if p.of > 1 {
		return fmt.Sprintf("%s, %d of %d", summary, p.index+1, p.of), d.ended(ctx, summary)
	}
	return summary, d.ended(ctx, summary)
}

// ended returns the function that counts the end of a step.
func (d *details) ended(ctx workflow.Context, summary string) func(err error) {
	return func(err error) {
		for i := range d.stages {
			if s := &d.stages[i]; s.summary == summary {
				s.running--
				if err == nil {
					s.done++
				}
			}
		}
		d.show(ctx)
	}
}

// show sets what Temporal's pages show.
func (d *details) show(ctx workflow.Context) {
	var b strings.Builder
	for _, s := range d.stages {
		switch {
		case s.of > 1:
			b.WriteString(fmt.Sprintf("* %s: %d of %d done, %d running\n", s.summary, s.done, s.of, s.running))
		case s.running > 0:
			b.WriteString(fmt.Sprintf("* %s: running\n", s.summary))
		case s.done > 0:
			b.WriteString(fmt.Sprintf("* %s: done\n", s.summary))
		default:
			b.WriteString(fmt.Sprintf("* %s: failed\n", s.summary))
		}
	}
	workflow.SetCurrentDetails(ctx, b.String())
}
