// Package addresses chooses addresses of this machine for programs that start later, or again.
package addresses

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
)

// Set is the addresses of the programs of one group. A program that is down for a moment, or does
// not yet listen, finds its address again: no other Set gives it away, also in another process.
// Everything else on the machine can take it. The zero value holds none.
//
// An address is held by an abstract socket of the kernel (unix(7)) with its name. That socket is in
// the network namespace of the address, and ends with this process. Only Linux has them: elsewhere,
// and where a process may not have them, nothing is held.
type Set struct{ held []net.Listener }

// errHeld means that the address belongs to a program that does not listen now.
var errHeld = errors.New("another urlake up, add or demo keeps it for a program that is down")

// Take holds an address that is free, and returns it as IP and port. With port 0 it is a free port
// of the host.
func (a *Set) Take(address string) (string, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return "", err
	}
	if at.Port != 0 {
		return a.take(at)
	}
	var taken string
	for range maxTries {
		at.Port = firstPort + rand.IntN(endPort-firstPort)
		if taken, err = a.take(at); err == nil {
			break
		}
	}
	return taken, err
}

const (
	// Ports are below those that Linux gives to clients and to listeners on port 0 by default: one
	// from there is often a connection's by the time that a program listens on it.
	firstPort = 10_000
	endPort   = 32_768
	// maxTries is how many ports are tried.
	maxTries = 100
)

// take holds an address before it listens there for a moment, as its program may start just then.
func (a *Set) take(at *net.TCPAddr) (string, error) {
	var hold net.Listener
	if runtime.GOOS == "linux" {
		var err error
		hold, err = net.Listen("unix", "@urlake/"+at.String())
		if errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("listen tcp %s: %w", at, errHeld)
		}
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		if hold != nil {
			hold.Close()
		}
		return "", err
	}
	defer l.Close()
	if hold != nil {
		a.held = append(a.held, hold)
	}
	return l.Addr().String(), nil
}

// Free takes an address that other machines do not reach, with any port.
func (a *Set) Free() (string, error) { return a.Take("127.0.0.1:0") }

// Prefer takes the preferred address if it is free, else any.
func (a *Set) Prefer(preferred string) (string, error) {
	if address, err := a.Take(preferred); err == nil {
		return address, nil
	}
	return a.Free()
}

// Release ends the hold on all addresses.
func (a *Set) Release() {
	for _, h := range a.held {
		h.Close()
	}
	a.held = nil
}
