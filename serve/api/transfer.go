package api

// A transfer sends an answer or receives the body of a request, and cuts off clients that are too
// slow.

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Flow says how fast clients have to send requests and to receive answers.
type Flow struct {
	// Rate is the lowest speed in bytes a second. A client may fall behind it by Grace, which is
	// long enough for what the kernel takes at once.
	Rate  int
	Grace time.Duration
	// Fair is the speed in bytes a second below which a client is cut when others wait for the
	// memory that it holds. It is judged by what it did in the time Judged, or a little more.
	Fair   int
	Judged time.Duration
}

// defaultFlow is that of a server. 16 KiB a second is a slow modem line, 256 KiB a slow mobile one.
var defaultFlow = Flow{Rate: 16 << 10, Grace: 15 * time.Second, Fair: 256 << 10, Judged: 5 * time.Second}

// piece is how many bytes are sent or received between two looks at the clock.
const piece = 64 << 10

// halvedFrom is how large memory is that WriteAll gives back half of.
const halvedFrom = 1 << 20

// errSlow is the error of a transfer that was cut because others waited for its memory.
var errSlow = errors.New("the client is slow, and others wait for room")

// Transfer is what the client of a request sends or receives. Its time counts only while the client
// lets the server wait, and speed that is not used is not saved up: so the lowest speed holds for
// every stretch of a transfer.
type Transfer struct {
	Flow
	w       http.ResponseWriter
	control *http.ResponseController
	// Sent counts bytes of the answer.
	Sent int64

	mu sync.Mutex
	// behind is how far the client is behind the lowest speed.
	behind time.Duration
	// moved and waited are the bytes and the time of the last pieces, see last.
	moved, waited float64
	// cut ends the piece that is under way, which began at began.
	cut   func()
	began time.Time
	// evicted tells that others wait for its memory.
	evicted bool
}

// newTransfer returns the transfer of a request.
func newTransfer(f Flow, w http.ResponseWriter) *Transfer {
	return &Transfer{Flow: f, w: w, control: http.NewResponseController(w)}
}

// move sends or receives a piece of at most n bytes, within a time that it sets by deadline.
func (t *Transfer) move(deadline func(time.Time) error, n int, piece func() (int, error)) (int, error) {
	began := time.Now()
	t.mu.Lock()
	if t.evicted {
		t.mu.Unlock()
		return 0, errSlow
	}
	// A writer without deadlines is no connection of this server, such as that of a test.
	_ = deadline(began.Add(t.Grace - t.behind + t.due(n)))
	t.cut = func() { _ = deadline(began) }
	t.began = began
	t.mu.Unlock()

	n, err := piece()

	t.mu.Lock()
	defer t.mu.Unlock()
	took := time.Since(began)
	t.cut = nil
	t.behind = max(0, t.behind+took-t.due(n))
	t.moved, t.waited = t.last(n, took)
	if t.evicted && err != nil {
		err = errSlow
	}
	return n, err
}

// due is how long n bytes may take.
func (t *Transfer) due(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(t.Rate)
}

// WriteAll sends all of data by write. While it is sent to a slow client, halve may copy the rest,
// once half of what was there is sent.
func (t *Transfer) WriteAll(data []byte, write func([]byte) (int, error), halve func([]byte) []byte) (err error) {
	began, held := time.Now(), cap(data)
	for len(data) > 0 && err == nil {
		piece := data[:min(len(data), piece)]
		var n int
		n, err = t.move(t.control.SetWriteDeadline, len(piece), func() (int, error) { return write(piece) })
		t.Sent += int64(n)
		data = data[n:]
		if halve != nil && len(data) <= held/2 && held > halvedFrom && time.Since(began) > t.Judged {
			data = halve(data)
			held = cap(data)
		}
	}
	return err
}

// WriteFlushed writes a piece that the client shall have now.
func (t *Transfer) WriteFlushed(piece []byte) (int, error) {
	n, err := t.w.Write(piece)
	if err == nil {
		err = t.control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) { // no connection of a server, such as that of a test
		err = nil
	}
	return n, err
}

// reader receives the body of a request.
type reader struct {
	*Transfer
	Body io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	return r.move(r.control.SetReadDeadline, 1, func() (int, error) { return r.Body.Read(p) })
}

// Received ends the time for the body, so that the time for the answer begins.
func (t *Transfer) Received() {
	_ = t.control.SetReadDeadline(time.Time{})
	_ = t.control.SetWriteDeadline(time.Time{})
}

// isSlow reports whether err ended a transfer because its client was slow.
func isSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errSlow) }

// Speed is that of the last pieces, in bytes a second. It is not known before there are some.
func (t *Transfer) Speed() (speed float64, known, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved, waited := t.moved, t.waited
	if t.cut != nil {
		moved, waited = t.last(0, time.Since(t.began))
	}
	return moved / waited, waited >= t.Judged.Seconds()/2, t.evicted
}

// last returns the bytes and the seconds of the last pieces with one more. What was before fades
// while the client lets the server wait, and is forgotten after the time Judged.
func (t *Transfer) last(n int, took time.Duration) (moved, waited float64) {
	left := max(0, 1-took.Seconds()/t.Judged.Seconds())
	return t.moved*left + float64(n), t.waited*left + took.Seconds()
}

// Evict cuts the transfer.
func (t *Transfer) Evict() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evicted = true
	if t.cut != nil {
		t.cut()
	}
}
