package command

import (
	"github.com/spf13/cobra"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/remedy"
	"github.com/urlake/urlake/starter/takedown"
)

func takedownCommand(g *global) *cobra.Command {
	url := ""
	return takedown.NewCommand(takedown.Program{
		Open: func(cmd *cobra.Command) (store blob.Store, err error) {
			if store, url, err = g.store(cmd.Context()); err != nil {
				return nil, err
			}
			return store, requireLake(cmd.Context(), store, url)
		},
		LakeFlag:  g.lakeFlag,
		Explained: func(err error) error { return remedy.Explained(url, err) },
		JSON:      &g.json,
	})
}
