//go:build !linux

package api

import "net"

// limitUnsent does nothing: the kernel takes what it likes.
func limitUnsent(*net.TCPConn) {}
