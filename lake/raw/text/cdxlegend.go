package text

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// CDXLegend says how the lines of a CDX index are cut, and what their fields are
// (https://archive.org/web/researcher/cdx_legend.php).
type CDXLegend struct {
	Separator byte
	Letters   string // of the fields, between spaces
}

// UsualLegends are the letters of CDX lines without a legend, the usual ones first. A line is read
// by the first whose fields fit.
var UsualLegends = []string{
	"N b a m s k r M S V g",
	"N b a m s k r M V g",
	"N b a m s k r V g",
	"N b a m s k S",   // the Wayback Machine's CDX server
	"A e b m n g v c", // NetarchiveSuite, with a checksum
	"A e b m n g v",   // NetarchiveSuite
	// pywb appends length, offset and file of the original to a revisit that it has resolved.
	"N b a m s k r M S V g S V g",
	"N b a m s k r M V g S V g",
	"N b a m s k r V g S V g",
}

// maxLegend is how many letters a legend may have. Lines have some twenty fields at most.
const maxLegend = 64

// CDXURLColumns are the columns that have the URL, the best first. The columns behind the first are
// derived from it: they lack the scheme and, mostly, www.
var CDXURLColumns = []string{"original", "canonized_url", "urlkey"}

// CDXServerNames are the capture fields by the names of the CDX server, where these differ.
var CDXServerNames = map[string]string{"mimetype": raw.MIME, "statuscode": raw.Status,
	"digest_old": raw.Digest, "document_length": raw.Length}

// cdxNames are the columns of a CDX line by their letters, as the CDX server calls them.
var cdxNames = map[byte]string{
	'N': "urlkey", 'b': "timestamp", 'a': "original", 'm': "mimetype", 's': "statuscode",
	'k': "digest", 'c': "digest_old", 'r': "redirect", 'M': "robotflags", 'S': "length",
	'V': "offset", 'g': "filename", 'n': "document_length", 'h': "host", 'e': "ip", 'o': "port",
	'p': "path", 't': "title", 'A': "canonized_url",
}

// ParseCDXLegend parses the line that names the columns of the lines below it. Its first byte
// separates the fields of all these lines; a space there may be missing. ok is false if line is no
// such line.
func ParseCDXLegend(line []byte) (l CDXLegend, ok bool) {
	const mark = "CDX"
	if bytes.HasPrefix(line, []byte(mark+" ")) {
		return spacedLegend(line[len(mark):])
	}
	if len(line) < len(mark)+2 || string(line[1:1+len(mark)]) != mark || line[0] != line[1+len(mark)] {
		return CDXLegend{}, false
	}
	separator, line := line[0], line[len(mark)+2:]
	if separator == ' ' {
		return spacedLegend(line)
	}
	letters := bytes.Split(trimCR(line), []byte{separator})
	if len(letters) > maxLegend {
		return CDXLegend{}, false
	}
	for _, l := range letters {
		if len(l) != 1 || l[0] != '?' && (l[0]|0x20 < 'a' || l[0]|0x20 > 'z') {
			return CDXLegend{}, false
		}
	}
	return CDXLegend{separator, string(bytes.Join(letters, []byte{' '}))}, true
}

func spacedLegend(line []byte) (l CDXLegend, ok bool) {
	letters := bytes.Fields(line)
	return CDXLegend{' ', string(bytes.Join(letters, []byte{' '}))}, len(letters) <= maxLegend
}

// IsCDXLegend reports whether line is a legend.
func IsCDXLegend(line []byte) bool {
	_, ok := ParseCDXLegend(line)
	return ok
}

// Line returns the line that ParseCDXLegend parses as the legend.
func (l CDXLegend) Line() string {
	sep := string(l.Separator)
	return sep + "CDX" + sep + strings.ReplaceAll(l.Letters, " ", sep)
}

// Columns returns the names of the columns. The columns of capture fields have the fields' names. A
// column whose letter is unknown or repeated is called by the letter and its number, from 1.
func (l CDXLegend) Columns() []string {
	var columns []string
	letters := strings.Fields(l.Letters)
	for i, letter := range letters {
		name := ""
		if len(letter) == 1 {
			name = cdxNames[letter[0]]
		}
		if name == "" || slices.Contains(columns, name) {
			name = letter + strconv.Itoa(i+1)
		}
		columns = append(columns, name)
	}
	for _, f := range []struct {
		field   string
		letters []string
	}{
		{raw.MIME, []string{"m"}}, {raw.Status, []string{"s"}}, {raw.Digest, []string{"k", "c"}},
		{raw.Filename, []string{"g"}}, {raw.Offset, []string{"V", "v"}}, {raw.Length, []string{"S", "n"}},
	} {
		for _, letter := range f.letters {
			if i := slices.Index(letters, letter); i >= 0 {
				columns[i] = f.field
				break
			}
		}
	}
	return columns
}

// trim returns a line without white space around its fields, if spaces separate them.
func (l CDXLegend) trim(line []byte) []byte {
	if l.Separator == ' ' {
		return TrimSpace(line)
	}
	return line
}

// fields returns how many fields a line has.
func (l CDXLegend) fields(line []byte) int {
	return bytes.Count(l.trim(line), []byte{l.Separator}) + 1
}

// Fits reports whether a line has the fields of the legend, each with a possible value: a time, a
// URL, a number. An empty field may be anything but the time. If short is set the line may end
// before its last fields, but not before the one behind the URL.
func (l CDXLegend) Fits(line []byte, short bool) bool {
	rest, more := l.trim(line), true
	url := false
	n := 0
	for letters := l.Letters; letters != ""; n++ {
		var letter string
		letter, letters, _ = strings.Cut(letters, " ")
		if !more {
			return short && url && n > strings.IndexByte(l.Letters, 'a')/2+1
		}
		var f []byte
		f, rest, more = bytes.Cut(rest, []byte{l.Separator})
		empty := len(f) == 0 || string(f) == "-"
		switch {
		case letter == "b":
			if !IsIndexTime(f) && !(short && isIndexDate(f)) {
				return false
			}
		case empty:
		case letter == "a":
			if url = HasScheme(f); !url {
				return false
			}
		case letter == "A":
			url = true
		case letter == "e":
			if !bytes.ContainsAny(f, ".:") {
				return false
			}
		case letter == "g":
			if timestamp.AllDigits(f) {
				return false
			}
		case strings.Contains("sSVvn", letter):
			if !timestamp.AllDigits(f) {
				return false
			}
		}
	}
	return !more
}

// IsIndexTime reports whether b is a time as indexes have it, in 12 digits or more.
func IsIndexTime(b []byte) bool {
	return len(b) >= 12 && isIndexDate(b)
}

// isIndexDate reports whether b is a time of an index in any number of digits.
func isIndexDate(b []byte) bool {
	if !timestamp.AllDigits(b) {
		return false
	}
	_, ok := timestamp.ParseDigits(b)
	return ok
}

// HasScheme reports whether v begins with a scheme and something behind it: http://a, dns:a.
func HasScheme[T string | []byte](v T) bool {
	n := SchemeLen(v)
	return n > 1 && n+1 < len(v) && !timestamp.AllDigits([]byte(v[n+1:])) // a host and a port
}
