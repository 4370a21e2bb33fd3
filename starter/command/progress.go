package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/term"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/workflows"
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

// bar shows the progress of one ingest. On a terminal it is a progress bar on one line. Elsewhere,
// in a log for example, it prints a line when a stage begins and every plainInterval. A nil bar,
// and one with neither, show nothing.
type bar struct {
	*progressbar.ProgressBar
	terminal *os.File
	plain    io.Writer
	stage    string
	printed  time.Time // when plain last got a line
	// done is the bytes read plus the rows written, and changed when the sum last changed.
	done    int64
	changed time.Time
}

const (
	barSteps = 1000
	// barWidth is the width of the bar in columns if the terminal is wide enough.
	barWidth = 24
	// barRest is how many columns the percentage and the narrowest bar take; the text gets the
	// rest.
	barRest = 12
	// wideTerminal is the number of columns from which the text has full numbers, not short ones.
	wideTerminal = 112
	// plainInterval is the time between two lines of one stage where there is no terminal.
	plainInterval = 10 * time.Second
)

// newBar returns a bar on w, or one that shows nothing if json is set.
func newBar(w io.Writer, json bool) *bar {
	f, ok := w.(*os.File)
	if json {
		return &bar{}
	}
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return &bar{plain: w}
	}
	return &bar{terminal: f, ProgressBar: progressbar.NewOptions(barSteps,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(barWidth), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))}
}

// update shows p, which was taken at now.
func (b *bar) update(p snapshot, now time.Time) {
	// Activities report only now and then. Between two reports the rate stays the same, and the
	// time left runs down.
	if done := p.BytesDone + p.Rows; done != b.done || b.stage != p.Stage {
		b.done, b.changed = done, now
	}
	if p.Stage == workflows.StageNormalize && p.Records > 0 || p.Stage == workflows.StageWrite && p.Rows > 0 {
		p.Estimate(b.changed)
		if p.SecondsLeft > 0 {
			p.SecondsLeft = max(1, p.SecondsLeft-int64(now.Sub(b.changed).Seconds()))
		}
	}
	b.show(p.Stage, p.text, p.fraction(), now)
}

// updateMany shows p, which was taken at now.
func (b *bar) updateMany(p manySnapshot, now time.Time) { b.show(p.Stage, p.text, p.fraction(), now) }

// show shows how much of a stage is done. text formats counts with number.
func (b *bar) show(stage string, text func(number func(int64) string) string, fraction float64, now time.Time) {
	switch {
	case stage == workflows.StageDone:
	case b.ProgressBar != nil:
		columns, _, err := term.GetSize(int(b.terminal.Fd()))
		if err != nil || columns <= 0 {
			columns = 80
		}
		number := count
		if columns < wideTerminal {
			number = short
		}
		line := text(number)
		b.Describe(line[:min(len(line), max(0, columns-barRest))])
		_ = b.Set(max(1, int(barSteps*fraction)))
	case b.plain != nil && (b.stage != stage || now.Sub(b.printed) >= plainInterval):
		cli.Fprintf(b.plain, "%s\n", text(count))
		b.printed = now
	}
	b.stage = stage
}

// clear removes the bar from the terminal's line, so that another line can be printed.
func (b *bar) clear() {
	if b != nil && b.ProgressBar != nil {
		_ = b.Clear()
	}
}

func (b *bar) finish() {
	if b.ProgressBar != nil {
		_ = b.Finish()
	}
}
