// Package command is the program frontierd as a command.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/api"
	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/cli"
)

type options struct {
	redis, dir, listen, grpc, advertise, name, fsync string
	delay, lease, own                                time.Duration
	shards, tries                                    int
	memory                                           int64
	hosts                                            cli.Hosts
	politeness
	takedowns
}

// New returns the command.
func New() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "frontierd --redis ADDR --data DIR",
		Short: "Decide what a crawler fetches next",
		Long: `Frontierd keeps the URLs that a crawler is to fetch. Workers add URLs, claim those of
domains that may be fetched from now, and report what came of them, over HTTP. With --grpc
it serves the URLFrontier protocol of crawler-commons, too, which StormCrawler speaks. There a
URL without a key is queued by its host, as over HTTP with --queue-by host: use that if both
are to work on the same URLs.

URLs are in files below --data. Redis has what several processes agree on: who serves
which part of the files, when each domain may be fetched from next, and the claims.
Processes with the same --redis, --name and --data share the work; one that dies is
replaced by the others after --own, and on the same machine at once by one that is
started. One that is stopped or hangs keeps its files until it is killed or goes on,
since it may write then; the others say so in their logs.

A claim is a lease. A URL whose lease ends without a result waits again. What was
answered is on the disk, unless --fsync never leaves that to the operating system: then
it survives the process, and not the machine.

A password of Redis stays out of lists of processes if --redis is given as the variable
URLAKE_REDIS.

docs/frontier.md describes the interface.`,
		Example: `  frontierd --redis 127.0.0.1:6379 --data /data/frontier
  frontierd --redis 127.0.0.1:6379 --data /data/frontier --crawl-delay 5s --http :7070 --grpc :7071`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o, cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.redis, "redis", "", redisHelp)
	f.StringVar(&o.dir, "data", "", "`DIR` of the URLs")
	f.StringVar(&o.listen, "http", "127.0.0.1:7070", "`ADDRESS` to serve HTTP on")
	f.StringVar(&o.grpc, "grpc", "", "`ADDRESS` to serve the URLFrontier protocol on, by gRPC, such as :7071 (default: it is not served). URLs without a key are queued by host there: see --queue-by")
	f.StringVar(&o.advertise, "advertise", "", "`ADDRESS` at which the other processes reach this one (default: that of --http, with the name of this host if it has none)")
	o.hosts.Flag(f)
	f.StringVar(&o.name, "name", "frontier", "`NAME` of the frontier in Redis")
	f.StringVar(&o.fsync, "fsync", "always", "`WHEN` to wait for the disk: always, before anything is acknowledged, or never")
	f.DurationVar(&o.delay, "crawl-delay", 70*time.Second, "`DURATION` between two URLs of a domain")
	f.DurationVar(&o.lease, "lease", 10*time.Minute, "`DURATION` of a claim")
	f.DurationVar(&o.own, "own", 15*time.Second, "`DURATION` after which others serve what a process that died has served; on the same machine one that starts does so at once. One that is stopped keeps its files until it ends or goes on; the log names it")
	f.IntVar(&o.shards, "shards", 32, "`NUMBER` of parts of a new frontier; it never changes")
	f.IntVar(&o.tries, "tries", 5, "`NUMBER` of times that a URL is handed out over HTTP before it counts as failed, whether its claim ends with a failure or without a result")
	f.Int64Var(&o.memory, "memory", 256, "`MIB` for URLs that wait to be written to files, shared by the shards. Under load they take up to six times that, and what is being written; then URLs that are added wait")
	o.politeness.flags(f)
	o.takedowns.flags(f)
	_ = cmd.MarkFlagRequired("redis")
	_ = cmd.MarkFlagRequired("data")
	cmd.AddCommand(newSnapshot(), newRestore())
	cli.BindEnv(cmd)
	return cmd
}

func (o *options) check() error {
	switch {
	case o.fsync != "always" && o.fsync != "never":
		return cli.Usagef("--fsync %s: it is always or never", o.fsync)
	case o.shards < 1 || o.shards > 1024:
		return cli.Usagef("--shards %d: it is 1 to 1024", o.shards)
	case o.delay < 0 || o.lease < time.Second || o.own < time.Second:
		return cli.Usagef("--crawl-delay is not negative, --lease and --own are at least 1s")
	case o.tries < 1 || o.memory < 1:
		return cli.Usagef("--tries and --memory are at least 1")
	}
	return errors.Join(o.politeness.check(), o.takedowns.check())
}

func run(ctx context.Context, o *options, cmd *cobra.Command) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	hugePagesForHeap()
	level := new(slog.LevelVar)
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	client, local, err := connect(ctx, o.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	advice, fatal, err := checkRedis(ctx, client, local)
	if err != nil {
		return err
	}
	for _, a := range advice {
		log.Warn("redis: " + a)
	}
	if fatal {
		return errors.New("this Redis drops what a frontier needs: see above")
	}
	if o.grpc != "" && o.queueBy == frontier.ByDomain {
		log.Warn("URLs without a key are queued by domain over HTTP, and by host over gRPC: both work on the same URLs only with --queue-by host, or with keys")
	}
	if err := o.takedowns.open(ctx); err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--http %s: %w", o.listen, err)
	}
	rpc, err := o.listenGRPC(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if rpc != nil {
		defer rpc.Close()
	}
	address, node, err := o.nodeName(listener, rpc)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c, err := coord.Open(ctx, client, o.name, node, o.shards)
	if err == nil {
		err = openFolder(ctx, c, dir, o.name, log)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	opts := frontier.Options{
		Dir: dir, Shards: o.shards, Delay: o.delay, Lease: o.lease, Tries: o.tries, Own: o.own,
		Shard: shard.Options{Sync: o.fsync == "always", MemoryBytes: int(o.memory<<20) / o.shards},
		Now:   time.Now, Log: log,
	}
	o.politeness.apply(&opts)
	o.takedowns.apply(&opts)
	f, err := frontier.New(ctx, c, opts)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	shards := f.Stats().Shards
	log.Info("serving", "http", "http://"+listener.Addr().String(), "shards", shards, "of", o.shards, "data", dir, "fsync", o.fsync)
	if shards == 0 {
		log.Info("other processes have all shards, as far as Redis knows; the share of one that joins, and the shards of one that died, come within --own", "own", o.own)
	}
	handler := api.New(f, log)
	server := &http.Server{
		Handler: o.hosts.Guard("about:blank", log, handler, o.listen, address), ConnContext: api.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 2)
	stopGRPC := serveGRPC(rpc, f, handler, log, level, ended)
	go func() { ended <- server.Serve(api.Listener(listener)) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		log.Info("stopping")
		handler.Stop()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if down := server.Shutdown(stop); down != nil {
		err = errors.Join(err, fmt.Errorf("stop: %w", down), server.Close())
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if err = errors.Join(err, stopGRPC(stop), f.Close(stop)); err == nil {
		log.Info("stopped; other processes may have the shards at once")
	}
	return err
}
