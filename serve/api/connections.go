package api

// The connections of a server are bounded, and what net/http answers by itself becomes a problem
// document.

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxUnsent is how many bytes of an answer the kernel takes beyond those that the client has
	// room for. Otherwise it may take megabytes for one that does not read: they would be counted
	// nowhere, and for minutes such a client would look like a fast one. It asks for more once half
	// of them are sent; less makes streams dearer, a quarter of it by a sixth.
	maxUnsent = 512 << 10
	// freeHeader is how many bytes of headers each connection may have without asking: most
	// requests have less than one thousand.
	freeHeader = 4 << 10
	// refusalTimeout is how long a connection that is refused may take to receive that.
	refusalTimeout = time.Second
)

// connLimit bounds the connections of a server, and the memory of their requests' headers. When
// there are as many as allowed, a new one takes the place of the one that has been idle for
// longest, or that has taken longest to send its first headers. If none is idle, the new one is
// refused with 503. A connection whose header does not fit into the memory is refused too.
type connLimit struct {
	limit   int
	headers int64 // bytes
	problem connProblem

	mu   sync.Mutex
	open int
	// idle are the connections that wait for a request or its headers, longest first.
	idle *list.List
	used int64 // of headers
	// full, evicted and large count the connections that were closed.
	full, evicted, large int64
}

// connProblem returns a problem document.
type connProblem func(status int, kind, title, detail string) []byte

// newConnLimit returns bounds for a server: the number of connections, and the memory in bytes for
// headers of more than 4 KiB. Set its Listener, and its State as the server's ConnState.
func newConnLimit(limit int, headers int64, problem connProblem) *connLimit {
	return &connLimit{limit: limit, headers: headers, problem: problem, idle: list.New()}
}

// Listener wraps l. Requests which net/http rejects before it calls a handler get a problem
// document too. Such a request has e.g. an invalid percent-escape in the path, no Host header, or a
// header that is too large. If TLS is spoken over the connections, nothing can be said on them from
// here, and those that are refused are closed.
func (c *connLimit) Listener(l net.Listener, tls bool) net.Listener {
	return &listener{l, c, tls}
}

type listener struct {
	net.Listener
	all *connLimit
	tls bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		limitUnsent(tcp)
		own := &conn{TCPConn: tcp, all: l.all, tls: l.tls}
		own.waiting.Store(true)
		if l.all.add(own) {
			return own, nil
		}
		own.refuse("too-many-connections", "The server has no room for this connection", "retry after the time in Retry-After")
		tcp.Close()
	}
}

// add makes room for a new connection, and reports false if there is none.
func (c *connLimit) add(own *conn) bool {
	c.mu.Lock()
	var evicted *conn
	if c.open >= c.limit {
		first := c.idle.Front()
		if first == nil {
			c.full++
			c.mu.Unlock()
			return false
		}
		evicted = c.idle.Remove(first).(*conn)
		evicted.element = nil
		c.evicted++
	}
	c.open++
	own.element = c.idle.PushBack(own)
	c.mu.Unlock()
	if evicted != nil {
		evicted.Close()
	}
	return true
}

// State follows a connection. It is for http.Server.ConnState.
func (c *connLimit) State(nc net.Conn, state http.ConnState) {
	if inner, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
		nc = inner.NetConn()
	}
	own, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive: // the header is read
		own.waiting.Store(false)
		c.mu.Lock()
		if own.element != nil {
			c.idle.Remove(own.element)
			own.element = nil
		}
		c.mu.Unlock()
	case http.StateIdle:
		c.mu.Lock()
		c.used -= own.counted
		own.counted, own.read = 0, 0
		if !own.closed && own.element == nil {
			own.element = c.idle.PushBack(own)
		}
		c.mu.Unlock()
		own.waiting.Store(true)
	}
}

// remove ends a connection. It may be called more than once.
func (c *connLimit) remove(own *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.closed {
		return
	}
	own.closed = true
	c.open--
	c.used -= own.counted
	own.counted = 0
	if own.element != nil {
		c.idle.Remove(own.element)
		own.element = nil
	}
}

// header counts n bytes of a header, and reports false if there is no memory for them.
func (c *connLimit) header(own *conn, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	own.read += int64(n)
	more := own.read - freeHeader - own.counted
	if more <= 0 || own.closed {
		return true
	}
	if c.used+more > c.headers {
		c.large++
		return false
	}
	c.used += more
	own.counted += more
	return true
}

// stats are for metrics: connections, the memory of their headers, and by reason how many were
// closed.
type stats struct {
	Limit, Open, Idle int
	Headers           int64
	Shed              map[string]int64
}

// stats returns what there is now.
func (c *connLimit) Stats() stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stats{
		Limit: c.limit, Open: c.open, Idle: c.idle.Len(), Headers: c.used,
		Shed: map[string]int64{"full": c.full, "idle": c.evicted, "headers": c.large},
	}
}

// conn is a connection of a client.
type conn struct {
	*net.TCPConn
	all *connLimit
	tls bool
	// waiting tells that no request is being answered: what is read is a header.
	waiting atomic.Bool

	// These are guarded by all.mu.
	element *list.Element // in all.idle
	read    int64         // of the header
	counted int64         // of all.used
	closed  bool
}

var errHeaderMemory = errors.New("no memory for headers")

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 && c.waiting.Load() && !c.all.header(c, n) {
		c.refuse("overloaded", "The server has no room for this header now",
			"retry after the time in Retry-After; headers below 4 KiB always have room")
		// net/http closes a connection after this error without an answer of its own.
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: errHeaderMemory}
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.all.remove(c)
	return c.TCPConn.Close()
}
