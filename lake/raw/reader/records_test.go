package reader

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// rec is a record of a file that is damaged: header lines and a block.
type rec struct{ header, block string }

// The separators of records in WARC and in ARC.
const warcEnd, arcEnd = "\r\n\r\n", "\n"

func (r rec) text(end string) string {
	if end == arcEnd {
		return r.header + "\n" + r.block + end
	}
	return r.header + "\r\n\r\n" + r.block + end
}

// damageable returns n captures with distinct URLs and blocks of many sizes. One block holds a WARC
// and an ARC file, one is larger than the window of the reader.
func damageable(end string, n int) (records []rec, urls []string) {
	for i := range n {
		url := fmt.Sprintf("http://h%d.example.org/p?%d", i%7, i)
		body := "<html>" + strings.Repeat(fmt.Sprintf("line %d\n", i), i%9) + "</html>"
		switch i {
		case 5:
			body = record("response", "http://inside.example.org/", "application/http", "2020-01-02T03:04:05Z", "", "HTTP/1.1 200 OK\r\n\r\nx") +
				"\nhttp://inside.example.org/ 1.2.3.4 20200102030405 text/html 3\nabc\n"
		case 8:
			body = strings.Repeat("WARC/1.0\r\nsome text\r\n http://a/ 1 2\n", 9000)
		}
		block := "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
		header := fmt.Sprintf("WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:%d>\r\nWARC-Date: 2020-01-02T03:04:05Z\r\n"+
			"WARC-Target-URI: %s\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: %d", i, url, len(block))
		if end == arcEnd {
			header = fmt.Sprintf("%s 10.0.0.%d 20200102030405 text/html %d", url, i, len(block))
		}
		records, urls = append(records, rec{header, block}), append(urls, url)
	}
	return records, urls
}

// storedAs compresses texts, one a record, in one way that people do.
var storedAs = map[string]func(tb testing.TB, texts []string) []byte{
	"plain":          func(_ testing.TB, texts []string) []byte { return []byte(strings.Join(texts, "")) },
	"gzip by record": func(tb testing.TB, texts []string) []byte { return packed(tb, "gzip", texts) },
	"zstd by record": func(tb testing.TB, texts []string) []byte { return packed(tb, "zstd", texts) },
	"gzip of one": func(tb testing.TB, texts []string) []byte {
		return compressed(tb, "gzip", []byte(strings.Join(texts, "")))
	},
	"gzip cut anywhere": func(tb testing.TB, texts []string) []byte { return packed(tb, "gzip", cutAnywhere(texts, 777)) },
	"zstd cut anywhere": func(tb testing.TB, texts []string) []byte { return packed(tb, "zstd", cutAnywhere(texts, 1999)) },
}

func packed(tb testing.TB, how string, texts []string) (out []byte) {
	if how == "zstd" {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			tb.Fatal(err)
		}
		for _, t := range texts {
			out = enc.EncodeAll([]byte(t), out)
		}
		return out
	}
	for _, t := range texts {
		out = append(out, compressed(tb, how, []byte(t))...)
	}
	return out
}

// cutAnywhere cuts the texts, joined, into pieces of n bytes; the long one only once.
func cutAnywhere(texts []string, n int) (pieces []string) {
	all := strings.Join(texts, "")
	for len(all) > 0 {
		k := min(n, len(all))
		if len(pieces) == 3 {
			k = min(len(all), 610_000)
		}
		pieces, all = append(pieces, all[:k]), all[k:]
	}
	return pieces
}

func fileName(end string) string {
	if end == arcEnd {
		return "a.arc"
	}
	return "a.warc"
}

// version returns the first record of a file.
func version(end string) string {
	if end == arcEnd {
		block := "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n"
		return fmt.Sprintf("filedesc://a.arc 0.0.0.0 20200102030405 text/plain %d\n%s\n", len(block), block)
	}
	return record("warcinfo", "", "application/warc-fields", "2020-01-02T03:04:05Z", "", "software: x\r\n")
}

// badRecord is a damage to a record after which more may be lost or invented than after others. By
// default at most one record is lost, with a reject or as a row that the damage made of it.
type badRecord struct {
	why string
	// end is the format, "" for both. damage is the name of the damage, and bad the record.
	end, damage string
	bad         int
	lost        int // how many records may be lost
	row         string
}

