package urlnorm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/urlake/urlake/internal/testenv"
	"golang.org/x/net/idna"
)

// The public vectors state what other systems make of an input. urlake makes the same of it, apart
// from the differences that the package documentation names. Each difference is a function here
// that changes an expectation into urlake's where it applies. A vector that still fails is an
// error. The tests print how many vectors needed each difference, and a difference that no vector
// needs is an error too.

// vector is an expectation of another system.
type vector struct {
	input  string
	base   *string // WHATWG: what a relative reference is resolved against
	want   string  // a URL, or what the source compares
	reject bool
	reason Reason // of a rejection that a difference requires; "" is any
	used   []string
}

func (v *vector) use(difference string) {
	if !slices.Contains(v.used, difference) {
		v.used = append(v.used, difference)
	}
}

func (v *vector) rejectAs(reason Reason, difference string) {
	v.use(difference)
	v.reject, v.reason, v.want = true, reason, ""
}

// tally counts vectors and the differences that they needed.
type tally struct {
	t       *testing.T
	vectors int
	used    map[string]int
}

func newTally(t *testing.T) *tally { return &tally{t: t, used: map[string]int{}} }

func (c *tally) add(v *vector) {
	c.vectors++
	for _, d := range v.used {
		c.used[d]++
	}
}

// check compares what Parse makes of v.input with the expectation.
func (c *tally) check(v *vector) {
	c.t.Helper()
	c.add(v)
	got, reason := parseString(v.input)
	switch {
	case v.reject && reason == "":
		c.t.Errorf("Parse(%q) = %q, want a rejection %q (differences used: %v)", v.input, got, v.reason, v.used)
	case v.reject && v.reason != "" && v.reason != reason:
		c.t.Errorf("Parse(%q) is rejected for %q, want %q (differences used: %v)", v.input, reason, v.reason, v.used)
	case !v.reject && got != v.want:
		c.t.Errorf("Parse(%q)\n got %q %q\nwant %q (differences used: %v)", v.input, got, reason, v.want, v.used)
	}
	checkInvariants(c.t, v.input)
}

// report prints the counts and fails for each of names that no vector needed.
func (c *tally) report(atLeast int, names ...string) {
	c.t.Helper()
	if c.vectors < atLeast {
		c.t.Errorf("%d vectors, want at least %d", c.vectors, atLeast)
	}
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		c.t.Logf("%-18s %5d of %d vectors", name, c.used[name], c.vectors)
		if !slices.Contains(names, name) {
			c.t.Errorf("difference %q is not expected here", name)
		}
	}
	for _, name := range names {
		if c.used[name] == 0 && name != "unicode-tables" { // none is needed once Go has the vectors' Unicode
			c.t.Errorf("no vector needs the difference %q", name)
		}
	}
}

func readJSON(tb testing.TB, into any, elem ...string) {
	tb.Helper()
	path := testenv.Shared(tb, append([]string{"vectors"}, elem...)...)
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		tb.Fatalf("%s: %v", filepath.Join(elem...), err)
	}
}

// whatwgVector is an entry of urltestdata.json.
type whatwgVector struct {
	Input   string
	Base    *string
	Href    string
	Failure bool
}

