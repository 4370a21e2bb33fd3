package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/lake/codec"
)

// knownFormat is the newest version that this program knows of everything that Redis has of a
// frontier. Whatever changes the meaning of a key, of its members or of their fields is another
// version; docs/formats/frontier.md describes them.
const knownFormat = 2

// earlierLeases is the sorted set of leases of version 1, by the time at which they end.
const earlierLeases = "leases"

// format: format, nodes, shards; the newest known version, and 1 to note it if the frontier is of
// an earlier one. Returns the version that it has then, 0 if it is new. A frontier of an earlier
// version of which a process lives is left as it is, and the process is returned. One that is not
// new and has no version is of the first.
var formatScript = redis.NewScript(`
local found = tonumber(redis.call('GET', KEYS[1]) or redis.call('EXISTS', KEYS[3]))
local known = tonumber(ARGV[1])
if not found then
	return redis.error_reply('ERR it is no number')
end
if found >= known then
	return found
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lives = redis.call('ZRANGE', KEYS[2], now, '+inf', 'BYSCORE', 'LIMIT', 0, 1)
if found > 0 and lives[1] then
	return lives[1]
end
if ARGV[2] == '1' then
	redis.call('SET', KEYS[1], known)
	return known
end
return found
`)

// checkFormat notes the version of a frontier that has none or an earlier one, and refuses a newer
// one.
func (f *Frontier) checkFormat(ctx context.Context) error {
	for _, note := range []int{0, 1} {
		found, err := f.format(ctx, note)
		switch {
		case err != nil:
			return err
		case found > knownFormat:
			return &codec.FormatError{Key: "redis: key " + f.formatKey(), Found: int(found), Known: knownFormat}
		case found == knownFormat:
			return nil
		case found > 0:
			if err := f.dropReady(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Frontier) formatKey() string { return "{" + f.name + "}:format" }

func (f *Frontier) format(ctx context.Context, note int) (found int64, err error) {
	var got any
	err = redirected(ctx, openRedirects, func() (err error) {
		got, err = formatScript.Run(ctx, f.redis, []string{f.formatKey(), f.nodes(), "{" + f.name + "}:shards"}, knownFormat, note).Result()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("redis: key %s: %w", f.formatKey(), err)
	}
	found, ok := got.(int64)
	if !ok {
		return 0, fmt.Errorf("frontier %q in Redis is of an earlier urlake, and %v serves it; stop all its processes first. One that was killed is forgotten after --own", f.name, got)
	}
	return found, nil
}

// dropReady deletes what version 1 had of keys that were ready. The files of a shard say which are.
func (f *Frontier) dropReady(ctx context.Context) error {
	prefix := "{" + f.name + ":"
	return eachNode(ctx, f.redis, prefix, func(ctx context.Context, node *redis.Client) (err error) {
		failed := scanKeys(ctx, node, prefix, func(key string) {
			if _, name, _ := strings.Cut(key, "}:"); strings.HasPrefix(name, "ready:") {
				err = errors.Join(err, f.redis.Del(ctx, key).Err())
			}
		})
		return errors.Join(err, failed)
	})
}

// upgrade: owner, grants, leases of version 1; node, count of grants, number and value of each, and
// their leases.
var upgradeScript = redis.NewScript(fence + `
local at = 3 + 2 * tonumber(ARGV[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 3, at - 1))
return redis.call('ZREM', KEYS[3], unpack(ARGV, at))
`)

// upgradeLeases makes grants of the leases that an earlier program has left.
func (s *Shard) upgradeLeases(ctx context.Context, found map[uint64]newGrant) error {
	for {
		members, err := s.f.redis.ZRangeWithScores(ctx, s.prefix+earlierLeases, 0, batch-1).Result()
		if err != nil || len(members) == 0 {
			return failed(err)
		}
		var new []newGrant
		c := s.call(upgradeScript, "owner", grantsKey, earlierLeases)
		for _, m := range members {
			until := int64(m.Score)
			l, err := ParseLease(m.Member.(string))
			if err != nil {
				return fmt.Errorf("redis: key %s: %w", s.prefix+earlierLeases, err)
			}
			if len(new) == 0 || new[len(new)-1].until != until {
				new = append(new, newGrant{s.grants.next(), until, nil})
			}
			g := &new[len(new)-1]
			g.leases = append(g.leases, l)
		}
		c.add(len(new))
		for _, g := range new {
			c.add(g.number, appendGrant(nil, g.until, g.leases))
		}
		for _, m := range members {
			c.add(m.Member)
		}
		if _, err := c.run(ctx); err != nil {
			return err
		}
		for _, g := range new {
			s.grants.note(g.number, g.until, g.leases)
			found[g.number] = g
		}
	}
}
