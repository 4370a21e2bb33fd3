// Package e2e tests urlake as its users run it: the programs as separate processes, with Temporal's
// dev server and a real S3 server. It compares what the read server answers about real data with a
// brute-force scan of the raw files, kills processes, and runs the commands of the documents. It
// has only tests; those with the build tag soak take long.
package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// dataset is one dataset of the real data, with the flags to ingest it and the oracle's reader.
type dataset struct {
	name   string
	files  []string // below shared/data
	flags  []string // of starter ingest; see dataset.spec for moreDatasets
	oracle func(r io.Reader, each func(rawURL, ts string)) error
}

// someDatasets has lists, tables and JSON, with and without times, in several compressions.
var someDatasets = []dataset{
	{"edgi-bulk", []string{"eot2024/EDGI_EoT_Bulk_List_2025-01-16.csv.gz"}, []string{"--url-column", "url"}, column(',', 0)},
	{"roundup", []string{"eot2024/RoundupListsforEOT.txt.zst"}, nil, lines},
	{"digital-registry", []string{"eot2024/US_Digital_Registry.csv.gz"}, []string{"--url-column", "link"}, timed(5, 4, time.DateOnly)},
	{"sitemaps", []string{"eot2024/sitemaps.txt.zst"}, nil, lines},
	{"digital-registry-2020", []string{"eot2020/US_Digital_Registry_records_excerpted_data.tsv.gz"}, []string{"--url-column", "service_url"}, column('\t', 0)},
	{"smallweb", []string{"kagi-smallweb/smallweb.txt.gz", "kagi-smallweb/smallyt.txt"}, nil, lines},
	{"usagov-clicks", []string{"bitly/usagov_bitly.jsonl.gz"}, []string{"--url-column", "u", "--ts-column", "t"}, member("u", "t")},
	{"c4-sample", []string{"wimbd/c4-sample.json.gz"}, []string{"--url-column", "url"}, member("url", "date")},
}

// The oracle's readers share no code with lake/raw. They yield a URL and its time; behind a blank
// may follow what else tells two rows apart.

// lines reads one URL a line.
func lines(r io.Reader, each func(rawURL, ts string)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := strings.TrimPrefix(s.Text(), "\ufeff")
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			each(line, "")
		}
	}
	return s.Err()
}

// column returns a reader of column i, from 0, of CSV or TSV.
func column(comma rune, i int) func(io.Reader, func(string, string)) error {
	return table(comma, i, func([]string) string { return "" })
}

// timed returns a reader of the columns url and at, from 0, of CSV. The second holds times of the
// layout.
func timed(url, at int, layout string) func(io.Reader, func(string, string)) error {
	return table(',', url, func(rec []string) string {
		if at >= len(rec) {
			return ""
		}
		ts, err := time.Parse(layout, rec[at])
		if err != nil {
			return ""
		}
		return ts.Format(tsLayout)
	})
}

// tsLayout is the form of the times in answers.
const tsLayout = "2006-01-02T15:04:05.000Z"

// table returns a reader of column i of CSV or TSV, and of a time in the same record.
func table(comma rune, i int, ts func(rec []string) string) func(io.Reader, func(string, string)) error {
	return func(r io.Reader, each func(rawURL, ts string)) error {
		c := csv.NewReader(r)
		c.Comma, c.FieldsPerRecord, c.LazyQuotes = comma, -1, comma == '\t'
		for {
			rec, err := c.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if i < len(rec) {
				each(rec[i], ts(rec))
			}
		}
	}
}

// member returns a reader of members of JSON Lines. tsName names seconds since the
// epoch or times of RFC 3339, or is "".
func member(urlName, tsName string) func(io.Reader, func(string, string)) error {
	return func(r io.Reader, each func(rawURL, ts string)) error {
		s := bufio.NewScanner(r)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			var rec map[string]any
			if json.Unmarshal(s.Bytes(), &rec) != nil {
				continue
			}
			u, ok := rec[urlName].(string)
			if !ok {
				continue
			}
			ts := ""
			switch v := rec[tsName].(type) {
			case float64:
				ts = time.UnixMilli(int64(v * 1000)).UTC().Format(tsLayout)
			case string:
				if at, err := time.Parse(time.RFC3339, v); err == nil {
					ts = at.UTC().Format(tsLayout)
				}
			}
			each(u, ts)
		}
		return s.Err()
	}
}

