package domain64_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"

	"github.com/urlake/urlake/export/domain64"
)

var layouts = func() (all []domain64.Layout) {
	for _, s := range []string{"8-24-8-24", "8-24-24-8", "16-24-24-0", "4-8-32-20"} {
		l, err := domain64.ParseLayout(s)
		if err != nil {
			panic(err)
		}
		all = append(all, l)
	}
	return all
}()

func TestLayouts(t *testing.T) {
	if layouts[0] != domain64.Document || layouts[1] != domain64.Production || layouts[2].String() != "16-24-24-0" {
		t.Errorf("layouts %v", layouts)
	}
	for _, bad := range []string{
		"", "8-24-8", "8-24-8-24-0", "8-24-8-20", "7-25-8-24", "0-32-8-24", "8-36-8-12", "8-24-8-+24", "8-24-08-24", "a-b-c-d", "64",
	} {
		if l, err := domain64.ParseLayout(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("ParseLayout(%q) = %v, %v", bad, l, err)
		}
	}
	if domain64.Document.Max(domain64.Sub) != 255 || domain64.Document.Max(domain64.Domain) != 16777215 || layouts[3].Max(domain64.Sub) != math.MaxUint32 {
		t.Error("numbers of a level")
	}
}

// Codes that were published, with the numbers that their publishers gave.
func TestPublishedCodes(t *testing.T) {
	for _, tc := range []struct {
		what   string
		layout domain64.Layout
		n      domain64.Numbers
		signed int64
		format string
	}{
		{"jadud.com", domain64.Document, domain64.Numbers{1, 1}, 72057598332895232, "01:000001:00:000000"},
		{"teaching.jadud.com", domain64.Document, domain64.Numbers{1, 1, 2}, 72057598366449664, "01:000001:02:000000"},
		{"teaching.jadud.com/olin", domain64.Document, domain64.Numbers{1, 1, 2, 1}, 72057598366449665, "01:000001:02:000001"},
		{"teaching.jadud.com/berea", domain64.Document, domain64.Numbers{1, 1, 2, 2}, 72057598366449666, "01:000001:02:000002"},
		// The document's hex number is this; the decimal beside it, 72057598332895488, is that of
		// the other layout.
		{"research.jadud.com", domain64.Document, domain64.Numbers{1, 1, 1}, 0x0100000101000000, "01:000001:01:000000"},
		{"tts.gsa.gov", domain64.Production, domain64.Numbers{1, 1, 1}, 72057598332895488, "01:000001:000001:00"},
		{"my.goarmy.com", domain64.Production, domain64.Numbers{3, 2, 1}, 216172790703718656, "03:000002:000001:00"},
		{"cloud.gov", domain64.Production, domain64.Numbers{1, 0x24}, 72057748656750592, "01:000024:000000:00"},
		{"www.fac.gov", domain64.Production, domain64.Numbers{1, 0x4a, 1}, 72057911865508096, "01:00004A:000001:00"},
		{"product-guide.18f.gov", domain64.Production, domain64.Numbers{1, 1, 6}, 0x0100000100000600, "01:000001:000006:00"},
	} {
		c, err := tc.layout.Encode(tc.n)
		if err != nil || c.Signed() != tc.signed || tc.layout.Format(c) != tc.format || tc.layout.Decode(c) != tc.n {
			t.Errorf("%s: %d (%s), %v; want %d (%s)", tc.what, c.Signed(), tc.layout.Format(c), err, tc.signed, tc.format)
		}
		for _, text := range []string{
			tc.format, strings.ToLower(tc.format), fmt.Sprint(tc.signed), fmt.Sprintf("0x%X", tc.signed), fmt.Sprintf("#x%016x", tc.signed),
		} {
			if got, err := tc.layout.Parse(text); err != nil || got != c {
				t.Errorf("Parse(%q) = %x, %v", text, got, err)
			}
		}
	}
}

func TestWrongCodes(t *testing.T) {
	for _, n := range []domain64.Numbers{{256}, {1, 1 << 24}, {1, 1, 256}, {1, 1, 1, 1 << 24}, {0, 1}, {1, 0, 1}, {0, 0, 0, 1}} {
		if c, err := domain64.Document.Encode(n); !errors.Is(err, domain64.ErrNumbers) {
			t.Errorf("Encode(%v) = %x, %v", n, c, err)
		}
	}
	for _, bad := range []string{
		"", "x", "01", "01:000001:02", "01:000001:02:000002:", "1:000001:02:000002", "01:00001:02:000002", "01:000001:02:0000g2",
		"01:+00001:02:000002", "0x", "0xx0100000101FFFFFF", "#x10000000000000000", "9223372036854775808", "01:000000:02:000002", "5",
	} {
		if c, err := domain64.Document.Parse(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("Parse(%q) = %x, %v", bad, c, err)
		}
	}
}

