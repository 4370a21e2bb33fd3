package api

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

var (
	anyLink  = regexp.MustCompile(`(?:href|action)="([^"]*)"`)
	anyForm  = regexp.MustCompile(`(?s)<form action="([^"]*)" method="get".*?</form>`)
	anyInput = regexp.MustCompile(`<(input|option)([^>]*)>`)
	anyName  = regexp.MustCompile(`name="([^"]*)"`)
	anyValue = regexp.MustCompile(`value="([^"]*)"`)
)

// crawl reads every page that can be reached from the start page: it follows all links, sends all
// forms as they are, and fails for an answer that is not 200. It returns the bodies by path.
func crawl(t *testing.T, s *service, from ...string) map[string]string {
	t.Helper()
	read := map[string]string{}
	for queue := from; len(queue) > 0; queue = queue[1:] {
		path, _, _ := strings.Cut(queue[0], "#")
		if _, ok := read[path]; ok || path == "" {
			continue
		}
		if len(read) > 3000 {
			t.Fatalf("the pages do not end; the last is %s", path)
		}
		w := s.do("GET", path)
		text := w.Body.String()
		read[path] = text
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %.300s", path, w.Code, text)
			continue
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		// Nothing is loaded from elsewhere, and no script is run.
		if strings.Contains(text, "<script") || strings.Contains(text, " src=") || strings.Contains(text, "javascript:") {
			t.Errorf("%s: the page loads or runs something: %s", path, text)
		}
		for _, m := range anyLink.FindAllStringSubmatch(text, -1) {
			link := html.UnescapeString(m[1])
			if link == "data:," { // the icon
				continue
			}
			if !strings.HasPrefix(link, "/") && !strings.HasPrefix(link, "#") || strings.HasPrefix(link, "//") {
				t.Errorf("%s: link to %s", path, link)
			}
			if id, ok := strings.CutPrefix(link, "#"); ok {
				if !strings.Contains(text, `id="`+id+`"`) {
					t.Errorf("%s: nothing on the page is called %s", path, id)
				}
				continue
			}
			queue = append(queue, link)
		}
		for _, f := range anyForm.FindAllStringSubmatch(text, -1) {
			query := url.Values{}
			for _, in := range anyInput.FindAllStringSubmatch(f[0], -1) {
				name, value := anyName.FindStringSubmatch(in[2]), anyValue.FindStringSubmatch(in[2])
				if in[1] == "option" || name == nil || strings.Contains(in[2], `type="checkbox"`) && !strings.Contains(in[2], " checked") {
					continue
				}
				if value == nil {
					value = []string{"", ""}
				}
				query.Add(name[1], html.UnescapeString(value[1]))
			}
			if strings.Contains(f[0], " required") && query.Get("domain") == "" {
				continue // browsers do not send it
			}
			queue = append(queue, html.UnescapeString(f[1])+"?"+query.Encode())
		}
	}
	return read
}

// pagesLake has hosts, public suffixes, a domain of several pages, names that need escaping, times,
// sizes and extras.
func pagesLake(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	captures(t, store, 24)
	list := []testlake.Record{
		{URL: "https://example.com/?q=%3Cb%3E&x='\"+%2B"}, {URL: "http://[2001:db8::1]:8080/a"}, {URL: "https://10.0.0.1/"}, {URL: "https://intranet/"},
		{URL: "https://ada.github.io/"}, {URL: "https://bea.github.io/"}, {URL: "https://github.io/"}, {URL: "https://bücher.example/ü"},
	}
	for i := range lookup.DefaultLimit + 1 {
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://many.test/%03d", i)})
	}
	testlake.Ingest(t, store, "web_list-2.0", "b1", list)
	testlake.Publish(t, store)
	return store
}

