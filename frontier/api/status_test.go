//go:build unix

package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// TestAnotherProcessIsAway takes another process away. What only that knows is refused, and the
// answer says when to ask again, as openapi.yaml has it.
func TestAnotherProcessIsAway(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	base := servers[0].URL
	const n = 40
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/\"}\n", i)
	}
	for added := 0; added < n && t.Context().Err() == nil; {
		_, answer := request(t, "POST", base+"/v1/urls", body.String())
		added = strings.Count(answer, "added") + strings.Count(answer, "known")
	}
	_, answer := request(t, "POST", base+"/v1/claims", fmt.Sprintf(`{"max":%d}`, n))
	var leases []string
	for _, l := range regexp.MustCompile(`"lease":"([^"]+)"`).FindAllStringSubmatch(answer, -1) {
		leases = append(leases, l[1])
	}
	if len(leases) != n {
		t.Fatalf("%d leases: %s", len(leases), answer)
	}
	all := `{"leases":["` + strings.Join(leases, `","`) + `"]}`

	// The other process is not reached, and has its shards nevertheless.
	away(servers[1], true)
	site := func() (name string) {
		for i := range n {
			name = fmt.Sprintf("site%d.example", i)
			if status, _ := request(t, "GET", base+"/v1/seen?url=https://"+name+"/", ""); status == 503 {
				return name
			}
		}
		t.Fatal("the other process is still asked")
		return ""
	}()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/domains/" + site, ""},
		{"PATCH", "/v1/domains/" + site, `{"delay":1}`},
		{"GET", "/v1/domains/" + site + "/robots", ""},
		{"GET", "/v1/domains/" + site + "/urls", ""},
		{"DELETE", "/v1/domains/" + site + "/urls", ""},
		{"POST", "/v1/leases:extend", all},
		{"POST", "/v1/leases:release", all},
		{"GET", "/v1/visited", ""},
		{"POST", "/v1/snapshots", ""},
	} {
		if status, answer := request(t, c.method, base+c.path, c.body); status != 503 {
			t.Errorf("%s %s without the other process: %d %s", c.method, c.path, status, answer)
		}
	}
	if _, answer := request(t, "POST", base+"/v1/urls", body.String()); !strings.Contains(answer, `{"result":"elsewhere"`) || !strings.Contains(answer, "known") {
		t.Errorf("%s", answer)
	}
}

// TestRedisIsAway takes Redis away, without which nothing is handed out. URLs and results are
// taken, which are in files, but for results that ask for a rest.
func TestRedisIsAway(t *testing.T) {
	servers, redis := start(t, 1, 15*time.Second)
	base := servers[0].URL
	for i := range 20 {
		request(t, "POST", base+"/v1/urls", fmt.Sprintf(`{"url":"https://site%d.example/"}`, i))
	}
	_, answer := request(t, "POST", base+"/v1/claims", `{"max":100}`)
	all := regexp.MustCompile(`"lease":"([^"]+)","url":"([^"]+)"`).FindAllStringSubmatch(answer, -1)
	if len(all) != 20 {
		t.Fatal(answer)
	}
	first := all[0]
	redis.Kill(t)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/results", `{"lease":"` + first[1] + `","status":200}`, 200},
		{"/v1/results", `{"lease":"` + all[1][1] + `","status":429,"retry_after":9}`, 200},
		{"/v1/urls", `{"url":"https://b.example/"}`, 200},
		{"/v1/claims", `{"max":100}`, 503},
		{"/v1/claims", `{"max":100}`, 503},
		{"/v1/urls", `{"url":"https://c.example/"}`, 200},
		{"/v1/results", `{"lease":"` + all[2][1] + `","status":200}`, 200},
	} {
		if status, answer := request(t, "POST", base+c.path, c.body); status != c.status {
			t.Errorf("%s without Redis: %d %s, want %d", c.path, status, answer, c.status)
		}
	}
	redis.Start(t)
	testenv.Until(t, "the shards are opened again, and the result is there", func() bool {
		_, answer := request(t, "GET", base+"/v1/seen?url="+first[2], "")
		return strings.Contains(answer, `"settled":true`) && strings.Contains(answer, `"status":200`)
	})
	// Of the lease that Redis has kept nothing comes back.
	got := ""
	testenv.Until(t, "the other URLs are handed out", func() bool {
		_, answer := request(t, "POST", base+"/v1/claims", `{"max":10}`)
		got += answer
		return strings.Contains(got, "https://b.example/") && strings.Contains(got, "https://c.example/")
	})
	if strings.Contains(got, `"`+first[2]+`"`) || strings.Contains(got, `"tries":1`) {
		t.Error(got)
	}
}

