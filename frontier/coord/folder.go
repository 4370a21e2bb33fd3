package coord

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// folder is the key with the id of the folder of the frontier's files.
const folder = "folder"

// Folder returns the id of the folder that the frontier's files are in, "" if Redis has none.
func (f *Frontier) Folder(ctx context.Context) (id string, err error) {
	id, err = f.redis.Get(ctx, "{"+f.name+"}:"+folder).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return id, failed(err)
}

// SetFolder notes the id of the folder unless there is one, and returns the one that holds.
func (f *Frontier) SetFolder(ctx context.Context, id string) (string, error) {
	if err := f.redis.SetNX(ctx, "{"+f.name+"}:"+folder, id, 0).Err(); err != nil {
		return "", failed(err)
	}
	return f.Folder(ctx)
}
