//go:build unix

package command

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestALakeThatIsNone holds that frontierd does not start if it cannot read the lake.
func TestALakeThatIsNone(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	for flag, want := range map[string]string{
		dir: "it has no manifest", "gopher://x": "none of file, s3",
	} {
		cmd := New()
		cmd.SetArgs([]string{"--redis", redis.URL, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--lake", flag})
		cmd.SetErr(new(strings.Builder))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--lake %s: %v, want %q", flag, err, want)
		}
	}
}
