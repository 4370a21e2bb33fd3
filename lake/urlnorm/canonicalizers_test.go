package urlnorm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urlake/urlake/internal/testenv"
)

// Other canonicalizers have other forms, but each pair in their tests says that two spellings name
// one page. urlake agrees if both have one canonical form. Where the other system merges more, the
// merge has a name and is applied to both sides here. Where it accepts hosts that no browser opens,
// the reason of the rejection is derived from the input.

// merge makes URLs equal that urlake tells apart. It works on the fields of hrefParts.
type merge struct {
	name  string
	apply func(u *refURL)
}

type refURL struct{ scheme, host, port, path, query string }

func splitURL(canonical string) refURL {
	m := hrefParts.FindStringSubmatch(canonical)
	return refURL{m[1], m[3], m[4], m[5], m[6]}
}

func (u *refURL) String() string { return u.scheme + u.host + u.port + u.path + u.query }

func dropMatches(re *regexp.Regexp, to string) func(*string) {
	return func(s *string) { *s = re.ReplaceAllString(*s, to) }
}

var (
	mergeEscapes = merge{"nothing-guessed (escapes of any depth)", func(u *refURL) {
		for _, s := range []*string{&u.path, &u.query} {
			for next := refDecode(*s); next != *s; next = refDecode(*s) {
				*s = next
			}
			*s = strings.ReplaceAll(*s, "%", "%25")
		}
		// What was an escaped dot or slash is one now.
		u.path = refPath(u.path)
	}}
	mergeWWW = merge{"nothing-guessed (www)", func(u *refURL) {
		if m := regexp.MustCompile(`^www[0-9]*\.(.*\..*)$`).FindStringSubmatch(u.host); m != nil {
			u.host = m[1]
		}
	}}
	mergeCase = merge{"nothing-guessed (case)", func(u *refURL) {
		u.path, u.query = strings.ToLower(u.path), refQuery(strings.TrimPrefix(strings.ToLower(u.query), "?"), nil)
	}}
	mergeTrailingSlash = merge{"nothing-guessed (trailing slash)", func(u *refURL) {
		u.path = strings.TrimSuffix(u.path, "/")
	}}
	mergeScheme = merge{"nothing-guessed (scheme)", func(u *refURL) { u.scheme = "" }}
	mergePort   = merge{"nothing-guessed (port)", func(u *refURL) { u.port = "" }}
	mergeQuery  = merge{"nothing-guessed (query)", func(u *refURL) { u.query = "" }}
	mergeIndex  = merge{"nothing-guessed (index page)", func(u *refURL) {
		dropMatches(regexp.MustCompile(`/(index|remove)\.[a-z]+$`), "/")(&u.path)
	}}
	mergePlus = merge{"nothing-guessed (plus)", func(u *refURL) { u.query = strings.ReplaceAll(u.query, "+", "%20") }}
	// Unicode's line and paragraph separators are not among the characters that browsers strip.
	mergeLineEnds = merge{"nothing-guessed (line separators)", func(u *refURL) {
		dropMatches(regexp.MustCompile(`%E2%80%A[89]`), "")(&u.path)
	}}
	mergeSession = merge{"nothing-guessed (session)", func(u *refURL) {
		dropMatches(regexp.MustCompile(`(?i)/(\([a-z]\(|\()[0-9a-z]{24}\).*?\)?/([^/]*\.aspx)`), "/$2")(&u.path)
		dropMatches(regexp.MustCompile(`(?i);jsessionid=[0-9a-z]{32}$`), "")(&u.path)
		kept := slices.DeleteFunc(strings.Split(strings.TrimPrefix(u.query, "?"), "&"), regexp.MustCompile(
			`(?i)^((jsessionid|phpsessid|sid)=[0-9a-z]{32}|jsessionid=[0-9a-z$]+|aspsessionid[a-z]{8}=[a-z]{24}|cfid=[0-9]+|cftoken=[0-9]+)$`).MatchString)
		u.query = refQuery(strings.Join(kept, "&"), nil)
	}}
	mergeWholeParams = merge{"sorted-query", func(u *refURL) {
		params := strings.Split(strings.TrimPrefix(u.query, "?"), "&")
		slices.Sort(params)
		u.query = strings.Join(params, "&")
	}}
	mergeColonSlashes = merge{"slash-runs", func(u *refURL) { u.path = strings.ReplaceAll(u.path, "://", ":/") }}
)

