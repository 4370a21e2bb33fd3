package tracing

import (
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/workflows"
)

// batch is what the spans of a workflow and of its steps are about.
type batch struct {
	Lake    string `json:"lake,omitempty"`
	Dataset string `json:"dataset,omitempty"`
	Batch   string `json:"batch,omitempty"`
}

// of returns what a workflow or step is about if its first argument says so.
func (b batch) of(args []any) batch {
	if len(args) == 0 {
		return b
	}
	switch in := args[0].(type) {
	case workflows.IngestInput:
		b = batch{in.Lake, in.Dataset, batchOf(in.Spec)}
		if in.Resume != nil {
			b.Batch = in.Resume.Plan.Batch
		}
	case workflows.IngestManyInput:
		return batch{Lake: in.Lake, Batch: batchOf(in.Spec.Spec)}
	case many.Spec:
		return batch{Lake: in.Lake, Batch: batchOf(in.Spec)}
	case ingest.Spec:
		return batch{in.Lake, in.Dataset, batchOf(in)}
	case workflows.PublishInput:
		b.Lake = in.Lake
	case workflows.RebuildInput:
		b.Lake = in.Lake
	case workflows.VerifyInput:
		b.Lake = in.Lake
	case activities.VerifySpec:
		b.Lake = in.Lake
	case string:
		b.Lake = in
	}
	return b
}

// batchOf returns the batch that a spec names, "" if that is not known yet: its schedule says it.
func batchOf(s ingest.Spec) string {
	on, err := s.OnDate()
	if err != nil {
		return ""
	}
	return on.Batch
}

func (b batch) annotate(span trace.Span) {
	for key, value := range map[string]string{"lake": b.Lake, "dataset": b.Dataset, "batch": b.Batch} {
		if value != "" {
			span.SetAttributes(attribute.String("urlake."+key, value))
		}
	}
}

// runs names, for each activity with a run, the attribute of the number that follows the run in its
// arguments. They are the lake, the run and the number.
var runs = map[string]string{
	"PlanIngest": "", "PlanMerge": "", "FinishIngest": "", "CleanUp": "",
	"IngestSmall": "",
	"PlanMany":    "", "IngestGroup": "urlake.group", "FinishMany": "",
	"NormalizeSplit": "urlake.split", "MergePartitions": "urlake.task",
	"PlanPublish": "urlake.round",
}

// headerKey is the field of Temporal's headers in which a workflow tells its steps which batch they
// are about.
const headerKey = "urlake-batch"

// annotator adds urlake's attributes to the spans of Temporal's interceptor. It stands behind that.
type annotator struct{ interceptor.InterceptorBase }

// InterceptClient implements interceptor.ClientInterceptor.
func (a *annotator) InterceptClient(next interceptor.ClientOutboundInterceptor) interceptor.ClientOutboundInterceptor {
	return &clientCalls{interceptor.ClientOutboundInterceptorBase{Next: next}}
}

type clientCalls struct {
	interceptor.ClientOutboundInterceptorBase
}

// ExecuteWorkflow implements interceptor.ClientOutboundInterceptor.
func (c *clientCalls) ExecuteWorkflow(
	ctx context.Context, in *interceptor.ClientExecuteWorkflowInput,
) (client.WorkflowRun, error) {
	batch{}.of(in.Args).annotate(trace.SpanFromContext(ctx))
	return c.Next.ExecuteWorkflow(ctx, in)
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (a *annotator) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	return &activityCalls{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type activityCalls struct {
	interceptor.ActivityInboundInterceptorBase
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (a *activityCalls) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	span := trace.SpanFromContext(ctx)
	var b batch
	if p := interceptor.Header(ctx)[headerKey]; p != nil {
		json.Unmarshal(p.GetData(), &b) //nolint:errcheck // the attributes are then those of the arguments
	}
	b.of(in.Args).annotate(span)
	info := activity.GetInfo(ctx)
	span.SetAttributes(attribute.Int("temporal.attempt", int(info.Attempt)))
	if number, ok := runs[info.ActivityType.Name]; ok && len(in.Args) > 1 {
		if run, ok := in.Args[1].(string); ok {
			span.SetAttributes(attribute.String("urlake.run", run))
		}
		if number != "" && len(in.Args) > 2 {
			if n, ok := in.Args[2].(int); ok {
				span.SetAttributes(attribute.Int(number, n))
			}
		}
	}
	return a.Next.ExecuteActivity(ctx, in)
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (a *annotator) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	return &workflowCalls{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type workflowCalls struct {
	interceptor.WorkflowInboundInterceptorBase
	commands commands
}

// Init implements interceptor.WorkflowInboundInterceptor.
func (w *workflowCalls) Init(next interceptor.WorkflowOutboundInterceptor) error {
	w.commands.Next = next
	return w.Next.Init(&w.commands)
}

// ExecuteWorkflow implements interceptor.WorkflowInboundInterceptor.
func (w *workflowCalls) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	w.commands.about = batch{}.of(in.Args)
	s, _ := opentelemetry.SpanFromWorkflowContext(ctx)
	w.commands.about.annotate(s)
	w.commands.span = s
	result, err := w.Next.ExecuteWorkflow(ctx, in)
	// A run that ended earlier is replayed for queries.
	if span, ok := s.(*workflowSpan); ok && !workflow.IsReplaying(ctx) {
		span.ended, span.continued = true, workflow.IsContinueAsNewError(err)
	}
	return result, err
}

// commands tells the steps of a workflow which batch they are about.
type commands struct {
	interceptor.WorkflowOutboundInterceptorBase
	about batch
	span  trace.Span
}

// ExecuteActivity implements interceptor.WorkflowOutboundInterceptor.
func (c *commands) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if header := interceptor.WorkflowHeader(ctx); header != nil {
		if data, err := json.Marshal(c.about); err == nil {
			header[headerKey] = &commonpb.Payload{Data: data}
		}
	}
	return c.Next.ExecuteActivity(ctx, activityType, args...)
}

// UpsertMemo learns the name of a batch that the plan has named.
func (c *commands) UpsertMemo(ctx workflow.Context, memo map[string]any) error {
	if name, ok := memo["batch"].(string); ok && c.span != nil {
		c.about.Batch = name
		c.about.annotate(c.span)
	}
	return c.Next.UpsertMemo(ctx, memo)
}
