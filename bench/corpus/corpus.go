// Package corpus generates lists of URLs that resemble those that people collect, for the programs
// and tests of bench. It describes any list by the same figures, so that the two can be compared.
//
// The figures come from some 1.9 million URLs of 25 public collections: seed lists of web archives,
// sitemaps, links of a news site, image and page lists of training corpora, test lists of ad
// blockers and URL parsers. Lists of sites, not pages, count only for the spread over domains. For
// the shape of URLs, only the first 100 URLs of a host count. The figures are beside the constants
// below; go run ./gen -measure prints them for any list.
//
// The same Options give the same lists, byte for byte, on every machine whose Go computes math.Pow
// and math.Log alike, however many lists are written at once.
package corpus

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// The figures that the generator is fitted to, and those of 2 million generated rows in 32 lists,
// as Measure computes them:
//
//	                                     collections                          generated
//	Zipf exponent of domains             0.79-0.96; 1.3 with sitemaps         0.91
//	domains with one URL, in one list    0.66-0.83                            0.66 (list 5), 0.33 (all)
//	URLs of the largest 1 % of domains   0.28-0.41; 0.89 with sitemaps        0.47 (list 5), 0.53 (all)
//	hosts a domain                       1.36                                 1.32
//	after a line of the same host        0.18; 0.006 shuffled, 0.99 sitemaps  0.16
//	bare, www hosts                      0.195, 0.407                         0.197, 0.357
//	https                                0.798                                0.808
//	length: mean, 10 50 90 99 %          69, 31 57 112 234                    70, 35 60 110 254
//	path segments: 0 to 6, more          .07 .25 .28 .19 .11 .06 .02 .02      .05 .25 .29 .17 .13 .07 .03 .02
//	slash, extension                     0.329, 0.351                         0.323, 0.321
//	number, dated                        0.036, 0.101                         0.082, 0.089
//	words of the last segment, 1 to 6    .45 .14 .11 .06 .05 .19              .47 .13 .10 .05 .05 .20
//	segment length: last, others         24.4, 7.7                            22.8, 7.2
//	query, its length                    0.086, 85                            0.082, 77
//	parameters: 1 2 3 more               .57 .13 .07 .22                      .57 .13 .07 .22
//	lines that repeat one of their list  0.01 links, 0.07 seeds               0.05 (list 5)
//	hosts with port, IPv4                0.003, 0.015                         0.003, 0.012
//	bytes a URL, sorted, zstd -9         23.3 (news links)                    25.1 (list 5)
//
// 18 % of the words in paths are on fewer than eight hosts. The counts of the others fall with the
// rank to the power of 0.7.
const (
	// zipf is the exponent of the spread of URLs over domains.
	zipf = 1.05
	// listZipf is the exponent of the sizes of lists, which are Pareto with index 1.
	listZipf = 1.0
	// rowsPerSite sets the number of sites: rows divided by it. A quarter of the sites are on no
	// list.
	rowsPerSite = 6
	// pagesPerVisit is how many pages a site has for each URL that all lists draw from it, so that
	// lists share pages.
	pagesPerVisit = 8
	// shared is the share of visits drawn from the ranking common to all lists. The others come
	// from the list's own ranking: a site that is large on one list is not large on all.
	shared = 0.5
	// stay is the chance that the next URL is of the same host.
	stay = 0.16
	// wordZipf is the exponent of the words of paths, rareWord the share of invented words.
	wordZipf = 0.7
	rareWord = 0.18
)

//go:embed words.txt
var wordList string

// words are the words of paths that are on at least eight hosts of the collections, most frequent
// first.
var words = strings.Fields(wordList)

// Options of a corpus.
type Options struct {
	Seed     uint64
	Rows     int64 // lines of all lists together, at least one a list
	Datasets int   // number of lists, at least 1
}

// Corpus is a set of sites and the lists drawn from it. It is safe for concurrent use.
type Corpus struct {
	opt   Options
	sites uint64
	width uint // sites are numbered by a permutation of this many bits
	rows  []int64
	// orders are the ranks in the common ranking at which the lists' own rankings begin.
	orders []uint64
}

// New returns a corpus. It generates nothing yet.
func New(opt Options) (*Corpus, error) {
	if opt.Datasets < 1 || opt.Rows < int64(opt.Datasets) {
		return nil, fmt.Errorf("corpus: %d rows in %d lists; want one list or more, and a row or more in each", opt.Rows, opt.Datasets)
	}
	c := &Corpus{opt: opt, sites: uint64(max(opt.Rows/rowsPerSite, 16)), rows: make([]int64, opt.Datasets)}
	c.width = uint(bits.Len64(c.sites - 1))
	total := 0.0
	for i := range c.rows {
		total += math.Pow(float64(i+1), -listZipf)
	}
	left := opt.Rows
	for i := len(c.rows) - 1; i > 0; i-- {
		c.rows[i] = max(1, int64(float64(opt.Rows)*math.Pow(float64(i+1), -listZipf)/total))
		left -= c.rows[i]
	}
	c.rows[0] = left
	for i := range c.rows {
		c.orders = append(c.orders, hash(opt.Seed, 'o', uint64(i))%c.sites)
	}
	return c, nil
}

