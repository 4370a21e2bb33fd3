package addresses

import (
	"errors"
	"net"
	"testing"
)

// TestAHeldAddressStaysWhileItsProgramIsDown: another group gets other addresses, the program of
// this one gets its own again.
func TestAHeldAddressStaysWhileItsProgramIsDown(t *testing.T) {
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
