package coord

import "github.com/redis/go-redis/v9"

// Every transition is one script, so it happens whole or not at all, and for any number of queues
// and leases at once. All keys of a shard have its hash tag, so a shard is on one node of a
// cluster. The first key is the owner's, and the first argument who calls: a process that has lost
// a shard changes nothing any more.
const fence = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return redis.error_reply('FENCED another process owns the shard')
end
`

var (
	// own: owner; node, milliseconds. Takes or keeps a shard, and returns its owner, and 1 if
	// nobody owned it before.
	ownScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
	return {owner, 0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], owner and 0 or 1}
`)
	// disown: owner; node.
	disownScript = redis.NewScript(fence + `return redis.call('DEL', KEYS[1])`)

	// join: nodes; node, milliseconds. Notes that a process lives, and returns how many do. The
	// clock is that of Redis, since it is compared with what other processes have noted.
	joinScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZCARD', KEYS[1])
`)

	// wake: owner, ready, idle, paused; node, now, queues. Queues that have something waiting
	// become ready at the time at which they may be fetched from next.
	wakeScript = redis.NewScript(fence + `
local names = {unpack(ARGV, 3)}
local next = redis.call('ZMSCORE', KEYS[3], unpack(names))
local paused = redis.call('SMISMEMBER', KEYS[4], unpack(names))
local add = {'NX'}
local gone = {}
for i, name in ipairs(names) do
	if paused[i] == 0 then
		add[#add + 1] = math.max(tonumber(ARGV[2]), tonumber(next[i] or 0))
		add[#add + 1] = name
		gone[#gone + 1] = name
	end
end
if #gone > 0 then
	redis.call('ZADD', KEYS[2], unpack(add))
	redis.call('ZREM', KEYS[3], unpack(gone))
end
return #gone
`)
	// claim: owner, ready, delays; node, now, limit, URLs a queue, default delay. Returns queues
	// that may be fetched from now, and puts each off by its delay for every URL. Without any it
	// returns when the next one is, as a number.
	claimScript = redis.NewScript(fence + `
local names = redis.call('ZRANGE', KEYS[2], '-inf', ARGV[2], 'BYSCORE', 'LIMIT', 0, ARGV[3])
if #names == 0 then
	local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
	return tonumber(first[2] or -1)
end
local delays = redis.call('HMGET', KEYS[3], unpack(names))
local add = {}
for i, name in ipairs(names) do
	add[#add + 1] = tonumber(ARGV[2]) + tonumber(ARGV[4]) * tonumber(delays[i] or ARGV[5])
	add[#add + 1] = name
end
redis.call('ZADD', KEYS[2], unpack(add))
return names
`)
	// lease: owner, leases, ready, idle; node, now, count of leases, then an expiry and a lease
	// each, then queues with nothing left: these are ready no more, but keep their time.
	leaseScript = redis.NewScript(fence + `
local n = tonumber(ARGV[3])
if n > 0 then
	redis.call('ZADD', KEYS[2], unpack(ARGV, 4, 3 + 2 * n))
end
local empty = {unpack(ARGV, 4 + 2 * n)}
if #empty > 0 then
	local next = redis.call('ZMSCORE', KEYS[3], unpack(empty))
	local keep = {}
	for i, name in ipairs(empty) do
		if next[i] and tonumber(next[i]) > tonumber(ARGV[2]) then
			keep[#keep + 1] = next[i]
			keep[#keep + 1] = name
		end
	end
	if #keep > 0 then
		redis.call('ZADD', KEYS[4], unpack(keep))
	end
	redis.call('ZREM', KEYS[3], unpack(empty))
end
return n
`)
	// settle: owner, leases; node, now, leases. Ends leases, and returns for each 1, or 0 if it had
	// ended before, as by standing in the list twice.
	settleScript = redis.NewScript(fence + `
local leases = {unpack(ARGV, 3)}
local ends = redis.call('ZMSCORE', KEYS[2], unpack(leases))
local live = {}
local answer = {}
local taken = {}
for i, lease in ipairs(leases) do
	answer[i] = 0
	if ends[i] and tonumber(ends[i]) > tonumber(ARGV[2]) and not taken[lease] then
		taken[lease] = true
		answer[i] = 1
		live[#live + 1] = lease
	end
end
if #live > 0 then
	redis.call('ZREM', KEYS[2], unpack(live))
end
return answer
`)
	// extend: owner, leases; node, now, expiry, leases. Prolongs leases that have not ended, and
	// returns for each 1 or 0.
	extendScript = redis.NewScript(fence + `
local leases = {unpack(ARGV, 4)}
local ends = redis.call('ZMSCORE', KEYS[2], unpack(leases))
local answer = {}
for i, lease in ipairs(leases) do
	answer[i] = 0
	if ends[i] and tonumber(ends[i]) > tonumber(ARGV[2]) then
		answer[i] = 1
		redis.call('ZADD', KEYS[2], 'XX', ARGV[3], lease)
	end
end
return answer
`)
	// expire: owner, leases; node, now, limit. Removes leases that have ended and returns them.
	expireScript = redis.NewScript(fence + `
local ended = redis.call('ZRANGE', KEYS[2], '-inf', ARGV[2], 'BYSCORE', 'LIMIT', 0, ARGV[3])
if #ended > 0 then
	redis.call('ZREM', KEYS[2], unpack(ended))
end
return ended
`)
	// putOff: owner, ready, idle; node, then a time and a queue each. A queue is not fetched from
	// before that time. It never comes nearer by this.
	putOffScript = redis.NewScript(fence + `
for i = 2, #ARGV, 2 do
	if redis.call('ZSCORE', KEYS[2], ARGV[i + 1]) then
		redis.call('ZADD', KEYS[2], 'XX', 'GT', ARGV[i], ARGV[i + 1])
	else
		redis.call('ZADD', KEYS[3], 'GT', ARGV[i], ARGV[i + 1])
	end
end
return 0
`)
	// pause: owner, ready, idle, paused; node, queue, 1 or 0, now, whether something waits.
	pauseScript = redis.NewScript(fence + `
if ARGV[3] == '1' then
	redis.call('SADD', KEYS[4], ARGV[2])
	local next = redis.call('ZSCORE', KEYS[2], ARGV[2])
	if next then
		redis.call('ZREM', KEYS[2], ARGV[2])
		redis.call('ZADD', KEYS[3], next, ARGV[2])
	end
elseif redis.call('SREM', KEYS[4], ARGV[2]) == 1 and ARGV[5] == '1' then
	local next = redis.call('ZSCORE', KEYS[3], ARGV[2]) or ARGV[4]
	redis.call('ZREM', KEYS[3], ARGV[2])
	redis.call('ZADD', KEYS[2], next, ARGV[2])
end
return 0
`)
	// forget: owner, idle; node, now. Queues without anything waiting whose delay is over need no
	// time any more.
	forgetScript = redis.NewScript(fence + `return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])`)
)