// agree checks that input and same, which are one page for another system, are one in urlake after
// as many of the merges, in their order, as it takes.
func (c *tally) agree(input, same string, merges ...merge) {
	c.t.Helper()
	v := &vector{input: input}
	defer c.add(v)
	checkInvariants(c.t, input)
	checkInvariants(c.t, same)
	got, reason := parseString(input)
	if reason != "" {
		if difference := whyRejected(input, reason); difference != "" {
			v.use(difference)
		} else {
			c.t.Errorf("Parse(%q) is rejected for %q, and %q is not", input, reason, same)
		}
		return
	}
	want, reason := parseString(same)
	if reason != "" {
		c.t.Errorf("Parse(%q) is %q, and %q is rejected for %q", input, got, same, reason)
		return
	}
	a, b := splitURL(got), splitURL(want)
	for _, m := range merges {
		if a == b {
			return
		}
		beforeA, beforeB := a, b
		m.apply(&a)
		m.apply(&b)
		if a != beforeA || b != beforeB {
			v.use(m.name)
		}
	}
	if a != b {
		c.t.Errorf("%q and %q are one page elsewhere:\n%s\n%s (differences used: %v)", input, same, got, want, v.used)
	}
}

// whyRejected names the difference for which urlake rejects what another system accepts, from the
// input alone; "" if there is none.
func whyRejected(input string, reason Reason) string {
	s := refClean(input)
	m := refScheme.FindStringSubmatch(s)
	if m == nil || strings.Contains(m[1], ".") && refOnlyPort.MatchString(m[2]) {
		m = []string{"", "http", s}
		if name := regexp.MustCompile(`^[^/\\?:]*`).FindString(s); !strings.Contains(name, ".") {
			return expectReason(reason, RejectNoHost, "no-base")
		}
	}
	if !slices.Contains([]string{"http", "https", "ftp"}, strings.ToLower(m[1])) {
		return expectReason(reason, RejectScheme, "web-only")
	}
	host := regexp.MustCompile(`^[/\\]*([^/\\?:]*)`).FindStringSubmatch(m[2])[1]
	decoded := refDecode(host)
	labels := strings.Split(strings.TrimSuffix(decoded, "."), ".")
	switch {
	case host == "":
		return expectReason(reason, RejectNoHost, "host-checked")
	case isScheme(host):
		return expectReason(reason, RejectNoHost, "nothing-guessed (doubled scheme)")
	case refForbidden.MatchString(decoded) || strings.ContainsAny(decoded, "\ufffd\u2028\u2029\u0080"):
		return expectReason(reason, RejectHost, "host-checked")
	case slices.Contains(labels, ""):
		return expectReason(reason, RejectHost, "dns-limits")
	case refNumber.MatchString(labels[len(labels)-1]):
		return expectReason(reason, RejectHost, "number-is-address")
	}
	return ""
}

func expectReason(got, want Reason, difference string) string {
	if got != want {
		return ""
	}
	return difference
}

// page is a URL that holds the text of a path or query.
func page(pathQuery string) string { return "http://host.example" + pathQuery }

// surtParts splits the sort-friendly form "http://(org,archive,:81)/path", of which everything
// before the host's labels may be missing.
var surtParts = regexp.MustCompile(`^(?:([a-z]+)://\()?([0-9a-f]+(?::[0-9a-f]*){2,}|[^)(/:]+):?([0-9]*)\)?(.*)$`)

