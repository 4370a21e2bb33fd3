package corpus

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/urlnorm"
)

// hostCap is how many URLs of one host count for the shape of URLs. Without it the few sites with
// the longest sitemaps would decide a list's shape.
const hostCap = 100

// Shape describes a list: the figures that the generator is fitted to.
type Shape struct {
	URLs, Rejected int
	Hosts, Domains int
	// Repeats is the share of lines that follow a line of the same host.
	Repeats float64
	// Zipf is the exponent with which the URLs of a domain decline with its rank, by least squares
	// over logarithmically spaced ranks. Pareto is the tail exponent of the same sizes, by Hill's
	// estimator over the largest tenth. For an exact power law each is the reciprocal of the other.
	Zipf, Pareto float64
	// Single is the share of domains with one URL. Top is the share of URLs that belong to the
	// largest hundredth of domains.
	Single, Top float64
	// Bare is the share of hosts that equal their domain, WWW of those that are www. and their
	// domain.
	Bare, WWW float64

	// The fields below are shares of the first hostCap URLs of each host.
	Sampled  int
	HTTPS    float64
	Length   [4]int // quantiles 10, 50, 90 and 99 % of the canonical URL
	Mean     float64
	Depth    [8]float64 // path segments; the last is seven or more
	Slash    float64    // ends in a slash, of those with a segment
	Ext      float64    // last segment has an extension of two to five letters, of those with a segment
	Number   float64    // last segment is a number, of those with a segment
	Dated    float64    // a segment is a year, of those with a segment
	Words    [6]float64 // words of the last segment, separated by - _ + or %20; the last is six or more
	Segment  [2]float64 // mean length of last segments, and of all others
	Query    float64
	Params   [4]float64 // of those with a query: 1, 2, 3, more
	QueryLen float64    // mean length of queries
}

// Measure describes the URLs that it reads from r, one a line. A line that is no URL is counted as
// rejected.
func Measure(r io.Reader) (*Shape, error) {
	norm, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	s := new(Shape)
	hosts, domains := map[string]int{}, map[string]int{}
	bare, www := 0, 0
	var lengths []int
	var last string
	var deep, inner, queries int
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("line %d: %w", s.URLs+s.Rejected+1, err)
		}
		u, err := norm.Parse(line)
		if err != nil {
			s.Rejected++
			continue
		}
		s.URLs++
		if u.Host == last {
			s.Repeats++
		}
		u = u.Clone()
		last = u.Host
		if hosts[u.Host]++; hosts[u.Host] == 1 {
			switch {
			case u.Host == u.Domain:
				bare++
			case u.Host == "www."+u.Domain:
				www++
			}
		}
		domains[u.Domain]++
		if hosts[u.Host] > hostCap {
			continue
		}
		s.Sampled++
		n := len(u.String())
		lengths = append(lengths, n)
		s.Mean += float64(n)
		if u.Scheme == "https" {
			s.HTTPS++
		}
		path, query, has := strings.Cut(u.PathQuery, "?")
		if has {
			queries++
			s.QueryLen += float64(len(query))
			s.Params[min(strings.Count(query, "&"), len(s.Params)-1)]++
		}
		var segments []string
		for seg := range strings.SplitSeq(path, "/") {
			if seg != "" {
				segments = append(segments, seg)
			}
		}
		s.Depth[min(len(segments), len(s.Depth)-1)]++
		if len(segments) == 0 {
			continue
		}
		deep++
		if strings.HasSuffix(path, "/") {
			s.Slash++
		}
		for _, seg := range segments {
			if len(seg) == 4 && (strings.HasPrefix(seg, "19") || strings.HasPrefix(seg, "20")) && digits(seg) {
				s.Dated++
				break
			}
		}
		for _, seg := range segments[:len(segments)-1] {
			s.Segment[1] += float64(len(seg))
			inner++
		}
		leaf := segments[len(segments)-1]
		s.Segment[0] += float64(len(leaf))
		if dot := strings.LastIndexByte(leaf, '.'); dot > 0 && len(leaf)-dot >= 3 && len(leaf)-dot <= 6 && letters(leaf[dot+1:]) {
			s.Ext++
			leaf = leaf[:dot]
		}
		if digits(leaf) {
			s.Number++
		}
		words := strings.FieldsFunc(strings.ReplaceAll(leaf, "%20", "-"), func(r rune) bool { return r == '-' || r == '_' || r == '+' })
		s.Words[min(max(len(words), 1), len(s.Words))-1]++
	}
	if s.URLs == 0 {
		return s, nil
	}
	s.Hosts, s.Domains = len(hosts), len(domains)
	per := func(v *float64, n int) { *v /= float64(max(n, 1)) }
	per(&s.Repeats, s.URLs)
	s.Bare, s.WWW = float64(bare)/float64(s.Hosts), float64(www)/float64(s.Hosts)
	for _, v := range []*float64{&s.Mean, &s.HTTPS} {
		per(v, s.Sampled)
	}
	for i := range s.Depth {
		per(&s.Depth[i], s.Sampled)
	}
	for _, v := range []*float64{&s.Slash, &s.Ext, &s.Number, &s.Dated, &s.Segment[0]} {
		per(v, deep)
	}
	for i := range s.Words {
		per(&s.Words[i], deep)
	}
	per(&s.Segment[1], inner)
	s.Query = float64(queries) / float64(s.Sampled)
	per(&s.QueryLen, queries)
	for i := range s.Params {
		per(&s.Params[i], queries)
	}
	slices.Sort(lengths)
	for i, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		s.Length[i] = lengths[int(q*float64(len(lengths)-1))]
	}
	s.sizes(domains)
	return s, nil
}

