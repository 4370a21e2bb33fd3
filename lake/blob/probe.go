package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"time"
)

// ErrUnconditional is what ProbeConditional finds: the store takes conditions of a put and does not keep to them.
var ErrUnconditional = errors.New("store does not honour the conditions of a put")

// probeCleanupTimeout bounds the removal of the probe's object, which happens although the
// context has ended.
const probeCleanupTimeout = 30 * time.Second

// ProbeConditional finds out whether a store honours conditions, by breaking them: a second
// IfAbsent, an IfMatch with the tag of a replaced object, and an IfMatch where there is no object
// must each be refused and leave things as they are. ErrUnconditional says which was
// not. It uses one object under a name of its own in a folder ("" or such as "index/probe")
// and removes it. Any number of probes may run at once.
//
// It cannot show that comparing and writing are one step; a store that only checks first is
// told apart by the conformance suite's races alone.
func ProbeConditional(ctx context.Context, s Store, folder string) (err error) {
	key := path.Join(folder, rand.Text())
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanupTimeout)
		defer cancel()
		if delErr := s.Delete(ctx, key); err == nil && delErr != nil {
			err = fmt.Errorf("probe conditional put: %w", delErr)
		}
	}()
	first, second, third := []byte("first"), []byte("other"), []byte("third")

	a, err := s.Put(ctx, key, first, Condition{IfAbsent: true})
	if errors.Is(err, ErrPrecondition) {
		// Nobody else has this name: the reply to an earlier attempt was lost.
		a, err = s.Stat(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	if err := refuses(ctx, s, key, first, Condition{IfAbsent: true}, "a second put with IfAbsent"); err != nil {
		return err
	}
	b, err := s.Put(ctx, key, second, Condition{IfMatch: a.ETag})
	if errors.Is(err, ErrPrecondition) {
		// The same, or the store refuses what it should not.
		got, info, getErr := s.Get(ctx, key)
		if getErr == nil && bytes.Equal(got, second) {
			b, err = info, nil
		}
	}
	if err != nil {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	if a.ETag == b.ETag {
		return fmt.Errorf("%w: another content has the same ETag", ErrUnconditional)
	}
	if err := refuses(ctx, s, key, second, Condition{IfMatch: a.ETag}, "a put with the ETag of a replaced object"); err != nil {
		return err
	}
	if err := s.Delete(ctx, key); err != nil {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	_, err = s.Put(ctx, key, third, Condition{IfMatch: b.ETag})
	if err == nil {
		return fmt.Errorf("%w: it took a put with the ETag of a deleted object", ErrUnconditional)
	}
	if !errors.Is(err, ErrPrecondition) {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	return nil
}

// refuses puts something under a condition that does not hold and looks whether have is still
// there.
func refuses(ctx context.Context, s Store, key string, have []byte, cond Condition, what string) error {
	_, err := s.Put(ctx, key, []byte("never"), cond)
	if err == nil {
		return fmt.Errorf("%w: it took %s", ErrUnconditional, what)
	}
	if !errors.Is(err, ErrPrecondition) {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	got, _, err := s.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	if !bytes.Equal(got, have) {
		return fmt.Errorf("%w: it refused %s and wrote all the same", ErrUnconditional, what)
	}
	return nil
}
