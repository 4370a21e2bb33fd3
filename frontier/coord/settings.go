package coord

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// parseSettings reads what the hash domains has of a key: docs/formats/frontier.md has the letters.
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

// format returns what parseSettings reads: a letter and its values each, with spaces in between.
func (s *Settings) format() string {
	var fields []string
	add := func(has bool, letter byte, values ...int64) {
		if !has {
			return
		}
		field := []byte{letter}
		for i, v := range values {
			if i > 0 {
				field = append(field, ',')
			}
			field = strconv.AppendInt(field, v, 10)
		}
		fields = append(fields, string(field))
	}
	add(s.HasDelay, 'd', s.Delay.Milliseconds())
	add(s.Paused, 'p')
	add(s.Excluded, 'x')
	add(s.Blocked > 0, 'b', s.Blocked)
	add(s.HasCap, 'c', s.Cap)
	add(s.Failures > 0, 'f', int64(s.Failures), s.Failed)
	for _, r := range s.Robots {
		add(true, 'r', r.Delay.Milliseconds(), r.Until)
	}
	return strings.Join(fields, " ")
}

// held says that the key is not claimed from until that ends.
func (s *Settings) held() bool { return s.Paused || s.Excluded }

// forget drops what is over, and says whether anything was.
func (s *Settings) forget(now int64) (any bool) {
	if s.Blocked > 0 && s.Blocked <= now {
		s.Blocked, any = 0, true
	}
	if s.Failures > 0 && s.Failed+failuresAge.Milliseconds() <= now {
		s.Failures, s.Failed, any = 0, 0, true
	}
	over := func(r RobotsDelay) bool { return r.Until <= now }
	if slices.ContainsFunc(s.Robots, over) {
		s.Robots, any = slices.DeleteFunc(slices.Clone(s.Robots), over), true
	}
	return any
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

// apply changes settings.
func (c *Change) apply(to *Settings) {
	if c.Delay != nil {
		to.Delay, to.HasDelay = max(*c.Delay, 0).Truncate(time.Millisecond), *c.Delay >= 0
	}
	if c.Blocked != nil {
		to.Blocked = max(*c.Blocked, 0)
	}
	if c.Paused != nil {
		to.Paused = *c.Paused
	}
	if c.Excluded != nil {
		to.Excluded = *c.Excluded
	}
	if c.Cap != nil {
		to.Cap, to.HasCap = max(*c.Cap, 0), *c.Cap >= 0
	}
	if c.Robots != nil {
		to.Robots = slices.Clone(*c.Robots)
		for i := range to.Robots {
			to.Robots[i].Delay = to.Robots[i].Delay.Truncate(time.Millisecond)
		}
	}
}
