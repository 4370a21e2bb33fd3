//go:build soak

package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// realDatasets are someDatasets and larger ones.
var realDatasets = append(slices.Clip(someDatasets), []dataset{
	{"cdc-sitemap", []string{"eot2024/CDC_html_URLs_from_sitemap_data_-_20241201.csv.gz"}, nil, lines},
	{"crs-reports", []string{"eot2024/CRS_ReportsList.csv.gz"}, nil, lines},
	{"hackernews", []string{"hackernews/hacker_news.csv.gz"}, []string{"--url-column", "url"}, timed(2, 6, "1/2/2006 15:04")},
	{"federal-hosts", []string{"eot2024/ccf-gov-federal-web-graph-2024-jun-jul-aug.txt.zst"}, nil, lines},
	{"violations", []string{"eot2024/Violation_Tracker_unique_infosource_URLs.csv.gz"}, []string{"--url-column", "url"}, column(',', 0)},
	{"fda-downloads", []string{"eot2024/fda-download-urls.csv.zst"}, []string{"--url-column", "2"}, column(',', 1)},
	{"mediawikis", []string{"wikiteam/mediawikis_2013.txt.gz", "wikiteam/mediawikis_2020-alive.txt.gz", "wikiteam/mediawikis_pavlo.txt.gz"}, nil, lines},
	{"top-2018", []string{"buzzfeed/top_2018.csv.gz"}, []string{"--url-column", "url"}, timed(1, 3, time.DateOnly)},
	{"kasztp", []string{"ada-url/kasztp.txt.gz"}, nil, lines},
}...)

// spec returns the spec of a dataset's ingest. Its flags come from realDatasets or from
// moreDatasets.
func (d dataset) spec(lakeURL, batch string, inputs []string) ingest.Spec {
	s := ingest.Spec{Lake: lakeURL, Dataset: d.name, Batch: batch, Inputs: inputs, MaxRejectRate: 1}
	for i := 0; i+1 < len(d.flags) && strings.HasPrefix(d.flags[0], "--"); i += 2 {
		switch d.flags[i] {
		case "--url-column":
			s.URLColumn = d.flags[i+1]
		case "--ts-column":
			s.TSColumn = d.flags[i+1]
		}
	}
	if len(d.flags) > 0 && !strings.HasPrefix(d.flags[0], "--") {
		s.Format = d.flags[0]
		if len(d.flags) > 1 {
			s.URLColumn = d.flags[1]
		}
	}
	return s
}

