//go:build !linux

package testenv

import "os/exec"

// dieWithParent does nothing: only Linux can kill a child with its parent.
func dieWithParent(*exec.Cmd) {}