// badRecords are the exceptions. bad is -1 for all records.
var badRecords = []badRecord{
	{why: "without its length its block is searched for a record, and has one",
		bad: 5, lost: 1, row: "http://inside.example.org/"},
}

// law returns what may be lost after a damage to a record.
func law(end, damage string, bad int) badRecord {
	for _, e := range badRecords {
		if (e.end == "" || e.end == end) && (e.damage == "" || e.damage == damage) && (e.bad < 0 || e.bad == bad) {
			return e
		}
	}
	return badRecord{lost: 1}
}

// checkLaw checks a damaged file of records with these URLs, and that it is refused at a place
// if it is. It returns whether it is.
func checkLaw(t *testing.T, what, name string, data []byte, urls []string, law badRecord) (refused bool) {
	t.Helper()
	o := outcomeOf(t, name, data, raw.Options{Extras: []string{raw.None}}, what)
	if o.err != nil {
		return true
	}
	missing, made := without(urls, o.urls)
	if len(missing) > law.lost || len(missing) > o.rejects+len(made) {
		t.Errorf("%s: %q of %d records are missing, with %d rejects and the rows %q", what, missing, len(urls), o.rejects, made)
	}
	for _, url := range made {
		ofURL := slices.ContainsFunc(missing, func(m string) bool { return isPart(url, m) })
		if !ofURL && (law.row == "" || !strings.HasPrefix(url, law.row)) {
			t.Errorf("%s: the row %q is of no record, %q are missing", what, url, missing)
		}
	}
	return false
}

// TestOneBadRecord damages one record of a file after the other, in each way that its format
// allows.
func TestOneBadRecord(t *testing.T) {
	const n = 10
	for _, end := range []string{warcEnd, arcEnd} {
		records, urls := damageable(end, n+1)
		length := func(add int) func(rec) string {
			return func(r rec) string {
				i := strings.LastIndexByte(r.header, ' ')
				return rec{r.header[:i+1] + strconv.Itoa(max(0, len(r.block)+add)), r.block}.text(end)
			}
		}
		damages := map[string]func(rec) string{
			"length 0":             func(r rec) string { return length(-len(r.block))(r) },
			"no length":            func(r rec) string { return rec{r.header[:strings.LastIndexAny(r.header, " \n")], r.block}.text(end) },
			"a length of letters":  func(r rec) string { return rec{r.header + "x", r.block}.text(end) },
			"no line break behind": func(r rec) string { return strings.TrimSuffix(r.text(end), end) },
			"two line breaks more": func(r rec) string { return r.text(end) + end + end },
			"no blank line":        func(r rec) string { return strings.Replace(r.text(end), "\r\n\r\n", "\r\n", 1) },
			"half of it":           func(r rec) string { s := r.text(end); return s[:len(s)/2] },
			"half of its header":   func(r rec) string { return r.header[:len(r.header)/2] },
			"a body flipped":       func(r rec) string { return strings.Replace(r.text(end), "html", "hxml", 3) },
			"nothing":              func(rec) string { return "" },
			"other bytes":          func(rec) string { return "\x00\x01 abc\r\n\r\nWARC/1.0 \r\n" },
		}
		for _, add := range []int{-1, 1, -3, 4, 5, 20, 200, 1000, 5000, 1 << 20, 1 << 40} {
			damages[fmt.Sprintf("length %+d", add)] = length(add)
		}
		for i := 0; i < len(records[0].header); i += 3 * testenv.Every(5) {
			damages[fmt.Sprintf("byte %d of the header", i)] = func(r rec) string {
				b := []byte(r.text(end))
				b[min(i, len(b)-1)] ^= 0x11
				return string(b)
			}
		}
		files, refused := 0, 0
		for what, damage := range damages {
			ways := storedAs
			if strings.HasPrefix(what, "byte") {
				ways = map[string]func(testing.TB, []string) []byte{"plain": storedAs["plain"], "gzip by record": storedAs["gzip by record"]}
			}
			for how, store := range ways {
				for bad := range n {
					header := strings.HasPrefix(what, "byte")
					if header && bad != 1 && bad != 6 || bad == 8 && how != "plain" && how != "gzip of one" ||
						!header && how != "plain" && (bad+len(how)+len(what))%(3*testenv.Every(3)) > 0 {
						continue // a sample
					}
					records, urls := records[:max(bad+2, 7)], urls[:max(bad+2, 7)]
					if bad == n-1 { // it is the last
						records, urls = records[:n], urls[:n]
					}
					texts := []string{version(end)}
					for i, r := range records {
						if i == bad {
							texts = append(texts, damage(r))
						} else {
							texts = append(texts, r.text(end))
						}
					}
					want := urls
					if what == "nothing" {
						want = append(append([]string{}, urls[:bad]...), urls[bad+1:]...)
					}
					files++
					if checkLaw(t, fmt.Sprintf("%s of record %d, %s, %s", what, bad, how, fileName(end)), fileName(end), store(t, texts), want, law(end, what, bad)) {
						refused++
					}
				}
			}
		}
		t.Logf("%s: %d files", fileName(end), files)
		if refused > 0 {
			t.Errorf("%s: %d of %d files are refused", fileName(end), refused, files)
		}
	}
}

