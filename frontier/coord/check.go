package coord

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// rewriteMinSize is from which size on Redis may write its file anew without that being a load: at
// 50,000 claims a second the file grows by some 10 MB a second.
const rewriteMinSize = 1 << 29

// Check says what about a Redis loses data, stops it or makes it slow: each advice names the
// setting, its value and what to set. Fatal says that a frontier must not run on it. Local says
// that it is on this machine, whose memory settings are looked at, too.
func Check(ctx context.Context, client redis.UniversalClient, local bool) (advice []string, fatal bool, err error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, false, fmt.Errorf("redis: %w", err)
	}
	get := func(name string) string {
		v, err := client.ConfigGet(ctx, name).Result()
		if err != nil { // some services forbid CONFIG
			return ""
		}
		return v[name]
	}
	if v := get("maxmemory-policy"); v != "" && v != "noeviction" {
		advice = append(advice, "maxmemory-policy is "+v+": Redis may drop leases and times. Set noeviction.")
		fatal = true
	}
	switch v, how := get("appendonly"), get("appendfsync"); {
	case v == "no":
		advice = append(advice, "appendonly is no: a Redis that dies forgets leases, delays and pauses since its last snapshot. Set yes.")
	case v == "yes" && how == "everysec":
		advice = append(advice, "appendfsync is everysec: a machine that dies forgets up to a second of leases and times, "+
			"so URLs claimed in that second can be claimed again, and domains asked sooner. Set always to lose nothing.")
	case v == "yes" && how == "no":
		advice = append(advice, "appendfsync is no: a machine that dies forgets leases and times of half a minute. Set everysec or always.")
	}
	size, err := strconv.ParseInt(get("auto-aof-rewrite-min-size"), 10, 64)
	if err == nil && size < rewriteMinSize && get("auto-aof-rewrite-percentage") != "0" {
		info, err := client.InfoMap(ctx, "persistence").Result()
		if err != nil {
			return nil, false, fmt.Errorf("redis: %w", err)
		}
		if now, err := strconv.ParseInt(info["Persistence"]["aof_current_size"], 10, 64); err == nil && now > size {
			advice = append(advice, fmt.Sprintf("auto-aof-rewrite-min-size is %d: under load Redis writes its file anew every few seconds, "+
				"and takes a processor for that. Set 1gb.", size))
		}
	}
	if local {
		if b, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err == nil && strings.TrimSpace(string(b)) != "1" {
			advice = append(advice, "vm.overcommit_memory is "+strings.TrimSpace(string(b))+
				": the kernel may refuse or kill Redis while it rewrites its file. Set 1.")
		}
	}
	return advice, fatal, nil
}
