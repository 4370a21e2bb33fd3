package cli_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
)

// TestGuard asks a listener of the loopback interface under names of all kinds.
func TestGuard(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "LOCALHOST.:80": 200, "a.localhost:1": 200, "127.0.0.1": 200, "127.3.2.1:99": 200,
		"[::1]": 200, "[::1]:8080": 200, "[::ffff:127.0.0.1]:80": 200, "": 200, "urls.example.com": 200, "URLS.example.com.:443": 200,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:8080": 421,
		"notlocalhost": 421, "10.0.0.1:8080": 421, "[2001:db8::1]:80": 421, "0.0.0.0:8080": 421, "a.urls.example.com": 421, "::": 421,
	} {
		for _, at := range []net.Addr{loopback, &net.TCPAddr{IP: net.IPv6loopback}} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			w := httptest.NewRecorder()
			cli.Hosts{"urls.example.com"}.Guard(at, "about:blank", next).ServeHTTP(w, r)
			if w.Code != want || want == 421 && (w.Header().Get("Content-Type") != "application/problem+json" ||
				!strings.Contains(w.Body.String(), "--allow-host") || strings.Contains(w.Body.String(), "secret")) {
				t.Errorf("%q at %s: %d %s", host, at, w.Code, w.Body)
			}
		}
		for _, at := range []net.Addr{&net.TCPAddr{IP: net.IPv4zero}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv6unspecified}} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			w := httptest.NewRecorder()
			if cli.Hosts(nil).Guard(at, "about:blank", next).ServeHTTP(w, r); w.Code != 200 {
				t.Errorf("%q at %s: %d", host, at, w.Code)
			}
		}
	}
}
