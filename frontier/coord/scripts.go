package coord

import "github.com/redis/go-redis/v9"

// What Redis has of a shard, by the names of its keys.
const (
	openingKey  = "opening"
	grantsKey   = "grants"
	timesKey    = "times"
	settingsKey = "domains"
)

// Every change of a shard is one script, so it happens whole or not at all, for any number of keys
// and leases at once. All keys of a shard have its hash tag, so a shard is on one node of a
// cluster. The first two keys are owner and opening, and the first two arguments who calls and its
// opening: a process that has lost a shard changes nothing any more, nor does what it has sent
// before it opened the shard again, which may come late.
const (
	fence = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return redis.error_reply('FENCED another process owns the shard')
end
`
	fences = fence + `
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
	return redis.error_reply('REOPENED the shard was opened again meanwhile')
end
`
)

var (
	// own: owner; node, milliseconds, a process that has ended or nothing. Takes or keeps a shard,
	// and returns its owner, and 1 if it was not the process that calls.
	ownScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] and owner ~= ARGV[3] then
	return {owner, 0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], owner == ARGV[1] and 0 or 1}
`)
	// disown: owner; node. A shard that is another's by now is left alone.
	disownScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
end
return 0
`)

	// join: nodes; node, milliseconds. Notes that a process lives, and returns how many do. The
	// clock is that of Redis, since it is compared with what other processes have noted.
	joinScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZCARD', KEYS[1])
`)

	// open: owner, opening; node. Returns the number of a new opening.
	openScript = redis.NewScript(fence + `return redis.call('INCR', KEYS[2])`)

	// grant: owner, opening, grants, times; node, opening, count of grants, number and value of
	// each, count of grants to delete, their numbers, then a time and a key each. The time of a key
	// never comes nearer.
	grantScript = redis.NewScript(fences + `
local at = 4 + 2 * tonumber(ARGV[3])
if at > 4 then
	redis.call('HSET', KEYS[3], unpack(ARGV, 4, at - 1))
end
local gone = tonumber(ARGV[at])
if gone > 0 then
	redis.call('HDEL', KEYS[3], unpack(ARGV, at + 1, at + gone))
end
at = at + gone + 1
if #ARGV >= at then
	redis.call('ZADD', KEYS[4], 'GT', unpack(ARGV, at))
end
return 0
`)
	// put: owner, opening, domains, times; node, opening, count of keys, each with its settings,
	// none of which are left if these are empty, then a time and a key each. The time of a key
	// never comes nearer.
	putScript = redis.NewScript(fences + `
local at = 4 + 2 * tonumber(ARGV[3])
for i = 4, at - 1, 2 do
	if ARGV[i + 1] == '' then
		redis.call('HDEL', KEYS[3], ARGV[i])
	else
		redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
	end
end
if #ARGV >= at then
	redis.call('ZADD', KEYS[4], 'GT', unpack(ARGV, at))
end
return 0
`)
	// forget: owner, opening, times; node, opening, now. Drops times that are over.
	forgetScript = redis.NewScript(fences + `return redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', ARGV[3])`)
)
