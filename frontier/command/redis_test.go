//go:build unix

package command

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// certificate writes a certificate for the loopback address, and its key.
func certificate(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPasswordOfRedisIsSeenNowhere connects as a user with a password over TLS. The password is
// neither in the command line nor in the log, also if it is wrong or the URL cannot be read.
func TestPasswordOfRedisIsSeenNowhere(t *testing.T) {
	const secret = "S3cr3t-word"
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certificate(t, cert, key)
	address := testenv.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	testenv.NewRedisTCP(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no",
		"--requirepass", "other", "--user", "crawler", "on", ">"+secret, "~{frontier*", "+@all", "-@dangerous", "+info")
	t.Setenv("SSL_CERT_FILE", cert)
	t.Setenv("URLAKE_REDIS", "rediss://crawler:"+secret+"@"+address)
	log := filepath.Join(dir, "log")
	d := startDaemon(t, log, "--data", filepath.Join(dir, "data"), "--shards", "2")
	t.Cleanup(func() { d.kill(t) })
	res, err := http.Post(d.base+"/v1/urls", "", strings.NewReader(`{"url":"https://a.example/"}`))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	res.Body.Close()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid))
	if err == nil && bytes.Contains(line, []byte(secret)) {
		t.Errorf("%q", line)
	}
	text, err := os.ReadFile(log)
	if err != nil || bytes.Contains(text, []byte(secret)) {
		t.Errorf("%s: %v", text, err)
	}
	for _, url := range []string{
		"rediss://crawler:" + secret + "wrong@" + address, "rediss://crawler:" + secret + "@" + address + "/x", "redis://crawler:" + secret + "%@" + address,
		"redis://crawler:" + secret + "@127.0.0.1:1", "http://crawler:" + secret + "@" + address, "rediss://crawler:" + secret + "@" + address + ",127.0.0.1:1",
	} {
		out, err := frontierd(t, "--data", filepath.Join(dir, "other"), "--redis", url)
		if err == nil || strings.Contains(out, secret) || !strings.Contains(out, "redis") {
			t.Errorf("%s: %s", url, out)
		}
	}
}