// unpack returns the decompressed content of a file.
func unpack(t *testing.T, file string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r io.Reader = bytes.NewReader(data)
	switch path.Ext(file) {
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".zst":
		r, err = zstd.NewReader(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// item is one row of an answer.
type item struct {
	URL string `json:"url"`
	TS  string `json:"ts"`
}

func compareItems(a, b item) int { return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.TS, b.TS)) }

// scan is the oracle. It returns the rows of each domain and dataset name, sorted.
func scan(t *testing.T, sets []dataset) map[string]map[string][]item {
	t.Helper()
	type row struct {
		item
		rest string
	}
	found := map[string]map[string]map[row]bool{}
	for _, d := range sets {
		for _, f := range d.files {
			one := func(raw, ts string) {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), raw)
				if err != nil {
					return
				}
				if found[u.Domain] == nil {
					found[u.Domain] = map[string]map[row]bool{}
				}
				if found[u.Domain][d.name] == nil {
					found[u.Domain][d.name] = map[row]bool{}
				}
				ts, rest, _ := strings.Cut(ts, " ")
				found[u.Domain][d.name][row{item{u.String(), ts}, rest}] = true
			}
			err := d.oracle(unpack(t, testenv.Shared(t, "data", f)), func(field, ts string) {
				for _, url := range testenv.FieldURLs(field) {
					one(url, ts)
				}
			})
			if err != nil {
				t.Fatalf("oracle: %s: %v", f, err)
			}
		}
	}
	out := map[string]map[string][]item{}
	for domain, sets := range found {
		out[domain] = map[string][]item{}
		for name, rows := range sets {
			for r := range rows {
				out[domain][name] = append(out[domain][name], r.item)
			}
			slices.SortFunc(out[domain][name], compareItems)
		}
	}
	return out
}

// pick returns the domains to look up: the largest, a sample of the others, and some that do not
// exist.
func pick(truth map[string]map[string][]item, largest, sample, absent int) []string {
	type sized struct {
		domain string
		rows   int
	}
	var all []sized
	for d, sets := range truth {
		n := 0
		for _, rows := range sets {
			n += len(rows)
		}
		all = append(all, sized{d, n})
	}
	slices.SortFunc(all, func(a, b sized) int { return cmp.Or(cmp.Compare(b.rows, a.rows), cmp.Compare(a.domain, b.domain)) })
	var picked []string
	for _, s := range all[:min(largest, len(all))] {
		picked = append(picked, s.domain)
	}
	rest := all[min(largest, len(all)):]
	rng := rand.New(rand.NewPCG(1, 2))
	for _, i := range rng.Perm(len(rest))[:min(sample, len(rest))] {
		picked = append(picked, rest[i].domain)
	}
	for i := range absent {
		picked = append(picked, fmt.Sprintf("no-such-domain-%d.example", i))
	}
	return picked
}