// readWHATWG reads a file in the format of urltestdata.json, where a string is a comment.
func readWHATWG(tb testing.TB, elem ...string) []whatwgVector {
	tb.Helper()
	var raw []json.RawMessage
	readJSON(tb, &raw, elem...)
	var out []whatwgVector
	for _, r := range raw {
		if r[0] == '"' {
			continue
		}
		var v whatwgVector
		if err := json.Unmarshal(r, &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

var whatwgFiles = [][]string{
	{"wpt", "urltestdata.json"},
	{"wpt", "ada_extra_urltestdata.json"},
	{"wpt", "ada_long_urltestdata.json"},
	{"urlcanon", "urltestdata.json"},
}

func TestWHATWGParsing(t *testing.T) {
	c := newTally(t)
	for _, file := range whatwgFiles {
		for _, w := range readWHATWG(t, file...) {
			c.check(whatwgExpectation(&vector{input: w.Input, base: w.Base, want: w.Href, reject: w.Failure}))
			if !w.Failure {
				// What a browser made of it is an input like any other, without a base.
				c.check(whatwgExpectation(&vector{input: w.Href, want: w.Href}))
			}
		}
	}
	c.report(1300, "no-base", "web-only", "no-fragment", "no-userinfo", "one-trailing-dot", "dns-limits", "no-separator",
		"number-is-address", "a-labels-checked", "unreserved", "stray-percent", "encoded-set", "slash-runs", "sorted-query")
}

// whatwgExpectation applies the differences from the WHATWG standard to its expectation.
func whatwgExpectation(v *vector) *vector {
	in := strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(
		strings.TrimFunc(v.input, func(r rune) bool { return r <= ' ' }))
	noFragment, _, _ := strings.Cut(in, "#")
	m := refScheme.FindStringSubmatch(in)
	word := ""
	if m != nil {
		word = strings.ToLower(m[1])
	}
	web := word == "http" || word == "https" || word == "ftp"
	badBase := false
	if v.base != nil {
		_, reason := reference(*v.base)
		badBase = reason == RejectHost
	}
	switch {
	case v.reject && badBase:
		v.use("no-base")
		v.want, v.reason = reference(v.input)
		v.reject = v.reason != ""
	case m == nil:
		bareExpectation(v, noFragment, "no-base")
	case !web && (strings.Contains(word, ".") || word == "localhost") && refOnlyPort.MatchString(refScheme.FindStringSubmatch(noFragment)[2]):
		bareExpectation(v, noFragment, "web-only")
	case !web:
		v.rejectAs(RejectScheme, "web-only")
	case v.base != nil && strings.HasPrefix(*v.base, word+":") && !regexp.MustCompile(`^[/\\]{2}`).MatchString(m[2]):
		// "http:a" is relative to a base with the same scheme, and absolute without one.
		v.use("no-base")
		v.want, v.reason = parseString(word + "://" + m[2])
		v.reject = v.reason != ""
	}
	if !v.reject && !slices.Contains(v.used, "no-base") && !slices.Contains(v.used, "web-only") {
		urlExpectation(v, noFragment)
	}
	return v
}

// bareExpectation applies the difference for input without a scheme: it is a host of http, or is
// rejected.
func bareExpectation(v *vector, in, difference string) {
	slashes := len(in) - len(strings.TrimLeft(in, `/\`))
	rest := in[slashes:]
	authority := regexp.MustCompile(`^[^/\\?]*`).FindString(rest)
	host := regexp.MustCompile(`^(.*@)?(\[.*|[^:]*)`).FindStringSubmatch(authority)[2]
	name := refDecode(strings.TrimSuffix(host, "."))
	if slashes == 1 || !strings.HasPrefix(host, "[") && !strings.EqualFold(name, "localhost") && !strings.ContainsAny(name, ".。") {
		v.rejectAs(RejectNoHost, difference)
		return
	}
	v.use(difference)
	v.want, v.reason = parseString("http://" + rest)
	v.reject = v.reason != ""
}

var hrefParts = regexp.MustCompile(`^([a-z]+://)(?:([^/?#]*)@)?(\[[^]]*\]|[^:/?#]*)(:[0-9]+)?([^?#]*)(\?[^#]*)?(#.*)?$`)

// urlExpectation applies the differences to a URL that a browser made of in.
func urlExpectation(v *vector, in string) {
	m := hrefParts.FindStringSubmatch(v.want)
	if m == nil {
		return // no such URL: the comparison will say so
	}
	scheme, user, host, port, path, query, fragment := m[1], m[2], m[3], m[4], m[5], m[6], m[7]
	if fragment != "" || strings.HasSuffix(v.want, "#") {
		v.use("no-fragment")
	}
	if user != "" {
		v.use("no-userinfo")
	}
	host = hostExpectation(v, host)
	if v.reject {
		return
	}
	step := func(s *string, difference string, f func(string) string) {
		if after := f(*s); after != *s {
			*s = after
			v.use(difference)
		}
	}
	inQuery := ""
	if i := strings.IndexByte(in, '?'); i >= 0 {
		inQuery = in[i:]
	}
	step(&query, "encoded-set", func(s string) string {
		// Browsers escape ' in queries, so that one which was not escaped has to be found in the
		// input.
		if strings.Contains(inQuery, "'") && !strings.Contains(inQuery, "%27") {
			s = strings.ReplaceAll(s, "%27", "'")
		}
		return s
	})
	for _, s := range []*string{&path, &query} {
		step(s, "stray-percent", func(s string) string {
			return regexp.MustCompile(`%([0-9A-Fa-f]{2})?`).ReplaceAllStringFunc(s, func(e string) string {
				if e == "%" {
					return "%25"
				}
				return e
			})
		})
		step(s, "unreserved", func(s string) string {
			return regexp.MustCompile(`%[0-9A-Fa-f]{2}`).ReplaceAllStringFunc(s, func(e string) string {
				b, _ := strconv.ParseUint(e[1:], 16, 8)
				if strings.IndexByte(refUnreserved, byte(b)) >= 0 {
					return string(rune(b))
				}
				return strings.ToUpper(e)
			})
		})
	}
	step(&path, "encoded-set", strings.NewReplacer("^", "%5E", "|", "%7C").Replace)
	step(&query, "encoded-set", strings.NewReplacer("^", "%5E", "`", "%60", "{", "%7B", "|", "%7C", "}", "%7D", `\`, "%5C").Replace)
	step(&path, "slash-runs", func(s string) string {
		return refSlashRun.ReplaceAllStringFunc(s, func(run string) string {
			return strings.Replace(run, strings.TrimPrefix(run, ":"), "//"[:1+strings.Count(run, ":")], 1)
		})
	})
	step(&query, "sorted-query", func(s string) string { return refQuery(strings.TrimPrefix(s, "?"), nil) })
	v.want = scheme + host + port + path + query
}

// hostExpectation applies the differences about hosts to one that a browser would open.
func hostExpectation(v *vector, host string) string {
	if after := strings.TrimSuffix(host, "."); after != host && after != "" {
		v.use("one-trailing-dot")
		host = after
	}
	labels := strings.Split(host, ".")
	if refNumber.MatchString(labels[len(labels)-1]) {
		switch addr, reason := refIPv4(labels); {
		case reason != "":
			v.rejectAs(RejectHost, "number-is-address")
		case addr != host:
			v.use("number-is-address")
		}
		host, _ = refIPv4(labels)
		return host
	}
	if len(host) > 253 || slices.ContainsFunc(labels, func(l string) bool { return l == "" || len(l) > 63 }) {
		v.rejectAs(RejectHost, "dns-limits")
		return ""
	}
	if strings.ContainsAny(host, ",;") {
		v.rejectAs(RejectHost, "no-separator")
		return ""
	}
	if strings.HasPrefix(host, "xn--") || strings.Contains(host, ".xn--") {
		decoded, ok := decodeALabels(labels)
		if again, err := refIDNA.ToASCII(decoded); !ok || err != nil || again != host {
			v.rejectAs(RejectHost, "a-labels-checked")
		}
	}
	return host
}

// decodeALabels returns the name with its xn-- labels in Unicode. It returns false for an A-label
// that is empty, all ASCII, or malformed Punycode.
func decodeALabels(labels []string) (string, bool) {
	var out []string
	for _, l := range labels {
		if strings.HasPrefix(l, "xn--") {
			u, err := idna.Punycode.ToUnicode(l)
			if err != nil || !strings.ContainsFunc(u, func(r rune) bool { return r >= 0x80 }) {
				return "", false
			}
			l = u
		}
		out = append(out, l)
	}
	return strings.Join(out, "."), true
}

// newerThanTables reports whether the Unicode tables that are compiled in lack what the vectors
// know of r: it is not assigned, or UTS #46 disallowed it up to Unicode 15.0 and now maps or
// ignores it.
func newerThanTables(r rune) bool {
	if idna.UnicodeVersion != "15.0.0" {
		return false
	}
	return r != unicode.ReplacementChar && unicode.Is(unicode.Cn, r) || unicode.Is(disallowedIn15, r)
}

var disallowedIn15 = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x04C0, 0x04C0, 1}, {0x10A0, 0x10C5, 1}, {0x115F, 0x1160, 1}, {0x17B4, 0x17B5, 1}, {0x1806, 0x1806, 1},
		{0x180E, 0x180E, 1}, {0x2061, 0x2063, 1}, {0x206A, 0x206F, 1}, {0x2132, 0x2132, 1}, {0x2183, 0x2183, 1},
		{0x3164, 0x3164, 1}, {0xFFA0, 0xFFA0, 1},
	},
	R32: []unicode.Range32{
		{0x1D173, 0x1D17A, 1}, {0x2F868, 0x2F868, 1}, {0x2F874, 0x2F874, 1}, {0x2F91F, 0x2F91F, 1},
		{0x2F95F, 0x2F95F, 1}, {0x2F9BF, 0x2F9BF, 1},
	},
}

// percent-encoding.json has what becomes of a query in a document's encoding. Only UTF-8 applies
// here.
func TestWHATWGPercentEncoding(t *testing.T) {
	c := newTally(t)
	var raw []json.RawMessage
	readJSON(t, &raw, "wpt", "percent-encoding.json")
	for _, r := range raw {
		if r[0] == '"' {
			continue
		}
		var e struct {
			Input  string
			Output map[string]string
		}
		if err := json.Unmarshal(r, &e); err != nil {
			t.Fatal(err)
		}
		v := &vector{input: "http://example.com/?" + e.Input, want: "http://example.com/?" + e.Output["utf-8"]}
		c.check(whatwgExpectation(v))
	}
	c.report(6, "encoded-set")
}

// sharedInputs returns the inputs of all vectors, including those without an expectation. It
// returns nil if the shared folder is missing; the fuzz corpus is smaller then.
func sharedInputs(tb testing.TB) []string {
	tb.Helper()
	if _, err := os.Stat(filepath.Join(testenv.Root(tb), "..", "shared", "vectors")); err != nil {
		return nil
	}
	var out []string
	add := func(s string) { out = append(out, s) }
	for _, file := range whatwgFiles {
		for _, w := range readWHATWG(tb, file...) {
			add(w.Input)
			add(w.Href)
		}
	}
	for _, file := range []string{"fuzz/Open-Redirect-payloads.txt", "fuzz/blns.txt", "fuzz/open_redirect_wordlist.txt", "fuzz/openredirects.txt"} {
		b, err := os.ReadFile(testenv.Shared(tb, "vectors", file))
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, lines(b)...)
	}
	// Every string of the JSON files, whatever it means there.
	for _, dir := range []string{"wpt", "urlcanon", "derived"} {
		files, err := filepath.Glob(filepath.Join(testenv.Shared(tb, "vectors", dir), "*.json*"))
		if err != nil || len(files) == 0 {
			tb.Fatalf("no JSON files in %s: %v", dir, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			dec := json.NewDecoder(bytes.NewReader(b))
			for {
				tok, err := dec.Token()
				if err != nil {
					break
				}
				if s, ok := tok.(string); ok {
					add(s)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// setters_tests.json is about assigning to attributes of a parsed URL, which urlake does not do.
// Its strings, all URLs among them, are inputs here.
func TestInvariantsOnEveryStringOfTheVectors(t *testing.T) {
	testenv.Shared(t, "vectors")
	inputs := sharedInputs(t)
	if len(inputs) < 5000 {
		t.Fatalf("%d inputs", len(inputs))
	}
	for _, s := range inputs {
		checkInvariants(t, s)
		checkInvariants(t, "http://example.com/"+s)
		checkInvariants(t, "http://example.com/?"+s)
		checkInvariants(t, "http://"+s+"/")
	}
	t.Logf("%d inputs", len(inputs))
}

// The examples and ids in the format document are what the code makes.
func TestDocumentedExamples(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "formats", "canonical-url.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples, ids := 0, 0
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:`([^`]+)`|rejected: `([^`]+)`) \\|(?: `([0-9a-f]{8})`| )?").FindAllStringSubmatch(string(doc), -1) {
		input, want, reject, check := m[1], m[2], m[3], m[4]
		if regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(want) {
			ids++
			if got := FormatID(URLID([]byte(input))); got != want {
				t.Errorf("the id of %q is %s, not %s", input, got, want)
			}
			if got := fmt.Sprintf("%08x", CheckBits(input)); check != "" && got != check {
				t.Errorf("the check bits of %q are %s, not %s", input, got, check)
			}
			continue
		}
		examples++
		if got, reason := parseString(input); got != want || string(reason) != reject {
			t.Errorf("Parse(%q) = %q %q, not %q %q", input, got, reason, want, reject)
		}
	}
	if examples < 10 || ids < 3 {
		t.Errorf("%d examples and %d ids", examples, ids)
	}
}

func TestDifferencesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "formats", "canonical-url.md"))
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := os.ReadFile("urlnorm.go")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile("(?m)^//\t([a-z0-9-]+)  +\\S")
	found := table.FindAllStringSubmatch(string(pkg), -1)
	if len(found) < 15 {
		t.Fatalf("%d differences in the package documentation", len(found))
	}
	for _, m := range found {
		if !bytes.Contains(doc, []byte(fmt.Sprintf("| `%s` |", m[1]))) {
			t.Errorf("canonical-url.md does not have the difference %q", m[1])
		}
	}
}
