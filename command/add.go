package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	starter "github.com/urlake/urlake/starter/command"
)

func addCommand() *cobra.Command {
	var stateRoot string
	var cmd *cobra.Command
	cmd = starter.Add(func(ctx context.Context, lakeURL string, inputs []string) (starter.Running, error) {
		return runFor(ctx, cmd, stateRoot, lakeURL)
	})
	stateFlag(cmd, &stateRoot)
	return cmd
}

// runFor returns what runs for a lake, and sets TEMPORAL_ADDRESS. If nothing does, it starts
// Temporal and a worker.
func runFor(ctx context.Context, cmd *cobra.Command, stateRoot, lakeURL string) (starter.Running, error) {
	nothing := starter.Running{Stop: func() error { return nil }}
	if temporalSet() {
		return nothing, nil
	}
	if err := cli.CheckLake(lakeURL); err != nil {
		return nothing, err
	}
	state, err := supervise.StateOf(stateRoot, lakeURL)
	if err != nil {
		return nothing, err
	}
	var found supervise.Running
	isUp := errors.New("up runs")
	waited := false
	claim, err := state.Claim(ctx, func(r supervise.Running) error {
		if r.Command == "up" {
			found = r
			return isUp
		}
		if !waited {
			cli.Fprintf(cmd.ErrOrStderr(), "Waiting for urlake %s (process %d), which works on this lake.\n", r.Command, r.PID)
			waited = true
		}
		return nil
	})
	if errors.Is(err, isUp) {
		nothing.Page = found.Page
		return nothing, os.Setenv("TEMPORAL_ADDRESS", found.Temporal)
	}
	if err != nil {
		return nothing, err
	}
	s := &services{lake: lakeURL, state: state, inputs: allInputs()}
	release := func(err error) error {
		s.addresses.Release()
		return errors.Join(err, claim.Release())
	}
	if err := errors.Join(cli.CheckLakeWritable(lakeURL), checkStore(ctx, lakeURL)); err != nil {
		return nothing, release(err)
	}
	file, err := os.Create(filepath.Join(state.Dir, "add.log"))
	if err != nil {
		return nothing, release(err)
	}
	s.log = supervise.NewLog(cli.Printable(file), "urlake", nameTemporal, nameWorker)
	if s.temporal.Address, err = s.addresses.Free(); err == nil {
		err = claim.Announce(supervise.Running{Command: "add", Lake: lakeURL, Temporal: s.temporal.Address})
	}
	if err == nil {
		if err = s.start(ctx); err != nil && !errors.Is(err, supervise.ErrNoTemporal) && ctx.Err() == nil {
			for _, line := range s.log.Tail() { // joined errors have lines of their own
				err = errors.Join(err, errors.New(line))
			}
		}
	}
	if err != nil {
		return nothing, release(errors.Join(err, file.Close()))
	}
	stop := func() error { return release(errors.Join(s.stop(), file.Close())) }
	return starter.Running{Stop: stop}, os.Setenv("TEMPORAL_ADDRESS", s.temporal.Address)
}

// checkStore returns an error if the store of a lake does not answer or refuses a read, as for a
// bucket that does not exist. An ingest would wait for it until its deadline.
func checkStore(ctx context.Context, lakeURL string) error {
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	if _, _, err = store.Get(ctx, catalog.ManifestKey); errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}
