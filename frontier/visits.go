package frontier

import (
	"context"
	"time"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// ImportedVisit is a fetch that somebody else made, such as an earlier crawler, and what came of
// it.
type ImportedVisit struct {
	// URL is in any spelling. Crawl is DefaultCrawl if empty, and Key the registrable domain.
	URL, Crawl, Key string
	// Time is now if it is zero or lies ahead.
	Time                     time.Time
	Status                   uint16
	Error, Content, Redirect string
	Depth                    uint32
}

// Import notes visits, and returns a result for each in order: Added; Known if the URL was fetched
// at that time or later, to the second, or was fetched at all if the visit has no time; Rejected
// with a reason; or Elsewhere. The URLs are settled then, also those that wait or are leased. After
// an error some may have been noted.
func (f *Frontier) Import(ctx context.Context, visits []ImportedVisit) ([]AddResult, error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	out := f.excluded()
	var t texts
	results := make([]AddResult, len(visits))
	entries := make([][]shard.Entry, f.o.Shards)
	parts := make([][]shard.Visit, f.o.Shards)
	places := make([][]int, f.o.Shards)
	for i := range visits {
		v := &visits[i]
		e, reason := f.entry(n, &t, &URL{URL: v.URL, Crawl: v.Crawl, Key: v.Key, Depth: v.Depth}, out)
		if reason != "" {
			results[i] = AddResult{Rejected, reason}
			continue
		}
		visit := shard.Visit{Status: v.Status, Error: v.Error, Content: v.Content, Redirect: v.Redirect}
		if !v.Time.IsZero() {
			visit.Time = max(v.Time.UnixMilli(), 1)
		}
		s := f.shardOf(keyOf(e.Queue))
		entries[s], parts[s], places[s] = append(entries[s], e), append(parts[s], visit), append(places[s], i)
	}
	err = eachShard(places, func(s int) error {
		statuses, err := f.importTo(s, entries[s], parts[s])
		if elsewhere(err) {
			for _, i := range places[s] {
				results[i] = AddResult{Elsewhere, f.owner(s)}
			}
			return nil
		}
		if err != nil {
			return err
		}
		for i, status := range statuses {
			results[places[s][i]] = addResult(status)
		}
		return nil
	})
	return results, err
}

func (f *Frontier) importTo(number int, entries []shard.Entry, visits []shard.Visit) ([]shard.AddStatus, error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, err
	}
	defer release()
	statuses, done, err := s.files.Import(entries, visits)
	if err == nil {
		err = s.files.Commit()
	}
	if err == nil {
		s.endTokenless(done.Ended)
		if !s.mine() {
			err = ErrElsewhere
		}
	}
	return statuses, err
}
