package coord

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/lake/codec"
)

// formatKey is the key with the version of everything that Redis has of a frontier, of which
// knownFormat is the newest that this program knows. Whatever changes the meaning of a key, of its
// members or of their fields is another version; docs/formats/frontier.md describes them.
const (
	formatKey   = "format"
	knownFormat = 2
)

// earlierLeases is the sorted set of leases of version 1, by the time at which they end.
const earlierLeases = "leases"

// format: format, nodes, shards; the newest known version. Returns the version of a frontier,
// after it has made it the newest. A frontier of which processes live, which might be of an earlier
// program, is left as it is. One that is not new and has no version is of the first.
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
redis.call('SET', KEYS[1], known)
return known
`)

// checkFormat notes the version of a frontier that has none or an earlier one, and refuses a newer
// one.
func (f *Frontier) checkFormat(ctx context.Context) error {
	prefix := "{" + f.name + "}:"
	var got any
	err := redirected(ctx, openRedirects, func() (err error) {
		got, err = formatScript.Run(ctx, f.redis, []string{prefix + formatKey, f.nodes(), prefix + "shards"}, knownFormat).Result()
		return err
	})
	found, ok := got.(int64)
	switch {
	case err != nil:
		return fmt.Errorf("redis: key %s: %w", prefix+formatKey, err)
	case !ok:
		return fmt.Errorf("frontier %q in Redis is of an earlier urlake, and %q serves it; stop all its processes first. One that was killed is forgotten after --own", f.name, got)
	case found > knownFormat:
		return &codec.FormatError{Key: "redis: key " + prefix + formatKey, Found: int(found), Known: knownFormat}
	}
	return nil
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
