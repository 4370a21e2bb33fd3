package api

import (
	"bytes"
	"context"
)

// compressFrom is the size of the smallest document that is compressed, in bytes. Smaller ones fit
// into one packet anyway.
const compressFrom = 1 << 10

// compressPiece is how much is compressed between two chances for other requests, in bytes.
const compressPiece = 16 << 10

// compress returns the document in an encoding. It waits for the request's turn, whether anybody
// still waits for the answer or not: a turn does not last for long.
func (r *request) compress(name string) []byte {
	ctx := context.WithoutCancel(r.ctx)
	body := r.doc.buf
	packed := bytes.NewBuffer(make([]byte, 0, len(body)/4))
	e := newCoding(name, packed)
	err := r.turn.Take(ctx)
	for err == nil && len(body) > 0 {
		n := min(len(body), compressPiece)
		if _, err = e.Write(body[:n]); err == nil && len(body) > n {
			err = r.turn.Yield(ctx)
		}
		body = body[n:]
	}
	if err == nil {
		err = e.Close()
	}
	r.turn.Give()
	if err != nil {
		panic(err) // memory takes everything, and the context does not end
	}
	freeEncoder(name, e)
	return packed.Bytes()
}
