package format

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

func TestAppendTime(t *testing.T) {
	for _, ms := range []int64{
		0, -1, 1, 999, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999, -62_167_219_200_000,
	} {
		want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
		if got := string(AppendTime(nil, ms)); got != want {
			t.Errorf("%d: got %s, want %s", ms, got, want)
		}
	}
}

func TestAccepted(t *testing.T) {
	for header, want := range map[string]Format{
		"": JSON, "*/*": JSON, "text/csv": CSV, "application/x-ndjson": NDJSON, "application/ndjson": NDJSON,
		"text/plain": Text, "image/png": JSON, "text/*": CSV, "application/json, text/csv": JSON,
		"application/json;q=0.5, TEXT/CSV;q=0.9": CSV, "text/csv;q=0, text/plain;q=0.1": Text,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": JSON,
		"text/csv; header=present; q=nonsense":                            JSON,
		"*/*;q=0.1, application/x-ndjson":                                 NDJSON,
	} {
		if got := Accepted(header); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, f := range All {
		if got, err := Parse(string(f)); got != f || err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	if _, err := Parse("xml"); err == nil {
		t.Error("xml is a format")
	}
	for _, tc := range []struct {
		names  string
		unique bool
	}{{"url,", false}, {"URL", false}, {"url,url", false}, {"rows", false}, {"ts", true}, {"size", true}, {" url", false}} {
		if _, err := ParseFields(tc.names, tc.unique); err == nil {
			t.Errorf("%+v: no error", tc)
		}
	}
	for _, unique := range []bool{false, true} {
		all := strings.Join(Names(unique), ",")
		list, err := ParseFields(all, unique)
		if err != nil || strings.Join(list.Names(), ",") != all {
			t.Errorf("%s: %v", all, err)
		}
	}
}

// Every format has the same values, read back by other decoders.
func TestFormatsAgree(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "https://example.com:8443/a,b?q=%22x%22", TS: 1_700_000_000_123, HasTS: true, Size: 10, HasSize: true},
		{URL: "http://[2001:db8::1]:81/x"}, {URL: "http://[2001:db8::1]/"}, {URL: "ftp://www.example.com/"},
		{URL: `https://b.example.com/a,"b"`},
	})
	testlake.Publish(t, store)
	s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	rows := 0
	for _, unique := range []bool{false, true} {
		list, err := ParseFields(strings.Join(Names(unique), ","), unique)
		if err != nil {
			t.Fatal(err)
		}
		for _, domain := range []string{"example.com", "[2001:db8::1]"} {
			target, err := lookup.ParseTarget("http://" + domain)
			if err != nil {
				t.Fatal(err)
			}
			page, err := snap.URLs(t.Context(), lookup.URLsQuery{
				Target: target, Dataset: 1, Unique: unique, Columns: list.Columns(), Limit: 10,
			})
			if err != nil {
				t.Fatal(err)
			}
			written := func(f Format) []byte {
				stream, text := NewStream(f, list)
				for i := range page.Len() {
					if text, err = stream.Append(text, page, i); err != nil {
						t.Fatal(err)
					}
				}
				if text, err = stream.End(text); err != nil {
					t.Fatal(err)
				}
				return text
			}
			text := written(CSV)
			records := readParquet(t, written(Parquet))
			table, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
			if err != nil || len(table) != 1+page.Len() {
				t.Fatalf("%s\n%v", text, err)
			}
			for i := range page.Len() {
				rows++
				line := Append(nil, NDJSON, list, page, i)
				if object := Append(nil, JSON, list, page, i); string(object)+"\n" != string(line) {
					t.Errorf("JSON %s, NDJSON %s", object, line)
				}
				if got := string(Append(nil, Text, nil, page, i)); got != string(page.URL(i))+"\n" {
					t.Errorf("text %q", got)
				}
				var got map[string]any
				if err := json.Unmarshal(line, &got); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), string(page.URL(i)))
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]any{
					"url": u.String(), "url_id": urlnorm.FormatID(urlnorm.URLID([]byte(u.String()))), "scheme": u.Scheme,
					"host": u.Host, "domain": u.Domain, "path": u.PathQuery, "port": nil,
				}
				if u.Port >= 0 {
					want["port"] = float64(u.Port)
				}
				ts := any(nil)
				if u.Port == 8443 {
					ts = "2023-11-14T22:13:20.123Z"
				}
				if unique {
					want["rows"], want["first_ts"], want["last_ts"] = 1.0, ts, ts
				} else {
					want["ts"], want["batch"], want["size"], want["extras"], want["raw_url"] = ts, "b1", nil, nil, nil
					if u.Port == 8443 {
						want["size"] = 10.0
					}
				}
				if raw := got["raw_url"]; raw != nil {
					want["raw_url"] = raw
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				id, err := strconv.ParseUint(want["url_id"].(string), 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				want["url_id"] = float64(int64(id))
				if diff := cmp.Diff(want, records[i]); diff != "" {
					t.Errorf("Parquet (-want +got):\n%s", diff)
				}
				for j, name := range table[0] {
					cell, _ := json.Marshal(table[1+i][j])
					if value, _ := json.Marshal(got[name]); string(value) != string(cell) && string(value) != table[1+i][j] &&
						!(got[name] == nil && table[1+i][j] == "") {
						t.Errorf("%s: %s in JSON, %q in CSV", name, value, table[1+i][j])
					}
				}
			}
		}
	}
	if rows != 10 {
		t.Errorf("%d rows", rows)
	}
}

// readParquet reads a file by another library than the one that wrote it.
func readParquet(t *testing.T, data []byte) (records []map[string]any) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	table, err := fr.ReadTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Release()
	batches := array.NewTableReader(table, -1)
	defer batches.Release()
	for batches.Next() {
		text, err := batches.RecordBatch().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var some []map[string]any
		if err := json.Unmarshal(text, &some); err != nil {
			t.Fatal(err)
		}
		records = append(records, some...)
	}
	return records
}

func TestQuoteCSV(t *testing.T) {
	values := []string{"", "a", "a,b", `"`, "a\nb", "a\rb", " a", `{"a":"b, c"}`}
	var line []byte
	for i, v := range values {
		if i > 0 {
			line = append(line, ',')
		}
		start := len(line)
		line = quoteCSV(append(line, v...), start)
	}
	got, err := csv.NewReader(strings.NewReader(string(line))).Read()
	if diff := cmp.Diff(values, got); err != nil || diff != "" {
		t.Errorf("%s: %v\n%s", line, err, diff)
	}
}