// TestRealDatasetsEqualBruteForceOverS3WithEveryPoolAProcess ingests real data, serves it, and
// compares a sample of domains with the oracle. TestAllRealDataEqualsBruteForceAfterReingests has
// all of it.
func TestRealDatasetsEqualBruteForceOverS3WithEveryPoolAProcess(t *testing.T) {
	t.Parallel()
	root := testenv.NewS3Server(t).NewBucketURL(t)
	raw, err := blob.Open(context.Background(), root+"/raw")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range someDatasets {
		for _, f := range d.files {
			data, err := os.ReadFile(testenv.Shared(t, "data", f))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.Put(context.Background(), f, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	u := start(t, root+"/lake", [][]string{{"control"}, {"normalize"}, {"write"}, {"index"}, {"publish"}, {"background"}})
	for _, d := range someDatasets {
		args := append([]string{"ingest", "--lake", u.lake, "--dataset", d.name, "--batch", "b1", "--json", "--wait",
			"--max-reject-rate", "0.9"}, d.flags...)
		for _, f := range d.files {
			args = append(args, root+"/raw/"+f)
		}
		var res struct {
			Version string
			Records int64
			Rows    int64
		}
		u.starterJSON(t, &res, args...)
		if res.Version == "" || res.Rows == 0 {
			t.Fatalf("%s: ingest ended with %+v", d.name, res)
		}
	}
	u.serve(t)
	truth := scan(t, someDatasets)
	domains := pick(truth, 100, 150, 50)
	rows := 0
	for _, domain := range domains {
		rows += u.compare(t, domain, truth[domain])
	}
	t.Logf("%d of %d domains equal brute force, %d rows of %d datasets", len(domains), len(truth), rows, len(someDatasets))
}

// client returns a client of the server. It does not repeat what the server refuses.
func (u *urlake) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(u.base, client.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// domain asks the server which datasets contain a domain.
func (u *urlake) domain(t *testing.T, domain, version string) *client.Domain {
	t.Helper()
	var d *client.Domain
	until(t, "the server has read of the version", func(ctx context.Context) (err error) {
		d, err = u.client(t).Domain(ctx, domain, client.Query{Version: version})
		return err
	})
	return d
}

// urls returns the rows that a dataset has of a domain, in their order.
func (u *urlake) urls(t *testing.T, domain, dataset string, opt client.URLsOptions) (items []item) {
	t.Helper()
	for row, err := range u.client(t).URLs(t.Context(), domain, dataset, opt) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, itemOf(&row))
	}
	return items
}

func itemOf(row *client.URL) item {
	i := item{URL: row.URL}
	if row.Time != nil {
		i.TS = row.Time.Format("2006-01-02T15:04:05.000Z")
	}
	return i
}

// compare checks the answers about one domain against want, by dataset name: its datasets and
// counts, and of each dataset every page by cursor and one page by offset. It returns the number of
// rows.
func (u *urlake) compare(t *testing.T, domain string, want map[string][]item) (rows int) {
	t.Helper()
	d := u.domain(t, domain, "")
	got := map[string]int{}
	for _, s := range d.Datasets {
		got[s.Name] = int(s.Rows)
	}
	counts := map[string]int{}
	for name, items := range want {
		counts[name] = len(items)
	}
	if diff := gocmp.Diff(counts, got); diff != "" {
		t.Errorf("%s: datasets and counts (-brute force +served):\n%s", domain, diff)
		return 0
	}
	for _, s := range d.Datasets {
		of := client.URLsOptions{Query: client.Query{Version: d.Version}, PageSize: 5000}
		var all []item
		for p, err := range u.client(t).URLPages(t.Context(), domain, s.Name, of) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Total == nil || *p.Total != int64(len(want[s.Name])) {
				t.Fatalf("%s in %s: total %v, want %d", domain, s.Name, p.Total, len(want[s.Name]))
			}
			for i := range p.Items {
				all = append(all, itemOf(&p.Items[i]))
			}
		}
		if n := len(all); n > 3 {
			of.Offset, of.PageSize = int64(n/2), 2
			for p, err := range u.client(t).URLPages(t.Context(), domain, fmt.Sprint(s.DatasetID), of) {
				if err != nil {
					t.Fatal(err)
				}
				var page []item
				for i := range p.Items {
					page = append(page, itemOf(&p.Items[i]))
				}
				if diff := gocmp.Diff(all[n/2:min(n, n/2+2)], page); diff != "" {
					t.Errorf("%s in %s: page at %d (-list +page):\n%s", domain, s.Name, n/2, diff)
				}
				break
			}
		}
		rows += len(all)
		sorted := slices.Clone(all)
		slices.SortFunc(sorted, compareItems)
		if diff := gocmp.Diff(want[s.Name], sorted); diff != "" {
			t.Errorf("%s in %s (-brute force +served):\n%.2000s", domain, s.Name, diff)
		}
	}
	return rows
}
