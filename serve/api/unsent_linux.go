package api

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitUnsent bounds what the kernel takes of an answer beyond what the client has room for.
func limitUnsent(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		// Without the option answers are sent as well.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
		})
	}
}
