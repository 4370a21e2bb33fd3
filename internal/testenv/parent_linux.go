package testenv

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process of cmd when the thread that starts it exits.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
