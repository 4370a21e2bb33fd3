package api

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// transferDeadlines notes the deadlines of what is sent.
type transferDeadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *transferDeadlines) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

// Speed that is not used is not saved up.
func TestLowestSpeedHoldsForEveryStretch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &transferDeadlines{ResponseRecorder: httptest.NewRecorder()}
		x := newTransfer(Flow{Rate: piece, Grace: time.Minute, Fair: 1, Judged: time.Hour}, w)
		// Whatever was sent before, a piece gets the same time.
		for range 100 {
			if err := x.WriteAll(make([]byte, piece), w.Write, nil); err != nil {
				t.Fatal(err)
			}
		}
		if allowed := time.Until(w.set[len(w.set)-1]); allowed > time.Minute+time.Second {
			t.Errorf("after 100 pieces that took no time the next one may take %v", allowed)
		}
		// A client that was behind has less.
		x.behind = 40 * time.Second
		if err := x.WriteAll(make([]byte, piece), w.Write, nil); err != nil {
			t.Fatal(err)
		}
		if allowed := time.Until(w.set[len(w.set)-1]); allowed > 21*time.Second {
			t.Errorf("a client that is behind by 40 s may take %v", allowed)
		}
		if x.behind > 39500*time.Millisecond {
			t.Errorf("after a piece without delay it is behind by %v", x.behind)
		}
	})
}
