package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"regexp"
	"time"
)

// ErrUnconditional is the error of ProbeConditional for a store that accepts conditions of puts and
// ignores them.
var ErrUnconditional = errors.New("store does not honour the conditions of a put")

// probeCleanupTimeout bounds the removal of the probe's object, which does not end with the
// context.
const probeCleanupTimeout = 30 * time.Second

// probeTime is the form of the time in the name of a probe's object.
const probeTime = "20060102T150405Z"

var probeName = regexp.MustCompile(`^([0-9]{8}T[0-9]{6}Z)-[A-Z2-7]{26}$`)

// ProbeBegan returns when the probe began whose object has that name, by the clock of its process.
// Ok is false for other names.
func ProbeBegan(name string) (began time.Time, ok bool) {
	m := probeName.FindStringSubmatch(name)
	if m == nil {
		return began, false
	}
	began, err := time.Parse(probeTime, m[1])
	return began, err == nil
}

// ProbeConditional finds out whether a store honours conditions, by puts whose conditions do not
// hold: a second IfAbsent, an IfMatch with the ETag of a replaced object, and an IfMatch of a key
// without an object. Each must fail and change nothing; otherwise the error matches
// ErrUnconditional and names the put.
//
// The probe uses one object in folder ("" or e.g. "index/probe"), whose name is a time and random,
// and removes it. A process that is killed leaves it; ProbeBegan tells when that was. Any number of
// probes may run at once.
//
// A probe cannot find out whether comparing and writing are one step. Only the races of the
// conformance suite can.
func ProbeConditional(ctx context.Context, s Store, folder string) (err error) {
	key := path.Join(folder, time.Now().UTC().Format(probeTime)+"-"+rand.Text())
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
		// The name is random, so the reply to an earlier attempt was lost.
		a, err = s.Stat(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("probe conditional put: %w", err)
	}
	if err := rejects(ctx, s, key, first, Condition{IfAbsent: true}, "a second put with IfAbsent"); err != nil {
		return err
	}
	b, err := s.Put(ctx, key, second, Condition{IfMatch: a.ETag})
	if errors.Is(err, ErrPrecondition) {
		// A lost reply again, or the store rejects a condition that holds.
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
	if err := rejects(ctx, s, key, second, Condition{IfMatch: a.ETag}, "a put with the ETag of a replaced object"); err != nil {
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

// rejects puts an object with a condition that does not hold, and checks that the put fails and
// that the content is still have.
func rejects(ctx context.Context, s Store, key string, have []byte, cond Condition, what string) error {
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
