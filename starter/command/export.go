package command

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/starter/pgexport"
	"github.com/urlake/urlake/starter/single"
)

// exportPostgresCommand returns "starter export postgres".
func exportPostgresCommand(g *global) *cobra.Command {
	cmd, in := pgexport.NewCommand()
	return g.verbs().Complete(cmd, single.Verb{
		Lake: &in.Lake, Reads: true, Check: func() error { return pgexport.Check(in) },
		Workflow: "PostgresExportWorkflow", What: "the export",
		Start: func(ctx context.Context, c client.Client) (client.WorkflowRun, error) {
			return pgexport.Start(ctx, c, in)
		},
	})
}

// verbs is what verbs that start one workflow take from this program.
func (g *global) verbs() single.Program {
	s := scheduler(g)
	return single.Program{
		LakeFlag: g.lakeFlag, JSON: s.JSON, Connect: connect, Idle: s.Idle,
		Lake: func(ctx context.Context, exists bool) (string, error) {
			store, url, err := g.store(ctx)
			if err == nil && exists {
				err = requireLake(ctx, store, url)
			}
			return url, err
		},
		Watch: g.watch,
	}
}
