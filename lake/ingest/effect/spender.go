package effect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/urlake/urlake/lake/blob"
)

// maxRead is how many bytes of other batches' records are read. It is enough for those of some
// thousand batches.
const maxRead = 12 << 20

// errSpent is the error of a read beyond maxRead.
var errSpent = errors.New("more would be read than the comparison is worth")

// spender is a store whose calls of Get together read about left bytes. Later calls fail with
// errSpent.
type spender struct {
	blob.Store
	left atomic.Int64
}

func newSpender(store blob.Store) *spender {
	s := &spender{Store: store}
	s.left.Store(maxRead)
	return s
}

// Get implements blob.Store.
func (s *spender) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if s.left.Load() < 0 {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, errSpent)
	}
	r, err := s.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(&spending{r, &s.left})
	if err != nil {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, err)
	}
	return data, blob.Info{Key: key, Size: int64(len(data))}, nil
}

// spending is a stream whose bytes are taken from left. It reads little at once, since other
// streams take from left, too.
type spending struct {
	r    io.Reader
	left *atomic.Int64
}

// Read implements io.Reader.
func (s *spending) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 64<<10)])
	if s.left.Add(-int64(n)) < 0 {
		err = errSpent
	}
	return n, err
}
