package cli

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// Hosts are names that the header Host of requests may have, besides the names of this machine. The
// zero value has none, and is for programs without the flag.
type Hosts struct {
	flag  bool // the program has --allow-host
	names []string
}

// Flag adds --allow-host.
func (h *Hosts) Flag(f *pflag.FlagSet) {
	h.flag = true
	f.StringSliceVar(&h.names, "allow-host", nil,
		"`NAMES` that the header Host may have, such as urls.example.com: those that a proxy on this machine passes on; "+
			"with the flag, requests that come from other machines need one of the names, too")
}

// Args returns the arguments that give another program the same names.
func (h *Hosts) Args() []string {
	if len(h.names) == 0 {
		return nil
	}
	return []string{"--allow-host", strings.Join(h.names, ",")}
}

// hostsLogged is the shortest time between two log lines about refused hosts.
const hostsLogged = 10 * time.Second

// Guard returns a handler that answers 421 to requests for other hosts. Otherwise a stranger's page
// whose domain resolves to 127.0.0.1 (DNS rebinding) would have the same origin for the browser,
// and could act as a user of this machine. The handler checks connections to a loopback address,
// and, if there are names of --allow-host, all connections. Host may be a loopback name, the IP
// address that the connection is to, one of h, or the host of one of own: the addresses of the
// program, as its user wrote them. kind is the type of the problem document (RFC 9457).
func (h *Hosts) Guard(kind string, log *slog.Logger, next http.Handler, own ...string) http.Handler {
	allowed := []string{"localhost"}
	for _, name := range slices.Concat(h.names, own) {
		allowed = append(allowed, hostName(name))
	}
	advice := "; ask for localhost"
	if h.flag {
		advice += ", or start the program with --allow-host and that name"
	}
	var logged atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := netip.Addr{}
		if tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
			at = tcp.AddrPort().Addr().Unmap().WithZone("")
		}
		name := hostName(r.Host)
		if !at.IsLoopback() && len(h.names) == 0 || slices.Contains(allowed, name) || isOwn(name, at) {
			next.ServeHTTP(w, r)
			return
		}
		now, last := time.Now().UnixNano(), logged.Load()
		if now-last >= int64(hostsLogged) && logged.CompareAndSwap(last, now) {
			log.Warn("refused a request for another host", "host", name, "client", r.RemoteAddr)
		}
		// Encoding text and numbers never fails.
		body, _ := json.Marshal(struct {
			Type   string `json:"type"`
			Title  string `json:"title"`
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}{kind, "The server has no such host", http.StatusMisdirectedRequest,
			"the request is for the host " + strconv.Quote(name) + ", which is no name of this program" + advice})
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Connection", "close") // the body is not read
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = w.Write(append(body, '\n'))
	})
}

// hostName returns the host of a header, without port, brackets and the dot of the root.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isOwn reports whether a name belongs to the loopback interface or is the address that a request
// came to. An empty name does, too: browsers always send a name.
func isOwn(name string, at netip.Addr) bool {
	if name == "" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && (addr.Unmap().IsLoopback() || addr.Unmap() == at)
}
