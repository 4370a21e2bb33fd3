package command

// A lake's takedowns are exclusions of the frontier: what a lake must not show a crawler does not
// fetch for it. A takedown counts that holds for all datasets. One of a span of time counts while
// the time of the fetch is in it. Takedowns of one dataset say nothing of what others may have, so
// they do not count.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
)

// excludedLake follows the takedowns of a lake.
type excludedLake struct {
	store    blob.Store
	follower *catalog.Follower

	mu     sync.Mutex
	object string // the document that was read last
	rules  *exclusionRules
}

// followTakedowns follows the takedowns of the lake in a store.
func followTakedowns(store blob.Store) *excludedLake {
	return &excludedLake{store: store, follower: catalog.NewFollower(store)}
}

// rules returns the takedowns that are in force, the same as before if they did not change. An
// unchanged lake costs one look at its manifest.
func (l *excludedLake) Rules(ctx context.Context) (*exclusionRules, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _, err := l.follower.Poll(ctx)
	if errors.Is(err, catalog.ErrNoVersion) {
		return nil, fmt.Errorf("lake %s: it has no manifest; publish a version first, or correct the URL: %w", l.store.URL(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("lake %s: %w", l.store.URL(), err)
	}
	object := ""
	if m.Takedowns != nil {
		object = m.Takedowns.Object
	}
	if l.rules != nil && l.object == object {
		return l.rules, nil
	}
	doc, err := catalog.ReadTakedowns(ctx, l.store, m.Takedowns)
	if err != nil {
		return nil, fmt.Errorf("lake %s: takedowns: %w", l.store.URL(), err)
	}
	rules, err := doc.Rules(ctx, l.store)
	if err != nil {
		return nil, fmt.Errorf("lake %s: takedowns: %w", l.store.URL(), err)
	}
	l.object, l.rules = object, newRules(rules)
	return l.rules, nil
}

// exclusionRules are takedowns. They may be used by several goroutines.
type exclusionRules struct {
	rules *catalog.Takedowns
	// matchers has those of domains that rules name.
	matchers sync.Map
}

func newRules(all *catalog.Takedowns) *exclusionRules {
	var count []catalog.Takedown
	for _, r := range all.All() {
		if r.DatasetID == 0 {
			count = append(count, r)
		}
	}
	return &exclusionRules{rules: catalog.NewTakedowns(count...)}
}

// Len is how many rules there are.
func (r *exclusionRules) Len() int { return r.rules.Len() }

// matcher returns that of a domain, nil if no rule is about it.
func (r *exclusionRules) matcher(domain string) *catalog.Matcher {
	if m, ok := r.matchers.Load(domain); ok {
		return m.(*catalog.Matcher)
	}
	m := r.rules.For(domain)
	if m != nil {
		r.matchers.Store(domain, m)
	}
	return m
}

// Key says whether all URLs of a domain or a host are taken down.
func (r *exclusionRules) Key(key string) bool { return r.matcher(key).HidesAll(0) }

// URL says whether a URL is taken down for fetches at a time in milliseconds since 1970.
func (r *exclusionRules) URL(u *urlnorm.URL, now int64) bool {
	m := r.matcher(u.Domain)
	return m != nil && m.Hides(&catalog.Row{
		Scheme: u.Scheme, Host: u.Host, Path: u.PathQuery, Port: u.Port, TS: now, HasTS: true,
	})
}
