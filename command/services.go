package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/supervise"
)

// Names of the programs of a lake.
const (
	nameTemporal = "temporal"
	nameWorker   = "worker"
	nameServer   = "serve"
)

// services are the programs that a lake needs on this machine: Temporal with its state kept, a
// worker with all pools, and, unless listen is empty, a server.
type services struct {
	lake     string // URL
	state    supervise.State
	temporal supervise.DevServer
	// addresses are those of the programs, which whoever calls start releases.
	addresses addresses.Set
	listen    string   // address of the server
	inputs    []string // what ingests may read besides what workers of such a lake read anyway
	hosts     []string // arguments of the server
	log       *supervise.Log
	// serving, unless it is nil, is called when the server answers, before the others do.
	serving func()

	probe string // address of the worker's probes
	group *supervise.Group
}

const (
	// readyTimeout is how long the programs may take until all of them answer.
	readyTimeout = time.Minute
	// readyPause is the time between two questions.
	readyPause = 25 * time.Millisecond
	// maxFailedStarts is how often programs may end by themselves before all of them answered once.
	maxFailedStarts = 3
)

// noTemporal tells how to get Temporal.
func noTemporal(err error) error {
	return fmt.Errorf("%w; it keeps the order of urlake's work. To install it: https://docs.temporal.io/cli#install, "+
		"on a Mac: brew install temporal; in a checkout of urlake: make bin/temporal", err)
}

// start starts the programs and waits until all of them answer. If it fails, all are stopped.
func (s *services) start(ctx context.Context) (err error) {
	program, err := supervise.TemporalProgram()
	if err != nil {
		return noTemporal(err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.temporal.State = s.state.Database()
	args, err := s.temporal.Args()
	if err != nil {
		return err
	}
	if s.probe, err = s.addresses.Free(); err != nil {
		return err
	}
	// Settings for another Temporal are not for this one.
	env := []string{}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "TEMPORAL_") {
			env = append(env, name+"=")
		}
	}
	env = append(env, "TEMPORAL_CONFIG_FILE="+os.DevNull, "TEMPORAL_ADDRESS="+s.temporal.Address)

	s.group = supervise.NewGroup(s.log)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.group.Stop())
		}
	}()
	all := []supervise.Program{
		{Name: nameTemporal, Path: program, Args: args, Env: env},
		{Name: nameWorker, Path: self, Env: env,
			Args: append([]string{"worker", "--lake", s.lake, "--metrics", s.probe}, s.inputs...)},
	}
	if s.listen != "" {
		all = append(all, supervise.Program{Name: nameServer, Path: self, Env: env,
			Args: append([]string{"serve", "--lake", s.lake, "--listen", s.listen, "--access-log=false", "--drain", "0s"}, s.hosts...)})
	}
	for _, p := range all {
		if err := s.group.Add(p); err != nil {
			return err
		}
	}
	return s.ready(ctx)
}

// ready waits until the programs answer.
func (s *services) ready(ctx context.Context) error {
	type probe struct {
		url  string
		then func()
	}
	// The worker is ready when Temporal is and sees it poll.
	wanted := []probe{{"http://" + s.probe + "/readyz", nil}}
	if s.listen != "" {
		wanted = slices.Insert(wanted, 0, probe{"http://" + dialable(s.listen) + "/healthz", s.serving})
	}
	limit := time.NewTimer(readyTimeout)
	defer limit.Stop()
	tick := time.NewTicker(readyPause)
	defer tick.Stop()
	for len(wanted) > 0 {
		err := answers(ctx, wanted[0].url)
		if err == nil {
			if wanted[0].then != nil {
				wanted[0].then()
			}
			wanted = wanted[1:]
			continue
		}
		if s.group.Failures() >= maxFailedStarts {
			return errors.New("the programs of the lake do not start; their log says why")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("the programs of the lake are not ready after %s: %w", readyTimeout, err)
		case <-tick.C:
		}
	}
	return nil
}

// answers returns nil if a GET of url has status 200.
func answers(ctx context.Context, url string) error {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// dialable returns an address at which this machine reaches a server that listens on listen.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// stop stops the programs, the worker before Temporal.
func (s *services) stop() error { return s.group.Stop() }

// lakeArgument takes the lake from the arguments of a verb.
func lakeArgument(args []string) (url string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, cli.Usagef("which lake? Name a folder, as in ./lake, or s3://bucket/prefix")
	}
	url, err = cli.LakeURL(args[0])
	return url, args[1:], err
}