// Datasets returns the number of lists. They are numbered from 1.
func (c *Corpus) Datasets() int { return c.opt.Datasets }

// Rows returns the number of lines of a list.
func (c *Corpus) Rows(dataset int) int64 { return c.rows[dataset-1] }

// Sites returns the number of sites. Site 0 is the largest.
func (c *Corpus) Sites() uint64 { return c.sites }

// Name returns the file name of a list.
func Name(dataset int) string { return fmt.Sprintf("ds%d.txt", dataset) }

// WriteDir writes all lists to dir, up to parallel at once, and returns their bytes.
func (c *Corpus) WriteDir(dir string, parallel int) (int64, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	sizes := make([]int64, c.opt.Datasets)
	for i := range sizes {
		g.Go(func() error {
			f, err := os.Create(filepath.Join(dir, Name(i+1)))
			if err != nil {
				return err
			}
			defer f.Close()
			if err := c.Write(f, i+1); err != nil {
				return fmt.Errorf("write %s: %w", f.Name(), err)
			}
			info, err := f.Stat()
			if err != nil {
				return err
			}
			sizes[i] = info.Size()
			return f.Close()
		})
	}
	err := g.Wait()
	total := int64(0)
	for _, n := range sizes {
		total += n
	}
	return total, err
}

// Write writes one list, one URL a line.
func (c *Corpus) Write(w io.Writer, dataset int) error {
	out := bufio.NewWriterSize(w, 1<<20)
	r := random(hash(c.opt.Seed, 'l', uint64(dataset)))
	var p page
	var buf []byte
	var site uint64
	for i := int64(0); i < c.rows[dataset-1]; i++ {
		if i == 0 || !r.chance(stay) {
			site = c.rank(&r)
			if !r.chance(shared) {
				site = (site + c.orders[dataset-1]) % c.sites
			}
			p.open(c, site)
			p.host(&r)
		}
		p.number = r.below(p.hostPages)
		buf = append(p.url(buf[:0]), '\n')
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Sample draws the domain of a site, a large one with a higher probability. The domain may be on no
// list. State is the generator's state, which Sample advances.
func (c *Corpus) Sample(state *uint64) string {
	r := random(*state)
	var p page
	p.open(c, c.rank(&r))
	*state = uint64(r)
	return string(p.domain)
}

// rank draws a site by Zipf's law. It inverts the continuous distribution with density x^-zipf.
func (c *Corpus) rank(r *random) uint64 {
	n := float64(c.sites + 1)
	x := math.Pow(r.float()*(math.Pow(n, 1-zipf)-1)+1, 1/(1-zipf))
	return min(uint64(x)-1, c.sites-1)
}

// visits estimates how many URLs all lists draw from a site: those of the common ranking, and those
// of the list in whose own ranking the site is highest.
func (c *Corpus) visits(site uint64) float64 {
	list, rank := 0, c.sites
	for i, order := range c.orders {
		r := site - order
		if site < order {
			r += c.sites
		}
		if r < rank {
			list, rank = i, r
		}
	}
	n := (1 - zipf) / (math.Pow(float64(c.sites+1), 1-zipf) - 1)
	return n * (shared*float64(c.opt.Rows)*math.Pow(float64(site+1), -zipf) + (1-shared)*float64(c.rows[list])*math.Pow(float64(rank+1), -zipf))
}

// page makes the URLs of one site. Everything follows from the site's rank but the choice of host
// and page.
type page struct {
	c      *Corpus
	id     uint64 // of the site
	domain []byte
	pages  uint64 // of the site
	hosts  uint64

	head      []byte // scheme, host, port
	hostID    uint64
	hostPages uint64
	style     uint64
	number    uint64
	topics    uint64 // subdirectories of each directory
}

// suffixes are the suffixes of domains, private ones among them, each as often as its share in
// thousandths.
var suffixes = func() (out []string) {
	for _, e := range strings.Fields(`com:520 org:82 net:68 gov:60 edu:38 co.uk:24 io:22 de:26 mil:14 ru:10 com.au:9 ca:9 co.jp:8 fr:8 it:7 nl:6 com.cn:6
		co:5 pl:5 ch:4 info:6 us:4 se:4 com.br:4 es:3 in:3 cz:3 me:3 dk:3 eu:3 at:3 fi:3 co.nz:3 be:2 no:2 tv:2 blogspot.com:9 wordpress.com:6 github.io:5 tumblr.com:3`) {
		name, n, _ := strings.Cut(e, ":")
		count, _ := strconv.Atoi(n)
		for range count {
			out = append(out, name)
		}
	}
	return out
}()

var subdomains = strings.Fields(`blog cdn static images img media home m i api www2 users web js assets data ads news blogs docs wiki people secure members
	image www1 code forums content lists developer en community stats go research pixel shop mail support help forum store archive dev search maps events`)

// open makes p the page maker of the site with a rank.
func (p *page) open(c *Corpus, rank uint64) {
	p.c = c
	p.id = hash(c.opt.Seed, 's', rank)
	p.pages = 5 + uint64(pagesPerVisit*c.visits(rank))
	p.domain = p.domain[:0]
	r := random(p.id)
	p.hosts = 1
	if r.chance(0.3) || p.pages > 1000 {
		p.hosts = 2 + uint64(math.Log2(float64(p.pages))*1.5*r.float())
	}
	if r.chance(0.012) { // an address
		for i := range 4 {
			if i > 0 {
				p.domain = append(p.domain, '.')
			}
			p.domain = strconv.AppendUint(p.domain, 1+r.below(223), 10)
		}
		p.hosts = 1
		return
	}
	// A permutation of the ranks, written in words: names are short, pronounceable and nearly all
	// different.
	mask := uint64(1)<<c.width - 1
	n := rank
	for range 3 {
		n = (n*(c.opt.Seed<<1|0x9e3779b97f4a7c15) ^ c.opt.Seed>>7) & mask
		n ^= n >> (c.width/2 + 1)
	}
	size := uint64(len(words))
	p.domain = append(p.domain, words[n%size]...)
	if n /= size; n > 0 || r.chance(0.3) {
		if r.chance(0.15) {
			p.domain = append(p.domain, '-')
		}
		if n < 2000 && r.chance(0.4) {
			p.domain = syllables(p.domain, n, 2)
		} else {
			p.domain = append(p.domain, words[n%size]...)
			if n /= size; n > 0 {
				p.domain = syllables(p.domain, n, 1)
			}
		}
	}
	p.domain = append(append(p.domain, '.'), suffixes[r.below(uint64(len(suffixes)))]...)
}

// host chooses a host of the site. The first is the home page's: www or the domain itself.
func (p *page) host(r *random) {
	n := uint64(0)
	if p.hosts > 1 && !r.chance(0.4) {
		n = r.below(p.hosts)
	}
	p.hostID = hash(p.id, 'h', n)
	h := random(p.hostID)
	p.hostPages = 1 + p.pages/p.hosts
	p.style = h.below(100)
	p.topics = 2 + uint64(math.Sqrt(float64(p.hostPages))/4)
	scheme := "https://"
	if site := random(hash(p.id, 'x')); site.chance(0.2) {
		scheme = "http://"
	}
	p.head = append(p.head[:0], scheme...)
	kind := h.float()
	switch {
	case p.domain[0] >= '1' && p.domain[0] <= '9':
	case n > 0 || kind > 0.78:
		p.head = append(p.head, subdomains[(h.next()>>8+n)%uint64(len(subdomains))]...)
		if n >= 3 {
			p.head = strconv.AppendUint(p.head, n, 10)
		}
		p.head = append(p.head, '.')
	case kind > 0.27:
		p.head = append(p.head, "www."...)
	}
	p.head = append(p.head, p.domain...)
	if h.chance(0.003) {
		p.head = append(p.head, ":8080"...)
	}
}

// depths are the shares of numbers of path segments of pages but the start page, cumulated.
var depths = cumulate(.264, .302, .2, .123, .067, .025, .013, .006)

// slugWords are the shares of numbers of words in a last segment of more than one, cumulated.
var slugWords = cumulate(0, .258, .19, .108, .094, .07, .08, .07, .06, .05, .04, .03)

var parameters = cumulate(.572, .134, .074, .07, .05, .04, .03, .03)

func cumulate(shares ...float64) []float64 {
	sum := 0.0
	for i := range shares {
		sum += shares[i]
		shares[i] = sum
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

var extensions = strings.Fields(`html html html html html html html html js js js jpg jpg jpg jpg pdf pdf pdf htm htm xml php php css aspx asp png shtml jsp json gif`)

var keys = strings.Fields(`id v callback url cb q s t w p c version pid r ver page sid f h groupId source u a ref width utm_source ei sa dt client utm_medium sort view lang category`)

// url appends the URL of page number of the host.
func (p *page) url(dst []byte) []byte {
	dst = append(dst, p.head...)
	r := random(hash(p.hostID, p.number))
	if p.number == 0 {
		// Lists have home pages with a slash and without.
		if r.chance(0.75) {
			dst = append(dst, '/')
		}
		return dst
	}
	dst = append(dst, '/')
	dir := p.hostID
	depth := r.pick(depths)
	dated := p.style%10 < 2 && depth >= 2
	for level := range depth {
		switch {
		case dated && level == depth-2:
			dst = strconv.AppendUint(dst, 1998+r.below(27), 10)
			if r.chance(0.6) {
				dst = append(dst, '/', byte('0'+r.below(2)), byte('1'+r.below(9)))
			}
		default:
			// Few directories hold most pages.
			f := r.float()
			dir = hash(dir, 'd', uint64(f*f*float64(p.topics)))
			d := random(dir)
			dst = d.word(dst)
			if d.chance(0.22) {
				dst = d.word(append(dst, "-_"[d.below(2)]))
			}
		}
		dst = append(dst, '/')
	}
	ext := p.style >= 34 && p.style < 70 && !r.chance(0.1)
	if r.chance(0.47) {
		switch f := r.float(); {
		case f < 0.08 || p.hostPages > 300 && f < 0.4:
			dst = strconv.AppendUint(dst, p.number*7+r.below(7), 10)
		case f < 0.2:
			dst = r.opaque(dst, 6+int(r.below(27)))
		case p.hostPages > 300:
			dst = strconv.AppendUint(r.word(dst), p.number, 10)
		default:
			dst = r.word(dst)
		}
	} else {
		sep := "-----_+"[p.style%7]
		for i := range r.pick(slugWords) + 1 {
			if i > 0 {
				dst = append(dst, sep)
			}
			if r.chance(0.06) {
				dst = strconv.AppendUint(dst, r.below(3000), 10)
			} else {
				dst = r.word(dst)
			}
		}
	}
	switch {
	case ext:
		dst = append(append(dst, '.'), extensions[(p.style+r.below(4))%uint64(len(extensions))]...)
	case p.style < 34 && !r.chance(0.06):
		dst = append(dst, '/')
	}
	if r.chance(0.086) {
		dst = append(dst, '?')
		for i := range r.pick(parameters) + 1 {
			if i > 0 {
				dst = append(dst, '&')
			}
			dst = append(append(dst, keys[r.below(uint64(len(keys)))]...), '=')
			switch f := r.float(); {
			case f < 0.35:
				dst = strconv.AppendUint(dst, r.below(1<<(4+r.below(20))), 10)
			case f < 0.6:
				dst = r.word(dst)
			case f < 0.65:
				dst = r.word(append(r.word(dst), "%20"...))
			case f < 0.7:
				dst = r.opaque(append(dst, "https%3A%2F%2F"...), 30+int(r.below(300)))
			default:
				dst = r.opaque(dst, 6+int(r.below(90)))
			}
		}
	}
	return dst
}

// random is a splitmix64 generator. Its state is one number, so a generator for one page costs
// nothing.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// below returns a number less than n.
func (r *random) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// float returns a number in [0, 1).
func (r *random) float() float64 { return float64(r.next()>>11) / (1 << 53) }

func (r *random) chance(p float64) bool { return r.float() < p }

// pick draws an index by cumulative shares.
func (r *random) pick(cumulative []float64) int {
	f := r.float()
	for i, c := range cumulative {
		if f < c {
			return i
		}
	}
	return len(cumulative) - 1
}

// wordBase turns a uniform number into the rank of a word, by the inverse of the continuous Zipf
// distribution.
var wordBase = math.Pow(float64(len(words)+1), 1-wordZipf) - 1

// word appends a word, one of the list or an invented one.
func (r *random) word(dst []byte) []byte {
	if r.chance(rareWord) {
		return syllables(dst, r.next(), 2+int(r.below(3)))
	}
	x := math.Pow(r.float()*wordBase+1, 1/(1-wordZipf))
	return append(dst, words[min(int(x)-1, len(words)-1)]...)
}

// syllables appends n syllables that encode a number.
func syllables(dst []byte, number uint64, n int) []byte {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	for range n {
		dst = append(dst, consonants[number%18])
		number /= 18
		dst = append(dst, vowels[number%5])
		number /= 5
		if number%3 == 0 {
			dst = append(dst, "nrlst"[number/3%5])
		}
		number /= 15
	}
	return dst
}

// opaque appends n characters without meaning, such as those of an identifier.
func (r *random) opaque(dst []byte, n int) []byte {
	const digits = "0123456789abcdef0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	base := uint64(len(digits))
	if r.chance(0.5) {
		base = 16
	}
	for range n {
		dst = append(dst, digits[r.below(base)])
	}
	return dst
}