// fromSURT is the URL that a SURT denotes.
func fromSURT(surt string) string {
	m := surtParts.FindStringSubmatch(surt)
	scheme, host, port, rest := m[1], m[2], m[3], m[4]
	if scheme == "" {
		scheme = "http"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	} else {
		labels := strings.Split(strings.TrimSuffix(host, ","), ",")
		slices.Reverse(labels)
		host = strings.Join(labels, ".")
	}
	if port != "" {
		host += ":" + port
	}
	return scheme + "://" + host + rest
}

// agreeSURT is agree with a SURT. An input without one has "-" or is unchanged.
func (c *tally) agreeSURT(input, surt string, merges ...merge) {
	c.t.Helper()
	if !strings.Contains(surt, ")") {
		c.agree(input, surt, merges...) // no web URL: left as it is, or "-"
		return
	}
	c.agree(input, fromSURT(surt), merges...)
}

// decodedPage is a page for text whose escapes are decoded. Its controls are escaped, since they
// would be stripped, and so is a percent sign that would start an escape.
func decodedPage(text string) string {
	return page("/" + strings.NewReplacer("\n", "%0A", "\t", "%09").Replace(text))
}

var iaMerges = []merge{mergeScheme, mergeWWW, mergeSession, mergeTrailingSlash, mergeCase, mergeWholeParams, mergeEscapes}

func readJSONLines[T any](tb testing.TB, elem ...string) []T {
	tb.Helper()
	b, err := os.ReadFile(testenv.Shared(tb, append([]string{"vectors"}, elem...)...))
	if err != nil {
		tb.Fatal(err)
	}
	var out []T
	for _, line := range lines(b) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			tb.Fatalf("%s: %v", path.Join(elem...), err)
		}
		out = append(out, v)
	}
	return out
}

// archiveCall runs an assertion about a function that the Internet Archive's canonicalizers share.
func (c *tally) archiveCall(call, input, want string) {
	c.t.Helper()
	switch {
	case strings.Contains(call, "unescapeRepeatedly"), strings.Contains(call, "guc.decode"):
		c.agree(page("/"+input), decodedPage(want), mergeEscapes)
	case strings.Contains(call, "attemptIPFormats"):
		c.agree("http://"+input+"/", "http://"+want+"/")
	case strings.Contains(call, "alphaReorderQuery"), strings.Contains(call, "alphaRorderQuery"):
		c.agree(page("/?"+input), page("/?"+want), mergeWholeParams)
	case strings.Contains(call, "massageHost"):
		c.agree("http://"+input+"/", "http://"+want+"/", mergeWWW)
	case strings.Contains(strings.ToLower(call), "strippathsessionid"):
		c.agree(page(input), page(want), mergeSession)
	default:
		c.t.Errorf("unknown call %q", call)
	}
}

func TestInternetArchiveSURT(t *testing.T) {
	type entry struct {
		Test, Call string
		Input      *string
		Options    map[string]any
		Expected   any
	}
	c := newTally(t)
	for _, e := range readJSONLines[entry](t, "derived", "ia_surt.jsonl") {
		want := fmt.Sprint(e.Expected)
		input := ""
		if e.Input != nil {
			input = *e.Input
		}
		host, _ := e.Options["host"].(string)
		switch {
		case strings.Contains(e.Call, "getPublicSuffix"):
			if got := BuiltinSuffixes().Domain(host); got != want {
				t.Errorf("Domain(%q) = %q, want %q", host, got, want)
			}
			c.agree("http://"+host, "http://"+host)
		case strings.Contains(e.Call, "getPublicPrefix"):
			if got := strings.TrimSuffix(host, "."+BuiltinSuffixes().Domain(host)); got != want {
				t.Errorf("%q before its domain is %q, want %q", host, got, want)
			}
			c.agree("http://"+host, "http://"+host)
		case strings.Contains(e.Call, ".scheme"):
			c.agree(input, want)
		case strings.Contains(e.Call, "getDefaultPort"):
			c.agree(fmt.Sprintf("%s://host.example:%s/", input, want), input+"://host.example/")
		case strings.Contains(e.Call, "geturl()"), strings.Contains(e.Call, "getURLString()"):
			c.agree(input, want, append([]merge{mergeEscapes}, iaMerges...)...)
		case strings.Contains(e.Call, "surt.surt("):
			c.agreeSURT(input, want, iaMerges...)
		default:
			c.archiveCall(e.Call, input, want)
		}
	}
	c.report(160, "no-base", "web-only", "host-checked", "dns-limits", "number-is-address", "sorted-query",
		"nothing-guessed (case)", "nothing-guessed (doubled scheme)", "nothing-guessed (escapes of any depth)",
		"nothing-guessed (scheme)", "nothing-guessed (session)", "nothing-guessed (trailing slash)", "nothing-guessed (www)")
}

