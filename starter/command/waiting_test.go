package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/common/v1"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// step is a pending activity, scheduled an hour before now.
func step(name string, now time.Time) *workflow.PendingActivityInfo {
	return &workflow.PendingActivityInfo{
		ActivityType: &common.ActivityType{Name: name}, State: enums.PENDING_ACTIVITY_STATE_SCHEDULED,
		ScheduledTime: timestamppb.New(now.Add(-time.Hour)), Attempt: 1,
	}
}

// failed makes a an activity whose last attempt has just failed.
func failed(a *workflow.PendingActivityInfo, now time.Time, attempt int32, reason string) *workflow.PendingActivityInfo {
	a.Attempt, a.LastFailure = attempt, &failure.Failure{Message: reason}
	a.LastAttemptCompleteTime = timestamppb.New(now)
	a.NextAttemptScheduleTime = timestamppb.New(now.Add(42 * time.Second))
	return a
}

func TestWaitsSayWhatForSinceWhenAndWhy(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 20, 0, 0, time.Local)
	working := step("NormalizeSplit", now)
	working.State = enums.PENDING_ACTIVITY_STATE_STARTED
	for _, c := range []struct {
		name    string
		pending []*workflow.PendingActivityInfo
		want    string
	}{
		{"nothing fails", []*workflow.PendingActivityInfo{working, step("NormalizeSplit", now)}, ""},
		{"no worker", []*workflow.PendingActivityInfo{step("MergePartitions", now), step("MergePartitions", now)},
			"waiting since 11:20 for a worker to take MergePartitions and 1 step like it\n"},
		// Attempts at 0, 1, 3, 7, 15 and 31 seconds failed.
		{"the store is away", []*workflow.PendingActivityInfo{
			failed(step("NormalizeSplit", now), now, 7, "connection refused"),
			failed(step("MergePartitions", now), now, 6, "connection refused"), working,
		}, "waiting since 12:19 to repeat NormalizeSplit and 1 step like it: connection refused; attempt 7, next in 42s\n"},
		{"for an hour", []*workflow.PendingActivityInfo{failed(step("PlanIngest", now), now, 900, "ExpiredToken")},
			"waiting since 11:20 to repeat PlanIngest: ExpiredToken; attempt 900, next in 42s\n"},
		{"for ten minutes", []*workflow.PendingActivityInfo{failed(step("PlanIngest", now), now, 17, "no space left on device")},
			"waiting since 12:09 to repeat PlanIngest: no space left on device; attempt 17, next in 42s\n"},
	} {
		var got strings.Builder
		for _, w := range waits(c.pending, now) {
			got.WriteString(w.text(now) + "\n")
		}
		if got.String() != c.want {
			t.Errorf("%s:\n got %swant %s", c.name, got.String(), c.want)
		}
	}
}

func TestWaitsAreRepeatedAtGrowingIntervals(t *testing.T) {
	var out bytes.Buffer
	l := newWaitLog(&out, nil, nil, nil)
	start := time.Now()
	for second := range 10 * 60 * 60 {
		l.print("r", start.Add(time.Duration(second)*time.Second), "waiting")
	}
	// At 0, 1, 3, 7, 15, 31 and 63 minutes, then every hour.
	if n := strings.Count(out.String(), "\n"); n < 12 || n > 17 {
		t.Errorf("%d lines in ten hours", n)
	}
}
