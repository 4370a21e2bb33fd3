//go:build unix

package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// Whichever process is asked, leases of all of them are given back.
func TestReleaseAtAnyProcess(t *testing.T) {
	t.Parallel()
	bases := serve(t, 2)
	const n = 40
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, "{\"url\":\"https://site%d.example/\"}\n", i)
	}
	added := 0
	for added < n { // until both have their shards
		_, answer := request(t, "POST", bases[0]+"/v1/urls", body.String())
		added = strings.Count(answer, "added") + strings.Count(answer, "known")
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	for i := range n {
		request(t, "PATCH", fmt.Sprintf("%s/v1/domains/site%d.example", bases[0], i), `{"delay":0}`)
	}
	_, answer := request(t, "POST", bases[0]+"/v1/claims", `{"max":100}`)
	var leases []string
	for _, l := range strings.Split(answer, `"lease":"`)[1:] {
		lease, _, _ := strings.Cut(l, `"`)
		leases = append(leases, fmt.Sprintf("%q", lease))
	}
	give := `{"leases":[` + strings.Join(leases, ",") + `]}`
	if status, answer := request(t, "POST", bases[1]+"/v1/leases:release", give); status != 200 || strings.Count(answer, "true") != n {
		t.Fatal(status, answer)
	}
	if _, answer := request(t, "POST", bases[0]+"/v1/leases:release", give); strings.Count(answer, "false") != n {
		t.Fatal(answer)
	}
	if _, answer := request(t, "POST", bases[1]+"/v1/claims", `{"max":100}`); strings.Count(answer, `"tries":1`) != n {
		t.Fatal(answer)
	}
}
