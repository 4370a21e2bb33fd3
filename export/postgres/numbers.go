package postgres

import (
	"context"
	"errors"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
)

// Name is a host that gets a number, and the domain (eTLD+1) that it belongs to.
type Name struct{ Host, Domain string }

// assign returns the codes of hosts, in their order, and gives numbers to those that have none. A
// table of numbers that is full is an *InputError.
func assign(ctx context.Context, r *numbers.Registry, hosts []Name) ([]domain64.Code, error) {
	names := make([]domain64.Name, len(hosts))
	for i, h := range hosts {
		var err error
		if names[i], err = domain64.SplitHost(h.Host, h.Domain); err != nil {
			return nil, err
		}
	}
	codes, err := r.Assign(ctx, names)
	var full *numbers.FullError
	if errors.As(err, &full) {
		err = &InputError{full.Error()}
	}
	return codes, err
}
