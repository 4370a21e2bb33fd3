package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish/gc"
)

// GarbageSpec says what a garbage collection keeps.
type GarbageSpec struct {
	Lake string `json:"lake"`
	// Keep is how many of the newest versions are kept, besides those with a tag. 0 stands for
	// gc.DefaultKeep.
	Keep int `json:"keep,omitempty"`
	// Grace is how long an object stays after it was found that nothing refers to it, as 36h or 3d.
	// "" stands for gc.DefaultGrace.
	Grace string `json:"grace,omitempty"`
	// DryRun tells to change nothing, and to say what would be.
	DryRun bool `json:"dry_run,omitempty"`
}

// Options returns the options of the collection.
func (s *GarbageSpec) Options() (gc.Options, error) {
	opt := gc.Options{Keep: s.Keep, Grace: gc.DefaultGrace, DryRun: s.DryRun}
	if opt.Keep == 0 {
		opt.Keep = gc.DefaultKeep
	}
	if opt.Keep < 1 {
		return opt, fmt.Errorf("keep: %d versions; want at least 1", opt.Keep)
	}
	if s.Grace == "" {
		return opt, nil
	}
	grace, err := ingest.ParseDuration(s.Grace)
	if err != nil {
		return opt, fmt.Errorf("grace: %w", err)
	}
	opt.Grace = grace
	return opt, nil
}

// Garbage is the result of CollectGarbage.
type Garbage struct {
	gc.Result
	// Staging is what was removed of runs that nobody will continue.
	Staging ingest.Swept `json:"staging"`
}

// CollectGarbage removes the staging of dead runs, drops old versions, and deletes what nothing has
// referred to for some time. It may be repeated, and may run twice at once.
func (c *Control) CollectGarbage(ctx context.Context, spec GarbageSpec) (Garbage, error) {
	if err := c.check(spec.Lake); err != nil {
		return Garbage{}, err
	}
	opt, err := spec.Options()
	if err != nil {
		return Garbage{}, temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, report func(any)) (out Garbage, err error) {
		last := time.Time{}
		opt.Progress = func(p gc.Progress) {
			if now := time.Now(); now.Sub(last) > time.Second {
				last = now
				report(p)
			}
		}
		// Ingests that are over keep their batches from being collected until they are swept.
		if out.Staging, err = c.sweep(ctx, ingest.SweepOptions{DryRun: spec.DryRun}); err != nil {
			return out, err
		}
		out.Result, err = gc.Collect(ctx, c.Store, opt)
		return out, err
	})
}
