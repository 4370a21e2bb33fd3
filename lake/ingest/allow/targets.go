package allow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Targets are the hosts to which a worker may connect for a workflow: databases and frontiers that
// the workflow names, and that get rows of the lake. A nil *Targets allows every host.
type Targets struct {
	all, loopback bool
	hosts         []target
	// folders hold Unix sockets.
	folders []string
	text    string
}

// target is a host in lower case, and a port, 0 for all ports.
type target struct {
	host string
	port uint16
}

// Loopback allows this machine alone: its loopback addresses and its Unix sockets.
func Loopback() *Targets {
	return &Targets{loopback: true, folders: []string{string(filepath.Separator)}, text: "this machine"}
}

// ParseTargets returns what the names allow together. A name is HOST or HOST:PORT, localhost for
// all loopback addresses, the absolute path of a folder of Unix sockets, or * for every host. A
// host is compared as it is written, without regard to case, and is not resolved.
func ParseTargets(names []string) (*Targets, error) {
	if len(names) == 0 {
		return nil, errors.New("no host given")
	}
	t := &Targets{text: strings.Join(names, ", ")}
	for _, name := range names {
		if err := t.add(name); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return t, nil
}

func (t *Targets) add(name string) error {
	if name == "*" {
		t.all = true
		return nil
	}
	if filepath.IsAbs(name) {
		t.folders = append(t.folders, filepath.Clean(name))
		return nil
	}
	host, port := name, uint64(0)
	if h, p, err := net.SplitHostPort(name); err == nil {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return errors.New("its port is no number from 1 to 65535")
		}
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if _, err := netip.ParseAddr(host); host == "" || err != nil && strings.ContainsAny(host, ":/*?@[] ") {
		return errors.New("want HOST, HOST:PORT, the folder of a Unix socket, or * for every host")
	}
	if isLoopback(host) && port == 0 {
		t.loopback = true
	}
	t.hosts = append(t.hosts, target{strings.ToLower(host), uint16(port)})
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// String lists the hosts.
func (t *Targets) String() string {
	if t == nil {
		return "anywhere"
	}
	return t.text
}

// Check returns an error that matches ErrRefused unless workers may connect to a host and port. An
// absolute path as the host is the folder of a Unix socket.
func (t *Targets) Check(host string, port uint16) error {
	if t == nil || t.all {
		return nil
	}
	if filepath.IsAbs(host) {
		if slices.ContainsFunc(t.folders, func(folder string) bool {
			_, ok := below(folder, filepath.Clean(host))
			return ok
		}) {
			return nil
		}
		return &targetRefusal{host, t.text}
	}
	if t.loopback && isLoopback(host) || slices.ContainsFunc(t.hosts, func(a target) bool {
		return strings.EqualFold(a.host, host) && (a.port == 0 || a.port == port)
	}) {
		return nil
	}
	return &targetRefusal{net.JoinHostPort(host, strconv.Itoa(int(port))), t.text}
}

// targetRefusal is the error of one host.
type targetRefusal struct {
	host    string
	allowed string
}

func (e *targetRefusal) Error() string {
	return "these workers may not connect to " + e.host + "; they connect to " + e.allowed + " (worker --allow-target)"
}

func (e *targetRefusal) Is(target error) bool { return target == ErrRefused }

type targetsKey struct{}

// WithTargets returns a context in which steps may connect to t alone.
func WithTargets(ctx context.Context, t *Targets) context.Context {
	return context.WithValue(ctx, targetsKey{}, t)
}

// TargetsOf returns the Targets that WithTargets has set in ctx, nil for none.
func TargetsOf(ctx context.Context) *Targets {
	t, _ := ctx.Value(targetsKey{}).(*Targets)
	return t
}
