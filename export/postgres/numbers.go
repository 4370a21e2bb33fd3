package postgres

import (
	"context"

	"github.com/urlake/urlake/export/domain64"
)

// Name is a host that gets a number, and the domain (eTLD+1) that it belongs to.
type Name struct{ Host, Domain string }

// Numbers gives hosts their numbers: those of a registry that never gives a number twice.
type Numbers interface {
	// Layout is that of the numbers.
	Layout() domain64.Layout
	// Assign returns the codes of hosts, in their order, and gives numbers to those that have none.
	// The numbers are durable when it returns.
	Assign(ctx context.Context, hosts []Name) ([]domain64.Code, error)
}
