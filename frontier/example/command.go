package example

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/frontier/robots"
	"github.com/urlake/urlake/internal/cli"
)

// progressEvery is the time between two lines about what was done.
const progressEvery = 5 * time.Second

// NewCommand returns the command of the program crawler.
func NewCommand() *cobra.Command {
	var o Options
	var resolve []string
	cmd := &cobra.Command{
		Use:   "crawler --frontier URL --user-agent NAME",
		Short: "Fetch what a frontier hands out, politely",
		Long: `Crawler claims URLs of a frontierd, fetches them, adds the links that it finds, and reports
what came of them. It obeys robots.txt and Retry-After and keeps the delay of each domain.
Any number of crawlers may run for one frontier.

Ctrl-C lets it finish what it is fetching; the rest is given back. A crawler that dies
loses nothing: the frontier hands out again what it had when the leases end.

--user-agent is what sites see. It begins with the name that robots.txt files call the
crawler by, and should say where to complain, as in "mybot/1.0 (+https://example.org/bot)".`,
		Example: `  crawler --frontier http://127.0.0.1:7070 --user-agent "mybot/1.0 (+https://example.org/bot)"
  crawler --frontier http://127.0.0.1:7070 --user-agent mybot --pages ./pages --idle 5m`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(resolve); err != nil {
				return err
			}
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return run(cmd.Context(), o, cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	host, _ := os.Hostname()
	f.StringVar(&o.Frontier, "frontier", "", "`URL` of a frontierd")
	f.StringVar(&o.UserAgent, "user-agent", "", "`NAME` of the crawler, and where to complain")
	f.StringVar(&o.Crawl, "crawl", "DEFAULT", "`NAME` of the crawl whose URLs are fetched")
	f.StringVar(&o.Worker, "worker", host, "`NAME` that the frontier's log gets (default: that of this host)")
	f.Lookup("worker").DefValue = ""
	f.StringVar(&o.Pages, "pages", "", "`FOLDER` for the bodies of pages, in files named after their SHA-256 (default: they are not kept)")
	f.StringSliceVar(&o.Types, "types", []string{"text/html", "application/xhtml+xml"}, "content `TYPES` that are read")
	f.IntVar(&o.AtOnce, "at-once", 200, "`NUMBER` of URLs in work; most wait for their domain")
	f.Int64Var(&o.MaxBytes, "max-bytes", 10<<20, "`BYTES` of a page that are read")
	f.DurationVar(&o.Timeout, "timeout", 30*time.Second, "`DURATION` of a request")
	f.Uint32Var(&o.MaxDepth, "max-depth", 20, "`NUMBER` of links from a seed to a page")
	f.BoolVar(&o.AnyDomain, "any-domain", false, "follow links to other registrable domains")
	f.BoolVar(&o.AllowPrivate, "allow-private", false, "fetch from this machine and from private networks")
	f.StringArrayVar(&resolve, "resolve", nil, "`HOST=ADDRESS:PORT` to connect to instead of a host's own address; *.example.com is for all hosts below")
	f.DurationVar(&o.Idle, "idle", 0, "end when there was nothing to fetch for this `DURATION` (default: never)")
	f.DurationVar(&o.Grace, "grace", 10*time.Second, "`DURATION` for what is being fetched at Ctrl-C")
	_ = cmd.MarkFlagRequired("frontier")
	_ = cmd.MarkFlagRequired("user-agent")
	cli.BindEnv(cmd)
	return cmd
}

func (o *Options) check(resolve []string) error {
	if err := client.CheckURL(o.Frontier); err != nil {
		return cli.Usagef("--frontier: %w", err)
	}
	if robots.Token(o.UserAgent) == "" {
		return cli.Usagef("--user-agent %q: begin with a name of letters, - and _, by which robots.txt can call the crawler", o.UserAgent)
	}
	if o.AtOnce < 1 || o.MaxBytes < 1 || o.Timeout <= 0 || o.Idle < 0 || o.Grace < 0 {
		return cli.Usagef("--at-once and --max-bytes are at least 1, --timeout is more than 0, --idle and --grace are not negative")
	}
	o.Resolve = map[string]string{}
	for _, r := range resolve {
		name, to, ok := strings.Cut(r, "=")
		if _, _, err := net.SplitHostPort(to); err != nil || !ok {
			return cli.Usagef("--resolve %s: use HOST=ADDRESS:PORT", r)
		}
		o.Resolve[name] = to
	}
	return nil
}

func run(ctx context.Context, o Options, out io.Writer) error {
	c, err := New(o)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case err := <-ended:
			cli.Fprintf(out, "%s\n", c.Counts().text(time.Since(began)))
			return err
		case <-tick.C:
			cli.Fprintf(out, "%s\n", c.Counts().text(time.Since(began)))
		}
	}
}

func (n Counts) text(after time.Duration) string {
	text := fmt.Sprintf("%7s  %s fetched, %s of them redirects and %s errors; %s without an answer, %s forbidden, %s links added, %s in work",
		after.Round(time.Second), cli.Count(n.Fetched), cli.Count(n.Redirects), cli.Count(n.Errors), cli.Count(n.Failed), cli.Count(n.Forbidden),
		cli.Count(n.Added), cli.Count(n.InWork))
	if n.Silent > progressEvery {
		text += fmt.Sprintf("; the frontier has not answered for %s", n.Silent)
	}
	return text
}
