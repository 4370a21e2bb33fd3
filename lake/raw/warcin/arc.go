package warcin

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// arcLine is the header of an ARC record (https://archive.org/web/researcher/ArcFileFormat.php):
// URL, address, date, media type and length, and in version 2 status, checksum, location, offset
// and file name before the length.
type arcLine struct {
	url, date, mime, digest, length []byte
	size                            int64
}

// parseARC parses a line. A URL and a media type may have blanks, which not every crawler escaped.
func parseARC(line []byte) (h arcLine, ok bool) {
	end := bytes.LastIndexByte(line, ' ')
	if end < 0 {
		return h, false
	}
	h.length = line[end+1:]
	n, err := strconv.ParseUint(string(h.length[:min(len(h.length), 32)]), 10, 62)
	if err != nil {
		return h, false
	}
	h.size = int64(n)
	const dateLen = len("20060102150405")
	for i := bytes.IndexByte(line, ' '); i > 0 && i < end; {
		// The address is between the spaces at i and j.
		j := i + 1 + bytes.IndexByte(line[i+1:], ' ')
		if date := line[j+1:]; isAddress(line[i+1:j]) && len(date) > dateLen && date[dateLen] == ' ' && timestamp.AllDigits(date[:dateLen]) {
			h.url, h.date = text.TrimSpace(line[:i]), date[:dateLen]
			if k := j + 1 + dateLen + 1; k < end {
				h.mime = line[k:end]
			}
			break
		}
		if i = j; i == end {
			return h, false
		}
	}
	if !hasScheme(h.url) {
		return h, false
	}
	if f := bytes.Fields(h.mime[:min(len(h.mime), maxHeader)]); len(f) == 6 && len(f[1]) == 3 && timestamp.AllDigits(f[1]) {
		h.mime = f[0]
		if string(f[2]) != "-" {
			h.digest = f[2]
		}
	}
	return h, true
}

// isAddress reports whether b may be an IP address.
func isAddress(b []byte) bool {
	for _, c := range b {
		if !timestamp.IsDigit(c) && c != '.' && c != ':' && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return len(b) > 0
}

// hasScheme reports whether b begins with a scheme and //, or with a scheme without // that
// crawlers store. The end of http: or https: is no scheme: a wrong length may lead there.
func hasScheme(b []byte) bool {
	n := text.SchemeLen(b)
	scheme := string(bytes.ToLower(b[:n]))
	switch scheme {
	case "http", "https", "filedesc", "dns", "whois", "nntp", "news", "mailto", "urn":
		return true
	}
	return text.BeginsWithScheme(b) && !strings.HasSuffix("http", scheme) && !strings.HasSuffix("https", scheme)
}

// isBrokenARC reports whether b begins with a line that resembles a record's header.
func isBrokenARC(b []byte) bool {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	fields := bytes.Fields(line)
	n := 0
	for i, f := range fields {
		if hasScheme(f) || len(f) == len("20060102150405") && timestamp.AllDigits(f) || i == len(fields)-1 && timestamp.AllDigits(f) {
			n++
		}
	}
	return n > 1 && len(fields) < 12
}

// judgeARC judges whether the line at the beginning of b is a record's header, or ends with one at
// the index at: the record before was cut off.
func judgeARC(b []byte) (at int, v verdict) {
	n := bytes.IndexByte(b[:min(len(b), maxHeader)], '\n')
	switch {
	case n < 0 && len(b) < maxHeader:
		return 0, unclear
	case n < 0:
		return 0, no
	}
	line := bytes.TrimSuffix(b[:n], []byte{'\r'})
	if len(line) == 0 || !timestamp.IsDigit(line[len(line)-1]) {
		return 0, no
	}
	h, ok := parseARC(line)
	k := lastHeader(line)
	switch {
	case k > 0 && (!ok || k >= len(h.url) || isCutOff(line[:k])):
		return k, yes
	case ok:
		return 0, yes // perhaps with a URL that has another in it
	}
	return 0, no
}

// isCutOff reports whether b, which another header follows at once, is text without a scheme, or a
// header that ends within its host, or within or behind its address. Anything else may be the
// beginning of a URL.
func isCutOff(b []byte) bool {
	_, host, ok := bytes.Cut(b, []byte{':'})
	host = bytes.TrimLeft(host, "/")
	if !ok || len(host) > 0 && !bytes.ContainsAny(host, "/?# ") {
		return true
	}
	f := bytes.Fields(b)
	return len(f) > 1 && isAddress(f[1]) && (b[len(b)-1] != ' ' || bytes.ContainsAny(f[1], ".:"))
}

// lastHeader returns where the last header in a line begins behind other text, 0 for nowhere.
func lastHeader(line []byte) int {
	// A header has a URL, and in version 2 perhaps another.
	end := len(line)
	for range 4 {
		if end = bytes.LastIndex(line[:end], []byte("://")); end < 0 {
			break
		}
		for _, scheme := range []string{"https", "http", "ftp"} { // letters may stand before it
			k := end - len(scheme)
			if k <= 0 || string(line[k:end]) != scheme {
				continue
			}
			if h, ok := parseARC(line[k:]); ok && bytes.IndexByte(h.url, ' ') < 0 {
				return k
			}
		}
	}
	return 0
}

// IsARC reports whether head is the beginning of an ARC file.
func IsARC(head []byte) bool {
	at, v := judgeARC(head)
	return bytes.HasPrefix(head, []byte("filedesc://")) && at == 0 && v == yes
}

// arcHeader is header for the line of an ARC record.
func (p *Parser) arcHeader(line []byte, long bool) (length int64, reason string, err error) {
	h, ok := parseARC(line)
	if !ok || long {
		return -1, "", nil
	}
	for _, v := range []struct {
		column int
		value  []byte
	}{{columnURL, h.url}, {columnTimestamp, h.date}, {columnDigest, h.digest}, {columnSize, h.length}} {
		p.values[v.column] = append(p.values[v.column], v.value...)
	}
	if string(h.mime) != "no-type" { // written by crawlers for no type
		p.contentType = append(p.contentType, h.mime...)
	}
	return h.size, "", nil
}

// isCaptureARC reports whether a record of a URL is a capture. The others are the file's own first
// record and the addresses that a crawler looked up.
func isCaptureARC(url []byte) bool {
	return !bytes.HasPrefix(url, []byte("filedesc:")) && !bytes.HasPrefix(url, []byte("dns:"))
}

// arcBlock is block for an ARC record.
func (p *Parser) arcBlock(left int64) (rest int64, err error) {
	left, err = p.httpHeader(left)
	if mime := &p.values[columnMIME]; len(*mime) == 0 {
		*mime = append(*mime, text.CaptureValue(raw.MIME, p.contentType)...)
	}
	return left, err
}
