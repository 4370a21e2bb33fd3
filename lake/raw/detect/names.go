package detect

import (
	"cmp"
	"strings"
	"unicode"

	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// Classes of names, best first. Names of no class have the class 0.
const (
	classURL = 1 + iota
	classURI
	classLink
	classURLWord // several words, one of them url
	classURIWord // several words, one of them of classURI or classLink
	classSite
	classHost
	classHostWord  // several words, one of them of classSite or classHost
	classQualified // several words, one of them up to classLink, another one of otherURLs
)

// isWordClass reports whether the names of the class have several words.
func isWordClass(class int) bool {
	return class == classURLWord || class == classURIWord || class == classHostWord || class == classQualified
}

// isHostClass reports whether the names of the class are names of columns of hosts.
func isHostClass(class int) bool {
	return class == classSite || class == classHost || class == classHostWord
}

// urlNames are the words that name a URL column.
var urlNames = map[string]int{
	"url": classURL, "uri": classURI, "iri": classURI, "href": classURI, "u": classURI,
	"link": classLink, "permalink": classLink, "original": classLink,
	"website": classSite, "homepage": classSite, "webpage": classSite, "site": classSite,
	"domain": classHost, "hostname": classHost, "host": classHost, "fqdn": classHost,
	"address": classHostWord, // of a host it is mostly the IP address
}

// otherURLs are words that say that a URL belongs to the record, but is not what the record is
// about.
var otherURLs = wordSet("fact check checks factcheck claim review proof citation evidence " +
	"image img images picture pic photo thumbnail thumb logo icon favicon avatar banner cover poster preview " +
	"screenshot audio video media embed player " +
	"author user profile owner account publisher license licence terms privacy contact help about " +
	"api feed rss atom sitemap robots callback webhook " +
	"referrer referer ref via parent origin redirect redirected " +
	"canonical amphtml next prev previous " +
	"archive archived wayback memento cache cached mirror backup")

// wordSet returns the words between the spaces of s.
func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(s) {
		set[w] = true
	}
	return set
}

// nameClass returns the class of a column's name: how well it says that the column holds URLs.
func nameClass(name string) int {
	class := nameClassOf(name)
	if class != classURLWord && class != classURIWord {
		return class
	}
	for _, w := range splitWords(name) {
		if otherURLs[w] {
			return classQualified
		}
	}
	return class
}

// nameClassOf is nameClass without the words that lower it.
func nameClassOf(name string) int {
	if len(name) > 64 {
		return 0
	}
	words := splitWords(name)
	best := 0
	for _, w := range words {
		c := cmp.Or(urlNames[w], urlNames[strings.TrimSuffix(w, "s")])
		if c > 0 && len(words) > 1 {
			switch {
			case w == "u" || w == "original":
				continue
			case c == classURL:
				c = classURLWord
			case c <= classLink:
				c = classURIWord
			default:
				c = classHostWord
			}
		}
		if c > 0 && (best == 0 || c < best) {
			best = c
		}
	}
	return best
}

// splitWords cuts a name into words in lower case. Words end before an upper-case letter that
// follows a lower-case one, and at characters that are neither letters nor digits.
func splitWords(name string) []string {
	var words []string
	var word []rune
	lower := false // the last letter was lower-case
	flush := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			lower = false
			continue
		}
		if unicode.IsUpper(r) && lower {
			flush()
		}
		lower = unicode.IsLower(r)
		word = append(word, unicode.ToLower(r))
	}
	flush()
	return words
}

// isTime reports whether v is a time from 1990 to 2100. A column called timestamp may also hold
// other numbers, such as seconds into a film.
func (d *detector) isTime(v string) bool {
	ms, ok := d.time.Parse([]byte(v))
	return ok && plausibleTime(ms)
}

func plausibleTime(ms int64) bool {
	const from, to = 631152000000, 4102444800000 // 1990 and 2100
	return from <= ms && ms < to
}

// looksURL reports whether v begins like an absolute URL with an authority, which does not begin
// with a bracket, as in SURT prefixes: http://(org,example,
func looksURL[T string | []byte](v T) bool {
	n := text.SchemeLen(v)
	return n > 0 && len(v) > n+3 && v[n+1] == '/' && v[n+2] == '/' && v[n+3] > ' ' && v[n+3] != '('
}

// isHostName reports whether v is an IPv4 address, or has the form of a host name with a dot, as
// names of files have too. A port and a path may follow.
func isHostName(v string) bool {
	if i := strings.IndexAny(v, "/?:#"); i >= 0 {
		v = v[:i]
	}
	if len(v) > 253 || strings.ContainsAny(v, " \t@,;|\"'()<>") {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(v, "."), ".")
	if len(labels) < 2 {
		return false
	}
	numbers := 0
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return false
		}
		if timestamp.AllDigits([]byte(l)) {
			numbers++
		}
	}
	if numbers == len(labels) {
		return numbers == 4
	}
	last := labels[len(labels)-1]
	if strings.HasPrefix(strings.ToLower(last), "xn--") {
		return true
	}
	for _, r := range last {
		if !unicode.IsLetter(r) {
			return false
		}
	}
	return len(last) >= 2
}

func looksURLOrHost(v string) bool { return looksURL(v) || looksHost(v) }

// looksDate reports whether v is a time in a form that no other number has.
func looksDate(v string) bool {
	_, ok := timestamp.Parse([]byte(v))
	return ok && (strings.ContainsAny(v, "-:") || len(v) == 14)
}
