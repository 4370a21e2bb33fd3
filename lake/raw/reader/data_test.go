package reader

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// dataFiles returns the folder of real datasets, and for the path of each in it the number of rows
// that the README states.
//
// Two archives hold more than half of all rows. They are read with the tag soak.
func dataFiles(t *testing.T) (root string, rows map[string]int) {
	root = testenv.Shared(t, "data")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows = make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+/\S+) \| [\d,]+ \| ([\d,]+) \|`).FindAllSubmatch(readme, -1) {
		n, err := strconv.Atoi(strings.ReplaceAll(string(m[2]), ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		rows[string(m[1])] = n
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(root, path); err == nil && !e.IsDir() && name != "README.md" {
			if _, ok := rows[name]; !ok {
				t.Errorf("%s is not in README.md", name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 80 {
		t.Fatalf("%d files in README.md, want more than 80", len(rows))
	}
	if testenv.Every(2) > 1 {
		delete(rows, "eot2024/sitemap-url-seeds-a.tar.zst")
		delete(rows, "eot2024/sitemap-url-seeds-b.tar.zst")
	}
	return root, rows
}

// rejectedFiles are the datasets that are rejected, with a word of the reason.
var rejectedFiles = map[string]string{
	"eset-malware-ioc/misp-json.tar.zst":      "MISP",
	"free-programming-books/lists-md.tar.zst": "none of the 120 members",
	"elastic/apache_logs.log.gz":              "access log",
	"pywb/zipcdx_zipnum-sample.idx":           "ZipNum",
}

// otherRows are the datasets whose rows the README counts differently, and why.
var otherRows = map[string]struct {
	rows int
	why  string
}{
	"adblock-rust/matching-test-requests.json.gz":               {8276, "README counts strings that are URLs, here it is elements of the array"},
	"monosans/proxies.json.gz":                                  {492, "the same number counted as elements"},
	"cc-notebooks/truncated-records-CC-MAIN-2018.csv":           {413, "README counts the header"},
	"efixler/global_urls.csv.gz":                                {1861, "there is no header, README takes the first row for one"},
	"eot2024/PURL_server_domains_20240214.csv.gz":               {1693, "README counts the title line and the header"},
	"pywb/cdx_bad.cdx":                                          {4, "README counts the legend"},
	"pywb/cdx_dupes.cdx":                                        {12, "README counts the legend"},
	"pywb/cdx_iana.cdx":                                         {171, "README counts the legend"},
	"pywb/cdx_post-test.cdx":                                    {3, "README counts the legend"},
	"3dlnews/usa_2016_2024_pu5e.json.gz":                        {14080, "README counts strings that are URLs, here it is outlets"},
	"eot2020/US_Digital_Registry_records_excerpted_data.tsv.gz": {5214, "a cell has two URLs"},
	"eot2024/EDGI_EoT_Bulk_List_2025-01-16.csv.gz":              {4813, "cells have several URLs"},
	"eot2024/eot_lgbtqandmisc.txt":                              {4305, "lines have several URLs"},
	"gsa-govt-urls/1_govt_urls_full.csv.gz":                     {9226, "a cell has two URLs"},
	"adblock-rust/sitelist.txt.gz":                              {20603, "lines without a line break between them"},
	"eot2024/sitemap-url-seeds-a.tar.zst":                       {407122, "two lines without a line break between them"},
	"hackernews/hacker_news.csv.gz":                             {20102, "cells have a URL twice"},
	"pywb/zipcdx_zipnum-sample.cdx.gz":                          {188, "lines without a line break between them"},
	"wikiteam/mediawikis_2013.txt.gz":                           {35251, "two lines without a line break between them"},
	"specref/biblio.json.gz":                                    {1009, "here it is members of the object"},
	"specref/browser-specs.json.gz":                             {312, "here it is members of the object"},
	"specref/iso_jtc1_sc29.json.gz":                             {1402, "here it is members of the object"},
}

// wantRejects are the numbers of rejects by reason. All other datasets have none.
var wantRejects = map[string]map[string]int{
	"bitly/usagov_bitly.jsonl.gz":                                   {raw.NoURL: 120},                                        // heartbeats
	"eot2024/EDGI_EoT_Bulk_List_2025-01-16.csv.gz":                  {raw.NoURL: 6, raw.TextAfterURL: 2, raw.SeveralURLs: 1}, // empty cells
	"eot2024/Military-Departments-A-Z-List.csv.gz":                  {raw.BadCSV: 20},                                        // "2-14 Infantry "Golden Dragons" Ft. Drum, NY"; ?v=wall&amp;viewas=0%20,%20,%20,,COCOM
	"gsa-govt-urls/1_govt_urls_full.csv.gz":                         {raw.NoURL: 225},                                        // empty Link
	"hackernews/hacker_news.csv.gz":                                 {raw.NoURL: 2440},                                       // questions without a link
	"eot2024/US_Digital_Registry.csv.gz":                            {raw.TextAfterURL: 1},
	"eot2024/eot_lgbtqandmisc.txt":                                  {raw.TextAfterURL: 3},
	"eot2024/sitemap-url-seeds-b.tar.zst":                           {raw.SeveralURLs: 1}, // greene, hale, perry, & sumter county
	"gsa-federal-website-index/after-gov_mil-filter-removed.csv.gz": {raw.TextAfterURL: 1, raw.SeveralURLs: 4},
	"specref/biblio.json.gz":                                        {raw.NoURL: 480}, // aliases of other members
	"specref/browser-specs.json.gz":                                 {raw.NoURL: 16},
	"specref/iso_jtc1_sc29.json.gz":                                 {raw.NoURL: 252},
}

func TestRealDataIsReadWholeOrRejected(t *testing.T) {
	t.Parallel()
	root, want := dataFiles(t)
	for name, rows := range want {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(f, name, raw.Options{})
		if word := rejectedFiles[name]; word != "" {
			var fe *raw.FormatError
			if !errors.As(err, &fe) || !strings.Contains(fe.Reason, word) {
				t.Errorf("%s: got %v, want it rejected as %q", name, err, word)
			}
			f.Close()
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		rejects := map[string]int{}
		each := xxh3.New()
		for {
			rec, rej, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Error(err)
				break
			}
			if rej != nil {
				rejects[rej.Reason]++
				add(each, rej.Line, rej.Offset, rej.Member, rej.Reason)
			} else {
				add(each, rec.Line, rec.Offset, rec.Member, rec.URL)
			}
		}
		if got := sumOfBatches(t, f, name, r.Plan()); got != each.Sum64() {
			t.Errorf("%s: batches have other records", name)
		}
		f.Close()
		if o, ok := otherRows[name]; ok {
			rows = o.rows
		}
		c := r.Counts()
		if got := int(c.Records + c.Rejects); got != rows {
			t.Errorf("%s: %d records and rejects, want %d; counts %+v, plan %+v", name, got, rows, c, r.Plan())
		}
		want := wantRejects[name]
		if want == nil {
			want = map[string]int{}
		}
		if diff := cmp.Diff(want, rejects); diff != "" {
			t.Errorf("%s: rejects (-want +got):\n%s", name, diff)
		}
		if c.BadTS > 0 {
			t.Errorf("%s: %d times cannot be parsed", name, c.BadTS)
		}
	}
}

// sumOfBatches returns the hash of an object's records, read in batches.
func sumOfBatches(t *testing.T, f *os.File, name string, plan raw.Plan) uint64 {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, err := Open(f, name, plan)
	if err != nil {
		t.Fatal(err)
	}
	h := xxh3.New()
	recs := make([]raw.Record, 64)
	for {
		n, rej, err := r.NextBatch(recs)
		for i := range n {
			add(h, recs[i].Line, recs[i].Offset, recs[i].Member, recs[i].URL)
		}
		if rej != nil {
			add(h, rej.Line, rej.Offset, rej.Member, rej.Reason)
		}
		if err != nil {
			return h.Sum64()
		}
	}
}

// add adds a record or a reject to a hash.
func add[T string | []byte](h *xxh3.Hasher, line, offset int64, member string, what T) {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(line))
	binary.LittleEndian.PutUint64(b[8:], uint64(offset))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(what)))
	h.Write(b[:])
	h.WriteString(member)
	h.Write([]byte(what))
}

// rawBytes decompresses a file, with the standard library if that can.
func rawBytes(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	switch filepath.Ext(path) {
	case ".gz":
		r, err = gzip.NewReader(f)
	case ".zst":
		r, err = zstd.NewReader(f)
	case ".bz2":
		r = bzip2.NewReader(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimPrefix(b, []byte("\ufeff"))
}

// TestRealDataAgreesWithTheStandardLibrary compares the URLs with those that encoding/csv,
// encoding/json and bufio read.
func TestRealDataAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	root, names := dataFiles(t)
	seen := map[string]int{}
	for name := range names {
		if rejectedFiles[name] != "" {
			continue
		}
		path := filepath.Join(root, name)
		// The standard library takes long. Larger files are compared with the tag soak.
		if st, err := os.Stat(path); err != nil || st.Size() > 600<<10 && filepath.Ext(name) != ".parquet" && testenv.Every(2) > 1 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(f, name, raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			rec, _, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec != nil {
				got = append(got, string(rec.URL))
			}
		}
		f.Close()
		plan := r.Plan()
		seen[plan.Format]++
		if name == "pywb/zipcdx_zipnum-sample.cdx.gz" {
			continue // it has two lines without a line break between them
		}
		var want []string
		for _, field := range oracle(t, name, rawBytes(t, path), plan) {
			if slices.Contains(raw.CaptureFormats, plan.Format) {
				want = append(want, field)
			} else {
				want = append(want, testenv.FieldURLs(field)...)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d URLs, want %d", name, len(got), len(want))
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: URL %d is %q, want %q", name, i, got[i], want[i])
				break
			}
		}
	}
	for _, format := range []string{raw.Lines, raw.CSV, raw.TSV, raw.JSONLines, raw.JSON, raw.CDX, raw.CDXJ, raw.Parquet, raw.Tar} {
		if seen[format] == 0 && (format != raw.Tar || testenv.Every(2) == 1) {
			t.Errorf("no data in format %s", format)
		}
	}
}

// oracle reads the URLs of an object by its plan, with the standard library.
func oracle(t *testing.T, name string, object []byte, plan raw.Plan) []string {
	t.Helper()
	var urls []string
	add := func(s string) {
		if s = strings.Trim(s, " \t\r\n\v\f"); s != "" {
			urls = append(urls, s)
		}
	}
	var lines []string
	s := bufio.NewScanner(bytes.NewReader(object))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	member := func(text string, path []string) {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range path {
			m, _ := v.(map[string]any)
			v = m[p]
		}
		if s, ok := v.(string); ok {
			add(s)
		}
	}
	switch plan.Format {
	case raw.Tar:
		for tr := tar.NewReader(bytes.NewReader(object)); ; {
			_, err := tr.Next()
			if err == io.EOF {
				break
			}
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			urls = append(urls, oracle(t, name, bytes.TrimPrefix(b, []byte("\ufeff")), raw.Plan{Format: raw.Lines})...)
		}
	case raw.Parquet:
		f, err := pq.OpenFile(bytes.NewReader(object), int64(len(object)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		leaf, ok := f.Schema().Lookup(plan.URL.Name)
		if !ok {
			t.Fatalf("%s: no column %q", name, plan.URL.Name)
		}
		for _, g := range f.RowGroups() {
			rows := g.Rows()
			buf := make([]pq.Row, 100)
			for {
				n, err := rows.ReadRows(buf)
				for _, row := range buf[:n] {
					for _, v := range row {
						if v.Column() == leaf.ColumnIndex && !v.IsNull() {
							add(string(v.ByteArray()))
						}
					}
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			rows.Close()
		}
	case raw.Lines:
		for _, l := range lines {
			if strings.HasPrefix(strings.TrimSpace(l), "#") {
				continue
			}
			add(l)
		}
	case raw.JSONLines:
		for _, l := range lines {
			member(l, strings.Split(plan.URL.Name, "."))
		}
	case raw.JSON:
		if plan.Depth > 0 {
			level := []json.RawMessage{object}
			for range plan.Depth {
				var next []json.RawMessage
				for _, v := range level {
					next = append(next, children(t, v)...)
				}
				level = next
			}
			for _, v := range level {
				member(string(v), []string{plan.URL.Name})
			}
			break
		}
		var docs []json.RawMessage
		if err := json.Unmarshal(object, &docs); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, d := range docs {
			member(string(d), []string{plan.URL.Name})
		}
	case raw.CDX:
		for _, l := range lines {
			if f := strings.Split(l, " "); !strings.HasPrefix(l, " CDX") && len(f) == len(plan.Columns) {
				add(f[2])
			}
		}
	case raw.CDXJ:
		for _, l := range lines {
			member(strings.SplitN(l, " ", 3)[2], []string{"url"})
		}
	case raw.CSV, raw.TSV:
		if plan.Separator == "" {
			for i, l := range lines {
				if strings.HasPrefix(l, `"`) {
					l = strings.Trim(l, `"`)
				}
				if i >= plan.HeaderRow {
					add(l)
				}
			}
			break
		}
		cr := csv.NewReader(bytes.NewReader(object))
		cr.Comma = rune(plan.Separator[0])
		cr.FieldsPerRecord = -1
		if name == "eot2024/Military-Departments-A-Z-List.csv.gz" {
			// With LazyQuotes encoding/csv accepts any stray quote, without it none. The rows with
			// stray quotes, or commas in their URL, are therefore removed from its input.
			cut := regexp.MustCompile(`(?m)^([^"\n]*,"[^"\n]+"[A-Z]|\S*%20,%20,).*\n`).ReplaceAll(object, nil)
			if n := bytes.Count(object, []byte("\n")) - bytes.Count(cut, []byte("\n")); n != 20 {
				t.Fatalf("%d rows with stray quotes or commas, want 20", n)
			}
			cr = csv.NewReader(bytes.NewReader(cut))
			cr.FieldsPerRecord, cr.LazyQuotes = -1, true
		}
		for i := 0; ; i++ {
			row, err := cr.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if i >= plan.HeaderRow && plan.URL.Number <= len(row) {
				add(row[plan.URL.Number-1])
			}
		}
	}
	return urls
}

