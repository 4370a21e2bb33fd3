package supervise

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

// Addresses are addresses of this machine for the programs of one group. A program that is down for
// a moment, or does not yet listen, finds its address again: no other group takes it. A program
// that is none of urlake's can take it, and the zero value holds none.
//
// A held port is an abstract socket of the kernel (unix(7)) by the number of the port: it has the
// network namespace of the port, and ends with this process. Only Linux has them; elsewhere nothing
// is held.
type Addresses struct{ held []net.Listener }

// errHeld means that a port belongs to another group, whose program does not listen there now.
var errHeld = errors.New("the port belongs to an urlake that runs")

// Take returns an address that is free, and holds it. With port 0 it is a free port, else address
// itself, and the error says who has it.
func (a *Addresses) Take(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	defer l.Close()
	if runtime.GOOS == "linux" {
		h, err := net.Listen("unix", fmt.Sprintf("@urlake/port/%d", l.Addr().(*net.TCPAddr).Port))
		if err != nil {
			return "", fmt.Errorf("listen %s: %w", l.Addr(), errHeld)
		}
		a.held = append(a.held, h)
	}
	return l.Addr().String(), nil
}

// maxTries is how often the system is asked for a free port.
const maxTries = 100

// Free takes an address with a port that the system chooses.
func (a *Addresses) Free() (address string, err error) {
	for range maxTries {
		if address, err = a.Take("127.0.0.1:0"); !errors.Is(err, errHeld) {
			break
		}
	}
	return address, err
}

// Prefer takes the preferred address if it is free, else any.
func (a *Addresses) Prefer(preferred string) (string, error) {
	if address, err := a.Take(preferred); err == nil {
		return address, nil
	}
	return a.Free()
}

// Release ends the hold on all addresses.
func (a *Addresses) Release() {
	for _, h := range a.held {
		h.Close()
	}
	a.held = nil
}
