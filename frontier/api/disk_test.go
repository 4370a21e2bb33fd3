//go:build unix

package api_test

import (
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// TestDiskIsFull lets no file become larger, as on a full disk. What is not written is not
// acknowledged, and is taken when there is room again.
func TestDiskIsFull(t *testing.T) {
	base := serve(t, 1)[0]
	request(t, "POST", base+"/v1/urls", `{"url":"https://a.example/"}`)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	full := before
	full.Cur = 1
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	status, answer := request(t, "POST", base+"/v1/urls", `{"url":"https://b.example/"}`)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if status != 503 {
		t.Errorf("%d %s, want 503", status, answer)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, answer = request(t, "POST", base+"/v1/urls", `{"url":"https://b.example/"}`); strings.Contains(answer, `"added"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal(answer)
		}
	}
	testenv.Until(t, "both are handed out", func() bool {
		_, answer := request(t, "POST", base+"/v1/claims", `{"max":10}`)
		return strings.Contains(answer, "https://a.example/") && strings.Contains(answer, "https://b.example/")
	})
}