// children returns the elements of an array, or the values of an object in their order.
func children(t *testing.T, text []byte) []json.RawMessage {
	var out []json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	open, err := dec.Token()
	for err == nil && dec.More() {
		if open == json.Delim('{') {
			if _, err = dec.Token(); err != nil {
				break
			}
		}
		var v json.RawMessage
		if err = dec.Decode(&v); err == nil {
			out = append(out, v)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOwnData reads the files in testdata/, one for every format and compression. A file NAME.want
// has the expected plan and a line for every record, reject and count.
func TestOwnData(t *testing.T) {
	wants, err := filepath.Glob("testdata/*.want")
	if err != nil {
		t.Fatal(err)
	}
	if len(wants) < 8 {
		t.Fatalf("%d files in testdata, want at least 8", len(wants))
	}
	for _, path := range wants {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			object := strings.TrimSuffix(path, ".want")
			f, err := os.Open(object)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r, err := New(f, filepath.Base(object), raw.Options{Extras: []string{"*"}})
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			plan, _ := json.Marshal(r.Plan())
			fmt.Fprintf(&got, "%s\n", plan)
			g, err := readAll(r)
			for i, row := range g.Rows {
				fmt.Fprintf(&got, "%d: %s\n", g.Offsets[i], row)
			}
			fmt.Fprintf(&got, "%+v\n", g.Counts)
			if err != nil {
				fmt.Fprintln(&got, err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
