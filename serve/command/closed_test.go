package command

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
)

// fetch returns the status and the body of an answer to a client with a token, "" for none.
func fetch(t *testing.T, client *http.Client, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestAuthTokens runs the program with tokens: changes are followed, the metrics and profiles are
// where clients do not come, and the log has no token.
func TestAuthTokens(t *testing.T) {
	dir := t.TempDir()
	lakeURL := "file://" + filepath.ToSlash(dir)
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "closed", "b1", []testlake.Record{{URL: "https://example.com/1"}})
	testlake.Publish(t, store)
	if _, err := access.Change(t.Context(), store, access.Edit{Dataset: "closed", Readers: &access.Readers{Names: []string{"ada"}}}); err != nil {
		t.Fatal(err)
	}
	token, _, err := access.NewToken(t.Context(), store, "ada", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	base, out, stop := program(t, "--lake", lakeURL, "--cache", t.TempDir(), "--auth", "tokens", "--metrics-listen", "127.0.0.1:0", "--pprof")
	own := addressOf(t, out, "metrics")
	urls := base + "/v1/domain/example.com/datasets/closed/urls"
	testenv.Until(t, "ready", func() bool { status, _ := fetch(t, http.DefaultClient, base+"/readyz", token); return status == 200 })
	if status, body := fetch(t, http.DefaultClient, urls, token); status != 200 || !strings.Contains(body, "example.com/1") {
		t.Errorf("a reader gets %d %s", status, body)
	}
	if status, body := fetch(t, http.DefaultClient, urls, ""); status != 404 || strings.Contains(body, "example.com/1") {
		t.Errorf("nobody gets %d %s", status, body)
	}
	for path, want := range map[string]int{"/metrics": 404, "/debug/pprof/": 404, "/debug/pprof/cmdline": 404} {
		if status, _ := fetch(t, http.DefaultClient, base+path, token); status != want {
			t.Errorf("%s for clients: %d", path, status)
		}
		if status, _ := fetch(t, http.DefaultClient, own+path, ""); status != 200 {
			t.Errorf("%s at --metrics-listen: %d", path, status)
		}
	}
	if _, body := fetch(t, http.DefaultClient, own+"/metrics", ""); strings.Contains(body, `"ada"`) || strings.Contains(body, `"closed"`) {
		t.Error("the metrics name a reader or a dataset")
	}
	if _, err := access.Revoke(t.Context(), store, "ada", "", time.Now()); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the revocation", func() bool { status, _ := fetch(t, http.DefaultClient, urls, token); return status == 401 })
	if code := stop(); code != cli.ExitDone {
		t.Errorf("exit code %d", code)
	}
	if text := out.String(); strings.Contains(text, token) || strings.Contains(text, "urlake_") || strings.Contains(text, "example.com") {
		t.Errorf("the log has a token or a URL:\n%s", text)
	}
}

// TestAuthJWKS holds that the program starts with a provider that is away, and says so once.
func TestAuthJWKS(t *testing.T) {
	provider := httptest.NewServer(http.NotFoundHandler())
	defer provider.Close()
	base, out, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir(),
		"--auth", "jwks="+provider.URL+"/keys", "--auth-issuer", "i", "--auth-audience", "a")
	testenv.Until(t, "the failure is logged", func() bool { return strings.Contains(out.String(), "status 404") })
	testenv.Until(t, "the lake is looked at", func() bool {
		status, body := fetch(t, http.DefaultClient, base+"/v1/datasets", "")
		return status == 503 && strings.Contains(body, "not-ready")
	})
	if status, body := fetch(t, http.DefaultClient, base+"/v1/datasets", "eyJhbGciOiJFZERTQSJ9.e30.AAAA"); status != 503 {
		t.Errorf("a token that cannot be checked: %d %s", status, body)
	}
	if code := stop(); code != cli.ExitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongAuth(t *testing.T) {
	lake, cache := t.TempDir(), t.TempDir()
	for want, args := range map[string][]string{
		"use off, tokens, or jwks=URL": {"--auth", "on"},
		"https://HOST":                 {"--auth", "jwks=http://id.example/", "--auth-issuer", "i", "--auth-audience", "a"},
		"an issuer and an audience":    {"--auth", "jwks=https://id.example/"},
		"are for --auth jwks":          {"--auth", "tokens", "--auth-issuer", "i"},
		"give both":                    {"--tls-cert", "x"},
		"--pprof needs":                {"--pprof"},
		"no such file":                 {"--tls-cert", filepath.Join(lake, "none"), "--tls-key", filepath.Join(lake, "none")},
	} {
		out := &output{}
		cmd := New()
		cmd.SetArgs(append(args, "--lake", lake, "--cache", cache, "--listen", "127.0.0.1:0"))
		cmd.SetOut(out)
		cmd.SetErr(out)
		code := cli.Run(t.Context(), cmd)
		if !strings.Contains(out.String(), want) || code == cli.ExitDone || (want != "no such file") != (code == cli.ExitUsage) {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

// TestListensOnLoopback holds that a server listens for other machines only if it is told to, or if
// it asks who they are.
func TestListensOnLoopback(t *testing.T) {
	for _, c := range []struct{ listen, auth, want string }{
		{"", "off", "127.0.0.1:8080"}, {"", "tokens", ":8080"}, {"", "jwks=https://id.example/", ":8080"},
		{":9000", "off", ":9000"}, {"127.0.0.1:9000", "tokens", "127.0.0.1:9000"},
	} {
		if got := (&options{listen: c.listen, auth: c.auth}).address(); got != c.want {
			t.Errorf("--listen %q --auth %s: %s, want %s", c.listen, c.auth, got, c.want)
		}
	}
}

// writePair writes a new certificate for localhost and its key, and returns the certificate.
func writePair(t *testing.T, cert, key string, serial int64) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		// As certificates are replaced: another file takes the place.
		if err := os.WriteFile(name+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	return parsed
}

// TestTLSReload runs the program with TLS and replaces its certificate, first by one that cannot be
// used.
func TestTLSReload(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := writePair(t, cert, key, 1)
	base, out, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir(), "--tls-cert", cert, "--tls-key", key)
	address := strings.TrimPrefix(base, "http://")
	serial := func(trusted *x509.Certificate) int64 {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AddCert(trusted)
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}}
		resp, err := client.Get("https://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer["status"] != "ok" {
			t.Fatalf("%v, %v", answer, err)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(first); n != 1 {
		t.Fatalf("certificate %d", n)
	}
	if err := os.WriteFile(cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n := serial(first); n != 1 {
			t.Fatalf("certificate %d", n)
		}
	}
	if n := strings.Count(out.String(), "cannot be read again"); n != 1 {
		t.Errorf("a certificate that cannot be used is logged %d times", n)
	}
	second := writePair(t, cert, key, 2)
	if n := serial(second); n != 2 {
		t.Fatalf("certificate %d after the change", n)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if n := serial(second); n != 2 {
		t.Fatalf("certificate %d without its key's file", n)
	}
	old := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if conn, err := tls.Dial("tcp", address, old); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if code := stop(); code != cli.ExitDone {
		t.Errorf("exit code %d", code)
	}
}

// The key never gets into the log.
func TestCertificateErrorsNameNoKey(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePair(t, cert, key, 1)
	var log bytes.Buffer
	c, err := newCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.pem")
	writePair(t, other, key, 2) // a key of another certificate
	if c.current() == nil || !strings.Contains(log.String(), "does not match") || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("%s", log.String())
	}
}
