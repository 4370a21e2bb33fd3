package frontier

import (
	"context"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
)

// Released leases were given back, and their URLs wait again.
const Released = "released"

// Release ends leases without a result, as a worker does that stops: their URLs wait again at once
// instead of at the end of their leases. It says of each whether that was done: Released, Ended or
// Elsewhere. As with a lease that ends by itself, the URL was handed out once more.
func (f *Frontier) Release(ctx context.Context, leases []string) ([]SettleResult, error) {
	results := make([]SettleResult, len(leases))
	p := f.leasesByShard(results, func(i int) string { return leases[i] })
	defer f.parts.put(p)
	for number, part := range p.leases {
		if len(part) == 0 {
			continue
		}
		live, err := f.release(context.WithoutCancel(ctx), number, part)
		if err != nil && !elsewhere(err) {
			return nil, err
		}
		for i, place := range p.places[number] {
			switch {
			case err != nil:
				results[place] = SettleResult{Elsewhere, f.owner(number)}
			case live[i]:
				results[place].Result = Released
			}
		}
	}
	return results, nil
}

func (f *Frontier) release(ctx context.Context, number int, leases []coord.Lease) (live []bool, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, err
	}
	defer release()
	if live, _, err = s.coord.Report(ctx, f.now(), leases, nil, f.backoff()); err != nil {
		return nil, err
	}
	var held []coord.Lease
	var places []int
	for i, ok := range live {
		if ok {
			held, places = append(held, leases[i]), append(places, i)
		}
	}
	leased, err := f.back(s, held, true)
	if err != nil {
		return nil, err
	}
	s.coord.End(held)
	for i, place := range places {
		live[place] = leased[i] // if not, the outcome was reported meanwhile
	}
	if !s.mine() {
		return nil, ErrElsewhere
	}
	return live, nil
}

// ErrorExpired is the error of a visit that nobody has reported: the URL was handed out as often as
// it may be, and each of its leases was over without a result.
const ErrorExpired = "expired"

// settleTried settles those URLs of leases that are over which were handed out Options.Tries times,
// and returns the other leases. Those without a token are among these: clients of the URLFrontier
// protocol keep URLs for longer than their leases, and get them again without end.
func (f *Frontier) settleTried(s *owned, ended []coord.Lease, now int64) (others []coord.Lease, err error) {
	for _, l := range ended {
		if tries, ok := s.files.Leased(l.Seq()); !ok || !l.Fenced() || int(tries)+1 < f.o.Tries {
			others = append(others, l)
			continue
		}
		if _, err := s.files.Done(l.Seq(), shard.Visit{Time: now, Error: ErrorExpired}, 0); err != nil {
			return nil, err
		}
	}
	return others, nil
}