// TestStatuses gets what other tests do not.
func TestStatuses(t *testing.T) {
	base := serve(t, 1)[0]
	long := `{"lease":"` + strings.Repeat("x", 300_000) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/healthz", "", 200},
		{"GET", "/v1/stats", "", 200},
		{"POST", "/v1/results", long, 400},
		{"POST", "/v1/seen", long, 400},
		{"POST", "/v1/visits", long, 400},
		{"POST", "/v1/visits", `{"url":"https://v.example/","time":"2026-01-02T03:04:05Z","status":200}`, 200},
		{"POST", "/v1/leases:extend", "{", 400},
		{"POST", "/v1/leases:release", `{"lease":"x"}`, 400},
		{"GET", "/v1/domains/a.example/robots?host=a/b", "", 400},
		{"GET", "/v1/snapshots/none/files/a", "", 404},
		{"DELETE", "/v1/snapshots/no.ne", "", 404},
	} {
		if status, answer := request(t, c.method, base+c.path, c.body); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, answer, c.status)
		}
	}
	request(t, "POST", base+"/v1/urls", `{"url":"https://a.example/"}`)
	_, answer := request(t, "POST", base+"/v1/snapshots", "")
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(answer)
	file := regexp.MustCompile(`"path":"([^"]+)"`).FindStringSubmatch(answer)
	if id == nil || file == nil {
		t.Fatal(answer)
	}
	if status, answer := request(t, "GET", base+"/v1/snapshots/"+id[1]+"/files/"+file[1], ""); status != 200 {
		t.Error(status, answer)
	}
	if status, answer := request(t, "DELETE", base+"/v1/snapshots/"+id[1], ""); status != 204 {
		t.Error(status, answer)
	}
}

// TestAnotherProcessIsStopped has another process take requests and answer none, as one does that
// got SIGSTOP. No request waits as long as one to a process may take.
func TestAnotherProcessIsStopped(t *testing.T) {
	t.Parallel()
	servers, _ := start(t, 2, own)
	base := servers[0].URL
	resume := make(chan struct{})
	defer close(resume)
	servers[1].Config.Handler.(*gate).stopped.Store(&resume)
	var body strings.Builder
	for i := range 40 {
		fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/\"}\n", i)
	}
	ask := func(method, path, body string) (int, string, http.Header) {
		return exchange(t, method, base+path, body, nil)
	}
	_, answer, _ := ask("POST", "/v1/urls", body.String())
	if added, away := strings.Count(answer, `"added"`), strings.Count(answer, `"elsewhere"`); added == 0 || away == 0 || added+away != 40 {
		t.Errorf("%d added, %d elsewhere", added, away)
	}
	if status, answer, _ := ask("POST", "/v1/claims", `{"max":10}`); status != 200 || strings.Count(answer, `"lease"`) != 10 {
		t.Errorf("claims: %d %s", status, answer)
	}
	refused := 0
	for i := range 40 {
		switch status, answer, header := ask("GET", fmt.Sprintf("/v1/domains/site%d.example", i), ""); {
		case status == 503 && header.Get("Retry-After") != "":
			refused++
		case status != 200:
			t.Errorf("%d %s", status, answer)
		}
	}
	if refused != strings.Count(answer, `"elsewhere"`) {
		t.Errorf("%d domains are elsewhere, and were %d of URLs", refused, strings.Count(answer, `"elsewhere"`))
	}
}
