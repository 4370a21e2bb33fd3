//go:build unix

package command

import (
	"strings"
	"testing"

	client "github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/internal/testenv"
)

// TestALakeThatIsNone holds that frontierd does not start if it cannot read the lake.
func TestALakeThatIsNone(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	redisKeys := func() int64 {
		opt, err := client.ParseURL(redis.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := client.NewClient(opt)
		defer c.Close()
		n, err := c.DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for flag, want := range map[string]string{
		dir: "it has no manifest", "gopher://x": "none of file, s3",
	} {
		cmd := New()
		cmd.SetArgs([]string{"--redis", redis.URL, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--lake", flag})
		cmd.SetErr(new(strings.Builder))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--lake %s: %v, want %q", flag, err, want)
		}
		if n := redisKeys(); n != 0 {
			t.Errorf("--lake %s: it has left %d keys in Redis", flag, n)
		}
	}
}
