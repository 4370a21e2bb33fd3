package sites

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestCheckSeesWhatIsWrong lets a crawler in that obeys nothing, and one that does nothing.
func TestCheckSeesWhatIsWrong(t *testing.T) {
	w := New(4, 3)
	wrong := strings.Join(w.Check(Crawl{Tries: 2}).Wrong, "\n")
	for _, want := range []string{"plain.test/page/3 was fetched 0 times, want 1", "failing.test/error was fetched 0 times, want 2", "plain.test/robots.txt was fetched 0 times"} {
		if !strings.Contains(wrong, want) {
			t.Errorf("nothing is fetched, and %q is not said", want)
		}
	}
	get := func(host, path string) {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		w.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, path := range []string{"/", "/robots.txt", "/secret/x", "/meta", "/meta", "/nothing"} {
		get("rules.test", path)
	}
	get("busy.test", "/robots.txt")
	get("busy.test", "/limited")
	get("busy.test", "/limited")
	wrong = strings.Join(w.Check(Crawl{Delay: time.Hour, Tries: 2}).Wrong, "\n")
	for _, want := range []string{
		"rules.test/ was fetched before the robots.txt", "rules.test/secret/x was fetched 1 times, want 0", "rules.test/meta was fetched 2 times, want 1",
		"rules.test/nothing was fetched, to which nothing leads", "after rules.test/meta",
	} {
		if !strings.Contains(wrong, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if got := w.Check(Crawl{Tries: 2, Killed: []time.Time{time.Now()}}); !strings.Contains(strings.Join(got.Wrong, "\n"), "after busy.test/limited") {
		t.Errorf("Retry-After is not looked at: %v", got.Wrong)
	}
}
