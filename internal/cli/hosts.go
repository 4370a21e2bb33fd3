package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Hosts are names, besides the loopback names, that requests to a loopback address may have in the
// header Host: the names that a proxy on the same machine passes on.
type Hosts []string

// Flag adds --allow-host.
func (h *Hosts) Flag(f *pflag.FlagSet) {
	f.StringSliceVar((*[]string)(h), "allow-host", nil,
		"`NAMES` that the header Host may have besides localhost and its addresses, if the program listens on those: "+
			"the names that a proxy on this machine passes on, such as urls.example.com")
}

// Guard returns a handler for requests to an address. On an address of the loopback interface, it
// answers 421 unless Host is a loopback name or one of h. Otherwise a stranger's page whose domain
// resolves to 127.0.0.1 (DNS rebinding) would have the same origin for the browser, and could act
// as a user of this machine. Other addresses may be reached under any name. kind is the type of the
// problem document (RFC 9457).
func (h Hosts) Guard(at net.Addr, kind string, next http.Handler) http.Handler {
	if tcp, ok := at.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if isLoopback(name) || slices.ContainsFunc(h, func(allowed string) bool { return hostName(allowed) == name }) {
			next.ServeHTTP(w, r)
			return
		}
		// Encoding text and numbers never fails.
		body, _ := json.Marshal(struct {
			Type   string `json:"type"`
			Title  string `json:"title"`
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}{kind, "The server has no such host", http.StatusMisdirectedRequest, fmt.Sprintf(
			"this address is for programs of the same machine, and the request is for the host %q; ask for localhost, "+
				"or, if a proxy passes requests on, start the program with --allow-host %s", name, name)})
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

// isLoopback reports whether a name belongs to the loopback interface. An empty name does too:
// browsers always send a name.
func isLoopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && addr.Unmap().IsLoopback()
}
