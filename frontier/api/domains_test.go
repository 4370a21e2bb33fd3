//go:build unix

package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// claimed is a part of the answer to claims.
type claimed struct {
	Claims []struct{ Lease, URL, Domain string }
}

func claims(t *testing.T, base, body string) (c claimed) {
	t.Helper()
	status, text := request(t, "POST", base+"/v1/claims", body)
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
		t.Fatalf("%d: %s: %v", status, text, err)
	}
	return c
}

// addDomains adds URLs of so many domains, so many each, until all are added.
func addDomains(t *testing.T, base string, domains, each int) {
	t.Helper()
	var body strings.Builder
	for d := range domains {
		for i := range each {
			fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/%d\"}\n", d, i)
		}
	}
	testenv.Until(t, "all are added", func() bool {
		status, text := request(t, "POST", base+"/v1/urls", body.String())
		return status == 200 && !strings.Contains(text, "elsewhere")
	})
}

// TestDomainsOfAllProcesses holds that a client of one process gets the domains of all, although
// that process never runs out of its own.
func TestDomainsOfAllProcesses(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	const domains = 40
	addDomains(t, bases[1], domains, 100)
	got := map[string]bool{}
	for n := 0; len(got) < domains; n++ {
		if n == 3000 {
			t.Fatalf("%d claims are of %d domains, want %d", n, len(got), domains)
		}
		for _, c := range claims(t, bases[0], `{"max":1,"wait_ms":1000}`).Claims {
			got[c.Domain] = true
		}
	}
}

// TestSeenLines asks for many URLs at once, of two processes.
func TestSeenLines(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	addDomains(t, bases[0], 20, 2)
	got := claims(t, bases[1], `{"max":1,"wait_ms":10000}`).Claims
	if _, text := request(t, "POST", bases[0]+"/v1/results", fmt.Sprintf(`{"lease":%q,"status":404}`, got[0].Lease)); text != `{"result":"settled"}` {
		t.Fatal(text)
	}
	var body strings.Builder
	want := []string{`{"seen":false,"settled":false,"reason":"no URL that can be fetched: scheme"}`, "line: ", `"seen":false,"settled":false}`}
	body.WriteString(`{"url":"x:y"}` + "\n{\n" + `{"url":"https://other.example/"}` + "\n")
	for d := range 20 {
		for i := range 3 {
			url := fmt.Sprintf("https://site%d.example/%d", d, i)
			fmt.Fprintf(&body, "{\"url\":%q}\n", url)
			switch {
			case url == got[0].URL:
				want = append(want, `{"seen":true,"settled":true,"status":404,"fetched":"`)
			case i < 2:
				want = append(want, `{"seen":true,"settled":false}`)
			default:
				want = append(want, `{"seen":false,"settled":false}`)
			}
		}
	}
	_, text := request(t, "POST", bases[1]+"/v1/seen", body.String())
	lines := strings.Split(text, "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines for %d", len(lines), len(want))
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) {
			t.Errorf("line %d: %s, want %s", i, lines[i], w)
		}
	}
}