// moreDatasets are the datasets of the real data that realDatasets lacks. Their flags are a format
// and, for some, the URL column.
var moreDatasets = []dataset{
	{"fdlp", []string{"eot2024/FDLP_WEb_Archiveseed_list_20240212.csv.gz"}, []string{"lines"}, lines},
	{"gov-sitemaps", []string{"eot2024/gov_sitemaps.csv.gz"}, []string{"lines"}, lines},
	{"cdc-downloads", []string{"eot2024/cdc-dataset-download-urls.txt.zst"}, []string{"lines"}, lines},
	{"cdc-datasets", []string{"eot2024/cdc-dataset-urls.csv.gz"}, []string{"csv", "2"}, column(',', 1)},
	{"data-catalog", []string{"eot2024/data_20250130_catalog_urls_empty-harvard-LiL.txt.zst"}, []string{"lines"}, lines},
	{"eot-misc", []string{"eot2024/eot_lgbtqandmisc.txt"}, []string{"lines"}, lines},
	{"fda-warnings", []string{"eot2024/fda-warnings-letters.csv.gz"}, []string{"csv", "2"}, column(',', 1)},
	{"govspeak", []string{"eot2024/govspeakurls1124.txt.gz"}, []string{"lines"}, lines},
	{"nih", []string{"eot2024/nih-urls.csv.zst"}, []string{"csv", "2"}, column(',', 1)},
	{"govdoc", []string{"eot2024/govdoc-l-seeds-2024.txt"}, []string{"lines"}, lines},
	{"powertodecide", []string{"eot2024/Seeds-powertodecide-20250110.txt"}, []string{"lines"}, lines},
	{"sitemap-seeds-a", []string{"eot2024/sitemap-url-seeds-a.tar.zst"}, []string{""}, tarOf(lines)},
	{"sitemap-seeds-b", []string{"eot2024/sitemap-url-seeds-b.tar.zst"}, []string{""}, tarOf(lines)},
	{"edgi-2020", []string{"eot2020/edgi-gov-seeds.csv", "eot2020/edgi-non-gov-mil-us-seeds.csv"}, []string{"csv", "1"}, column(',', 0)},
	{"gov-domains", []string{"gsa-federal-website-index/after-gov_mil-filter-removed.csv.gz"}, []string{"csv", "target_url"}, column(',', 0)},
	{"gsa-links", []string{"gsa-govt-urls/1_govt_urls_full.csv.gz"}, []string{"csv", "Link"}, column(',', 8)},
	{"wikis-2014", []string{"wikiteam/mediawikis_done_2014.txt.gz"}, []string{"lines"}, lines},
	{"shodan", []string{"wikiteam/shodan.txt.gz"}, []string{"lines"}, lines},
	{"wikispaces", []string{"wikiteam/wikispaces-duckduckgo.txt.gz"}, []string{"lines"}, lines},
	{"wikis-historical", []string{"wikiteam/historical.txt.gz"}, []string{"lines"}, lines},
	{"fact-check", []string{"buzzfeed/facebook-fact-check.csv.gz"}, []string{"csv", "Post URL"}, timed(4, 5, time.DateOnly)},
	{"global-urls", []string{"efixler/global_urls.csv.gz"}, []string{"csv", "2"}, column(',', 1)},
	{"truncated-records", []string{"cc-notebooks/truncated-records-CC-MAIN-2018.csv"}, []string{"csv", "url"}, column(',', 0)},
	{"images", []string{"img2dataset/test_10000.txt.gz"}, []string{"lines"}, lines},
	{"images-parquet", []string{"img2dataset/test_10000.parquet"}, []string{""}, parquetURL},
	{"stack", []string{"wimbd/stack_v1.2_urls.txt.gz"}, []string{"lines"}, lines},
	{"datacite", []string{"fatcat/datacite_1k_records.jsonl.gz"}, []string{"jsonl", "attributes.url"}, path2("attributes", "url", "created")},
	{"sitelist", []string{"adblock-rust/sitelist.txt.gz"}, []string{"lines"}, lines},
	{"matching", []string{"adblock-rust/matching-test-requests.json.gz"}, []string{"", "url"}, array("url")},
	{"wayback-cdx", []string{"ia-wayback/test-cdx.txt.gz"}, []string{""}, cdx},
	{"proxies", []string{"monosans/proxies_all.txt"}, []string{"lines"}, lines},
}

// path2 returns a reader of a member, and of one with times of RFC 3339, of an object that is a
// member of JSON Lines.
func path2(outer, inner, tsName string) func(io.Reader, func(string, string)) error {
	return func(r io.Reader, each func(rawURL, ts string)) error {
		dec := json.NewDecoder(r)
		for {
			var rec map[string]any
			if err := dec.Decode(&rec); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if m, ok := rec[outer].(map[string]any); ok {
				if u, ok := m[inner].(string); ok {
					ts := ""
					if text, ok := m[tsName].(string); ok {
						at, err := time.Parse(time.RFC3339, text)
						if err != nil {
							return err
						}
						ts = at.UTC().Format(tsLayout)
					}
					each(u, ts)
				}
			}
		}
	}
}

// array returns a reader of a member of the objects in a JSON array.
func array(name string) func(io.Reader, func(string, string)) error {
	return func(r io.Reader, each func(rawURL, ts string)) error {
		var all []map[string]any
		if err := json.NewDecoder(r).Decode(&all); err != nil {
			return err
		}
		for _, rec := range all {
			if u, ok := rec[name].(string); ok {
				each(u, "")
			}
		}
		return nil
	}
}