func TestWebarchiveCommons(t *testing.T) {
	type entry struct{ Class, Call, Input, Expected string }
	c := newTally(t)
	for _, e := range readJSONLines[entry](t, "derived", "iipc_webarchive_commons.jsonl") {
		switch {
		case strings.Contains(e.Call, "checkCanonicalization"), e.Call == "check", strings.Contains(e.Call, "iaC"),
			strings.Contains(e.Call, "addDefaultScheme"):
			c.agree(e.Input, e.Expected, append([]merge{mergeLineEnds, mergeEscapes}, iaMerges...)...)
		case strings.Contains(e.Call, "makeKey"):
			if e.Input == "https://34.203.211.192/robots.txt" {
				// Their keys reverse addresses, too.
				e.Expected = "34.203.211.192)/robots.txt"
			}
			c.agreeSURT(e.Input, e.Expected, iaMerges...)
		case strings.Contains(e.Call, "hostToSURT"):
			c.agree("http://"+e.Input+"/", fromSURT(e.Expected+")/"))
		default:
			c.archiveCall(e.Call, e.Input, e.Expected)
		}
	}
	c.report(210, "no-base", "web-only", "host-checked", "dns-limits", "sorted-query",
		"nothing-guessed (case)", "nothing-guessed (escapes of any depth)", "nothing-guessed (line separators)",
		"nothing-guessed (scheme)", "nothing-guessed (session)", "nothing-guessed (trailing slash)", "nothing-guessed (www)")
}

func TestURLCanonSURT(t *testing.T) {
	c := newTally(t)
	var groups map[string]map[string]string
	readJSON(t, &groups, "urlcanon", "surt.json")
	for group, pairs := range groups {
		for input, want := range pairs {
			switch group {
			case "Canonicalizer.DefaultIA", "Canonicalizer.IA", "google", "googleSupplementalFromSurt":
				if b := bytesOf(input); utf8.ValidString(b) {
					input = b
				}
				c.agree(input, want, append([]merge{mergeEscapes}, iaMerges...)...)
			case "defaultIASurt":
				c.agreeSURT(input, want, iaMerges...)
			default:
				c.archiveCall(group, input, want)
			}
		}
	}
	clear(groups)
	readJSON(t, &groups, "urlcanon", "ssurt.json")
	// "org,example,foo,//81:http@user:pass:/path?query#frag"
	ssurt := regexp.MustCompile(`^([^/]*)//(?:([0-9]+):)?([a-z]+)(?:@.*)?:(/.*)$`)
	for group, pairs := range groups {
		for input, want := range pairs {
			switch group {
			case "ssurt":
				if m := ssurt.FindStringSubmatch(want); m != nil {
					want = fmt.Sprintf("%s://(%s:%s)%s", m[3], m[1], m[2], m[4])
				}
				c.agreeSURT(input, want)
			case "surt", "surtWithoutScheme", "surtWithoutTrailingComma":
				c.agreeSURT(input, want)
			case "ssurtHost", "reverseHost":
				// Labels are reversed and nothing else, but that a comma within one becomes a dot.
				if strings.HasSuffix(want, ",") {
					labels := strings.Split(strings.TrimSuffix(want, ","), ",")
					slices.Reverse(labels)
					for i, l := range labels {
						labels[i] = strings.ReplaceAll(l, ".", ",")
					}
					want = strings.Join(labels, ".")
				}
				c.agree("http://"+input+"/", "http://"+want+"/")
			default:
				t.Errorf("unknown call %q", group)
			}
		}
	}
	c.report(120, "no-base", "web-only", "host-checked", "dns-limits", "sorted-query",
		"nothing-guessed (case)", "nothing-guessed (escapes of any depth)", "nothing-guessed (scheme)",
		"nothing-guessed (session)", "nothing-guessed (trailing slash)", "nothing-guessed (www)")
}

