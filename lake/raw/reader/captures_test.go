package reader

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// capture is one of a small crawl.
type capture struct {
	kind, url    string // kind is the WARC type
	at           time.Time
	status, mime string
	digest       string // SHA-1 in base 32
	body         string

	offset, length int // in the WARC file
}

// crawl returns the captures of a small crawl: pages, an error, a redirect, a file of another
// scheme, a body that looks like records, and a revisit.
func crawl() []capture {
	at := func(s int) time.Time { return time.Date(2024, 5, 6, 7, 8, s, 0, time.UTC) }
	digest := func(i int) string { return strings.Repeat(string(rune('A'+i)), 31) + "7" }
	return []capture{
		{kind: "response", url: "http://example.com/", at: at(1), status: "200", mime: "text/html", digest: digest(1), body: "<html>"},
		{kind: "response", url: "http://example.com/missing?a=1&b=2", at: at(2), status: "404", mime: "text/html", digest: digest(2)},
		{kind: "response", url: "https://www.example.org:8443/p/%7Ea", at: at(2), status: "301", mime: "text/plain", digest: digest(3), body: strings.Repeat("WARC/1.0\r\n\r\n", 30000)},
		{kind: "resource", url: "ftp://example.net/a.txt", at: at(4), mime: "text/plain", digest: digest(4), body: "a file"},
		{kind: "revisit", url: "http://example.com/", at: at(59), status: "200", mime: "warc/revisit", digest: digest(1)},
		{kind: "response", url: "http://example.com/image", at: at(5), status: "200", mime: "image/png", digest: digest(5), body: strings.Repeat("\x00\xff\r\n", 100_000)},
	}
}

// record returns a WARC record.
func record(kind, url, contentType, date, more, block string) string {
	h := "WARC/1.1\r\nWARC-Type: " + kind + "\r\nWARC-Record-ID: <urn:uuid:1>\r\nwarc-date: " + date + "\r\n" + more
	if url != "" {
		h += "WARC-Target-URI: " + url + "\r\n"
	}
	return fmt.Sprintf("%sContent-Type: %s\r\nContent-Length:  %d\r\n\r\n%s\r\n\r\n", h, contentType, len(block), block)
}

// records returns the records of a crawl, a request before every capture.
func records(captures []capture) (texts []string, of []*capture) {
	add := func(c *capture, text string) { texts, of = append(texts, text), append(of, c) }
	add(nil, record("warcinfo", "", "application/warc-fields", "2024-05-06T07:00:00Z", "WARC-Filename: a\r\n", "software: x\r\n"))
	for i := range captures {
		c := &captures[i]
		date := c.at.Format("2006-01-02T15:04:05") + ".123456Z"
		block := c.body
		if c.kind != "resource" {
			add(nil, record("request", c.url, "application/http; msgtype=request", date, "", "GET / HTTP/1.1\r\nContent-Type: a/b\r\n\r\n"))
			block = "HTTP/1.1 " + c.status + " Text\r\nServer: x\r\ncontent-type: " + cmp.Or(strings.TrimPrefix(c.mime, "warc/revisit"), "text/html") +
				"; charset=utf-8\r\n\r\n" + c.body
		}
		contentType := "application/http; msgtype=response"
		if c.kind == "resource" {
			contentType = c.mime
		}
		add(c, record(c.kind, c.url, contentType, date, "WARC-Payload-Digest: sha1:"+c.digest+"\r\n", block))
		add(nil, record("metadata", c.url, "application/warc-fields", date, "", "via: x\r\n"))
	}
	return texts, of
}

