//go:build unix

package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestPagesOfOtherSitesChangeNothing sends what a browser sends for a page of another site to all
// that changes something: a form, or a script without a preflight.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	base := serve(t, 1)[0]
	path := strings.NewReplacer("{d}", "a.example", "{id}", "x", "{path}", "y")
	send := func(method, where string, headers ...string) (status int, kind, text string) {
		body := `{"url":"https://a.example/"}`
		sent := http.Header{"Content-Type": {"text/plain"}}
		for i := 0; i < len(headers); i += 2 {
			sent.Set(headers[i], headers[i+1])
		}
		status, text, of := exchange(t, method, base+path.Replace(where), body, sent)
		return status, of.Get("Content-Type"), text
	}
	changes := 0
	for _, o := range theContract().operations() {
		method := strings.ToUpper(o.method)
		if method == "GET" {
			continue
		}
		changes++
		for _, headers := range [][]string{{"Origin", "https://other.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}} {
			status, kind, answer := send(method, o.path, headers...)
			if status != 403 || kind != "application/problem+json" {
				t.Errorf("%s %s with %v: %d %s %s", method, o.path, headers, status, kind, answer)
			}
		}
	}
	if changes < 10 {
		t.Errorf("only %d operations change something", changes)
	}
	if _, answer := request(t, "GET", base+"/v1/seen?url=https://a.example/", ""); !strings.Contains(answer, `"seen":false`) {
		t.Errorf("a page of another site added a URL: %s", answer)
	}
	for _, headers := range [][]string{{"Origin", base}, {"Sec-Fetch-Site", "same-origin", "Origin", base}, {}} {
		if status, _, answer := send("POST", "/v1/urls", headers...); status != 200 {
			t.Errorf("with %v: %d %s", headers, status, answer)
		}
	}
}