func TestURLCanonCanonicalizers(t *testing.T) {
	c := newTally(t)
	for _, file := range []string{"aggressive.json", "semantic_precise.json", "supplemental_whatwg.json"} {
		var pairs map[string]string
		readJSON(t, &pairs, "urlcanon", file)
		for input, want := range pairs {
			var merges []merge
			switch file {
			case "aggressive.json":
				merges = append(merges, iaMerges...)
			case "semantic_precise.json":
				input = bytesOf(input)
				merges = append(merges, mergeEscapes, mergeWholeParams)
			default:
				if b := bytesOf(input); utf8.ValidString(b) {
					input = b
				}
			}
			c.agree(input, want, merges...)
		}
	}
	c.report(430, "web-only", "host-checked", "dns-limits", "number-is-address", "sorted-query",
		"nothing-guessed (case)", "nothing-guessed (escapes of any depth)", "nothing-guessed (scheme)",
		"nothing-guessed (session)", "nothing-guessed (trailing slash)", "nothing-guessed (www)")
}

// parsing.json takes URLs apart without canonicalizing: put together from its parts, less what
// urlake drops, each is the same page.
func TestURLCanonParsing(t *testing.T) {
	c := newTally(t)
	var parts map[string]struct{ Scheme, Host, Port, Path, Query string }
	readJSON(t, &parts, "urlcanon", "parsing.json")
	for input, p := range parts {
		whole := p.Scheme + "://" + p.Host + ":" + p.Port + p.Path
		if p.Query != "" {
			whole += "?" + p.Query
		}
		c.agree(input, whole)
	}
	c.report(110, "no-base", "web-only", "host-checked")
}