// randomNumbers has the ends of each level more often than chance would.
func randomNumbers(r *rand.Rand, l domain64.Layout) (n domain64.Numbers) {
	pick := func(at domain64.Level) uint32 {
		most := l.Max(at)
		if most == 0 {
			return 0
		}
		edges := []uint32{1, 2, most, most - most/2, most / 2, most - 1}
		if r.IntN(3) > 0 {
			return max(1, edges[r.IntN(len(edges))])
		}
		return 1 + uint32(r.Uint64N(uint64(most)))
	}
	depth := domain64.Level(r.IntN(4))
	for at := domain64.TLD; at <= min(depth, domain64.Sub); at++ {
		n[at] = pick(at)
	}
	if r.IntN(3) == 0 {
		n[domain64.Path] = pick(domain64.Path)
	}
	return n
}

// below reports whether b is a or below it, by numbers.
func below(a, b domain64.Numbers) bool {
	for at, n := range a {
		if n != 0 && b[at] != n {
			return false
		}
	}
	// The paths of a host are not above subdomains.
	return a[domain64.Path] == 0 || a == b
}

// Ranges of signed numbers hold exactly what is below a name, top-level domains from the highest
// bit on included.
func TestRangesAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 64))
	for _, l := range layouts {
		var all []domain64.Numbers
		for range 400 {
			n := randomNumbers(r, l)
			all = append(all, n)
			near := n // a neighbour that shares some levels
			at := domain64.Level(r.IntN(4))
			if near[at] > 0 && near[at] < l.Max(at) {
				near[at]++
			}
			all = append(all, near)
		}
		top := 1 + l.Max(domain64.TLD)/2
		for _, tld := range []uint32{1, top - 1, top, top + 1, l.Max(domain64.TLD)} {
			all = append(all, domain64.Numbers{tld}, domain64.Numbers{tld, l.Max(1), l.Max(2), l.Max(3)})
		}
		codes := make([]domain64.Code, len(all))
		for i, n := range all {
			c, err := l.Encode(n)
			if err != nil {
				t.Fatal(err)
			}
			codes[i] = c
			if back, err := l.Parse(l.Format(c)); err != nil || back != c || l.Decode(c) != n {
				t.Fatalf("%v is %s, read as %s, %v", n, l.Format(c), l.Format(back), err)
			}
			if back, err := l.Parse(fmt.Sprint(c.Signed())); err != nil || back != c || domain64.FromSigned(c.Signed()) != c {
				t.Fatalf("%s as a decimal number: %s, %v", l.Format(c), l.Format(back), err)
			}
			level, ok := l.Level(c)
			if parent := l.Parent(c); !ok || n[level] == 0 || parent >= c || l.Decode(parent)[level] != 0 || l.Child(parent, level, n[level]) != c {
				t.Fatalf("%s: level %v, parent %s", l.Format(c), level, l.Format(parent))
			}
		}
		for i, a := range codes {
			span, host := l.Range(a), l.HostRange(a)
			for j, b := range codes {
				if got, want := span.Contains(b.Signed()), below(all[i], all[j]); got != want {
					t.Fatalf("%v: range %v of %s contains %s: %v, want %v", l, span, l.Format(a), l.Format(b), got, want)
				}
				sameHost := all[i][0] == all[j][0] && all[i][1] == all[j][1] && all[i][2] == all[j][2]
				if got := host.Contains(b.Signed()); got != sameHost {
					t.Fatalf("%v: range %v of host %s contains %s: %v", l, host, l.Format(a), l.Format(b), got)
				}
			}
			// The bounds as text, by arithmetic without a word size.
			from, to := span.Bounds()
			low, _ := new(big.Int).SetString(strings.Trim(from, "'"), 10)
			high := new(big.Int).Lsh(big.NewInt(1), 63)
			if to != "MAXVALUE" {
				high.SetString(strings.Trim(to, "'"), 10)
			}
			if n := new(big.Int).Sub(high, low); n.Sign() <= 0 || n.Uint64() != span.Len() || low.Int64() != a.Signed() {
				t.Fatalf("%v: range %s of %s has %v codes, Len is %d", l, span, l.Format(a), n, span.Len())
			}
		}
	}
	if all := domain64.Document.Range(0); !all.Contains(math.MinInt64) || !all.Contains(math.MaxInt64) || all.String() != "FROM ('-9223372036854775808') TO (MAXVALUE)" {
		t.Errorf("range of everything: %v", all)
	}
	// The highest top-level domain ends where the numbers become positive.
	if got := domain64.Document.Range(0xff00000000000000).String(); got != "FROM ('-72057594037927936') TO ('0')" {
		t.Errorf("range of top-level domain 0xff: %s", got)
	}
}

