package frontier

import (
	"errors"
	"fmt"
	"time"

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
	answers := make([]SeenAnswer, len(queries))
	queues := make([]string, len(queries))
	byShard := make([][]int32, f.o.Shards)
	for i, q := range queries {
		e, reason := f.entry(n, &URL{URL: q.URL, Crawl: q.Crawl, Key: q.Key}, nil)
		if reason != "" {
			answers[i].Err = fmt.Errorf("%w: %s", ErrURL, reason)
			continue
		}
		answers[i].URL, queues[i] = e.URL, e.Queue
		number := f.shardOf(keyOf(e.Queue))
		byShard[number] = append(byShard[number], int32(i))
	}
	for number, places := range byShard {
		if len(places) == 0 {
			continue
		}
		if err := f.seenOf(number, places, queues, answers); errors.Is(err, ErrElsewhere) {
			for _, i := range places {
				answers[i].Owner, answers[i].Err = f.owner(number), ErrElsewhere
			}
		} else if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (f *Frontier) seenOf(number int, places []int32, queues []string, answers []SeenAnswer) error {
	s, release, err := f.use(number)
	if err != nil {
		return err
	}
	defer release()
	for _, i := range places {
		st, ok, err := s.files.Seen(queues[i], answers[i].URL)
		if err != nil {
			return err
		}
		a := &answers[i]
		a.Seen, a.Settled, a.Status = ok, st.Settled, st.Status
		if st.Time > 0 {
			a.Fetched = time.Unix(int64(st.Time), 0).UTC()
		}
	}
	return nil
}