// Every link of every page leads somewhere, whatever is selected, and every form can be sent as it
// is. What pages list is what the JSON interface lists.
func TestEveryLinkOfThePagesIsAlive(t *testing.T) {
	store := pagesLake(t)
	s := start(t, store, lookup.Options{})
	list := "/?domain=example.com&dataset=alpha"
	read := crawl(t, s, "/", "/?domain=www.example.com", "/?domain=github.io", "/?domain=co.uk", "/?domain=absent.test", "/domains?suffix=.io&prefix=B",
		"/domains?dataset=alpha", list+"&host=a.example.com", list+"&host=a.example.com&unique=1", list+"&prefix=p00&from=2026-11-02&to=&filter=&unique=1",
		list+"&filter=n%3D8&filter=mime~html", list+"&from=2030-01-01", "/?domain=https%3A%2F%2Fb.example.com%2Fp000004%23x",
		"/?url=HTTPS%3A%2F%2Fb.example.com%2Fp000004", "/?url=https%3A%2F%2Fb.example.com%2Fnone", "/?dataset=alpha",
		"/tree?domain=example.com", "/tree?domain=b.example.com&path=%2Fnone&dataset=alpha&sort=size")
	for path, want := range map[string][]string{
		"/":                        {"Domains by name", `href="/?dataset=1">alpha</a>`},
		"/?domain=www.example.com": {"A host of", "<h2>www.example.com</h2>", "host=www.example.com"},
		"/?domain=github.io":       {"A public suffix", "2 domains below it", "1 dataset."},
		"/?domain=co.uk":           {"A public suffix", "0 domains below it", "No dataset has a URL of this name itself"},
		"/?domain=absent.test":     {"No dataset has", `href="/domains?prefix=abse"`},
		"/domains?suffix=.github.io": {
			"ada.github.io", "bea.github.io",
		},
		"/domains?dataset=alpha":                      {"Domains in alpha", "example.com"},
		list + "&host=a.example.com":                  {"1 to 12 of 12 rows that are selected", "<details open>", `value="a.example.com"`, "Download what is selected"},
		list + "&filter=n%3D8&filter=mime~html":       {"1 row on this page", `value="n=8"`, `value="mime~html"`},
		list + "&host=a.example.com&unique=1":         {"1 to 6 of 6 distinct URLs that are selected"},
		list + "&from=2030-01-01":                     {"No URL of the domain is selected", "All URLs"},
		"/?dataset=alpha":                             {"<h2>alpha</h2>", "24 URLs of 1 domain, from 2026-11-01 to 2026-11-20", "Most URLs", "Largest sizes"},
		"/?url=HTTPS%3A%2F%2Fb.example.com%2Fp000004": {"In 1 dataset.", `<td class="n">2</td>`},
		"/?url=https%3A%2F%2Fb.example.com%2Fnone":    {"No dataset holds exactly this URL"},
		"/tree?domain=example.com": {
			"25 URLs, 276 bytes; 3 hosts.", `path=a.example.com%2F">a.example.com/</a></td><td class="n">12</td><td class="n wide">48 %</td>`,
			`<option value="1">alpha</option>`,
		},
		"/tree?domain=b.example.com&path=%2Fnone&dataset=alpha&sort=size": {
			"No URL is below it", "These URLs", `<option value="size" selected>`, `<option value="1" selected>alpha</option>`,
		},
		"/?domain=https%3A%2F%2Fb.example.com%2Fp000004%23x": {
			"Who holds exactly <span class=\"url\">https://b.example.com/p000004</span>",
		},
	} {
		for _, text := range want {
			if !strings.Contains(read[path], text) {
				t.Errorf("%s lacks %q: %s", path, text, read[path])
			}
		}
	}
	// The forms of lists, and what is downloaded from a selected list.
	forms := map[string]int{}
	for path, text := range read {
		if strings.HasPrefix(path, "/v1/") && strings.Contains(path, "format=") {
			u, _ := url.Parse(path)
			forms[u.Query().Get("format")]++
			want := 12
			if u.Query().Get("unique") == "1" {
				want = 6
			}
			if u.Query().Get("format") == "text" && u.Query().Get("host") == "a.example.com" && u.Query().Get("prefix") == "" &&
				strings.Count(text, "https://a.example.com/") != want {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
	if len(forms) != 4 || len(read) < 300 {
		t.Errorf("%d pages, downloads %v", len(read), forms)
	}
	// All domains are reached, and all URLs are on some page.
	for _, name := range []string{"[2001:db8::1]", "10.0.0.1", "intranet", "many.test", "xn--bcher-kva.example", "github.io"} {
		if !slices.ContainsFunc(slices.Collect(maps.Values(read)), func(text string) bool { return strings.Contains(text, "<h2>"+name+"</h2>") }) {
			t.Errorf("no page is about %s", name)
		}
	}
	for i := range lookup.DefaultLimit + 1 {
		link := fmt.Sprintf("url=https%%3A%%2F%%2Fmany.test%%2F%03d", i)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(read)), func(path string) bool {
			return strings.Contains(path, link) && strings.Contains(read[path], "In 1 dataset.")
		}) {
			t.Errorf("%s was not reached", link)
		}
	}
}

// TestPagesIgnoreParametersOfOthers asks for each page with parameters that links get on their way.
// Only the JSON interface refuses them.
func TestPagesIgnoreParametersOfOthers(t *testing.T) {
	s := start(t, pagesLake(t), lookup.Options{})
	pages := []string{
		"/", "/?domain=example.com", "/?domain=example.com&dataset=alpha&filter=mime%3Dx&filter=mime%3Dy", "/?url=https%3A%2F%2Fexample.com%2F",
		"/domains", "/domains?prefix=e", "/tree?domain=example.com", "/api", "/problems/bad-parameter",
	}
	for _, page := range pages {
		want := s.do("GET", page)
		if want.Code != 200 {
			t.Fatalf("%s: %d %s", page, want.Code, want.Body)
		}
		for _, more := range []string{"utm_source=x", "fbclid=1&utm_medium=2", "explain=1", "limit=3&limit=4", "gclid=a;b", "x=%zz", "%zz", "="} {
			sep := "?"
			if strings.Contains(page, "?") {
				sep = "&"
			}
			if w := s.do("GET", page+sep+more); w.Code != 200 || w.Body.String() != want.Body.String() {
				t.Errorf("%s with %s: %d %.200s", page, more, w.Code, w.Body)
			}
		}
	}
	for _, path := range []string{"/v1/datasets", "/v1/domains", "/v1/domain/example.com", "/v1/domain/example.com/tree", "/openapi.json", "/healthz"} {
		if w := s.do("GET", path+"?utm_source=x"); w.Code != 400 || !strings.Contains(w.Body.String(), "utm_source is unknown") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// A mistake in a form is a page that says what is wrong, with the form as it was.
func TestMistakesInForms(t *testing.T) {
	s := start(t, pagesLake(t), lookup.Options{})
	list := "/?domain=example.com&dataset=alpha"
	for path, want := range map[string][]string{
		list + "&from=yesterday": {"400", "from is a date", `value="yesterday"`},
		list + "&host=b.com":     {"400", "host", `value="b.com"`},
		list + "&filter=x":       {"400", "filter", `value="x"`},
		list + "&filter=mime~(":  {"400", "filter", `value="mime~("`},
		"/?domain=example.com&dataset=none&host=a.example.com": {"404", "no such dataset"},
		"/?dataset=99":                           {"404", "no such dataset"},
		"/?url=nothing%20like%20it":              {"400", "Not a host or URL"},
		"/domains?prefix=a%2Fb":                  {"400", "prefix", "characters that domains do not have"},
		"/domains?dataset=none":                  {"404", "no such dataset"},
		"/domains?limit=3":                       {"200"},
		"/domains?dataset=1&dataset=1":           {"400", "more than once"},
		"/tree?domain=nothing%20like":            {"400", "Not a host or URL"},
		"/tree?domain=example.com&sort=age":      {"400", "sort is name, rows or size"},
		"/tree?domain=example.com&dataset=none":  {"404", "no such dataset"},
		"/tree?domain=example.com&dataset=99":    {"404", "no such dataset"},
		"/tree?domain=example.com&path=b.test/x": {"400", "path", "not of the domain example.com"},
		"/tree?domain=example.com&cursor=x":      {"400", "cursor"},
	} {
		w := s.do("GET", path)
		text := w.Body.String()
		for _, want := range want {
			if !strings.Contains(fmt.Sprint(w.Code, text), want) {
				t.Errorf("%s lacks %q: %d %s", path, want, w.Code, text)
			}
		}
	}
}
