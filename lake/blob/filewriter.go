package blob

import (
	"context"
)

// fileWriter is the Writer of a local store.
type fileWriter struct {
	ctx  context.Context
	l    *Local
	key  string
	t    *temp // nil after Finish or Abort
	buf  *fileBuffer
	fail error
}

func (w *fileWriter) Write(p []byte) (int, error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	n, err := w.buf.Write(p)
	if err != nil {
		w.fail = w.l.fail("write", w.key, err)
	}
	return n, w.fail
}

// usable returns the error of an earlier call, or of the context.
func (w *fileWriter) usable() error {
	if w.t == nil {
		return w.l.fail("write", w.key, ErrWriterDone)
	}
	if w.fail == nil {
		w.fail = w.ctx.Err()
	}
	return w.fail
}

func (w *fileWriter) Finish() (Info, error) {
	if err := w.usable(); err != nil {
		w.Abort()
		return Info{}, err
	}
	defer w.Abort()
	if err := w.buf.Flush(); err != nil {
		return Info{}, w.l.fail("write", w.key, err)
	}
	info, err := w.l.commit(w.ctx, w.t, w.key, Condition{})
	if err != nil {
		return Info{}, w.l.fail("finish", w.key, err)
	}
	return info, nil
}

func (w *fileWriter) Abort() {
	if w.t != nil {
		w.buf.drop()
		w.t.discard()
		w.t, w.buf = nil, nil
	}
}
