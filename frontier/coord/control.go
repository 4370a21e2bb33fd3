package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetLimit lets nothing be taken from a queue once so many of its URLs are done; 0 ends that.
func (s *Shard) SetLimit(ctx context.Context, queue string, limit int64) error {
	if limit == 0 {
		return failed(s.f.redis.HDel(ctx, s.prefix+"limits", queue).Err())
	}
	return failed(s.f.redis.HSet(ctx, s.prefix+"limits", queue, limit).Err())
}

// Limits returns the limits of all queues that have one.
func (s *Shard) Limits(ctx context.Context) (map[string]int64, error) {
	all, err := s.f.redis.HGetAll(ctx, s.prefix+"limits").Result()
	if err != nil {
		return nil, failed(err)
	}
	limits := make(map[string]int64, len(all))
	for queue, text := range all {
		if limits[queue], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("redis: %slimits: %w", s.prefix, err)
		}
	}
	return limits, nil
}

// Control is what was said of a frontier as a whole.
type Control struct {
	// Inactive processes hand out nothing. Processes are known by their addresses, which are what
	// their names begin with, up to a number sign. All stands for those that are not listed.
	Inactive map[string]bool
	All      bool
	// Delay is the time between two URLs of a key that has none of its own, 0 if nothing was said.
	Delay time.Duration
	// Exclusions changes whenever the excluded keys do.
	Exclusions int64
}

// Address returns the address in the name of a process.
func Address(node string) string {
	address, _, _ := strings.Cut(node, "#")
	return address
}

// InactiveNode says that the process of a name hands out nothing.
func (c *Control) InactiveNode(node string) bool {
	if off, ok := c.Inactive[Address(node)]; ok {
		return off
	}
	return c.All
}

const (
	fieldDelay  = "delay"
	fieldAll    = "inactive"
	fieldActive = "inactive:"
	fieldExcl   = "exclusions"
)

func (f *Frontier) control() string { return "{" + f.name + "}:control" }

// Control returns what was said of the frontier as a whole.
func (f *Frontier) Control(ctx context.Context) (c Control, err error) {
	all, err := f.redis.HGetAll(ctx, f.control()).Result()
	if err != nil {
		return c, failed(err)
	}
	c.Inactive = map[string]bool{}
	for name, value := range all {
		address, ofNode := strings.CutPrefix(name, fieldActive)
		switch {
		case ofNode:
			c.Inactive[address] = value == "1"
		case name == fieldAll:
			c.All = value == "1"
		case name == fieldDelay:
			ms, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return c, fmt.Errorf("redis: %s: %w", f.control(), err)
			}
			c.Delay = time.Duration(ms) * time.Millisecond
		case name == fieldExcl:
			if c.Exclusions, err = strconv.ParseInt(value, 10, 64); err != nil {
				return c, fmt.Errorf("redis: %s: %w", f.control(), err)
			}
		}
	}
	return c, nil
}

// setActive: control; value. What was said of single processes does not hold any more.
var setActiveScript = redis.NewScript(`
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
	if string.sub(name, 1, 9) == 'inactive:' then
		redis.call('HDEL', KEYS[1], name)
	end
end
return redis.call('HSET', KEYS[1], 'inactive', ARGV[1])
`)

// SetActive says whether this process hands out URLs, or all of the frontier do.
func (f *Frontier) SetActive(ctx context.Context, active, all bool) error {
	value := "1"
	if active {
		value = "0"
	}
	if !all {
		return failed(f.redis.HSet(ctx, f.control(), fieldActive+Address(f.node), value).Err())
	}
	return failed(setActiveScript.Run(ctx, f.redis, []string{f.control()}, value).Err())
}

// exclude: excluded, control; SADD or SREM, keys. Returns what Control.Exclusions is then.
var excludeScript = redis.NewScript(`
if redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2)) > 0 then
	return redis.call('HINCRBY', KEYS[2], 'exclusions', 1)
end
return tonumber(redis.call('HGET', KEYS[2], 'exclusions') or 0)
`)

func (f *Frontier) excluded() string { return "{" + f.name + "}:excluded" }

// SetExcluded notes that keys are excluded, or not any more, for all processes: the settings of a
// key are known only to the owner of its shard. It returns what Control.Exclusions is then.
func (f *Frontier) SetExcluded(ctx context.Context, excluded bool, keys []string) (exclusions int64, err error) {
	do := "SREM"
	if excluded {
		do = "SADD"
	}
	for part := range slices.Chunk(keys, batch) {
		args := []any{do}
		for _, key := range part {
			args = append(args, key)
		}
		if exclusions, err = excludeScript.Run(ctx, f.redis, []string{f.excluded(), f.control()}, args...).Int64(); err != nil {
			return 0, failed(err)
		}
	}
	return exclusions, nil
}

// Excluded returns the keys that SetExcluded has noted.
func (f *Frontier) Excluded(ctx context.Context) (map[string]struct{}, error) {
	keys := map[string]struct{}{}
	for cursor := uint64(0); ; {
		part, next, err := f.redis.SScan(ctx, f.excluded(), cursor, "", batch).Result()
		if err != nil {
			return nil, failed(err)
		}
		for _, key := range part {
			keys[key] = struct{}{}
		}
		if cursor = next; cursor == 0 {
			return keys, nil
		}
	}
}

// SetDelay sets the time between two URLs of a key that has none of its own.
func (f *Frontier) SetDelay(ctx context.Context, delay time.Duration) error {
	return failed(f.redis.HSet(ctx, f.control(), fieldDelay, delay.Milliseconds()).Err())
}

// Node returns the name of this process.
func (f *Frontier) Node() string { return f.node }

// nodes: nodes. Returns the processes that live by the clock that join goes by.
var nodesScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZRANGE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'BYSCORE')
`)

// Nodes returns the names of the processes that live.
func (f *Frontier) Nodes(ctx context.Context) ([]string, error) {
	nodes, err := nodesScript.Run(ctx, f.redis, []string{f.nodes()}).StringSlice()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return nodes, failed(err)
}
