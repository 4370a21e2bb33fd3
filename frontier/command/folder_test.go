//go:build unix

package command

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// A frontier is opened with its own folder only, whoever begins first, and with a Redis that has
// forgotten it.
func TestOpenFolder(t *testing.T) {
	server := testenv.NewRedis(t)
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	defer client.Close()
	var log bytes.Buffer
	open := func(name, dir string) error {
		c, err := coord.Open(t.Context(), client, name, "node", 4)
		if err != nil {
			t.Fatal(err)
		}
		return openFolder(t.Context(), c, dir, name, slog.New(slog.NewTextHandler(&log, nil)))
	}
	refused := func(name, dir, want string) {
		t.Helper()
		if err := open(name, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s in %s: %v, want %s", name, dir, err, want)
		}
	}
	mine, other := filepath.Join(t.TempDir(), "a", "b"), t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := open("f", mine); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	refused("f", other, "has no files of the frontier \"f\"")
	if err := open("g", other); err != nil {
		t.Error(err)
	}
	refused("f", other, "is of another frontier than \"f\"")
	refused("f", filepath.Join(mine, folderFile), "--data")
	if log.Len() > 0 {
		t.Errorf("%s", &log)
	}
	if err := os.Mkdir(filepath.Join(mine, "shard-000"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := open("f", mine); err != nil || !strings.Contains(log.String(), "Redis does not know the frontier") {
		t.Errorf("%v: %s", err, &log)
	}
}
