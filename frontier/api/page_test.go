//go:build unix

package api_test

import (
	"strings"
	"testing"
	"time"
)

// TestPage holds that the page shows both processes, what waits, and what is wrong.
func TestPage(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	base, other := servers[0].URL, servers[1].URL
	var body strings.Builder
	for range 1200 {
		body.WriteString(`{"url":"https://<b>.example/"}` + "\n")
	}
	for i := range 12 {
		body.WriteString(`{"url":"https://site` + string(rune('a'+i)) + `.example/","crawl":"<i>"}` + "\n")
	}
	request(t, "POST", base+"/v1/urls", body.String())
	request(t, "POST", base+"/v1/claims", `{"crawl":"<i>"}`)
	for { // the other process' address is known once its shards are looked for
		_, page := request(t, "GET", base+"/", "")
		if strings.Contains(page, other) {
			for _, want := range []string{"1\u202f200", "site", "/v1/domains/", "/urls?crawl=%3Ci%3E&amp;limit=1000&amp;state=waiting", "&lt;i&gt;", "Together", "rejected"} {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q:\n%s", want, page)
				}
			}
			if strings.Contains(page, "<i>") || strings.Contains(page, "<script") {
				t.Errorf("the page has what clients sent:\n%s", page)
			}
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(page)
		}
	}
}

func TestPageWithoutRedis(t *testing.T) {
	servers, redis := start(t, 1, time.Minute)
	request(t, "POST", servers[0].URL+"/v1/claims", "{}")
	redis.Kill(t)
	if _, page := request(t, "GET", servers[0].URL+"/", ""); !strings.Contains(page, "Redis does not answer") {
		t.Errorf("%s", page)
	}
	redis.Start(t)
}
