package client

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// InOrder runs work that produce hands out, up to atOnce pieces at the same time, and calls consume
// with the result of each in the order in which they were handed out. So a position that consume
// notes has everything before it done. The first error ends it.
func InOrder[T any](
	ctx context.Context, atOnce int, produce func(ctx context.Context, hand func(work func(context.Context) (T, error)) error) error,
	consume func(T) error,
) error {
	type piece struct {
		out  T
		err  error
		done chan struct{}
	}
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan *piece, atOnce-1)
	g.Go(func() error {
		defer close(queue)
		return produce(ctx, func(work func(context.Context) (T, error)) error {
			p := &piece{done: make(chan struct{})}
			select {
			case queue <- p:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			go func() {
				defer close(p.done)
				p.out, p.err = work(ctx)
			}()
			return nil
		})
	})
	g.Go(func() error {
		for p := range queue {
			<-p.done
			if p.err != nil {
				return p.err
			}
			if err := consume(p.out); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}
