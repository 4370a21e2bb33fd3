package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
)

// politeness are the flags about what servers are asked.
type politeness struct {
	queueBy        string
	maxWaiting     int64
	alarmWaiting   int64
	robotsAgent    string
	maxRobotsDelay time.Duration
}

func (p *politeness) flags(f *pflag.FlagSet) {
	f.StringVar(&p.queueBy, "queue-by", frontier.ByDomain, "`WHAT` URLs without a key are grouped by, each group with a delay of its own: domain or host, which --grpc needs if HTTP is to share its URLs. The first start of a frontier fixes it")
	f.Int64Var(&p.maxWaiting, "max-waiting", 0, "`NUMBER` of URLs that may wait of a domain and crawl, 0 for any number; more are rejected with the reason cap")
	f.Int64Var(&p.alarmWaiting, "alarm-waiting", 1_000_000, "`NUMBER` of URLs that may wait of a domain and crawl before the log names it every minute, 0 for any number")
	f.StringVar(&p.robotsAgent, "robots-agent", "", "`NAME` of the crawler in robots.txt files whose Crawl-delay it obeys (default: what they ask of all crawlers)")
	f.DurationVar(&p.maxRobotsDelay, "max-robots-delay", 5*time.Minute, "`DURATION` that a Crawl-delay counts for at most; 0 ignores them")
}

func (p *politeness) check() error {
	switch {
	case p.maxRobotsDelay < 0:
		return cli.Usagef("--max-robots-delay %v: it is not negative", p.maxRobotsDelay)
	case p.queueBy != frontier.ByDomain && p.queueBy != frontier.ByHost:
		return cli.Usagef("--queue-by %s: it is domain or host", p.queueBy)
	case p.maxWaiting < 0 || p.alarmWaiting < 0:
		return cli.Usagef("--max-waiting and --alarm-waiting are not negative")
	}
	return nil
}

// apply puts the flags into the options of a frontier.
func (p *politeness) apply(o *frontier.Options) {
	o.QueueBy, o.MaxWaiting, o.AlarmWaiting = p.queueBy, p.maxWaiting, p.alarmWaiting
	o.RobotsAgent, o.MaxRobotsDelay = p.robotsAgent, p.maxRobotsDelay
}

// takedowns are the flags about what must not be fetched.
type takedowns struct {
	lake    string
	refresh time.Duration
	follow  *excludedLake // nil without a lake
}

func (t *takedowns) flags(f *pflag.FlagSet) {
	f.StringVar(&t.lake, "lake", "", "`URL` of a lake whose takedowns are excluded: s3://bucket/prefix, file:///dir or a folder")
	f.DurationVar(&t.refresh, "lake-refresh", time.Minute, "`DURATION` between two looks at the lake's takedowns")
}

func (t *takedowns) check() error {
	if t.refresh < time.Second {
		return cli.Usagef("--lake-refresh %v: it is at least 1s", t.refresh)
	}
	return nil
}

// open reads the lake, before anything is made or served.
func (t *takedowns) open(ctx context.Context) error {
	if t.lake == "" {
		return nil
	}
	store, err := blob.Open(ctx, t.lake)
	if err != nil {
		return fmt.Errorf("--lake: %w", err)
	}
	t.follow = followTakedowns(store)
	_, err = t.follow.Rules(ctx)
	return err
}

// apply lets a frontier follow the lake.
func (t *takedowns) apply(o *frontier.Options) {
	if t.follow != nil {
		o.Refresh = t.refresh
		o.Exclusions = func(ctx context.Context) (frontier.Exclusions, error) { return t.follow.Rules(ctx) }
	}
}
