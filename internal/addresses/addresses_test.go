package addresses

import (
	"errors"
	"net"
	"testing"
)

// TestTakeFailsWhereAProgramListens holds that nothing is kept of a failed attempt.
func TestTakeFailsWhereAProgramListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	var a Set
	defer a.Release()
	if got, err := a.Take(address); err == nil || errors.Is(err, errHeld) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := a.Prefer(address); err != nil || got == address {
		t.Errorf("%q instead, %v", got, err)
	}
	l.Close()
	if got, err := a.Take(address); err != nil || got != address {
		t.Errorf("afterwards %q, %v", got, err)
	}
}
