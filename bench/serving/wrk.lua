-- Requests the paths of a file in order, each thread from another place on, and prints the result as
-- JSON. Arguments: the file, the number of threads, and how many milliseconds a connection pauses
-- before each request.
local paths = {}
local at = 0
local thread = 0

function setup(t)
	t:set("number", thread)
	thread = thread + 1
end

function init(args)
	for line in io.lines(args[1]) do
		paths[#paths + 1] = wrk.format("GET", line)
	end
	at = math.floor(#paths / tonumber(args[2]) * number)
	local pause = tonumber(args[3])
	if pause > 0 then
		function delay()
			return pause
		end
	end
end

function request()
	at = at % #paths + 1
	return paths[at]
end

function done(summary, latency)
	local e = summary.errors
	print(string.format('\nresult {"requests": %d, "microseconds": %d, "errors": %d, "p50": %d, "p95": %d, "p99": %d}',
		summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
		latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
