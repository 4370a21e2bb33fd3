package reader

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// TestTimesOfRealData holds which time is read of real files without being asked for, how many of
// the records have it, and what the notes say.
func TestTimesOfRealData(t *testing.T) {
	root := testenv.Shared(t, "data")
	for _, tc := range []struct {
		file, column, format string
		timed, first         int64  // records with a time; the first's, in seconds
		note                 string // a part of the notes
	}{
		{"bitly/usagov_bitly.jsonl.gz", "t", "", 3440, 1331923247, `"hc" looks like a time too`},
		{"hackernews/hacker_news.csv.gz", "created_at", "%m/%d/%Y %H:%M", 17662, 1470311520, `from "created_at" by %m/%d/%Y %H:%M`},
		{"wimbd/c4-sample.json.gz", "date", "", 1000, 0, `from "date"`},
		{"buzzfeed/top_2018.csv.gz", "published_date", "", 13961, 0, `from "published_date"`},
		{"fatcat/datacite_1k_records.jsonl.gz", "attributes.created", "", 1000, 0, `"attributes.updated"`},
		{"pywb/cdx_iana.cdx", "timestamp", "", 171, 1390766784, ""},
		{"eot2024/cdc-dataset-urls.csv.gz", "", "", 0, 0, ""},
		{"monosans/proxies.json.gz", "", "", 0, 0, ""},
	} {
		f, err := os.Open(filepath.Join(root, tc.file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := New(f, tc.file, raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := r.Plan()
		column := ""
		if p.TS != nil {
			column = p.TS.Name
		}
		var timed, first int64
		for {
			rec, _, err := r.Next()
			if err != nil {
				break
			}
			if rec != nil && rec.HasTS {
				if timed++; timed == 1 {
					first = rec.TS / 1000
				}
			}
		}
		notes := strings.Join(p.Notes, "\n")
		if column != tc.column || p.TSFormat != tc.format || timed != tc.timed || tc.first != 0 && first != tc.first || !strings.Contains(notes, tc.note) {
			t.Errorf("%s: %q by %q, %d records with a time, the first %d, notes %q; want %+v", tc.file, column, p.TSFormat, timed, first, notes, tc)
		}
		if tc.note == "" && strings.Contains(notes, "time") {
			t.Errorf("%s: notes %q", tc.file, notes)
		}
	}
}

// TestTimes holds which column is the time, and what the notes say of others.
func TestTimes(t *testing.T) {
	rows := func(header, row string, n int) string {
		var b strings.Builder
		b.WriteString(header)
		for i := range n {
			b.WriteString(strings.ReplaceAll(row, "#", fmt.Sprintf("%02d", i%28+1)))
		}
		return b.String()
	}
	for _, tc := range []struct {
		name, text, column string
		opt                raw.Options
		note               string
	}{
		{"capture before others", rows("url,created,crawl_date\n", "http://a/#,2020-01-#,2024-05-#\n", 3), "crawl_date", raw.Options{}, `"created" looks like a time too`},
		{"by its values, without a header", rows("", "http://a/#\t2024-05-#T07:08:09Z\n", 3), "2", raw.Options{}, `from "2"`},
		{"by its values, under a name of its own", rows("url,x\n", "http://a/#,2024-05-#\n", 3), "x", raw.Options{}, `from "x"`},
		{"two by their values", rows("url,x,y\n", "http://a/#,2024-05-#,2024-06-#\n", 3), "", raw.Options{}, `no time is read, so that equal URLs become one row; "x", "y" look like times`},
		{"numbers like times", rows("url,id\n", "http://a/#,17149792#\n", 30), "", raw.Options{}, `"id" looks like a time (`},
		{"few of them", rows("url,id\n", "http://a/#,17149792#\n", 3), "", raw.Options{}, ""},
		{"milliseconds", rows("url,time\n", "http://a/#,17149792#123\n", 3), "time", raw.Options{}, ""},
		{"seconds into a film", rows("url,time\n", "http://a/#,#\n", 3), "", raw.Options{}, ""},
		{"a day that can be a month", rows("url,date\n", "http://a/#,02/0#/2024\n", 0) + "http://a/,02/03/2024\nhttp://b/,04/05/2024\n", "", raw.Options{}, `"date" looks like a time`},
		{"a day that cannot", "url,date\nhttp://a/,02/13/2024\nhttp://b/,4/5/2024\n", "date", raw.Options{}, "%m/%d/%Y"},
		{"of birth", rows("url,date of birth\n", "http://a/#,17149792#\n", 3), "", raw.Options{}, ""},
		{"none", rows("url,date\n", "http://a/#,2024-05-#\n", 3), "", raw.Options{TSColumn: raw.None}, ""},
		{"years", "url,year\nhttp://a/,2016\nhttp://b/,1999\n", "year", raw.Options{}, `from "year"`},
		{"months", "url,month\nhttp://a/,201603\nhttp://b/,199912\n", "month", raw.Options{}, `from "month"`},
		{"months of a year", "url,month\nhttp://a/,3\nhttp://b/,12\n", "", raw.Options{}, ""},
		{"hours", "url,time\nhttp://a/,2016030112\nhttp://b/,2016030113\n", "time", raw.Options{}, "by %Y%m%d%H"},
		{"numbers of years", `{"url":"http://a/","year":2016}` + "\n" + `{"url":"http://b/","year":1999.0}` + "\n", "year", raw.Options{}, `from "year"`},
		{"most values are times", rows("url,date\n", "http://a/#,2024-05-#\n", 9) + "http://b/,unknown\n", "date", raw.Options{}, `from "date"`},
		{"numbers of days", rows("url,date\n", "http://a/#,424#\n", 3), "", raw.Options{}, `"date" is a time by its name, and holds "42401"`},
		{"digits of no date", rows("url,ts\n", "http://a/#,201602#000000\n", 28) + "http://a/,20160230000000\n", "ts", raw.Options{}, ""},
		{"in words", "url,date\nhttp://a/,in spring\nhttp://b/,in autumn\n", "", raw.Options{}, `"date" is a time by its name, and holds "in spring"`},
		{"in the object of the URL", `{"a":{"url":"http://a/","seen_at":"2024-05-06"},"b":{"date":"2024-05-06"}}` + "\n" + `{"a":{"url":"http://b/","seen_at":"2024-05-06"},"b":{"date":"2024-05-06"}}` + "\n", "a.seen_at", raw.Options{}, `from "a.seen_at"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, plan := read(t, "a", tc.text, tc.opt)
			column := ""
			if plan.TS != nil {
				column = plan.TS.Name
			}
			notes := strings.Join(plan.Notes, "\n")
			if column != tc.column || !strings.Contains(notes, tc.note) || tc.note == "" && column == "" && strings.Contains(notes, "time") {
				t.Errorf("the time is %q, notes %q; want %q, %q", column, notes, tc.column, tc.note)
			}
		})
	}
}

// TestQualifiedNames holds that a name that says what else the URL is gives way to any other.
func TestQualifiedNames(t *testing.T) {
	for header, want := range map[string]string{
		"id,fact_check_url,news_url":  "news_url",
		"id,image_url,link":           "link",
		"id,thumbnail_url,page_link":  "page_link",
		"id,logo_url,website":         "website",
		"id,author_url,domain":        "domain",
		"id,image_url,proof_url":      "image_url",
		"id,archive_url,original_url": "original_url",
		"id,Canonical Link,Address":   "Address",
		"id,address,website":          "website",
		"id,address,hostname":         "hostname",
	} {
		_, plan := read(t, "a.csv", header+"\n1,http://a.com/1,http://b.com/1\n2,http://a.com/2,http://b.com/2\n", raw.Options{})
		if plan.URL.Name != want {
			t.Errorf("%s: the URL is %q, want %q", header, plan.URL.Name, want)
		}
		_, plan = read(t, "a.jsonl", fmt.Sprintf(`{"%s":"http://a.com/","%s":"http://b.com/"}`, strings.Split(header, ",")[1], strings.Split(header, ",")[2])+"\n", raw.Options{})
		if plan.URL.Name != want {
			t.Errorf("JSON, %s: the URL is %q, want %q", header, plan.URL.Name, want)
		}
	}
}

// TestTheFirstRowIsDataOrNames reads tables whose first row has no URL: its cells tell whether it
// names the columns, or is a row with a damaged URL.
func TestTheFirstRowIsDataOrNames(t *testing.T) {
	for first, header := range map[string]int{
		"Adresse,Besuche,Stand":            1,
		"Adresse (z.B. www),2019,Stand":    1,
		"0,1,2":                            1,
		"Adresse,,":                        1,
		"https:/a.com/0,7,2020-01-02":      0,
		"see https://a.com/0,7,2020-01-02": 0,
		"Our page,7,":                      0,
		"Our page,,2020-01-02":             0,
		"https,//a.com/0,2020-01-02":       0,
	} {
		for name, sep := range map[string]string{"a.csv": ",", "a.tsv": "\t", "b.csv": ";"} {
			table := first + "\nhttps://a.com/1,7,2020-01-02\nhttps://a.com/2,12,2020-01-03\nhttps://a.com/3,5,2020-01-04\n"
			g, p := read(t, name, strings.ReplaceAll(table, ",", sep), raw.Options{Extras: []string{raw.None}})
			if p.HeaderRow != header || len(g.Rows) < 4-header {
				t.Errorf("%q in %s: header %d, rows %q", first, name, p.HeaderRow, g.Rows)
			}
		}
	}
}
