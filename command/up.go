package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
)

// Where up listens if nobody else does there; otherwise it takes free ports.
const (
	defaultListen     = "127.0.0.1:8080"
	defaultTemporal   = "127.0.0.1:7233"
	defaultTemporalUI = "127.0.0.1:8233"
)

type up struct {
	listen, state string
	chosen        bool // listen was given
	hosts         cli.Hosts
}

func upCommand() *cobra.Command {
	var o up
	cmd := &cobra.Command{
		Use:   "up LAKE [flags]",
		Short: "Run a lake on this machine, with its web page, until Ctrl-C",
		Long: `Up runs what a lake needs: Temporal, which keeps the order of the work, a worker and
the read server. It prints the address of the web page. "urlake add" and the other
verbs find what it runs by the name of the lake.

All three write to one log. A program that ends is started again. Ctrl-C stops all of
them, and so does the end of urlake itself. Work that is interrupted goes on with the
next up of the lake: Temporal's state is kept in --state, not in the lake. One up runs
for a lake at a time; other lakes may have their own.

Up runs the program temporal from PATH, or else the one next to urlake. The page and
Temporal can be reached from this machine only, unless --listen says otherwise: they
ask nobody for a password.`,
		Example: `  urlake up ./lake
  urlake up s3://bucket/lake --listen 127.0.0.1:9000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			url, rest, err := lakeArgument(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return cli.Usagef("up runs one lake; to ingest %q use: urlake add %s %s", rest[0], args[0], rest[0])
			}
			o.chosen = cmd.Flags().Changed("listen")
			return o.run(cmd.Context(), url, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", defaultListen,
		"`ADDRESS` of the web page and the API; a free port if that of the default is taken")
	o.hosts.Flag(cmd.Flags())
	stateFlag(cmd, &o.state)
	return cmd
}

func stateFlag(cmd *cobra.Command, state *string) {
	cmd.Flags().StringVar(state, "state", "",
		"`FOLDER` for the state of Temporal on this machine (default: urlake in $XDG_STATE_HOME or ~/.local/state)")
}

// run runs the lake until ctx ends. Name is the lake as the user wrote it.
func (o *up) run(ctx context.Context, url, name string, out io.Writer) (err error) {
	// If the reader of the log exits, the programs run on.
	signal.Ignore(syscall.SIGPIPE)
	if err := cli.CheckLake(url); err != nil {
		return err
	}
	state, err := supervise.StateOf(o.state, url)
	if err != nil {
		return err
	}
	log := supervise.NewLog(cli.Printable(out), "urlake", nameTemporal, nameWorker, nameServer)
	waited := false
	claim, err := state.Claim(ctx, func(r supervise.Running) error {
		if r.Command == "up" {
			return fmt.Errorf("urlake up runs already for %s (process %d): %s", r.Lake, r.PID, r.Page)
		}
		if !waited {
			log.Printf("waiting for urlake %s (process %d), which works on this lake", r.Command, r.PID)
			waited = true
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()

	s := &services{lake: url, state: state, log: log, inputs: allInputs(), hosts: o.hosts.Args()}
	defer s.addresses.Release()
	// The port is taken if urlake up runs already, which Claim says better.
	if s.listen, err = o.address(&s.addresses); err != nil {
		return err
	}
	if s.temporal.Address, err = s.addresses.Prefer(defaultTemporal); err != nil {
		return err
	}
	if s.temporal.UI, err = s.addresses.Prefer(defaultTemporalUI); err != nil {
		return err
	}
	page := "http://" + dialable(s.listen) + "/"
	running := supervise.Running{Command: "up", Lake: url, Temporal: s.temporal.Address, Page: page}
	if err := claim.Announce(running); err != nil {
		return err
	}
	log.Printf("lake      %s", url)
	s.serving = func() { log.Printf("page      %s", page) }
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	log.Printf("Temporal  %s, with pages at http://%s/", s.temporal.Address, s.temporal.UI)
	log.Printf("ready     to add data: urlake add %s FILE…; to stop: Ctrl-C", cli.ShellWord(name))
	<-ctx.Done()
	log.Printf("stopping")
	return s.stop()
}

// address takes the address for the server. The port of the default may be taken; one that was
// chosen may not. The host stays as it was chosen, since the server answers requests for it.
func (o *up) address(from *addresses.Set) (string, error) {
	if !o.chosen {
		return from.Prefer(o.listen)
	}
	listen, err := from.Take(o.listen)
	if err != nil {
		return "", cli.Usagef("--listen: %w", err)
	}
	host, _, _ := net.SplitHostPort(o.listen) // else Take would have failed
	_, port, err := net.SplitHostPort(listen)
	return net.JoinHostPort(host, port), err
}

// allInputs are arguments with which a worker lets ingests read what this user can read, as a
// worker of a lake in a folder does anyway.
func allInputs() []string { return []string{"--allow-input", "file:///,s3://"} }
