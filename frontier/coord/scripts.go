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

// settings are the functions for what the hash domains has of a key: a letter and its values each,
// after a space. d: delay; p: paused; x: excluded; b: blocked until; c: cap; f: failures one after
// the other, time of the last; r: a delay of robots.txt, until when it holds. Times and delays are
// in milliseconds.
const settings = `
local function held(set)
	return set and (string.find(set, 'p', 1, true) or string.find(set, 'x', 1, true))
end
local function blocked(set)
	return set and tonumber(string.match(set, 'b(%d+)')) or 0
end
local function delay(set, default, now)
	if not set then
		return default
	end
	local longest = tonumber(string.match(set, 'd(%d+)')) or default
	for ms, till in string.gmatch(set, 'r(%d+),(%d+)') do
		if tonumber(till) > now then
			longest = math.max(longest, tonumber(ms))
		end
	end
	return longest
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

	// wake: owner, ready, times, domains; node, now, keys. Keys of which something waits in the
	// crawl become ready at the time at which they may be fetched from next. Those that are held do
	// not.
	wakeScript = redis.NewScript(fence + settings + `
local now = tonumber(ARGV[2])
local names = {unpack(ARGV, 3)}
local next = redis.call('EXISTS', KEYS[3]) == 1 and redis.call('ZMSCORE', KEYS[3], unpack(names))
local set = redis.call('EXISTS', KEYS[4]) == 1 and redis.call('HMGET', KEYS[4], unpack(names))
local add = {'LT'}
for i = 1, #names do
	local own = set and set[i]
	if not (own and held(own)) then
		local score = ARGV[2]
		if own or next and next[i] then
			score = math.max(now, next and next[i] and tonumber(next[i]) or 0, blocked(own))
		end
		local n = #add
		add[n + 1], add[n + 2] = score, names[i]
	end
end
if #add > 1 then
	redis.call('ZADD', KEYS[2], unpack(add))
end
return #add
`)
	// claim: owner, ready, times, domains; node, now, limit, default delay, and perhaps the only
	// keys to take. Returns keys that may be fetched from now, with zero bytes in between, and puts
	// each off by its delay. Without any it returns when the next one is, as a number. A time in
	// ready is never later than the true one, which another crawl may have moved: the script
	// corrects those that it meets.
	claimScript = redis.NewScript(fence + settings + `
