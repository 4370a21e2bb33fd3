package many

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// claim is claims/{group}.json: who works on a group. It is written once.
type claim struct {
	lake.KeyedHeader
	// Crew is the number of the worker's activity.
	Crew int `json:"crew"`
}

func claimsPrefix(run string) string { return lake.StagingPrefix(run) + "claims/" }

func claimKey(run string, group int) string {
	return fmt.Sprintf("%s%06d.json", claimsPrefix(run), group)
}

func begunPrefix(run string) string { return lake.StagingPrefix(run) + "begun/" }

// Begin notes that a crew has begun. A crew takes groups one after the other until none is left;
// several of them share the groups of a run.
func (r *Run) Begin(ctx context.Context, store blob.Store, crew int) error {
	_, err := store.Put(ctx, fmt.Sprintf("%s%06d", begunPrefix(r.run), crew), nil, blob.Condition{})
	return err
}

// Begun returns the numbers of the crews that have begun.
func (r *Run) Begun(ctx context.Context, store blob.Store) ([]int, error) {
	return numbers(ctx, store, begunPrefix(r.run))
}

// Claim gives a crew the next group that nobody has. ok is false if there is none.
func (r *Run) Claim(ctx context.Context, store blob.Store, crew int) (group int, ok bool, err error) {
	if r.plan.Groups == 0 {
		return 0, false, nil
	}
	taken, err := numbers(ctx, store, claimsPrefix(r.run))
	if err != nil {
		return 0, false, err
	}
	has := make(map[int]bool, len(taken))
	for _, n := range taken {
		has[n] = true
	}
	for group := range r.plan.Groups {
		if has[group] {
			continue
		}
		key := claimKey(r.run, group)
		err := save(ctx, store, key, &claim{Crew: crew}, blob.Condition{IfAbsent: true})
		if err == nil {
			return group, true, nil
		}
		if !errors.Is(err, blob.ErrPrecondition) {
			return 0, false, err // if the put took effect, Claimed finds the group
		}
	}
	return 0, false, nil
}

// Claimed returns the groups of a crew that are not complete: those that an attempt of it left.
func (r *Run) Claimed(ctx context.Context, store blob.Store, crew int) ([]int, error) {
	taken, err := numbers(ctx, store, claimsPrefix(r.run))
	if err != nil {
		return nil, err
	}
	var own []int
	for _, group := range taken {
		var done outcomes
		if _, err := load(ctx, store, groupKey(r.run, group), &done); err != nil {
			return nil, err
		}
		if done.complete() {
			continue
		}
		var c claim
		if _, err := load(ctx, store, claimKey(r.run, group), &c); err != nil {
			return nil, err
		}
		if c.Crew == crew {
			own = append(own, group)
		}
	}
	return own, nil
}

// numbers lists objects that are named by a number.
func numbers(ctx context.Context, store blob.Store, prefix string) ([]int, error) {
	var all []int
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(info.Key, prefix), ".json")
		if n, err := strconv.Atoi(name); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}