// writeWARC writes the WARC file of a crawl in one of the ways in warcFiles, and sets where the
// captures are.
func writeWARC(tb testing.TB, how string, captures []capture) []byte {
	tb.Helper()
	texts, of := records(captures)
	var out []byte
	var dictionary []byte
	if how == "zstd with a dictionary" {
		var err error
		dictionary, err = zstd.BuildDict(zstd.BuildDictOptions{ID: 7, History: []byte(texts[1] + texts[2]),
			Contents: [][]byte{[]byte(texts[1]), []byte(texts[2]), []byte(texts[3])}, Offsets: [3]int{1, 4, 8}})
		if err != nil {
			tb.Fatal(err)
		}
		packed := compressed(tb, "zstd", dictionary)
		out = binary.LittleEndian.AppendUint32(out, 0x184d2a5d)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	opts := []zstd.EOption{zstd.WithEncoderConcurrency(1)}
	if dictionary != nil {
		opts = append(opts, zstd.WithEncoderDict(dictionary))
	}
	enc, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	for i, text := range texts {
		before := len(out)
		switch how {
		case "gzip":
			out = append(out, compressed(tb, "gzip", []byte(text))...)
		case "zstd", "zstd with a dictionary":
			out = enc.EncodeAll([]byte(text), out)
		case "zstd streamed": // without a content size in the frame's header
			out = append(out, streamed(tb, 1<<20, []byte(text))...)
		default:
			out = append(out, text...)
		}
		if of[i] != nil {
			of[i].offset, of[i].length = before, len(out)-before
			if how == "plain" {
				of[i].length -= len("\r\n\r\n") // which end every record
			}
		}
	}
	if how == "gzip as a whole" {
		return compressed(tb, "gzip", out)
	}
	return out
}

var warcFiles = map[string]string{
	"plain": "crawl.warc", "gzip": "crawl.warc.gz", "zstd": "crawl.warc.zst", "zstd streamed": "crawl.warc.zst",
	"zstd with a dictionary": "crawl.warc.zst", "gzip as a whole": "crawl.warc.gz",
}

// row is what a reader has to return for a capture in a WARC file, or for its line in an index.
func (c *capture) row(file string, addressed bool) string {
	extras := map[string]string{"status": c.indexed(), "mime": c.mime, "digest": c.digest, "filename": file}
	if addressed {
		extras["offset"], extras["length"] = fmt.Sprint(c.offset), fmt.Sprint(c.length)
	}
	for k, v := range extras {
		if v == "" {
			delete(extras, k)
		}
	}
	b, _ := json.Marshal(extras)
	return fmt.Sprintf("%s ts=%d %s", c.url, c.at.UnixMilli(), b)
}

// indexed returns the status in indexes, where a revisit has none.
func (c *capture) indexed() string {
	if c.kind == "revisit" {
		return ""
	}
	return c.status
}

// dash returns - for an empty field.
func dash(s string) string { return cmp.Or(s, "-") }

// index returns the lines of an archive index, each as write formats it.
func index(captures []capture, write func(key string, c *capture) string) string {
	var lines []string
	for i := range captures {
		c := &captures[i]
		key := strings.NewReplacer("http://example.com", "com,example)", "https://www.example.org:8443", "org,example:8443)",
			"ftp://example.net", "net,example)").Replace(c.url)
		lines = append(lines, write(key, c)+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func cdxOf(captures []capture, file string) string {
	return " CDX N b a m s k r M S V g\n" + index(captures, func(key string, c *capture) string {
		return fmt.Sprintf("%s %s %s %s %s %s - - %d %d %s", key, c.at.Format("20060102150405"), c.url, c.mime, dash(c.indexed()),
			c.digest, c.length, c.offset, file)
	})
}

func cdxjOf(captures []capture, file string) string {
	return index(captures, func(key string, c *capture) string {
		status := ""
		if c.indexed() != "" {
			status = `"status": "` + c.status + `", `
		}
		return fmt.Sprintf(`%s %s {"url": "%s", "mime": "%s", %s"digest": "sha1:%s", "length": "%d", "offset": %d, "filename": "%s"}`,
			key, c.at.Format("20060102150405"), c.url, c.mime, status, c.digest, c.length, c.offset, file)
	})
}

// crawlLogOf returns the crawl's log, which has URLs that could not be fetched too.
func crawlLogOf(captures []capture) string {
	var b strings.Builder
	for i, c := range captures {
		mime := c.mime
		if c.kind == "revisit" {
			mime = "text/html"
		}
		fmt.Fprintf(&b, "%s.456Z %5s %10d %s L http://example.com/ %s #%03d %s987+12 sha1:%s http://example.com/ -\n",
			c.at.Add(3*time.Second).Format("2006-01-02T15:04:05"), cmp.Or(c.status, "226"), len(c.body), c.url, mime, i, c.at.Format("20060102150405"), c.digest)
	}
	b.WriteString("2024-05-06T07:09:01.500Z    -9          - http://example.com/private L http://example.com/ unknown #007 - - http://example.com/ -\n")
	b.WriteString("2024-05-06T07:09:02.000Z     1         52 dns:example.com P http://example.com/ text/dns #008 20240506070902000+1 sha1:" + strings.Repeat("Q", 32) + " - content-size:52 {\"a b\": 1}\n")
	return b.String()
}

// rowsOf returns what a reader returns for an object, without lines, in order.
func rowsOf(t *testing.T, name string, data []byte, opt raw.Options) (rows []string, r *Reader) {
	t.Helper()
	r, err := New(bytes.NewReader(data), name, opt)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range g.Rows {
		_, text, _ := strings.Cut(row, " ")
		rows = append(rows, text)
	}
	slices.Sort(rows)
	return rows, r
}

// TestCrawl holds that the WARC file of a crawl, however it is compressed, gives the rows of its
// CDX and CDXJ.
func TestCrawl(t *testing.T) {
	for how, file := range warcFiles {
		t.Run(how, func(t *testing.T) {
			captures := crawl()
			data := writeWARC(t, how, captures)
			addressed := how != "gzip as a whole"
			var want []string
			for i := range captures {
				want = append(want, captures[i].row(file, addressed))
			}
			slices.Sort(want)
			got, r := rowsOf(t, "folder/"+file, data, raw.Options{})
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("WARC (-want +got):\n%s", diff)
			}
			if c := r.Counts(); c.Comments != int64(1+2*len(captures)-1) || c.Rejects != 0 {
				t.Errorf("counts %+v", c)
			}
			if notes := r.Notes(); addressed != (len(notes) == 1) || !strings.Contains(notes[len(notes)-1], "metadata records") {
				t.Errorf("notes %q", notes)
			}
			if !addressed {
				return
			}
			for name, text := range map[string]string{"crawl.cdx": cdxOf(captures, file), "crawl.cdxj": cdxjOf(captures, file)} {
				got, _ := rowsOf(t, name, []byte(text), raw.Options{})
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			for name, members := range map[string][]string{
				"with an index":    {"archive/" + file, string(data), "indexes/index.cdx.gz", string(compressed(t, "gzip", []byte(cdxjOf(captures, file)))), "indexes/index.idx", "x", "datapackage.json", "{}"},
				"without an index": {"archive/" + file, string(data), "pages/pages.jsonl", "{}"},
			} {
				wacz := zipOf(t, members...)
				got, r := rowsOf(t, "crawl.wacz", wacz, raw.Options{})
				if diff := gocmp.Diff(want, got); diff != "" || r.Plan().Format != raw.WACZ {
					t.Errorf("WACZ %s, read as %s (-want +got):\n%s", name, r.Plan().Format, diff)
				}
				checkReader(t, "crawl.wacz", wacz, raw.Options{})
				got, _ = rowsOf(t, "crawl.wacz.gz", compressed(t, "gzip", wacz), raw.Options{})
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("WACZ %s in gzip (-want +got):\n%s", name, diff)
				}
			}
			checkReader(t, file, data, raw.Options{Extras: []string{"*"}, SizeField: "size"})
			got, _ = rowsOf(t, "a.tar", tarOf(t, file, string(data), "crawl.cdx", cdxOf(captures, file)), raw.Options{})
			if diff := gocmp.Diff(want, slices.Compact(got)); diff != "" {
				t.Errorf("in tar, with its CDX (-want +got):\n%s", diff)
			}
		})
	}
}

// zipOf returns a zip of members, given as names and contents.
func zipOf(tb testing.TB, members ...string) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for i := 0; i < len(members); i += 2 {
		method := zip.Store
		if i == 0 {
			method = zip.Deflate
		}
		m, err := w.CreateHeader(&zip.FileHeader{Name: members[i], Method: method})
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(m, members[i+1]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// TestCrawlLog holds that a crawl's log has the captures of its CDX: URL, time, status, media type
// and digest. The status of a file that is not fetched by HTTP, and the status and media type of a
// revisit, are only in the log.
func TestCrawlLog(t *testing.T) {
	captures := crawl()
	log := crawlLogOf(captures)
	fields := raw.Options{Extras: []string{raw.Status, raw.MIME, raw.Digest}}
	got, r := rowsOf(t, "crawl.log", []byte(log), fields)
	if p := r.Plan(); p.Format != raw.CrawlLog || p.URL.Name != "url" || p.TS.Name != "timestamp" {
		t.Fatalf("plan %+v", p)
	}
	var want []string
	cdx, _ := rowsOf(t, "crawl.cdx", []byte(cdxOf(captures, "a.warc.gz")), fields)
	size := map[string]int{}
	for _, c := range captures {
		size[fmt.Sprintf("%s ts=%d", c.url, c.at.UnixMilli())] = len(c.body)
	}
	for _, row := range cdx {
		if strings.Contains(row, "warc/revisit") {
			row = strings.NewReplacer("warc/revisit", "text/html", "}", `,"status":"200"}`).Replace(row)
		}
		if strings.HasPrefix(row, "ftp:") {
			row = strings.Replace(row, "}", `,"status":"226"}`, 1)
		}
		url, extras, _ := strings.Cut(row, " {")
		want = append(want, fmt.Sprintf("%s size=%d {%s", url, size[url], extras))
	}
	want = append(want,
		`http://example.com/private ts=1714979341000 {"mime":"unknown","status":"-9"}`,
		`dns:example.com ts=1714979342000 size=52 {"digest":"`+strings.Repeat("Q", 32)+`","mime":"text/dns","status":"1"}`)
	slices.Sort(want)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// By default the page that led to the URL is kept too, and nothing that the log does not have.
	got, _ = rowsOf(t, "crawl.log", []byte(log), raw.Options{})
	if row := `dns:example.com ts=1714979342000 size=52 {"digest":"` + strings.Repeat("Q", 32) + `","mime":"text/dns","status":"1","via":"http://example.com/"}`; got[0] != row {
		t.Errorf("got %s, want %s", got[0], row)
	}
	got, _ = rowsOf(t, "crawl.log", []byte(log), raw.Options{Extras: []string{"info", raw.Filename}})
	if row := `dns:example.com ts=1714979342000 size=52 {"info":"{\"a b\": 1}"}`; got[0] != row {
		t.Errorf("got %s, want %s", got[0], row)
	}
	g, _ := read(t, "crawl.log", log+"2024-05-06T07:09:01.500Z -9 - http://short/\n", raw.Options{Format: raw.CrawlLog, Extras: []string{raw.None}, TSColumn: "logged"})
	if row := "1 http://example.com/ ts=1714979284456 size=6"; g.Rows[0] != row || g.Rows[len(g.Rows)-1] != "9 !bad_log" {
		t.Errorf("got %q, want %s first and a reject last", g.Rows, row)
	}
	checkReader(t, "crawl.log", []byte(log), raw.Options{})

	// Of two lines without a line break between them, each is a record, however much of the first
	// is left.
	lines := strings.SplitAfter(log, "\n")
	whole, _ := rowsOf(t, "crawl.log", []byte(log), raw.Options{})
	last := strings.Join(lines[len(lines)-3:], "")
	for n := 1; n < len(lines[0]); n++ {
		g, _ := read(t, "crawl.log", strings.Join(lines, "")+lines[0][:n]+last, raw.Options{})
		if records, rejects := int(g.Counts.Records)-len(whole), g.Counts.Rejects; records+int(rejects) != 3 || records < 2 {
			t.Errorf("%d records and %d rejects behind the whole lines:\n%s", records, rejects, lines[0][:n]+last)
		}
	}
	checkReader(t, "crawl.log", []byte(log+strings.ReplaceAll(log, "\n", "")), raw.Options{})
}

// TestCDXLayouts reads the lines of real indexes: of NetarchiveSuite, of the Wayback Machine's CDX
// server, with another separator, without original URLs, and of two dialects of CDXJ.
func TestCDXLayouts(t *testing.T) {
	const md5 = "56bf412eaebc3a9d639898a71dbe614c"
	line := "com,a)/ 20040511211249 http://a.com/ text/html 200 " + strings.Repeat("A", 32) + " - - 512 77 b.warc.gz"
	row := `http://a.com/ ts=1084310? {"digest":"` + strings.Repeat("A", 32) + `","filename":"b.warc.gz","length":"512","mime":"text/html","offset":"77","status":"200"}`
	cut := strings.Replace(row, `"filename":"b.warc.gz",`, "", 1)
	for _, tc := range []struct {
		name, text string
		opt        raw.Options
		format     string
		want       []string
		notes      int
	}{
		{"8 fields of NetarchiveSuite", "http://a.dk/p.php?id=1&W=198 194.255.126.118 20040511211249 image/jpeg 634 f.arc 6950 " + md5 + "\n" +
			"http://a.dk/p.php?id=2&W=198 194.255.126.118 20040511211249 image/jpeg 669 f.arc 150 " + md5 + "\n", raw.Options{}, raw.CDX, []string{
			`1 http://a.dk/p.php?id=1&W=198 ts=1084310? {"digest":"` + md5 + `","filename":"f.arc","length":"634","mime":"image/jpeg","offset":"6950"}`,
			`2 http://a.dk/p.php?id=2&W=198 ts=1084310? {"digest":"` + md5 + `","filename":"f.arc","length":"669","mime":"image/jpeg","offset":"150"}`}, 1},
		{"7 fields of NetarchiveSuite, mostly dns", strings.Repeat("dns:a.dk 130.225.24.33 20040511211249 text/dns 60 f.arc 141472\n", 3) +
			"http://a.dk/ 62.199.138.132 20040511211249 text/html 600 f.arc 7\n", raw.Options{}, raw.CDX, append(
			repeatRows(3, 1, `dns:a.dk ts=1084310? {"filename":"f.arc","length":"60","mime":"text/dns","offset":"141472"}`),
			`4 http://a.dk/ ts=1084310? {"filename":"f.arc","length":"600","mime":"text/html","offset":"7"}`), 1},
		{"7 fields of the CDX server", "com,a)/ 20040511211249 http://a.com/ text/html 200 " + strings.Repeat("A", 32) + " 512\n", raw.Options{}, raw.CDX,
			[]string{`1 http://a.com/ ts=1084310? {"digest":"` + strings.Repeat("A", 32) + `","length":"512","mime":"text/html","status":"200"}`}, 1},
		{"lines with more fields", strings.Repeat(line+"\n", 4) + line + line + "\n" + strings.Replace(line, "a.com/", "a.com/b c", 1) + "\n" + line + " 7 8 g.warc.gz\n", raw.Options{}, raw.CDX,
			[]string{"1 " + row, "2 " + row, "3 " + row, "4 " + row, "5 " + cut, "5 " + row, "6 !bad_cdx", "7 " + row}, 0},
		{"an order of no known program", "20040511211249 200 http://a.com/ text/html b.warc.gz 77\n20040511211249 404 http://a.com/ text/html b.warc.gz 78\n", raw.Options{}, raw.CDX,
			[]string{`1 http://a.com/ ts=1084310? {"filename":"b.warc.gz","mime":"text/html","offset":"77"}`, `2 http://a.com/ ts=1084310? {"filename":"b.warc.gz","mime":"text/html","offset":"78"}`}, 1},
		{"tabs, by the header", "\tCDX\tb\ta\ts\tz\n20040511211249\thttp://a.com/x y\t200\t7\n", raw.Options{}, raw.CDX,
			[]string{`2 http://a.com/x y ts=1084310? {"status":"200"}`}, 0},
		{"keys only, by the header", " CDX N b s\ncom,a,www:8080)/x?y=(1) 20040511211249 200\nhttps://(com,b,)/ 20040511211249 -\n127.0.0.1)/ 20040511211249 -\na.dk/robots.txt 20040511211249 404\n", raw.Options{}, raw.CDX,
			[]string{`2 http://www.a.com:8080/x?y=(1) ts=1084310? {"status":"200"}`, "3 https://b.com/ ts=1084310?", "4 http://127.0.0.1/ ts=1084310?", `5 a.dk/robots.txt ts=1084310? {"status":"404"}`}, 1},
		{"names of the CDX server", " CDX b a m s\n20040511211249 http://a.com/ text/html;a 200\n", raw.Options{Extras: []string{"mimetype", "status"}}, raw.CDX,
			[]string{`2 http://a.com/ ts=1084310? {"mimetype":"text/html;a","status":"200"}`}, 0},
		{"a field that the index does not have", " CDX b a m\n20040511211249 http://a.com/ text/html\n", raw.Options{Extras: []string{raw.MIME, raw.Digest}, TSColumn: raw.None}, raw.CDX,
			[]string{`2 http://a.com/ {"mime":"text/html"}`}, 0},
		{"CDXJ with other names", `com,a)/ 20040511211249 {"url":"http://a.com/","mimetype":"text/html; charset=x","statuscode":200,"digest":"SHA1:AB","offset":null,"filename":"-"}` + "\n", raw.Options{}, raw.CDXJ,
			[]string{`1 http://a.com/ ts=1084310? {"digest":"AB","mime":"text/html","status":"200"}`}, 0},
		{"CDXJ of OpenWayback", "!OpenWayback-CDXJ 1.0\n" + `(com,a,)/b? 2004-05-11T21:12:49Z response {"hsc":200,"mct":"text/html","sha":"AB","rle":5}` + "\n", raw.Options{}, raw.CDXJ,
			[]string{`2 http://a.com/b? ts=1084310? {"digest":"AB","length":"5","mime":"text/html","status":"200"}`}, 1},
		{"mime of CDXJ without extras", `com,a)/ 20040511211249 {"url":"http://a.com/","mime":"text/html"}` + "\n", raw.Options{Extras: []string{raw.None}}, raw.CDXJ,
			[]string{"1 http://a.com/ ts=1084310?"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, plan := read(t, "a.txt", tc.text, tc.opt)
			for i := range tc.want {
				tc.want[i] = strings.Replace(tc.want[i], "ts=1084310?", "ts=1084309969000", 1)
			}
			if diff := gocmp.Diff(tc.want, g.Rows); diff != "" || plan.Format != tc.format {
				t.Errorf("format %s, records (-want +got):\n%s", plan.Format, diff)
			}
			if len(plan.Notes) != tc.notes {
				t.Errorf("notes %q, want %d", plan.Notes, tc.notes)
			}
			checkReader(t, "a.txt", []byte(tc.text), tc.opt)
		})
	}
}

// TestBlanksInLines tells tables between blanks from URLs with blanks.
func TestBlanksInLines(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		opt        raw.Options
		format     string
		want       []string
	}{
		{"uniq -c", "    212 http://a.com/x\n   1003 http://b.com/y\n", raw.Options{}, raw.Spaced, []string{"1 http://a.com/x", "2 http://b.com/y"}},
		{"aligned, with times", "2024-05-06T07:08:09Z   200  http://a.com/    text/html\n2024-05-06T07:08:09Z   404  http://a.com/b   -\n", raw.Options{Extras: []string{"4"}}, raw.Spaced,
			[]string{`1 http://a.com/ ts=1714979289000 {"4":"text/html"}`, "2 http://a.com/b ts=1714979289000"}},
		{"a header", "# made by x\nurl hits first_seen\n\nhttp://a.com/ 7 2024-05-06\nhttp://b.com/ 9 2024-05-06\n", raw.Options{SizeField: "hits"}, raw.Spaced,
			[]string{"4 http://a.com/ ts=1714953600000 size=7", "5 http://b.com/ ts=1714953600000 size=9"}},
		{"a number behind", "http://a.com/ 7\nhttp://b.com/ 9\n", raw.Options{}, raw.Spaced, []string{"1 http://a.com/", "2 http://b.com/"}},
		{"a column that is named", "a.com 7\nb.com 9\n", raw.Options{URLColumn: "1"}, raw.Spaced, []string{"1 a.com", "2 b.com"}},
		{"URLs with blanks", "http://a.com/My file.pdf\nhttp://a.com/?q=Our file&x=1\nhttp://a.com/\n", raw.Options{}, raw.Lines, []string{"1 http://a.com/My file.pdf", "2 http://a.com/?q=Our file&x=1", "3 http://a.com/"}},
		{"URLs with blanks, all alike", "http://a.com/map_1976 Thru 1980_0.xml\nhttp://a.com/map_1981 Thru 1990_0.xml\n", raw.Options{}, raw.Lines,
			[]string{"1 http://a.com/map_1976 Thru 1980_0.xml", "2 http://a.com/map_1981 Thru 1990_0.xml"}},
		{"a table that is wanted as a list", "http://a.com/ 7\nhttp://b.com/ 9\n", raw.Options{Format: raw.Lines}, raw.Lines, []string{"1 !text_after_url", "2 !text_after_url"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := New(strings.NewReader(tc.text), "a.txt", tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			g, err := readAll(r)
			if diff := gocmp.Diff(tc.want, g.Rows); diff != "" || r.Plan().Format != tc.format || err != nil {
				t.Errorf("format %s, error %v, records (-want +got):\n%s", r.Plan().Format, err, diff)
			}
			spaced := 0
			for _, row := range tc.want {
				if strings.Count(row, " ") > 1 {
					spaced++
				}
			}
			if tc.format != raw.Lines {
				spaced = 0
			}
			if n := r.Counts().Spaced; n != int64(spaced) {
				t.Errorf("%d URLs with blanks, want %d", n, spaced)
			}
			checkReader(t, "a.txt", []byte(tc.text), tc.opt)
		})
	}
}

// TestDamagedWARC holds that a bad record costs one record.
func TestDamagedWARC(t *testing.T) {
	good := func(url string) string {
		return record("resource", url, "text/plain", "2024-05-06T07:08:09Z", "", "x")
	}
	bad := map[string]struct{ record, reason string }{
		"no WARC record":      {"GET / HTTP/1.1\r\n\r\n", raw.BadWARC},
		"no length":           {"WARC/1.0\r\nWARC-Type: resource\r\n\r\nabc", raw.BadWARC},
		"a negative length":   {"WARC/1.0\r\nContent-Length: -1\r\n\r\nabc", raw.BadWARC},
		"two lengths":         {"WARC/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc", raw.BadWARC},
		"a length too large":  {strings.Replace(good("http://b/"), "Content-Length:  1", "Content-Length: 4611686018427387903", 1), raw.BadWARC},
		"only half a header":  {"WARC/1.0\r\nWARC-Type: resource\r\nContent-Le", raw.BadWARC},
		"no URL":              {record("resource", "", "text/plain", "2024-05-06T07:08:09Z", "", "x"), raw.NoURL},
		"a URL of nothing":    {record("resource", "<>", "text/plain", "2024-05-06T07:08:09Z", "", "x"), raw.NoURL},
		"a URL much too long": {good("http://b/" + strings.Repeat("b", 3000)), raw.TooLong},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			members := []string{good("http://a/"), b.record, good("http://c/")}
			var gz, zst []byte
			var offsets []int
			for _, m := range members {
				offsets = append(offsets, len(gz))
				gz = append(gz, compressed(t, "gzip", []byte(m))...)
				zst = append(zst, compressed(t, "zstd", []byte(m))...)
			}
			opt := raw.Options{Extras: []string{raw.None}, MaxLine: 2000}
			for _, data := range [][]byte{gz, zst} {
				g, err := readBytes2(data, opt)
				if diff := gocmp.Diff([]string{"0 http://a/ ts=1714979289000", "0 !" + b.reason, "0 http://c/ ts=1714979289000"}, g.Rows); diff != "" || err != nil {
					t.Errorf("error %v, records (-want +got):\n%s", err, diff)
				}
				checkReader(t, "a.warc.gz", data, opt)
			}
			if g, _ := readBytes2(gz, opt); g.Offsets[1] != int64(offsets[1]) {
				t.Errorf("the reject is at %d, want %d", g.Offsets[1], offsets[1])
			}
			plain := strings.Join(members, "")
			g, err := readBytes2([]byte(plain), opt)
			if len(g.Rows) != 3 || err != nil || g.Offsets[1] != int64(len(members[0])) {
				t.Errorf("not compressed: %q at %d, %v", g.Rows, g.Offsets, err)
			}
			checkReader(t, "a.warc", []byte(plain), opt)
		})
	}
	// A truncated file is an error, at every length. If it is not compressed, its last record is a
	// reject instead, except where the cut is at the end of its block.
	captures := crawl()
	for i := range captures {
		captures[i].body = captures[i].body[:min(len(captures[i].body), 40)]
	}
	for _, how := range []string{"gzip", "zstd", "plain"} {
		data := writeWARC(t, how, captures)
		atEnd := map[int]bool{} // of the blocks of the uncompressed records, and behind
		texts, _ := records(captures)
		for i, end := 0, 0; i < len(texts); i++ {
			end += len(texts[i])
			for k := range len("\r\n\r\n") + 1 {
				atEnd[end-k] = true
			}
		}
		for n := 20; n < len(data); n += 7 * testenv.Every(3) {
			g, err := readBytes2(data[:n], raw.Options{})
			if how == "plain" && (err != nil || g.Counts.Rejects != 1 && !atEnd[n]) {
				t.Fatalf("cut off at %d: %d records, %d rejects, %v", n, g.Counts.Records, g.Counts.Rejects, err)
			}
			if err == nil && how != "plain" {
				// A cut between two members or records cannot be told from a shorter file.
				if _, err := readBytes2(append(bytes.Clone(data[:n]), data...), raw.Options{}); err != nil {
					t.Fatalf("%s of %d bytes cut off at %d: no error, %d captures", how, len(data), n, g.Counts.Records)
				}
			}
			if err != nil && !errors.Is(err, raw.ErrInput) {
				t.Fatalf("%s cut off at %d: %v is no ErrInput", how, n, err)
			}
		}
	}
}

func readBytes2(data []byte, opt raw.Options) (got, error) {
	r, err := New(bytes.NewReader(data), "a.warc", opt)
	if err != nil {
		return got{}, err
	}
	return readAll(r)
}

// TestWARCTakesLittleMemory reads records that claim, and have, much more than memory may hold.
func TestWARCTakesLittleMemory(t *testing.T) {
	zeros := strings.Repeat("\x00", 32<<20)
	for name, data := range map[string][]byte{
		"a header without end":       []byte("WARC/1.0\r\nWARC-Target-URI: http://a/" + strings.Repeat("a", 32<<20)),
		"a header of many lines":     []byte("WARC/1.0\r\n" + strings.Repeat("A: b\r\n", 4<<20) + "\r\n"),
		"an HTTP header without end": []byte(record("response", "http://a/", "application/http", "2024-05-06T07:08:09Z", "", "HTTP/1.1 200 OK\r\nA: "+zeros)),
		"a body of much":             []byte(record("response", "http://a/", "application/http", "2024-05-06T07:08:09Z", "", "HTTP/1.1 200 OK\r\n\r\n"+zeros)),
		"a dictionary of much":       append([]byte("\x5d\x2a\x4d\x18\xff\xff\xff\x7f"), zeros[:1<<20]...),
	} {
		forms := map[string][]byte{"plain": data}
		if name != "a dictionary of much" {
			forms["gzip"], forms["zstd"] = compressed(t, "gzip", data), compressed(t, "zstd", data)
		}
		for how, data := range forms {
			if got := allocated(func() { _, _ = readBytes2(data, raw.Options{}) }); got > 64<<20 {
				t.Errorf("%s, %s: allocated %d MiB", name, how, got>>20)
			}
		}
	}
}

// TestZipClaims opens zips whose directories claim more than they have.
func TestZipClaims(t *testing.T) {
	wacz := zipOf(t, "indexes/index.cdxj", `com,a)/ 20040511211249 {"url":"http://a.com/"}`+"\n")
	end := bytes.LastIndex(wacz, []byte("PK\x05\x06"))
	claim := bytes.Clone(wacz)
	binary.LittleEndian.PutUint16(claim[end+10:], 0xfffe)
	many := zipOf(t, slices.Repeat([]string{"pages/" + strings.Repeat("a", 200), ""}, 90_000)...)
	for name, data := range map[string][]byte{"a number of entries": claim, "many entries": many, "no directory": wacz[:end]} {
		var err error
		got := allocated(func() { _, err = New(bytes.NewReader(data), "a.wacz", raw.Options{}) })
		if !errors.Is(err, raw.ErrInput) || got > 64<<20 {
			t.Errorf("%s: error %v, allocated %d MiB", name, err, got>>20)
		}
	}
	// Members that overlap would be read as often as they are named.
	index := zipOf(t, "indexes/index.cdxj", strings.Repeat(`com,a)/ 20040511211249 {"url":"http://a.com/"}`+"\n", 100))
	if _, err := New(bytes.NewReader(directory(index, func(entries [][]byte) [][]byte { return slices.Repeat(entries, 1000) })),
		"a.wacz", raw.Options{}); !errors.Is(err, raw.ErrInput) {
		t.Errorf("members that overlap: error %v", err)
	}
	checkReader(t, "a.wacz", claim, raw.Options{})
	checkReader(t, "a.wacz", wacz, raw.Options{})
}

// TestARCOfOtherSchemes holds that records whose URLs are not of the web, such as the metadata of
// NetarchiveSuite, are rejects of their own, and that HTTP headers are no records.
func TestARCOfOtherSchemes(t *testing.T) {
	data := "filedesc://a.arc 0.0.0.0 20080602165933 text/plain 77\n1 0 InternetArchive\n" +
		"URL IP-address Archive-date Content-type Archive-length\n\n" +
		"metadata://example.org/setup?job=12 127.0.1.1 20080602165804 text/plain 1\n8\n" +
		"http://example.org/ 192.0.2.1 20080602165805 text/html 40\nHTTP/1.1 200 OK\nContent-Length: 0\n\nabcde\n" +
		"metadata://example.org/log 127.0.1.1 20080602165806 text/plain 0\n\n"
	r, err := New(strings.NewReader(data), "a.arc", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	// The reader passes any scheme on: lake/row rejects what is not of the web.
	for i, url := range []string{"metadata://example.org/setup?job=12 ", "http://example.org/ ", "metadata://example.org/log "} {
		if len(g.Rows) != 3 || !strings.Contains(g.Rows[i], url) {
			t.Fatalf("%+v", g)
		}
	}
}

// TestUTF16 holds that text in UTF-16 is read as the same text in UTF-8.
func TestUTF16(t *testing.T) {
	for name, text := range map[string]string{
		"a.csv": "id,url,title\r\n1,http://a.com/ä,\"𝄞, \"\"x\"\"\"\r\n2,http://b.com/,\r\n", "a.txt": "http://a.com/\nhttp://b.com/ b\n",
		"a.jsonl": `{"url":"http://a.com/"}` + "\n", "a.log": crawlLogOf(crawl()),
	} {
		want, _ := read(t, name, text, raw.Options{Extras: []string{"*"}})
		for encoding, order := range map[string]binary.AppendByteOrder{raw.UTF16LE: binary.LittleEndian, raw.UTF16BE: binary.BigEndian} {
			data := order.AppendUint16(nil, 0xfeff)
			for _, u := range utf16Of(text) {
				data = order.AppendUint16(data, u)
			}
			for _, data := range [][]byte{data, compressed(t, "gzip", data)} {
				got, plan := read(t, name, string(data), raw.Options{Extras: []string{"*"}})
				if diff := gocmp.Diff(want, got); diff != "" || plan.Encoding != encoding || plan.Ranged() {
					t.Errorf("%s in %s, read as %q (-want +got):\n%s", name, encoding, plan.Encoding, diff)
				}
				checkReader(t, name, data, raw.Options{})
			}
		}
	}
	changed, err := New(strings.NewReader("\xff\xfeh\x00"), "a", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(strings.NewReader("http://a/"), "a", changed.Plan()); !errors.Is(err, raw.ErrInput) {
		t.Errorf("opened as UTF-16: %v", err)
	}
}

func utf16Of(text string) []uint16 { return utf16.Encode([]rune(text)) }

// FuzzWARC reads damaged WARC files: what is read is the same however the bytes arrive, by New, by
// the plan and in batches, and no file makes its reader allocate much more than it has.
func FuzzWARC(f *testing.F) {
	captures := crawl()
	for i := range captures {
		captures[i].body = captures[i].body[:min(len(captures[i].body), 40)]
	}
	for how := range warcFiles {
		f.Add(writeWARC(f, how, captures), uint16(500))
	}
	f.Fuzz(func(t *testing.T, data []byte, maxLine uint16) {
		checkReader(t, "a.warc", data, raw.Options{MaxLine: int(maxLine) + 1})
		checkReader(t, "a.warc.gz", compressed(t, "gzip", data), raw.Options{Extras: []string{"*"}})
	})
}

// FuzzWACZ reads damaged zips.
func FuzzWACZ(f *testing.F) {
	captures := crawl()[:2]
	data := writeWARC(f, "gzip", captures)
	f.Add(zipOf(f, "archive/a.warc.gz", string(data), "indexes/index.cdx", cdxjOf(captures, "a.warc.gz")))
	f.Add(zipOf(f, "archive/a.warc.gz", string(data)))
	f.Fuzz(func(t *testing.T, data []byte) { checkReader(t, "a.wacz", data, raw.Options{}) })
}

// BenchmarkWARC reads pages of about 20 KiB, and their requests. Throughput counts stored bytes;
// made/s are the decompressed ones.
func BenchmarkWARC(b *testing.B) {
	var captures []capture
	var words strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&words, "<p>word %d and another %x</p>", i, i*2654435761)
	}
	text := words.String()
	for i := range 3000 {
		captures = append(captures, capture{kind: "response", url: fmt.Sprintf("http://h%d.example.com/%d", i%7, i), at: time.Unix(1_700_000_000+int64(i), 0),
			status: "200", mime: "text/html", digest: strings.Repeat("A", 32), body: text[i%300*100:][:20_000]})
	}
	plain := len(writeWARC(b, "plain", captures))
	for _, how := range []string{"plain", "gzip", "zstd"} {
		b.Run(how, func(b *testing.B) {
			data := writeWARC(b, how, captures)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, err := New(bytes.NewReader(data), warcFiles[how], raw.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if n := readInBatches(r, b); n != len(captures) {
					b.Fatalf("%d records", n)
				}
			}
			b.ReportMetric(float64(plain)*float64(b.N)/b.Elapsed().Seconds()/1e6, "made-MB/s")
		})
	}
}
