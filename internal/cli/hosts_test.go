package cli_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/urlake/urlake/internal/cli"
)

// TestGuard asks under names of all kinds, on connections to addresses of all kinds.
func TestGuard(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 1, 1), net.IPv6loopback}
	lan := []net.IP{net.IPv4(10, 0, 0, 1).To4(), net.IPv4(10, 0, 0, 1)}
	always := []string{
		"localhost", "localhost:8080", "LOCALHOST.:80", "a.localhost:1", "127.0.0.1", "127.3.2.1:99",
		"[::1]", "[::1]:8080", "[::ffff:127.0.0.1]:80", "", "machine", "MACHINE:9",
	}
	named := []string{"urls.example.com", "URLS.example.com.:443"}
	here := []string{"10.0.0.1", "10.0.0.1:8080", "[::ffff:10.0.0.1]:1"}
	others := []string{
		"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:8080", "notlocalhost",
		"10.0.0.2:8080", "[2001:db8::1]:80", "0.0.0.0:8080", "a.urls.example.com", "::", "a.machine",
	}
	for _, c := range []struct {
		at    []net.IP
		args  []string
		hosts [][]string
		want  int
	}{
		{local, nil, [][]string{always}, 200},
		{local, nil, [][]string{named, here, others}, 421},
		{local, []string{"--allow-host", "a.example,Urls.example.com:1"}, [][]string{always, named}, 200},
		{local, []string{"--allow-host", "urls.example.com"}, [][]string{here, others}, 421},
		{lan, nil, [][]string{always, named, here, others}, 200},
		{lan, []string{"--allow-host", "urls.example.com"}, [][]string{always, named, here}, 200},
		{lan, []string{"--allow-host", "urls.example.com"}, [][]string{others}, 421},
	} {
		var h, again cli.Hosts
		for _, h := range []*cli.Hosts{&h, &again} {
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			h.Flag(f)
			if err := f.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			c.args = h.Args()
		}
		for _, ip := range c.at {
			for _, hosts := range c.hosts {
				for _, host := range hosts {
					var log bytes.Buffer
					handler := again.Guard("about:blank", slog.New(slog.NewTextHandler(&log, nil)), next, "Machine:8080", ":8080")
					ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: ip, Port: 8080}))
					r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
					r.Host = host
					for range 2 {
						w := httptest.NewRecorder()
						handler.ServeHTTP(w, r)
						refused := w.Header().Get("Content-Type") == "application/problem+json" &&
							strings.Contains(w.Body.String(), "--allow-host") && !strings.Contains(w.Body.String(), "secret")
						if w.Code != c.want || refused != (c.want == 421) {
							t.Errorf("%q at %s, %q: %d %s", host, ip, c.args, w.Code, w.Body)
						}
					}
					if n := strings.Count(log.String(), "\n"); n != 1 && c.want == 421 || n != 0 && c.want == 200 {
						t.Errorf("%q at %s, %q: the log is %q", host, ip, c.args, &log)
					}
				}
			}
		}
	}
}

// TestGuardOfConnections asks a listener on all addresses by its loopback address. A program
// without --allow-host does not advise it.
func TestGuardOfConnections(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(new(cli.Hosts).Guard("about:blank", slog.New(slog.DiscardHandler), http.NotFoundHandler()))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"localhost": 404, "evil.example": 421} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || strings.Contains(body.String(), "--allow-host") {
			t.Errorf("%s: %d %s, %v", host, resp.StatusCode, &body, err)
		}
	}
}
