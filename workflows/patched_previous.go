//go:build previousbuild

package workflows

import "go.temporal.io/sdk/workflow"

// patched reports false: a program built with the tag previousbuild runs workflows as the build
// before the first change did. Tests of upgrades start with such a worker.
func patched(workflow.Context, string) bool { return false }

func changed(workflow.Context, string, workflow.Version) workflow.Version { return 0 }
