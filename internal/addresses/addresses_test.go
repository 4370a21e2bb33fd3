package addresses

import (
	"errors"
	"net"
	"runtime"
	"testing"
)

// TestAHeldAddressStaysWhileItsProgramIsDown: another group gets other addresses, the program of
// this one gets its own again.
func TestAHeldAddressStaysWhileItsProgramIsDown(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has abstract sockets")
	}
	var mine, other Set
	address, err := mine.Free()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Release()
	defer other.Release()
	if got, err := other.Take(address); !errors.Is(err, errHeld) {
		t.Errorf("another group got %q, %v", got, err)
	}
	if got, err := other.Prefer(address); err != nil || got == address {
		t.Errorf("another group got %q instead, %v", got, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the program of the group: %v", err)
	}
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	if got, err := other.Take("127.0.0.2:" + port); err != nil {
		t.Errorf("the port at another address: %q, %v", got, err)
	}
	mine.Release()
	if got, err := other.Take(address); err != nil || got != address {
		t.Errorf("after Release another group got %q, %v", got, err)
	}
}

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
