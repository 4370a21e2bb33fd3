package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/internal/cli"
)

// overview is what "starter status" says about the schedules of a lake.
type overview struct {
	Schedules int `json:"schedules"`
	Paused    int `json:"paused,omitempty"`
	// Next is the name of the schedule that is due next, at Due.
	Next string    `json:"next,omitempty"`
	Due  time.Time `json:"due,omitzero"`
}

// look returns an overview of the schedules of a lake, nil if it has none.
func look(ctx context.Context, c client.Client, lake string) (*overview, error) {
	list, err := c.ScheduleClient().List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the schedules: %w", err)
	}
	var o overview
	for list.HasNext() {
		entry, err := list.Next()
		if err != nil {
			return nil, fmt.Errorf("list the schedules: %w", err)
		}
		name, of, ok := strings.Cut(entry.ID, "@")
		if !ok || of != lake {
			continue
		}
		o.Schedules++
		if entry.Paused {
			o.Paused++
			continue
		}
		if due := entry.NextActionTimes; len(due) > 0 && (o.Next == "" || due[0].Before(o.Due)) {
			o.Next, o.Due = name, due[0].UTC()
		}
	}
	if o.Schedules == 0 {
		return nil, nil
	}
	return &o, nil
}

// String is one line for people.
func (o *overview) String() string {
	text := cli.Count(int64(o.Schedules))
	if o.Paused > 0 {
		text += fmt.Sprintf(", of which %d %s paused", o.Paused, map[bool]string{true: "is", false: "are"}[o.Paused == 1])
	}
	if o.Next != "" {
		text += fmt.Sprintf("; next %s at %s", o.Next, o.Due.Local().Format(scheduleTimeFormat))
	}
	return text
}