local now, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local default = tonumber(ARGV[4])
-- Most keys have no settings: when they are next is formatted once for all of them.
local usual = string.format('%.0f', now + default)
local rests = default > 0
local hastimes = redis.call('EXISTS', KEYS[3]) == 1
local hassets = redis.call('EXISTS', KEYS[4]) == 1
-- Lists are counted here: Lua searches for the end of one whenever it is asked for the length.
local got, n = {}, 0
local taken
local function look(names)
	local next = hastimes and redis.call('ZMSCORE', KEYS[3], unpack(names))
	local set = hassets and redis.call('HMGET', KEYS[4], unpack(names))
	local fix, ready, times, gone = {}, {}, {}, {}
	local readied, timed = 0, 0
	for i = 1, #names do
		local name = names[i]
		local at = next and next[i] and tonumber(next[i]) or 0
		local own = set and set[i]
		if own then
			at = math.max(at, blocked(own))
		end
		if taken and taken[name] then
			-- It rests for no time, and comes again.
		elseif own and held(own) then
			gone[#gone + 1] = name
		elseif at > now then
			fix[#fix + 1] = at
			fix[#fix + 1] = name
		elseif n < limit then
			local score = usual
			local put = rests
			if own then
				at = now + delay(own, default, now)
				score = string.format('%.0f', at)
				put = at > now
			end
			ready[readied + 1], ready[readied + 2] = score, name
			readied = readied + 2
			if put then
				times[timed + 1], times[timed + 2] = score, name
				timed = timed + 2
			end
			n = n + 1
			got[n] = name
		end
	end
	if readied > 0 then
		redis.call('ZADD', KEYS[2], unpack(ready))
	end
	if timed > 0 then
		redis.call('ZADD', KEYS[3], unpack(times))
		hastimes = true
	end
	if #fix > 0 then
		redis.call('ZADD', KEYS[2], unpack(fix))
	end
	if #gone > 0 then
		redis.call('ZREM', KEYS[2], unpack(gone))
	end
	if #fix == 0 and #gone == 0 then
		return false
	end
	taken = {}
	for i = 1, n do
		taken[got[i]] = true
	end
	return true
end
if #ARGV > 4 then
	local first = -1
	local names = {}
	local asked = {unpack(ARGV, 5)}
	for i, score in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(asked))) do
		if score and tonumber(score) <= now and #names < limit then
			names[#names + 1] = asked[i]
		elseif score and (first < 0 or tonumber(score) < first) then
			first = tonumber(score)
		end
	end
	if #names > 0 then
		look(names)
	end
	if n == 0 and #names > 0 then
		first = now
	end
	return n > 0 and table.concat(got, '\0') or first
end
-- A round corrects at least one time or is the last, and the rounds are few, so that a script does
-- not stop Redis for others. Where one was wrong, many may be: another crawl has all these keys.
local least = 0
for round = 1, 8 do
	local names = redis.call('ZRANGE', KEYS[2], '-inf', ARGV[2], 'BYSCORE', 'LIMIT', 0, math.max(limit - n, least))
	if #names == 0 or not look(names) or n >= limit then
		break
	end
	least = 200
end
if n == 0 then
	local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
	return tonumber(first[2] or -1)
end
return table.concat(got, '\0')
`)
	// grant: owner, grants, ready; node, count of grants, number and value of each, count of grants
	// to delete, their numbers, then keys with nothing left in the crawl: these are ready no more.
	grantScript = redis.NewScript(fence + `
local at = 3 + 2 * tonumber(ARGV[2])
if at > 3 then
	redis.call('HSET', KEYS[2], unpack(ARGV, 3, at - 1))
end
local gone = tonumber(ARGV[at])
if gone > 0 then
	redis.call('HDEL', KEYS[2], unpack(ARGV, at + 1, at + gone))
end
at = at + gone + 1
if #ARGV >= at then
	redis.call('ZREM', KEYS[3], unpack(ARGV, at))
end
return 0
`)
	// report: owner, times, domains; node, now, default delay, longest back-off, a letter for each
	// key that says what came of a URL of it (o: answered, f: failed, -: that says nothing of the
	// server), how many servers said how long they want to be left alone, the number of the key and
	// that time for each of them, and the keys, of which some may be the same. Notes failures and
	// rests.
	reportScript = redis.NewScript(fence + settings + `
local now = tonumber(ARGV[2])
local what = ARGV[5]
local asks = tonumber(ARGV[6])
local after = {}
for i = 1, asks do
	after[tonumber(ARGV[5 + 2 * i])] = tonumber(ARGV[6 + 2 * i])
end
local keys = {unpack(ARGV, 7 + 2 * asks)}
local names, index, of = {}, {}, {}
for i = 1, #keys do
	local name = keys[i]
	if not index[name] then
		names[#names + 1] = name
		index[name] = #names
	end
	of[i] = index[name]
end
local set = redis.call('HMGET', KEYS[3], unpack(names))
local fails, wait = {}, {}
for i = 1, #names do
	fails[i] = set[i] and tonumber(string.match(set[i], 'f(%d+)')) or 0
end
for i = 1, #keys do
	local at = of[i]
	local rest = after[i] or 0
	local came = string.sub(what, i, i)
	if came == 'o' then
		fails[at] = 0
	elseif came == 'f' then
		fails[at] = fails[at] + 1
		if rest == 0 then
			rest = math.min(delay(set[at], tonumber(ARGV[3]), now) * 2 ^ math.min(fails[at], 20), tonumber(ARGV[4]))
		end
	end
	wait[at] = math.max(wait[at] or 0, rest)
end
local times, change, drop = {}, {}, {}
for i = 1, #names do
	local name = names[i]
	if wait[i] > 0 then
		times[#times + 1] = now + wait[i]
		times[#times + 1] = name
	end
	local before = set[i] or ''
	local later = string.gsub(before, ' ?f%d+,%d+', '')
	if fails[i] > 0 then
		later = later .. string.format(' f%d,%.0f', fails[i], now)
	end
	if later == '' and before ~= '' then
		drop[#drop + 1] = name
	elseif later ~= before then
		change[#change + 1] = name
		change[#change + 1] = later
	end
end
if #times > 0 then
	redis.call('ZADD', KEYS[2], 'GT', unpack(times))
end
if #drop > 0 then
	redis.call('HDEL', KEYS[3], unpack(drop))
end
if #change > 0 then
	redis.call('HSET', KEYS[3], unpack(change))
end
return 0
`)
	// change: owner, domains; node, key, then a letter and what to put in the place of all that the
	// settings of the key have with this letter, each.
	changeScript = redis.NewScript(fence + `
local set = redis.call('HGET', KEYS[2], ARGV[2]) or ''
for i = 3, #ARGV, 2 do
	set = string.gsub(set, ' ?' .. ARGV[i] .. '[%d,]*', '')
	if ARGV[i + 1] ~= '' then
		set = set .. ' ' .. ARGV[i + 1]
	end
end
if set == '' then
	redis.call('HDEL', KEYS[2], ARGV[2])
else
	redis.call('HSET', KEYS[2], ARGV[2], set)
end
return set
`)
	// forget: owner, times, domains; node, now, cursor, age. Drops times that are over, and from
	// some of the settings what is over or, of failures, of that age. Returns where to go on.
	forgetScript = redis.NewScript(fence + `
local now = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])
local got = redis.call('HSCAN', KEYS[3], ARGV[3], 'COUNT', 500)
for i = 1, #got[2], 2 do
	local name, before = got[2][i], got[2][i + 1]
	local after = string.gsub(before, ' ?([bfr])([%d,]+)', function(letter, values)
		local till = tonumber(string.match(values, '(%d+)$'))
		if till + (letter == 'f' and tonumber(ARGV[4]) or 0) <= now then
			return ''
		end
	end)
	if after == '' then
		redis.call('HDEL', KEYS[3], name)
	elseif after ~= before then
		redis.call('HSET', KEYS[3], name, after)
	end
end
return got[1]
`)
)
