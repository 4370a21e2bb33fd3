package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// snapshot is the progress of an ingest, including what its running activities have done so far.
type snapshot struct {
	workflows.IngestProgress
	rejected int64
}

// progress adds to what the workflow knows, which is what finished activities have done, what the
// running ones reported in their last heartbeat. It returns false if the workflow does not answer.
func progress(ctx context.Context, c client.Client, run client.WorkflowRun) (snapshot, bool) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	var p snapshot
	v, err := c.QueryWorkflow(ctx, run.GetID(), "", workflows.ProgressQuery)
	if err != nil || v.Get(&p.IngestProgress) != nil {
		return p, false // no worker runs yet, for example
	}
	for _, n := range p.Rejected {
		p.rejected += n
	}
	d, err := c.DescribeWorkflowExecution(ctx, run.GetID(), "")
	if err != nil {
		return p, true
	}
	for _, a := range d.PendingActivities {
		var part ingest.Progress
		details := a.GetHeartbeatDetails()
		if details == nil || converter.GetDefaultDataConverter().FromPayloads(details, &part) != nil {
			continue
		}
		switch a.GetActivityType().GetName() {
		case "NormalizeSplit", "IngestSmall":
			p.BytesDone += part.BytesRead
			p.Records += part.Records
			p.Kept += part.Kept
			p.rejected += part.Rejected
		case "MergePartitions":
			p.Rows += part.Kept
		}
	}
	return p, true
}

// text describes the progress in one line: stage, bytes, counts, rate, time left and rejects, as
// far as they are known. It formats counts with number.
func (p *snapshot) text(number func(int64) string) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch p.Stage {
	case workflows.StagePlan:
		return "planning"
	case workflows.StageNormalize:
		if p.Records == 0 {
			add("reading %s in %s", size(p.BytesTotal), plural(int64(p.Objects), "object"))
			break
		}
		done, total := size(p.BytesDone), size(p.BytesTotal)
		if n, unit, _ := strings.Cut(done, " "); strings.HasSuffix(total, " "+unit) {
			done = n
		}
		add("reading %s/%s", done, total)
		add("%s records", number(p.Records))
	case workflows.StageWrite:
		if p.Rows == 0 {
			add("writing %s rows", number(p.Kept))
			break
		}
		add("writing %s of %s rows", number(p.Rows), number(p.Kept-p.Merged))
		if p.PartBytes > 0 {
			add("%s", size(p.PartBytes))
		}
	case workflows.StageRecord:
		return fmt.Sprintf("recording %s rows", number(p.Rows))
	case workflows.StagePublish:
		return fmt.Sprintf("publishing %s rows", number(p.Rows))
	}
	if p.PerSecond > 0 {
		add("%s/s", number(p.PerSecond))
	}
	if p.SecondsLeft > 0 {
		add("%s left", time.Duration(p.SecondsLeft)*time.Second)
	}
	if p.rejected > 0 {
		add("%s rejected", number(p.rejected))
	}
	return strings.Join(parts, ", ")
}

// fraction returns how much of an ingest is done, from 0 to 1. It weighs the stages by the time
// they usually take and never decreases.
func (p *snapshot) fraction() float64 {
	const all = 1 + workflows.WriteShare + workflows.PublishShare
	ratio := func(done, total int64) float64 {
		if total <= 0 {
			return 0
		}
		return min(1, float64(done)/float64(total))
	}
	switch p.Stage {
	case workflows.StageNormalize:
		return ratio(p.BytesDone, p.BytesTotal) / all
	case workflows.StageWrite:
		return (1 + workflows.WriteShare*ratio(p.Rows+p.Merged, p.Kept)) / all
	case workflows.StageRecord, workflows.StagePublish:
		return (1 + workflows.WriteShare) / all
	case workflows.StageDone:
		return 1
	}
	return 0
}

// ingestBar shows the progress of one ingest.
type ingestBar struct {
	*bar
	last snapshot
	// done is the bytes read plus the rows written, and changed when the sum last changed.
	done    int64
	changed time.Time
}

func newIngestBar(w io.Writer, json bool) *ingestBar { return &ingestBar{bar: newBar(w, json)} }

// update shows p, which was taken at now.
func (b *ingestBar) update(p snapshot, now time.Time) {
	p.keepUp(&b.last)
	// Activities report only now and then. Between two reports the rate stays the same, and the
	// time left runs down.
	if done := p.BytesDone + p.Rows; done != b.done || b.last.Stage != p.Stage {
		b.done, b.changed = done, now
	}
	b.last = p
	if p.Stage == workflows.StageNormalize && p.Records > 0 || p.Stage == workflows.StageWrite && p.Rows > 0 {
		p.Estimate(b.changed)
		if p.SecondsLeft > 0 {
			p.SecondsLeft = max(1, p.SecondsLeft-int64(now.Sub(b.changed).Seconds()))
		}
	}
	b.show(p.fraction(), p.Stage, now, p.text)
}

// keepUp raises the counts of p to those of last, an earlier snapshot of the same ingest. What an
// activity has done is in no count between its end and the workflow's next answer, and an activity
// that is repeated begins at zero.
func (p *snapshot) keepUp(last *snapshot) {
	p.BytesDone = max(p.BytesDone, last.BytesDone)
	p.Records = max(p.Records, last.Records)
	p.Kept = max(p.Kept, last.Kept)
	p.Rows = max(p.Rows, last.Rows)
	p.Merged = max(p.Merged, last.Merged)
	p.PartBytes = max(p.PartBytes, last.PartBytes)
	p.rejected = max(p.rejected, last.rejected)
	if p.BytesTotal > 0 {
		p.BytesDone = min(p.BytesDone, p.BytesTotal)
	}
}