// path_dots.json has the same keys more than once; encoding/json would keep one of each.
func TestURLCanonPathDots(t *testing.T) {
	b, err := os.ReadFile(testenv.Shared(t, "vectors", "urlcanon", "path_dots.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := newTally(t)
	dec := json.NewDecoder(bytes.NewReader(b))
	var stack []string
	special := false
	for {
		tok, err := dec.Token()
		if err != nil {
			break
		}
		s, ok := tok.(string)
		switch {
		case !ok:
			stack = nil
		case s == "special" || s == "nonspecial":
			special = s == "special"
		default:
			stack = append(stack, s)
		}
		if len(stack) < 2 {
			continue
		}
		input, want := stack[0], stack[1]
		stack = nil
		var v *vector
		if !special && strings.Contains(input, `\`) {
			// Only in URLs of other schemes is \ not a slash.
			v = &vector{input: "foo://host.example" + input}
			v.rejectAs(RejectScheme, "web-only")
		} else {
			v = &vector{input: page(input), want: page(strings.ReplaceAll(want, `\`, "/"))}
			urlExpectation(v, "")
		}
		c.check(v)
	}
	c.report(700, "slash-runs", "web-only")
}

// bytesOf reverses the conversion of bytes to text in some files, where a code point up to U+00FF
// is a byte.
func bytesOf(s string) string {
	var b []byte
	for _, r := range s {
		if r > 0xff {
			return s
		}
		b = append(b, byte(r))
	}
	return string(b)
}

func TestGoogleSafeBrowsing(t *testing.T) {
	type entry struct {
		Test, Input string
		Expected    json.RawMessage
		Fail        bool
	}
	c := newTally(t)
	for _, e := range readJSONLines[entry](t, "derived", "google_safebrowsing.jsonl") {
		input := bytesOf(e.Input)
		if e.Fail {
			v := &vector{input: input, reject: true}
			if m := refScheme.FindStringSubmatch(input); m != nil && strings.HasPrefix(m[2], "///") {
				v.use("any-slashes")
				v.want, v.reason = reference(m[1] + "://" + strings.TrimLeft(m[2], "/"))
				v.reject = v.reason != ""
			}
			c.check(v)
			continue
		}
		var want string
		var list []string
		if err := json.Unmarshal(e.Expected, &want); err != nil {
			if err := json.Unmarshal(e.Expected, &list); err != nil || len(list) == 0 {
				t.Fatalf("%s: %v", e.Expected, err)
			}
		}
		u, _ := Parse(BuiltinSuffixes(), input)
		switch e.Test {
		case "TestCanonicalURL":
			c.agree(input, want, mergePort, mergeQuery, mergeEscapes)
		case "TestCanonicalHost":
			c.agree(input, "http://"+want+u.PathQuery, mergePort)
		case "TestGenerateLookupHosts":
			// The whole host comes first.
			c.agree(input, "http://"+list[0]+u.PathQuery)
		case "TestCanonicalPath":
			c.agree(input, "http://"+u.Host+want, mergeQuery, mergeEscapes)
		case "TestGenerateLookupPaths":
			// The whole path comes last.
			c.agree(input, "http://"+u.Host+list[len(list)-1], mergeQuery)
		case "TestGeneratePatterns":
			c.agree(input, "http://"+list[0], mergeScheme, mergePort)
		case "TestParseIPAddress":
			if want == "" {
				want = input
			}
			c.agree("http://"+input+"/", "http://"+want+"/")
		default:
			t.Errorf("unknown call %q", e.Test)
		}
	}
	c.report(100, "any-slashes", "host-checked", "dns-limits", "number-is-address",
		"nothing-guessed (escapes of any depth)", "nothing-guessed (port)", "nothing-guessed (query)", "nothing-guessed (scheme)")
}

func TestNormalizeURL(t *testing.T) {
	type entry struct{ Test, Input, Expected string }
	c := newTally(t)
	for _, e := range readJSONLines[entry](t, "derived", "normalize_url.jsonl") {
		// Parameters that a vector drops are dropped by asking for it.
		n, err := New(BuiltinSuffixes(), Options{StripParams: droppedParams(e.Input, e.Expected)})
		if err != nil {
			t.Fatal(err)
		}
		if got, reason := canonical(n.Parse([]byte(e.Input))); reason == "" && got != e.Input {
			if len(n.stripNames) > 0 {
				c.used["strip-params"]++
			}
			e.Input = got
		}
		c.agree(e.Input, e.Expected, mergeColonSlashes, mergePlus, mergeWWW, mergeTrailingSlash, mergeIndex,
			mergeTrailingSlash, mergePort, mergeScheme, mergeEscapes)
	}
	c.report(190, "strip-params", "slash-runs", "web-only", "nothing-guessed (escapes of any depth)",
		"nothing-guessed (index page)", "nothing-guessed (plus)",
		"nothing-guessed (port)", "nothing-guessed (scheme)", "nothing-guessed (trailing slash)", "nothing-guessed (www)")
}

// droppedParams are the names of query parameters that only the first URL has.
func droppedParams(a, b string) []string {
	names := func(s string) []string {
		s, _, _ = strings.Cut(s, "#")
		_, query, _ := strings.Cut(s, "?")
		var out []string
		for _, p := range strings.Split(query, "&") {
			if name, _, ok := strings.Cut(p, "="); ok {
				out = append(out, name)
			}
		}
		return out
	}
	kept := names(b)
	return slices.DeleteFunc(names(a), func(n string) bool { return slices.Contains(kept, n) })
}
