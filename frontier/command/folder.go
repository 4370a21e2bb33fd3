package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/journal"
)

// folderFile has the id of a folder of --data. Redis has it, too: leases and delays of one frontier
// are of no use for the files of another, whose entries have the same numbers.
const folderFile = "frontier-id"

// openFolder makes the folder of --data, or checks that it is the one that Redis knows.
func openFolder(ctx context.Context, c *coord.Frontier, dir, name string, log *slog.Logger) error {
	if err := journal.MakeDir(dir); err != nil {
		return fmt.Errorf("--data %s: %w", dir, err)
	}
	file := filepath.Join(dir, folderFile)
	known, err := c.Folder(ctx)
	if err != nil {
		return err
	}
	id, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist) && known != "":
		return fmt.Errorf("--data %s has no files of the frontier %q that Redis knows: give its folder, or another --name", dir, name)
	case errors.Is(err, os.ErrNotExist):
		if id, err = makeID(dir, file); err != nil {
			return err
		}
	case err != nil:
		return err
	case known == "" && hasShards(dir):
		log.Warn("Redis does not know the frontier of --data: its leases, delays and pauses are lost, its URLs are not", "data", dir)
	}
	known, err = c.SetFolder(ctx, strings.TrimSpace(string(id)))
	if err == nil && known != strings.TrimSpace(string(id)) {
		err = fmt.Errorf("--data %s is of another frontier than %q in Redis: give its folder, or another --name", dir, name)
	}
	return err
}

// makeID makes the file with the id, or reads that of another process that began at the same time.
func makeID(dir, file string) ([]byte, error) {
	temp, err := os.CreateTemp(dir, ".id-")
	if err != nil {
		return nil, err
	}
	_, err = temp.WriteString(rand.Text() + "\n")
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		if err = os.Link(temp.Name(), file); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(temp.Name()), journal.SyncDir(dir)); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// hasShards says whether a frontier has worked in a folder.
func hasShards(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "shard-*"))
	return err == nil && len(names) > 0
}