// TestAReaderThatStops holds that a client that asks for visits and does not read them keeps nobody
// else from the shards.
func TestAReaderThatStops(t *testing.T) {
	base := serve(t, 1)[0]
	addDomains(t, base, 4, 3000)
	for n := 0; n < 12_000; {
		var results strings.Builder
		got := claims(t, base, `{"max":4000,"per_domain":1000,"wait_ms":1000}`).Claims
		for _, c := range got {
			fmt.Fprintf(&results, "{\"lease\":%q,\"status\":200,\"content\":%q}\n", c.Lease, strings.Repeat("x", 1000))
		}
		if status, text := request(t, "POST", base+"/v1/results", results.String()); status != 200 {
			t.Fatal(status, text)
		}
		n += len(got)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	// The answer has more bytes than the connection holds.
	if _, err := io.WriteString(c, "GET /v1/visited?limit=100000 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	addDomains(t, base, 4, 3001)
	if got := claims(t, base, `{"max":4}`).Claims; len(got) != 4 {
		t.Fatal(got)
	}
}

// TestARefusedCursor asks two processes for visits after a cursor that fits all shards but the
// last. The one that has it refuses it before it lists anything, the other one at the end.
func TestARefusedCursor(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	var body strings.Builder
	const n = 300
	for i := range n {
		fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/\",\"status\":200,\"content\":%q}\n", i, strings.Repeat("x", 1000))
	}
	for done := 0; done < n && t.Context().Err() == nil; {
		_, text := request(t, "POST", bases[0]+"/v1/visits", body.String())
		done = strings.Count(text, `"added"`) + strings.Count(text, `"known"`)
	}
	cursor := base64.RawURLEncoding.EncodeToString([]byte{0, 0, 0, 0, 0, 0, 0, 127})
	lists := 0
	for i, base := range bases {
		at := cursor
		for status := 200; status == 200; lists++ {
			var text string
			status, text = request(t, "GET", base+"/v1/visited?cursor="+at, "")
			_, at, _ = strings.Cut(text, `"next_cursor":"`)
			at = strings.TrimSuffix(at, `"}`)
			if status == 200 && at == "" || status != 200 && status != 400 {
				t.Fatalf("process %d: %d, %d bytes that end with %.200q", i, status, len(text), text[max(0, len(text)-200):])
			}
		}
	}
	if lists != 3 {
		t.Errorf("%d answers of both until the cursor was refused, want 1 and 2", lists)
	}
}

// TestALongRetryAfter holds that the longest rest that counts is that of every longer one.
func TestALongRetryAfter(t *testing.T) {
	base := serve(t, 1)[0]
	for i, after := range []string{"86400", "9e9", "1e10", "1e300"} {
		addDomains(t, base, i+1, 1)
		got := claims(t, base, `{"wait_ms":5000}`).Claims
		if len(got) != 1 {
			t.Fatal(got)
		}
		request(t, "POST", base+"/v1/results", fmt.Sprintf(`{"lease":%q,"status":503,"retry_after":%s}`, got[0].Lease, after))
		_, text := request(t, "GET", base+"/v1/domains/"+got[0].Domain, "")
		var d struct {
			Next time.Time `json:"next_time"`
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if rest := time.Until(d.Next); rest < 23*time.Hour || rest > 24*time.Hour {
			t.Errorf("retry_after %s: it rests for %v", after, rest)
		}
	}
}

// TestSpellingsOfDomains holds that a path means a domain in any spelling, that a host of a domain
// is refused, and that keys that clients have given are meant as they are, whichever process serves
// them.
func TestSpellingsOfDomains(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	until := func(want, method, path, body string) {
		t.Helper()
		testenv.Until(t, method+" "+path+" is answered with "+want, func() bool {
			status, text := request(t, method, bases[0]+path, body)
			found := strings.Contains(fmt.Sprint(status, " ", text), want)
			if !found && !strings.Contains(text, "elsewhere") && status != 503 {
				t.Fatalf("%s %s: %d: %s, want %s", method, path, status, text, want)
			}
			return found
		})
	}
	for i := range 8 {
		site := fmt.Sprintf("t%d", i)
		until("added", "POST", "/v1/urls", `{"url":"https://x.example/","key":"Key-`+site+`.example"}`)
		until("added", "POST", "/v1/urls", `{"url":"https://x.example/","key":"www.key`+site+`.example"}`)
		for _, base := range bases {
			for path, want := range map[string]string{
				strings.ToUpper(site) + ".example": site + ".example", site + ".EXAMPLE.": site + ".example", "%C3%A4" + site + ".com": "xn--" + site + "-",
				"Key-" + site + ".example": "Key-" + site + ".example", "www.key" + site + ".example": "www.key" + site + ".example", "Some%20key": "Some key",
			} {
				status, text := request(t, "GET", base+"/v1/domains/"+path, "")
				if status != 200 || !strings.HasPrefix(text, `{"domain":"`+want) {
					t.Errorf("%s: %d: %s, want %s", path, status, text, want)
				}
			}
			for _, at := range []string{"PATCH ", "GET ", "GET /robots", "GET /urls", "DELETE /urls"} {
				method, rest, _ := strings.Cut(at, " ")
				status, text := request(t, method, base+"/v1/domains/WWW."+site+".example"+rest, `{"exclude":true}`)
				if status != 400 || !strings.Contains(text, "name "+site+".example") {
					t.Errorf("%s of a host: %d: %s", at, status, text)
				}
			}
		}
		until(`"excluded":true`, "PATCH", "/v1/domains/"+strings.ToUpper(site)+".example.", `{"exclude":true}`)
		until("excluded", "POST", "/v1/urls", `{"url":"https://www.`+site+`.example/"}`)
		until(`{"deleted":1}`, "DELETE", "/v1/domains/Key-"+site+".example/urls", "")
	}
}
