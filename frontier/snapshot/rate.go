package snapshot

import (
	"context"
	"io"
	"time"
)

// ahead is how far a copy may be ahead of its rate before it waits: a shorter wait is not worth a
// timer.
const ahead = 5 * time.Millisecond

// rate bounds the bytes a second of one reader after the other.
type rate struct {
	perSecond int64 // 0 is any number
	// next is when the bytes that were read are due.
	next time.Time
}

// took waits until n more bytes are due. Bytes that were not read in time give no right to read
// faster later.
func (r *rate) took(ctx context.Context, n int) error {
	if r.perSecond == 0 {
		return nil
	}
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	r.next = r.next.Add(time.Duration(float64(n) / float64(r.perSecond) * float64(time.Second)))
	wait := r.next.Sub(now)
	if wait < ahead {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// reader returns a reader that is as fast as the rate.
func (r *rate) reader(ctx context.Context, from io.Reader) io.Reader {
	return &ratedReader{ctx, r, from}
}

type ratedReader struct {
	ctx  context.Context
	rate *rate
	from io.Reader
}

func (r *ratedReader) Read(p []byte) (n int, err error) {
	n, err = r.from.Read(p)
	if waited := r.rate.took(r.ctx, n); err == nil {
		err = waited
	}
	return n, err
}
