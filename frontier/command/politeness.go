package command

import (
	"github.com/spf13/pflag"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/cli"
)

// politeness are the flags about what servers are asked.
type politeness struct {
	queueBy    string
	maxWaiting int64
}

func (p *politeness) flags(f *pflag.FlagSet) {
	f.StringVar(&p.queueBy, "queue-by", frontier.ByDomain, "`WHAT` URLs without a key are grouped by, each group with a delay of its own: domain or host")
	f.Int64Var(&p.maxWaiting, "max-waiting", 0, "`NUMBER` of URLs that may wait of a domain and crawl, 0 for any number; more are rejected with the reason cap")
}

func (p *politeness) check() error {
	switch {
	case p.queueBy != frontier.ByDomain && p.queueBy != frontier.ByHost:
		return cli.Usagef("--queue-by %s: it is domain or host", p.queueBy)
	case p.maxWaiting < 0:
		return cli.Usagef("--max-waiting %d: it is not negative", p.maxWaiting)
	}
	return nil
}

// apply puts the flags into the options of a frontier.
func (p *politeness) apply(o *frontier.Options) {
	o.QueueBy, o.MaxWaiting = p.queueBy, p.maxWaiting
}