// cdx reads a CDX file of eleven fields. Captures of one URL at one time differ in the others.
func cdx(r io.Reader, each func(rawURL, ts string)) error {
	data, err := io.ReadAll(r)
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) >= 11 {
			at, err := time.Parse("20060102150405", f[1])
			if err != nil {
				return err
			}
			rest := append(slices.Clone(f[3:6]), f[8:]...) // type, status, digest; length, offset, file
			each(f[2], at.Format(tsLayout)+" "+strings.Join(rest, " "))
		}
	}
	return err
}

// tarOf returns a reader of a tar archive whose members have the reader member.
func tarOf(member func(io.Reader, func(string, string)) error) func(io.Reader, func(string, string)) error {
	return func(r io.Reader, each func(rawURL, ts string)) error {
		t := tar.NewReader(r)
		for {
			h, err := t.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if h.Typeflag == tar.TypeReg {
				if err := member(t, each); err != nil {
					return err
				}
			}
		}
	}
}

// parquetURL reads the column URL of a Parquet file.
func parquetURL(r io.Reader, each func(rawURL, ts string)) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	type row struct {
		URL string `parquet:"URL,optional"`
	}
	rows, err := parquet.Read[row](strings.NewReader(string(data)), int64(len(data)))
	for _, rec := range rows {
		each(rec.URL, "")
	}
	return err
}

// TestAllRealDataEqualsBruteForceAfterReingests makes one lake of all real datasets, in random
// order, over files and over S3. A third of the datasets are ingested with other content first and
// replaced. Then it compares a thousand domains with a brute-force scan.
func TestAllRealDataEqualsBruteForceAfterReingests(t *testing.T) {
	all := append(append([]dataset{}, realDatasets...), moreDatasets...)
	for _, over := range []string{"files", "S3"} {
		t.Run(over, func(t *testing.T) {
			lakeURL := "file://" + filepath.ToSlash(t.TempDir())
			if over == "S3" {
				lakeURL = testenv.S3(t)
			}
			store, err := blob.Open(t.Context(), lakeURL)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(7, 11))
			inputs := func(d dataset) (paths []string) {
				for _, f := range d.files {
					paths = append(paths, testenv.Shared(t, "data", f))
				}
				return paths
			}
			// A third of the datasets have the content of another dataset at first.
			replaced := map[int]bool{}
			for _, i := range rng.Perm(len(all)) {
				d := all[i]
				if i%3 == 0 {
					first := realDatasets[(i+4)%len(realDatasets)]
					s := first.spec(lakeURL, "b1", inputs(first))
					s.Dataset = d.name
					testlake.IngestSpec(t, store, s)
					replaced[i] = true
				} else {
					testlake.IngestSpec(t, store, d.spec(lakeURL, "b1", inputs(d)))
				}
				if rng.IntN(4) == 0 {
					testlake.Publish(t, store)
				}
			}
			testlake.Publish(t, store)
			for _, i := range rng.Perm(len(all)) {
				if replaced[i] {
					testlake.IngestSpec(t, store, all[i].spec(lakeURL, "b1", inputs(all[i])))
					if rng.IntN(4) == 0 {
						testlake.Publish(t, store)
					}
				}
			}
			done := testlake.Publish(t, store)

			bin, err := programs()
			if err != nil {
				t.Fatal(err)
			}
			u := &urlake{lake: lakeURL, bin: bin, env: os.Environ()}
			u.serve(t)
			truth := scan(t, all)
			domains := pick(truth, 300, 650, 50)
			rows, total := 0, 0
			for _, domain := range domains {
				rows += u.compare(t, domain, truth[domain])
			}
			for _, sets := range truth {
				for _, items := range sets {
					total += len(items)
				}
			}
			t.Logf("version %s: %d datasets, %d rows; %d of %d domains with %d rows equal brute force",
				done.Version, len(all), total, len(domains), len(truth), rows)
		})
	}
}