// Partitions of one parent follow each other without a gap or an overlap.
func TestNeighboursTouch(t *testing.T) {
	l := domain64.Document
	for tld := uint32(1); tld < 255; tld++ {
		a, b := l.Range(l.Child(0, domain64.TLD, tld)), l.Range(l.Child(0, domain64.TLD, tld+1))
		if tld == 127 {
			if !a.Open || b.From != math.MinInt64 {
				t.Errorf("ranges of 0x7f and 0x80: %v, %v", a, b)
			}
			continue
		}
		if a.Open || a.To != b.From {
			t.Errorf("ranges of %#x and the next: %v, %v", tld, a, b)
		}
	}
}

func TestSplitHost(t *testing.T) {
	for _, tc := range []struct {
		host, domain string
		want         domain64.Name
	}{
		{"example.com", "example.com", domain64.Name{TLD: "com", Domain: "example"}},
		{"www.example.com", "example.com", domain64.Name{TLD: "com", Domain: "example", Sub: "www"}},
		{"earthdata.uat.cdn.nasa.gov", "nasa.gov", domain64.Name{TLD: "gov", Domain: "nasa", Sub: "earthdata.uat.cdn"}},
		{"news.bbc.co.uk", "bbc.co.uk", domain64.Name{TLD: "uk", Domain: "bbc.co", Sub: "news"}},
		{"co.uk", "co.uk", domain64.Name{TLD: "uk", Domain: "co"}},
		{"localhost", "localhost", domain64.Name{TLD: "localhost"}},
		{"192.0.2.7", "192.0.2.7", domain64.Name{TLD: "[ip]", Domain: "192.0.2.7"}},
		{"[2001:db8::1]", "[2001:db8::1]", domain64.Name{TLD: "[ip]", Domain: "[2001:db8::1]"}},
	} {
		got, err := domain64.SplitHost(tc.host, tc.domain)
		if err != nil || got != tc.want || got.Host() != tc.host || got.Check() != nil {
			t.Errorf("SplitHost(%q, %q) = %+v (%s), %v", tc.host, tc.domain, got, got.Host(), err)
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"a.example.com", "b.com"}, {"notexample.com", "example.com"}, {".com", ".com"}, {"x.com.", "com."}, {".example.com", "example.com"}} {
		if n, err := domain64.SplitHost(bad[0], bad[1]); err == nil {
			t.Errorf("SplitHost(%q, %q) = %+v", bad[0], bad[1], n)
		}
	}
	for _, bad := range []domain64.Name{{}, {Domain: "a"}, {TLD: "com", Sub: "www"}, {Path: "/"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is a name", bad)
		}
	}
}

