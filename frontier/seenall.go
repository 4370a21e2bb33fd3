package frontier

import (
	"errors"
	"fmt"
	"time"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// SeenQuery asks for a URL of a crawl, DefaultCrawl if empty. Key is the queue's, if it is not that
// of URLs without a key.
type SeenQuery struct{ URL, Crawl, Key string }

// SeenAnswer is the answer to a SeenQuery. Err is ErrURL for what has no canonical form, and
// ErrElsewhere, with the Owner of the state, for what another process knows.
type SeenAnswer struct {
	SeenState
	Err error
}

// SeenAll says of each URL whether it was ever added, and what became of it. The error is one of a
// file.
func (f *Frontier) SeenAll(queries []SeenQuery) ([]SeenAnswer, error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	if len(queries) >= bulkLeast {
		f.seenAt.Store(int64(time.Since(begin)))
	}
	var t texts
	answers := make([]SeenAnswer, len(queries))
	byShard := make([]struct {
		places []int32
		ids    []shard.ID
	}, f.o.Shards)
	f.Bulk(len(queries), func() {
		for i := range queries {
			q := &queries[i]
			e, reason := f.entry(n, &t, &URL{URL: q.URL, Crawl: q.Crawl, Key: q.Key}, nil)
			if reason != "" {
				answers[i].Err = fmt.Errorf("%w: %s", ErrURL, reason)
				continue
			}
			answers[i].URL = e.URL
			of := &byShard[f.shardOf(keyOf(e.Queue))]
			if of.ids == nil {
				some := len(queries)/f.o.Shards + len(queries)/f.o.Shards/4 + 1 // mostly enough
				of.places, of.ids = make([]int32, 0, some), make([]shard.ID, 0, some)
			}
			of.places, of.ids = append(of.places, int32(i)), append(of.ids, t.id)
		}
	})
	for number := range byShard {
		of := &byShard[number]
		if len(of.ids) == 0 {
			continue
		}
		var err error
		f.Bulk(len(queries), func() {
			err = f.seenOf(number, of.ids, func(i int, st shard.State, ok bool) { answers[of.places[i]].set(&st, ok) })
		})
		if errors.Is(err, ErrElsewhere) {
			for _, i := range of.places {
				answers[i].Owner, answers[i].Err = f.owner(number), ErrElsewhere
			}
		} else if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// set sets what is known of a URL.
func (a *SeenAnswer) set(st *shard.State, ok bool) {
	a.Seen, a.Settled, a.Status = ok, st.Settled, st.Status
	if st.Time > 0 {
		a.Fetched = time.Unix(int64(st.Time), 0).UTC()
	}
}

func (f *Frontier) seenOf(number int, ids []shard.ID, yield func(i int, st shard.State, ok bool)) error {
	s, release, err := f.use(number)
	if err != nil {
		return err
	}
	defer release()
	s.files.SeenAll(ids, yield)
	return nil
}
