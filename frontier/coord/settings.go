package coord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// failuresAge is how long failures are remembered of a key that is not fetched from any more.
const failuresAge = 24 * time.Hour

// agreed returns what is fixed of a frontier under a name: the value, unless one was set before.
func (f *Frontier) agreed(ctx context.Context, name, value string) (string, error) {
	key := "{" + f.name + "}:" + name
	if err := f.redis.SetNX(ctx, key, value, 0).Err(); err != nil {
		return "", failed(err)
	}
	got, err := f.redis.Get(ctx, key).Result()
	if err != nil {
		return "", fmt.Errorf("redis: key %s: %w", key, err)
	}
	return got, nil
}

// QueueBy fixes what the URLs of the frontier are queued by that name no key. It fails if that was
// fixed before and is something else: URLs would then be in queues in which nobody looks for them.
func (f *Frontier) QueueBy(ctx context.Context, what string) error {
	got, err := f.agreed(ctx, "queue-by", what)
	if err == nil && got != what {
		err = fmt.Errorf("frontier %q in Redis queues by %s, not by %s", f.name, got, what)
	}
	return err
}

// RobotsDelay is a delay that a robots.txt asks for, until a time in milliseconds.
type RobotsDelay struct {
	Delay time.Duration
	Until int64
}

// Settings are what holds for a key, whether anything waits of it or not.
type Settings struct {
	// Delay is the time between two URLs, if HasDelay; else it is the frontier's.
	Delay    time.Duration
	HasDelay bool
	// Paused and Excluded keys are not claimed from.
	Paused, Excluded bool
	// Blocked is until when the key is not claimed from, 0 if it is not blocked.
	Blocked int64
	// Cap is how many URLs may wait in each queue of the key, if HasCap.
	Cap    int64
	HasCap bool
	// Failures counts the URLs that failed one after the other; Failed is when the last one did.
	Failures int
	Failed   int64
	// Robots are the delays that robots.txt files of the key ask for.
	Robots []RobotsDelay
	// Next is from when on the key may be fetched from, 0 if there is nothing to wait for. Only
	// Shard.Settings sets it.
	Next int64
}

// Any says that there are any settings.
func (s *Settings) Any() bool {
	return s.HasDelay || s.Paused || s.Excluded || s.Blocked > 0 || s.HasCap || s.Failures > 0 || len(s.Robots) > 0
}

// DelayAt is the time between two URLs that holds at a time. Other is the frontier's.
func (s *Settings) DelayAt(now int64, other time.Duration) time.Duration {
	d := other
	if s.HasDelay {
		d = s.Delay
	}
	for _, r := range s.Robots {
		if r.Until > now {
			d = max(d, r.Delay)
		}
	}
	return d
}

// parseSettings reads what the hash domains has of a key: see the scripts.
func parseSettings(text string) (s Settings, err error) {
	for field := range strings.FieldsSeq(text) {
		var n [2]int64
		for i, v := range strings.SplitN(field[1:], ",", 2) {
			if v == "" {
				continue
			}
			if n[i], err = strconv.ParseInt(v, 10, 64); err != nil {
				return s, fmt.Errorf("settings in Redis: %q: %w", text, err)
			}
		}
		switch field[0] {
		case 'd':
			s.Delay, s.HasDelay = time.Duration(n[0])*time.Millisecond, true
		case 'p':
			s.Paused = true
		case 'x':
			s.Excluded = true
		case 'b':
			s.Blocked = n[0]
		case 'c':
			s.Cap, s.HasCap = n[0], true
		case 'f':
			s.Failures, s.Failed = int(n[0]), n[1]
		case 'r':
			s.Robots = append(s.Robots, RobotsDelay{time.Duration(n[0]) * time.Millisecond, n[1]})
		default:
			return s, fmt.Errorf("settings in Redis: %q: unknown letter %q", text, field[:1])
		}
	}
	return s, nil
}

// Settings returns what holds for a key.
func (s *Shard) Settings(ctx context.Context, key string) (set Settings, err error) {
	p := s.f.redis.Pipeline()
	text := p.HGet(ctx, s.prefix+"domains", key)
	next := p.ZScore(ctx, s.prefix+"times", key)
	if _, err := p.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return set, failed(err)
	}
	if set, err = parseSettings(text.Val()); err != nil {
		return set, fmt.Errorf("key %q: %w", key, err)
	}
	set.Next = max(int64(next.Val()), set.Blocked)
	return set, nil
}

// AllSettings calls yield for each key that has any settings, in no order, perhaps twice for some.
func (s *Shard) AllSettings(ctx context.Context, yield func(key string, set Settings)) error {
	for cursor := uint64(0); ; {
		got, next, err := s.f.redis.HScan(ctx, s.prefix+"domains", cursor, "", batch).Result()
		if err != nil {
			return failed(err)
		}
		for i := 0; i+1 < len(got); i += 2 {
			set, err := parseSettings(got[i+1])
			if err != nil {
				return fmt.Errorf("key %q: %w", got[i], err)
			}
			yield(got[i], set)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Change is what to change of the settings of a key; nil leaves it.
type Change struct {
	// Delay is the time between two URLs; less than 0 means the frontier's.
	Delay *time.Duration
	// Blocked is until when the key is not claimed from, 0 for no longer.
	Blocked          *int64
	Paused, Excluded *bool
	// Cap is how many URLs may wait in each queue; less than 0 means the frontier's.
	Cap    *int64
	Robots *[]RobotsDelay
}

// Change changes settings of a key. What waits of a key that is no longer paused, excluded or
// blocked is to be woken afterwards.
func (s *Shard) Change(ctx context.Context, key string, c Change) error {
	args := []any{key}
	set := func(letter, value string) { args = append(args, letter, value) }
	number := func(letter string, n int64, has bool) {
		if has {
			set(letter, letter+strconv.FormatInt(n, 10))
		} else {
			set(letter, "")
		}
	}
	if c.Delay != nil {
		number("d", c.Delay.Milliseconds(), *c.Delay >= 0)
	}
	if c.Blocked != nil {
		number("b", *c.Blocked, *c.Blocked > 0)
	}
	flag := func(letter string, on *bool) {
		if on != nil && *on {
			set(letter, letter)
		} else if on != nil {
			set(letter, "")
		}
	}
	flag("p", c.Paused)
	flag("x", c.Excluded)
	if c.Cap != nil {
		number("c", *c.Cap, *c.Cap >= 0)
	}
	if c.Robots != nil {
		var all []string
		for _, r := range *c.Robots {
			all = append(all, fmt.Sprintf("r%d,%d", r.Delay.Milliseconds(), r.Until))
		}
		set("r", strings.Join(all, " "))
	}
	if len(args) == 1 {
		return nil
	}
	_, err := s.run(ctx, changeScript, []string{"owner", "domains"}, args...)
	return err
}

// Forget drops times and settings that are over. Each call looks at some of the settings, from a
// cursor on, and returns that of the next; "0" is the first.
func (s *Shard) Forget(ctx context.Context, now int64, cursor string) (next string, err error) {
	v, err := s.run(ctx, forgetScript, []string{"owner", "times", "domains"}, now, cursor, failuresAge.Milliseconds())
	if err != nil {
		return cursor, err
	}
	return v.(string), nil
}
