package detect

import (
	"strings"
	"unicode"

	"github.com/urlake/urlake/lake/raw/timestamp"
)

// wordClass reports whether names of the class only contain the word.
func wordClass(class int) bool {
	return class == ClassURLWord || class == classURIWord || class == classHostWord
}

var urlNames = map[string]int{
	"url": classURL, "uri": classURI, "iri": classURI, "href": classURI, "u": classURI,
	"link": classLink, "permalink": classLink, "original": classLink,
	"website": classSite, "homepage": classSite, "webpage": classSite, "site": classSite,
	"domain": classHost, "hostname": classHost, "host": classHost, "fqdn": classHost,
}

// nameClass tells how well a column's name says that it holds URLs.
func NameClass(name string) int {
	if len(name) > 64 {
		return 0
	}
	words := splitWords(name)
	best := 0
	for _, w := range words {
		c := urlNames[strings.TrimSuffix(w, "s")]
		if c > 0 && len(words) > 1 {
			switch {
			case w == "u" || w == "original":
				continue
			case c == classURL:
				c = ClassURLWord
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

// splitWords cuts a name into lower-case words at what is no letter or digit and before a
// capital that follows a small letter.
func splitWords(name string) []string {
	var words []string
	var word []rune
	small := false
	flush := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			small = false
			continue
		}
		if unicode.IsUpper(r) && small {
			flush()
		}
		small = unicode.IsLower(r)
		word = append(word, unicode.ToLower(r))
	}
	flush()
	return words
}

func isTSName(name string) bool {
	return strings.EqualFold(name, "ts") || strings.EqualFold(name, "timestamp")
}

// isTime reports whether v is a time since there are URLs: a column called timestamp may also
// hold seconds into a film.
func (d *detector) isTime(v string) bool {
	ms, ok := d.time.Parse([]byte(v))
	return ok && plausibleTime(ms)
}

func plausibleTime(ms int64) bool {
	const from, to = 631152000000, 4102444800000 // 1990 and 2100
	return from <= ms && ms < to
}

// looksURL reports whether v begins like an absolute URL with an authority.
func looksURL[T string | []byte](v T) bool {
	for i := 0; i < len(v) && i < 32; i++ {
		c := v[i]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && (timestamp.IsDigit(c) || c == '+' || c == '.' || c == '-'):
		case c == ':':
			return i > 0 && len(v) > i+3 && v[i+1] == '/' && v[i+2] == '/' && v[i+3] > ' '
		default:
			return false
		}
	}
	return false
}

// looksHost reports whether v is a host name with a dot or an IPv4 address, with or without
// port and path.
func looksHost(v string) bool {
	if i := strings.IndexAny(v, "/?:"); i >= 0 {
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

// looksDate reports whether v is a timestamp and not just a number.
func looksDate(v string) bool {
	_, ok := timestamp.Parse([]byte(v))
	return ok && (strings.ContainsAny(v, "-:") || len(v) == 14)
}
