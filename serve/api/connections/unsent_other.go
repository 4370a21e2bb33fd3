//go:build !linux

package connections

import "net"

// limitUnsent does nothing: the kernel takes what it likes.
func limitUnsent(*net.TCPConn) {}
