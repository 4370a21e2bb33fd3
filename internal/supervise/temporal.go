package supervise

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
)

// ErrNoTemporal means that there is no Temporal to run.
var ErrNoTemporal = errors.New("there is no program temporal on PATH or next to this program")

// TemporalProgram returns the path of temporal: the one on PATH, else the one next to this program.
// Without either the error is ErrNoTemporal.
func TemporalProgram() (string, error) {
	if p, err := exec.LookPath("temporal"); err == nil {
		return p, nil
	}
	p := Sibling("temporal")
	if _, err := os.Stat(p); err != nil {
		return "", ErrNoTemporal
	}
	return p, nil
}

// OnePartition are the arguments with which Temporal's dev server keeps each task queue in one
// partition. By default there are four, for queues of thousands of tasks a second. A worker with a
// few slots asks one of them at a time, and a step that stands in another waits up to two seconds
// beside a free slot.
var OnePartition = []string{
	"--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
	"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1",
}

// DevServer describes Temporal's dev server.
type DevServer struct {
	// Address is the host and port that it listens on, UI the one of its web pages; without UI it
	// has none.
	Address, UI string
	// State is the file that keeps its state. Without State it ends with the process.
	State string
}

// Args returns the arguments of the program temporal.
func (d DevServer) Args() ([]string, error) {
	host, port, err := net.SplitHostPort(d.Address)
	if err != nil {
		return nil, fmt.Errorf("Temporal's address %q: %w", d.Address, err)
	}
	args := []string{"server", "start-dev", "--ip", host, "--port", port, "--log-level", "error"}
	args = append(args, OnePartition...)
	if d.UI == "" {
		args = append(args, "--headless")
	} else {
		host, port, err := net.SplitHostPort(d.UI)
		if err != nil {
			return nil, fmt.Errorf("the address %q of Temporal's pages: %w", d.UI, err)
		}
		args = append(args, "--ui-ip", host, "--ui-port", port)
	}
	if d.State != "" {
		args = append(args, "--db-filename", d.State)
	}
	return args, nil
}
