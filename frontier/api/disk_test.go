//go:build unix

package api_test

import (
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestDiskIsFull lets no file become larger, as on a full disk. What is not written is not
// acknowledged, and is taken when there is room again.
func TestDiskIsFull(t *testing.T) {
	base := serve(t, 1)[0]
	request(t, "POST", base+"/v1/urls", `{"url":"https://a.example/"}`+"\n"+`{"url":"https://c.example/"}`)
	_, answer := request(t, "POST", base+"/v1/claims", `{"max":1}`)
	m := regexp.MustCompile(`"lease":"([^"]+)","url":"([^"]+)"`).FindStringSubmatch(answer)
	if m == nil {
		t.Fatal(answer)
	}
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
	result := `{"lease":"` + m[1] + `","status":200}`
	settled, reason := request(t, "POST", base+"/v1/results", result)
	var status int
	status, answer = request(t, "POST", base+"/v1/urls", `{"url":"https://b.example/"}`)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if status != 503 || settled != 503 {
		t.Errorf("%d %s, and of a result %d %s, want 503", status, answer, settled, reason)
	}
	testenv.Until(t, "the result is taken", func() bool {
		_, answer := request(t, "POST", base+"/v1/results", result)
		return strings.Contains(answer, `"settled"`)
	})
	testenv.Until(t, "the URL is taken", func() bool {
		_, answer := request(t, "POST", base+"/v1/urls", `{"url":"https://b.example/"}`)
		return strings.Contains(answer, `"added"`)
	})
	got := ""
	testenv.Until(t, "the others are handed out", func() bool {
		_, answer := request(t, "POST", base+"/v1/claims", `{"max":10}`)
		got += answer
		return strings.Count(got, `"lease"`) == 2
	})
	if strings.Contains(got, `"`+m[2]+`"`) {
		t.Errorf("a settled URL is handed out: %s", got)
	}
}
