package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/lake/blob"
)

// Options are for tests.
type Options struct {
	lockTimeout  time.Duration // how long a statement waits for a lock of a reader
	lockAttempts int           // how often it is tried
	weaken       func(uint64) uint64
	failed       func(at string) error
	wait         time.Duration // instead of stepWait
}

// fail is where tests make a step fail.
func (o *Options) fail(at string) error {
	if o.failed == nil {
		return nil
	}
	return o.failed(at)
}

// step is what each step of an export has: the plan, a connection, and the transaction in which it
// works.
type step struct {
	ctx   context.Context
	store blob.Store
	opt   *Options
	plan  *plan
	c     *pgx.Conn
	tx    pgx.Tx
	load  int64 // the number of the load
}

// openStep opens a step of a run that has a plan. The caller closes it.
func openStep(ctx context.Context, store blob.Store, run string, opt Options) (*step, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return nil, err
	}
	s := &step{ctx: ctx, store: store, opt: &opt, plan: p}
	s.c, err = connect(ctx, &p.Spec)
	return s, err
}

func (s *step) close() { disconnect(s.ctx, s.c) }

// stepWait is how long a step waits for another one that does the same.
const stepWait = 30 * time.Second

// errOver tells a step that another export has begun, or that its own has ended.
var errOver = &InputError{"the export is over, or another one of the schema has taken its place; start it again"}

// within runs f in a transaction in which the state is locked FOR SHARE or FOR UPDATE. It fails if
// the load is over. It also bounds how long the transaction waits for locks.
func (s *step) within(lock string, f func() error) error {
	return pgx.BeginFunc(s.ctx, s.c, func(tx pgx.Tx) error {
		s.tx = tx
		if err := s.bound(); err != nil {
			return err
		}
		err := tx.QueryRow(s.ctx, "SELECT last_load FROM state WHERE run = $1 AND loading FOR "+lock, s.plan.Run).Scan(&s.load)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errOver
		}
		if err != nil {
			return err
		}
		return f()
	})
}

// bound bounds how long the transaction waits for locks.
func (s *step) bound() error {
	return s.exec(fmt.Sprintf("SET LOCAL lock_timeout = %d", cmp.Or(s.opt.wait, stepWait).Milliseconds()))
}

// exec runs a statement of the transaction.
func (s *step) exec(sql string, args ...any) error {
	_, err := s.tx.Exec(s.ctx, sql, args...)
	return err
}

func (s *step) execAll(statements ...string) error {
	for _, sql := range statements {
		if err := s.exec(sql); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps a garbage collector from deleting what the plan's version refers to, until the
// returned function is called.
func (s *step) hold() (release func(), err error) {
	release, err = scan.Hold(s.ctx, s.store, s.plan.Version, "urlake export postgres")
	if errors.Is(err, scan.ErrDropped) {
		err = inputf("version %s was dropped from the lake while it was exported; export a newer one", s.plan.Version)
	}
	return release, err
}
