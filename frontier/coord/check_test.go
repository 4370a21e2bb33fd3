//go:build unix

package coord_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// TestCheck says which settings of a Redis are named.
func TestCheck(t *testing.T) {
	const everysec = "appendfsync is everysec"
	for _, c := range []struct {
		args  []string
		bytes int // that are written first
		want  []string
		fatal bool
	}{
		{nil, 1 << 20, []string{everysec}, false},
		{[]string{"--maxmemory-policy", "allkeys-lru"}, 0, []string{"maxmemory-policy is allkeys-lru", everysec}, true},
		// So much growth does not come.
		{[]string{"--auto-aof-rewrite-min-size", "500kb", "--auto-aof-rewrite-percentage", "1000000000"}, 1 << 20,
			[]string{everysec, "auto-aof-rewrite-min-size is 512000"}, false},
		{[]string{"--auto-aof-rewrite-min-size", "500kb", "--auto-aof-rewrite-percentage", "0"}, 1 << 20, []string{everysec}, false},
		{[]string{"--auto-aof-rewrite-min-size", "500kb"}, 0, []string{everysec}, false},
		{[]string{"--auto-aof-rewrite-min-size", "1gb"}, 1 << 20, []string{everysec}, false},
	} {
		opt, err := redis.ParseURL(testenv.NewRedis(t, c.args...).URL)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(opt)
		defer client.Close()
		if err := client.Set(t.Context(), "key", strings.Repeat("x", c.bytes), 0).Err(); err != nil {
			t.Fatal(err)
		}
		advice, fatal, err := coord.Check(t.Context(), client, false)
		begins := func(text, start string) bool { return strings.HasPrefix(text, start+":") }
		if err != nil || fatal != c.fatal || !slices.EqualFunc(advice, c.want, begins) {
			t.Errorf("%v: %q, %v, %v, want %q, %v", c.args, advice, fatal, err, c.want, c.fatal)
		}
	}
}
