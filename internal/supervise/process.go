// Package supervise runs programs of urlake, and Temporal's dev server, on this machine: as
// processes that end with this one, as a group whose members are started again when they end, and
// as the one group of a lake that other commands find.
package supervise

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Process is a running program. It has a process group of its own, so that Ctrl-C reaches only this
// program, which then stops its processes in order. On Linux it is killed when this program dies,
// however that dies.
type Process struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set when done is closed
}

// outputDelay is how long the output of a process is read after its end, in case a child of it
// still has it open.
const outputDelay = time.Second

// Start starts a program. Its output and its errors go to output; a file is handed to the process
// as it is. Env are further variables, as "name=value".
func Start(name string, output io.Writer, env []string, program string, args ...string) (*Process, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = outputDelay
	cmd.SysProcAttr = attributes()
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// To the kernel the parent is the thread that starts the process, so that thread has to
		// stay until the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// End says how the process ended, as in "exit status 1" or "signal: killed". Done has to be closed.
func (p *Process) End() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.cmd.ProcessState.String()
}

// Killed reports whether a signal ended the process, once it has ended.
func (p *Process) Killed() bool { return p.err != nil && !p.cmd.ProcessState.Exited() }

// Stop asks the process to end and waits for it. After timeout it kills the process and returns an
// error.
func (p *Process) Stop(timeout time.Duration) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	// The signal goes to the whole group, as the program may be a script that started another.
	pid := p.cmd.Process.Pid
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("%s did not stop within %s and was killed", p.Name, timeout)
}

// Kill kills the process and its children at once, and waits for the end.
func (p *Process) Kill() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Sibling returns the path of another program in the folder of this one.
func Sibling(name string) string {
	if self, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(self), name)
	}
	return name
}
