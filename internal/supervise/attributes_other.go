//go:build !linux

package supervise

import "syscall"

// attributes are those of a process with a group of its own. Only Linux can kill a process with its
// parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
