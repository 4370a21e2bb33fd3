package command

import (
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/serve/api"
)

// defaultDrain is longer than the time between two looks of most balancers.
const defaultDrain = 5 * time.Second

// admission are the settings of who is served, and how many.
type admission struct {
	maxConnections   int
	drain            time.Duration
	origins, proxies []string
	hosts            cli.Hosts
	trusted          []netip.Prefix // proxies, once they are checked
}

func (a *admission) flags(f *pflag.FlagSet) {
	f.IntVar(&a.maxConnections, "max-connections", 0,
		"how many `CONNECTIONS` are open at once (default: one for each 64 KiB of --memory-limit)")
	f.DurationVar(&a.drain, "drain", defaultDrain,
		"`TIME` for which /readyz is 503 before the server stops listening, if somebody asks it")
	f.StringSliceVar(&a.origins, "cors-origin", nil,
		"web `ORIGINS` whose scripts may read answers, such as https://example.com, or * for all")
	a.hosts.Flag(f)
	f.StringSliceVar(&a.proxies, "trusted-proxy", nil,
		"`NETWORKS` of proxies whose X-Forwarded-For names the client, and whose traceparent counts, such as 10.0.0.0/8")
}

// check checks the flags and fills in trusted.
func (a *admission) check() error {
	switch {
	case a.maxConnections < 0:
		return cli.Usagef("--max-connections is %d; use 1 or more, or 0 for the default", a.maxConnections)
	case a.drain < 0:
		return cli.Usagef("--drain is %s; use 0 or more, e.g. 5s", a.drain)
	}
	for _, origin := range a.origins {
		if u, err := url.Parse(origin); origin != "*" &&
			(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || origin != u.Scheme+"://"+u.Host) {
			return cli.Usagef("--cors-origin %q is no origin; write scheme and host alone, as in https://example.com, or *", origin)
		}
	}
	for _, text := range a.proxies {
		if !strings.Contains(text, "/") {
			if addr, err := netip.ParseAddr(text); err == nil {
				a.trusted = append(a.trusted, netip.PrefixFrom(addr, addr.BitLen()))
				continue
			}
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return cli.Usagef("--trusted-proxy %q is no network; write e.g. 10.0.0.0/8 or ::1", text)
		}
		a.trusted = append(a.trusted, network)
	}
	return nil
}

// connections is the largest number of connections within a limit of memory.
func (a *admission) connections(memory int64) int {
	if a.maxConnections > 0 {
		return a.maxConnections
	}
	return int(min(memory/connectionBytes, 1<<20))
}

// wait makes /readyz say that the server stops, and gives those who ask it the time to see that.
func (a *admission) wait(ready *api.Readiness, log *slog.Logger) {
	ready.Stop()
	if a.drain > 0 && ready.Watched(watchedTimeout) {
		log.Info("draining: /readyz says that the server stops", "for", a.drain.String())
		time.Sleep(a.drain)
	}
}
