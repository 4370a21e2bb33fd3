package coord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// format: format, nodes, shards, upgrading; the newest known version. Makes that the version of a
// new frontier and of one of an earlier version, and returns the version that there is then. A
// frontier of an earlier version of which a process lives is left as it is, and the process is
// returned. One that is not new and has no version is of the first.
var formatScript = redis.NewScript(`
local found = tonumber(redis.call('GET', KEYS[1]) or redis.call('EXISTS', KEYS[3]))
local known = tonumber(ARGV[1])
if not found then
	return redis.error_reply('ERR it is no number')
end
if found >= known then
	return found
end
if found > 0 then
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	local lives = redis.call('ZRANGE', KEYS[2], now, '+inf', 'BYSCORE', 'LIMIT', 0, 1)
	if lives[1] then
		return lives[1]
	end
	redis.call('SET', KEYS[4], found)
end
redis.call('SET', KEYS[1], known)
return known
`)

// upgrading is a key that is there until what a version before had is gone.
const upgrading = "upgrading"

// checkFormat notes the version of a frontier that has none or an earlier one, and refuses a newer
// one.
func (f *Frontier) checkFormat(ctx context.Context) error {
	prefix := "{" + f.name + "}:"
	key := prefix + "format"
	var got any
	err := redirected(ctx, openRedirects, func() (err error) {
		got, err = formatScript.Run(ctx, f.redis, []string{key, f.nodes(), prefix + "shards", prefix + upgrading}, knownFormat).Result()
		return err
	})
	found, ok := got.(int64)
	switch {
	case err != nil:
		return fmt.Errorf("redis: key %s: %w", key, err)
	case !ok:
		return fmt.Errorf("frontier %q in Redis is of an earlier urlake, and %v serves it; stop all its processes first. One that was killed is forgotten after --own", f.name, got)
	case found > knownFormat:
		return &codec.FormatError{Key: "redis: key " + key, Found: int(found), Known: knownFormat}
	}
	n, err := f.redis.Exists(ctx, prefix+upgrading).Result()
	if err == nil && n > 0 {
		if err = f.dropReady(ctx); err == nil {
			err = f.redis.Del(ctx, prefix+upgrading).Err()
		}
	}
	return failed(err)
}

// dropReady deletes what version 1 had of keys that were ready. The files of a shard say which are.
func (f *Frontier) dropReady(ctx context.Context) error {
	prefix := "{" + f.name + ":"
	return eachNode(ctx, f.redis, prefix, func(ctx context.Context, node *redis.Client) (err error) {
		failed := scanKeys(ctx, node, prefix, func(key string) {
			shard, name, _ := strings.Cut(key[len(prefix):], "}:")
			// A frontier whose name goes on after this one is another.
			if _, other := strconv.Atoi(shard); other == nil && strings.HasPrefix(name, "ready:") {
				err = errors.Join(err, f.redis.Unlink(ctx, key).Err())
			}
		})
		return errors.Join(err, failed)
	})
}

// upgrade: owner, opening, grants, leases of version 1; node, opening, count of grants, number and
// value of each, and their leases.
var upgradeScript = redis.NewScript(fences + `
local at = 4 + 2 * tonumber(ARGV[3])
redis.call('HSET', KEYS[3], unpack(ARGV, 4, at - 1))
return redis.call('ZREM', KEYS[4], unpack(ARGV, at))
`)

// upgraded: owner, opening, leases of version 1; node, opening. Leaves a text in their place, so
// that a process of version 1 which had hung meanwhile cannot open the shard.
var upgradedScript = redis.NewScript(fences + `
if redis.call('EXISTS', KEYS[3]) == 0 then
	redis.call('SET', KEYS[3], 'see grants')
end
return 0
`)

// upgradeLeases makes grants of the leases that an earlier program has left.
func (s *Shard) upgradeLeases(ctx context.Context, found map[uint64]newGrant) error {
	typ, err := s.f.redis.Type(ctx, s.prefix+earlierLeases).Result()
	if err != nil {
		return failed(err)
	}
	for more := typ == "zset"; more; {
		members, err := s.f.redis.ZRangeWithScores(ctx, s.prefix+earlierLeases, 0, batch-1).Result()
		if err != nil {
			return failed(err)
		}
		if more = len(members) == batch; len(members) == 0 {
			break
		}
		var new []newGrant
		c := s.call(upgradeScript, grantsKey, earlierLeases)
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
	_, err = s.run(ctx, upgradedScript, earlierLeases)
	return err
}
