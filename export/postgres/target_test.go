package postgres

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/urlake/urlake/lake/ingest/allow"
)

// passwordServer is a server that asks for a password in clear text, and returns what it gets.
func passwordServer(t *testing.T) (address string, passwords <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(c, c)
			for {
				m, err := b.ReceiveStartupMessage()
				if _, ok := m.(*pgproto3.SSLRequest); ok && err == nil {
					_, err = c.Write([]byte("N"))
					if err == nil {
						continue
					}
				}
				break
			}
			b.Send(&pgproto3.AuthenticationCleartextPassword{})
			if b.Flush() == nil && b.SetAuthType(pgproto3.AuthTypeCleartextPassword) == nil {
				if m, err := b.Receive(); err == nil {
					if p, ok := m.(*pgproto3.PasswordMessage); ok {
						got <- p.Password
					}
				}
			}
			c.Close()
		}
	}()
	return l.Addr().String(), got
}

// TestTypedDSNGetsNoSecret connects to a server that the author of a workflow may control.
func TestTypedDSNGetsNoSecret(t *testing.T) {
	address, passwords := passwordServer(t)
	host, port, _ := strings.Cut(address, ":")
	t.Setenv("PGPASSWORD", "secret of the worker")
	t.Setenv("URLAKE_DSN_OWN", "postgres://u@"+address+"/db")
	ctx := allow.WithTargets(t.Context(), allow.Loopback())
	for dsn, want := range map[string]string{
		"postgres://u@" + address + "/db":                 "",
		"host=" + host + " port=" + port + " user=u":      "",
		"postgres://u@" + address + "/db?sslmode=disable": "",
		"env:URLAKE_DSN_OWN":                              "secret of the worker",
	} {
		if _, err := Connect(ctx, dsn, "s", "test"); err == nil {
			t.Errorf("%s: connected", dsn)
			continue
		}
		if got := <-passwords; got != want {
			t.Errorf("%s: the server got the password %q", dsn, got)
		}
	}
	for _, dsn := range []string{
		"postgres://u@192.0.2.1:5432/db", "host=127.0.0.1,192.0.2.1 port=5432", "host=db.example user=u",
	} {
		if _, err := Connect(ctx, dsn, "s", "test"); !isInput(err) || !strings.Contains(err.Error(), "--allow-target") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	// A certificate, a service or options of the worker are for its own DSNs, too.
	t.Setenv("PGOPTIONS", "-c secret=x")
	cfg, err := configOf(ctx, "host=127.0.0.1 user=u sslmode=require application_name=a")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.RuntimeParams) != 1 || cfg.RuntimeParams["application_name"] != "a" || cfg.TLSConfig == nil || len(cfg.TLSConfig.Certificates) > 0 {
		t.Errorf("%v, %+v", cfg.RuntimeParams, cfg.TLSConfig)
	}
	allowed, err := allow.ParseTargets([]string{"db.example:5432"})
	if err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{"env:URLAKE_DSN_OWN", "host=db.example port=5432"} {
		if _, err := configOf(allow.WithTargets(context.Background(), allowed), dsn); err != nil {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}
