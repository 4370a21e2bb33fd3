//go:build !previousbuild

package workflows

import "go.temporal.io/sdk/workflow"

// patched reports whether the workflow began a change of its commands: it was started by a build
// that has the change, or reached the change first with one.
func patched(ctx workflow.Context, change string) bool { return changed(ctx, change, 1) == 1 }

// changed returns how many changes of a series the workflow began, at most latest. Each call that
// sees a change first adds a marker and an update of search attributes to the history, so changes
// that begin with a workflow are one series.
func changed(ctx workflow.Context, series string, latest workflow.Version) workflow.Version {
	return max(0, workflow.GetVersion(ctx, series, workflow.DefaultVersion, latest))
}