// sizes sets the figures of the spread of URLs over domains.
func (s *Shape) sizes(domains map[string]int) {
	sizes := make([]int, 0, len(domains))
	for _, n := range domains {
		sizes = append(sizes, n)
	}
	slices.SortFunc(sizes, func(a, b int) int { return cmp.Compare(b, a) })
	top := 0
	for _, n := range sizes[:max(1, len(sizes)/100)] {
		top += n
	}
	s.Top = float64(top) / float64(s.URLs)
	single := len(sizes)
	for single > 0 && sizes[single-1] == 1 {
		single--
	}
	s.Single = float64(len(sizes)-single) / float64(len(sizes))
	// Ranks of domains with one URL are arbitrary and do not count.
	var n, sx, sy, sxx, sxy float64
	for r := 1.0; int(r) <= single; r *= 1.1 {
		x, y := math.Log(math.Floor(r)), math.Log(float64(sizes[int(r)-1]))
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d > 0 {
		s.Zipf = -(n*sxy - sx*sy) / d
	}
	k := len(sizes) / 10
	if k > 1 {
		sum := 0.0
		for _, v := range sizes[:k] {
			sum += math.Log(float64(v) / float64(sizes[k]))
		}
		s.Pareto = float64(k) / sum
	}
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func letters(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r|0x20 < 'a' || r|0x20 > 'z' }) < 0
}

// String returns a table of all figures, one a line.
func (s *Shape) String() string {
	var b strings.Builder
	row := func(name string, format string, args ...any) {
		fmt.Fprintf(&b, "%-28s "+format+"\n", append([]any{name}, args...)...)
	}
	row("URLs (rejected)", "%d (%d)", s.URLs, s.Rejected)
	row("hosts, domains", "%d, %d", s.Hosts, s.Domains)
	row("URLs a host, a domain", "%.1f, %.1f", float64(s.URLs)/float64(max(s.Hosts, 1)), float64(s.URLs)/float64(max(s.Domains, 1)))
	row("after the same host", "%.3f", s.Repeats)
	row("Zipf, Pareto of domains", "%.2f, %.2f", s.Zipf, s.Pareto)
	row("single, top 1 % of domains", "%.3f, %.3f", s.Single, s.Top)
	row("bare, www hosts", "%.3f, %.3f", s.Bare, s.WWW)
	row("sampled, https", "%d, %.3f", s.Sampled, s.HTTPS)
	row("length: mean, quantiles", "%.1f, %d", s.Mean, s.Length)
	row("depth", "%.3f", s.Depth)
	row("slash, extension", "%.3f, %.3f", s.Slash, s.Ext)
	row("number, dated", "%.3f, %.3f", s.Number, s.Dated)
	row("words of last segment", "%.3f", s.Words)
	row("segment: last, others", "%.1f, %.1f", s.Segment[0], s.Segment[1])
	row("query, its length", "%.3f, %.1f", s.Query, s.QueryLen)
	row("parameters", "%.3f", s.Params)
	return b.String()
}

// hash mixes numbers into one, by which a site's name and pages follow from its rank alone.
func hash(seed uint64, parts ...uint64) uint64 {
	h := seed
	for _, p := range parts {
		h = mix(h ^ mix(p+0x9e3779b97f4a7c15))
	}
	return h
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection of 64-bit numbers.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
