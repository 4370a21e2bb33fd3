package frontier

import "context"

// WarnOfLarge logs the queues that are too large now.
func (f *Frontier) WarnOfLarge(ctx context.Context) error { return f.warnOfLarge(ctx) }
