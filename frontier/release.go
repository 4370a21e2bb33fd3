package frontier

import (
	"context"

	"github.com/urlake/urlake/frontier/coord"
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
	if live, err = s.coord.Report(ctx, f.now(), leases, nil, f.backoff()); err != nil {
		return nil, err
	}
	var held []coord.Lease
	var places []int
	for i, ok := range live {
		if ok {
			held, places = append(held, leases[i]), append(places, i)
		}
	}
	leased, err := f.back(ctx, s, held)
	if err != nil {
		return nil, err
	}
	f.end(ctx, s, held)
	for i, place := range places {
		live[place] = leased[i] // if not, the outcome was reported meanwhile
	}
	if !s.mine() {
		return nil, ErrElsewhere
	}
	return live, nil
}