func seq(entries []domain64.Entry) iter.Seq2[domain64.Entry, error] {
	return func(yield func(domain64.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func example() []domain64.Entry {
	jadud := domain64.Name{TLD: "com", Domain: "jadud"}
	teaching := jadud.With(domain64.Sub, "teaching")
	return []domain64.Entry{
		{Code: 0x0100000000000000, Name: domain64.Name{TLD: "com"}},
		{Code: 0x0100000100000000, Name: jadud},
		{Code: 0x0100000100000001, Name: jadud.With(domain64.Path, `/it's "odd"`)},
		{Code: 0x0100000101000000, Name: jadud.With(domain64.Sub, "research")},
		{Code: 0x0100000102000000, Name: teaching},
		{Code: 0x0100000102000001, Name: teaching.With(domain64.Path, "/olin")},
		{Code: 0x0100000102000002, Name: teaching.With(domain64.Path, "/berea")},
		{Code: 0xff00000000000000, Name: domain64.Name{TLD: "localhost"}},
	}
}

func TestDump(t *testing.T) {
	l := domain64.Document
	var text strings.Builder
	if err := l.WriteJSON(&text, seq(example())); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "01": {
    "name": "com",
    "children": {
      "000001": {
        "name": "jadud",
        "paths": {
          "000001": "/it's \"odd\""
        },
        "children": {
          "01": "research",
          "02": {
            "name": "teaching",
            "paths": {
              "000001": "/olin",
              "000002": "/berea"
            }
          }
        }
      }
    }
  },
  "FF": {
    "name": "localhost"
  }
}
`
	if text.String() != want {
		t.Errorf("dump:\n%s", text.String())
	}
	for _, entries := range [][]domain64.Entry{example()[1:], {example()[1], example()[0]}, append(example(), example()[0])} {
		if err := l.WriteJSON(&strings.Builder{}, seq(entries)); err == nil {
			t.Errorf("no error for entries out of order: %v", entries)
		}
	}
	broken := errors.New("broken")
	err := l.WriteJSON(&strings.Builder{}, func(yield func(domain64.Entry, error) bool) { yield(domain64.Entry{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// A random tree as JSON and as Jsonnet, which an independent interpreter evaluates, is that tree,
// and sorting its members by key is sorting by code.
func TestDumpIsJsonnet(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 64))
	for _, l := range layouts {
		known := map[domain64.Code]domain64.Entry{}
		for range 300 {
			c, err := l.Encode(randomNumbers(r, l))
			if err != nil {
				t.Fatal(err)
			}
			for ; c != 0; c = l.Parent(c) {
				var n domain64.Name
				for up := c; up != 0; up = l.Parent(up) {
					at, _ := l.Level(up)
					n = n.With(at, fmt.Sprintf("'%v' %x\n", at, up))
				}
				known[c] = domain64.Entry{Code: c, Name: n}
			}
		}
		var entries []domain64.Entry
		for _, e := range known {
			entries = append(entries, e)
		}
		slices.SortFunc(entries, func(a, b domain64.Entry) int {
			if a.Code < b.Code {
				return -1
			}
			return 1
		})
		var asJSON, asJsonnet strings.Builder
		if err := errors.Join(l.WriteJSON(&asJSON, seq(entries)), l.WriteJsonnet(&asJsonnet, seq(entries))); err != nil {
			t.Fatal(err)
		}
		evaluated, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("tree.jsonnet", asJsonnet.String())
		if err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if err := errors.Join(json.Unmarshal([]byte(asJSON.String()), &a), json.Unmarshal([]byte(evaluated), &b)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatal("the Jsonnet is not the JSON")
		}
		if !strings.HasPrefix(asJsonnet.String(), "// domain64, layout "+l.String()+"\n") {
			t.Errorf("begins %.60q", asJsonnet.String())
		}
		var got []domain64.Entry
		walk(t, l, a, domain64.Numbers{}, domain64.TLD, domain64.Name{}, &got)
		if !slices.Equal(got, entries) {
			t.Fatalf("%v: %d entries in the dump, want %d", l, len(got), len(entries))
		}
	}
}

// walk reads a dump by its rules, the members in the order of their keys.
func walk(t *testing.T, l domain64.Layout, tree map[string]any, n domain64.Numbers, at domain64.Level, above domain64.Name, out *[]domain64.Entry) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		var number uint32
		if _, err := fmt.Sscanf(key, "%X", &number); err != nil {
			t.Fatal(err)
		}
		n := n
		n[at] = number
		c, err := l.Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		label, isLeaf := tree[key].(string)
		var object map[string]any
		if !isLeaf {
			object = tree[key].(map[string]any)
			label = object["name"].(string)
		}
		name := above.With(at, label)
		*out = append(*out, domain64.Entry{Code: c, Name: name})
		if paths, ok := object["paths"].(map[string]any); ok {
			walk(t, l, paths, n, domain64.Path, name, out)
		}
		if children, ok := object["children"].(map[string]any); ok {
			walk(t, l, children, n, at+1, name, out)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"01:000001:02:000002", "72057598332895488", "-1", "0x0100000100000000", "#xff", "ff:ffffff:ff:ffffff", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range layouts {
			c, err := l.Parse(s)
			if err != nil {
				continue
			}
			if l.Check(c) != nil {
				t.Fatalf("%q is %x, which no name has", s, c)
			}
			if again, err := l.Parse(l.Format(c)); err != nil || again != c {
				t.Fatalf("%q is %s, read as %x, %v", s, l.Format(c), again, err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	n := domain64.Numbers{1, 77, 3, 12}
	for b.Loop() {
		if _, err := domain64.Document.Encode(n); err != nil {
			b.Fatal(err)
		}
	}
}