// TestOneBadMember flips single bytes of compressed files, and cuts the files there.
func TestOneBadMember(t *testing.T) {
	for _, end := range []string{warcEnd, arcEnd} {
		records, urls := damageable(end, 8)
		texts := []string{version(end)}
		for _, r := range records {
			texts = append(texts, r.text(end))
		}
		for how, store := range storedAs {
			data := store(t, texts)
			files, refused := 0, 0
			if how == "plain" {
				continue
			}
			for i := 3; i < len(data); i += 9 * testenv.Every(5) {
				flipped := bytes.Clone(data)
				flipped[i] ^= 1 << (i % 8)
				files += 2
				if checkLaw(t, fmt.Sprintf("byte %d flipped, %s, %s", i, how, fileName(end)), fileName(end), flipped, urls, badRecord{lost: 1}) {
					refused++
				}
				cut := data[:i]
				if how != "gzip by record" && how != "zstd by record" || i < len(packed(t, how[:4], texts[:len(texts)-1])) {
					continue
				}
				if checkLaw(t, fmt.Sprintf("cut at %d, %s, %s", i, how, fileName(end)), fileName(end), cut, urls, badRecord{lost: 1}) {
					refused++
				}
			}
			if strings.HasSuffix(how, "by record") && refused > files/4 {
				t.Errorf("%s, %s: %d of %d files are refused", how, fileName(end), refused, files)
			}
		}
	}
}

// TestCutAnywhere holds that a file gives the same rows wherever it is cut into members.
func TestCutAnywhere(t *testing.T) {
	for _, end := range []string{warcEnd, arcEnd} {
		records, urls := damageable(end, 7)
		texts := []string{version(end)}
		for _, r := range records {
			texts = append(texts, r.text(end))
		}
		all := strings.Join(texts, "")
		for _, how := range []string{"gzip", "zstd"} {
			for i := 0; i < len(all); i += 11 * testenv.Every(7) {
				data := packed(t, how, []string{all[:i], all[i:]})
				g, err := readBytes2(data, raw.Options{Extras: []string{raw.None}})
				if err != nil || len(g.Rows) != len(urls) || g.Counts.Rejects > 0 {
					t.Fatalf("%s of %s cut at %d: %d rows, %d rejects, %v", how, fileName(end), i, len(g.Rows), g.Counts.Rejects, err)
				}
			}
		}
	}
}

// TestSharedWARC reads files that were read wrongly.
func TestSharedWARC(t *testing.T) {
	for name, want := range map[string][2]int{
		"warc-wrong-length/example.warc": {3, 1}, "warc-wrong-length/example-trunc.warc": {1, 1},
		"warc-wrong-length/HTTP204.warc": {2, 2}, "warc-wrong-length/minus3.warc.gz": {200, 1},
		"wet-and-wat/whirlwind.warc.gz": {1, 0}, "wet-and-wat/whirlwind.warc.wat.gz": {1, 0}, "wet-and-wat/whirlwind.warc.wet.gz": {1, 0},
	} {
		data, err := os.ReadFile(testenv.Shared(t, "cases", name))
		if err != nil {
			t.Fatal(err)
		}
		g, err := readBytes2(data, raw.Options{})
		if err != nil || [2]int{int(g.Counts.Records), int(g.Counts.Rejects)} != want {
			t.Errorf("%s: %+v, want %v; %v", name, g.Counts, want, err)
		}
	}
}
