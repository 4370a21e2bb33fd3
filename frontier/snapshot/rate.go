package snapshot

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// readAtOnce is how many bytes of a file are read before the rate is looked at, at most.
const readAtOnce = 256 << 10

// newLimiter bounds the bytes a second of one reader after the other; 0 is any number. Bytes that
// were not read in time allow no more than readAtOnce later.
func newLimiter(perSecond int64) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, readAtOnce)
	}
	return rate.NewLimiter(rate.Limit(perSecond), readAtOnce)
}

// ratedReader is as fast as the limiter allows.
type ratedReader struct {
	ctx     context.Context
	limiter *rate.Limiter
	from    io.Reader
}

func (r *ratedReader) Read(p []byte) (n int, err error) {
	n, err = r.from.Read(p[:min(len(p), readAtOnce)])
	if waited := r.limiter.WaitN(r.ctx, n); err == nil {
		err = waited
	}
	return n, err
}
