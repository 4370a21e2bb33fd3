package reader

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// TestCases reads small inputs made after reports about other programs.
func TestCases(t *testing.T) {
	root := testenv.Shared(t, "cases")
	for _, tc := range []struct {
		file    string
		records int // URLs
		rejects map[string]int
		rows    []string // the first ones
	}{
		{"times-of-reduced-precision/year.csv", 200, nil,
			[]string{"2 https://site1.example.org/p ts=820454400000", "3 https://site2.example.org/p ts=852076800000"}},
		{"times-of-reduced-precision/variableSizedDates.warc", 4, nil, []string{
			`0 http://memento.us/ ts=1388534400000`}},
		{"tabs-between-urls/aria2.txt", 117, nil, []string{"1 https://site1.example.org/p1",
			"1 http://mirror.example.net/p1", "2 out=f1"}},
		{"trailing-comment/seeds2.txt", 20, nil, []string{"1 https://a1.example.org/", "2 https://b1.example.org/x"}},
		{"several-urls-in-a-cell/w3act.csv", 200, nil, []string{
			"2 http://a1.example.org/ ts=1374505321000", "2 https://b1.example.net/ ts=1374505321000",
			"2 https://c1.example.com/x ts=1374505321000", "3 http://a2.example.org/ ts=1374505322000"}},
		{"reversed-hosts/ranks.txt", 399, nil, []string{"2 alw.ac", "3 bullseye.ac", "4 blog.can.ac"}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			object, err := os.ReadFile(filepath.Join(root, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			r, err := New(bytes.NewReader(object), tc.file, raw.Options{Extras: []string{raw.None}})
			if err != nil {
				t.Fatal(err)
			}
			g, err := readAll(r)
			rejects := int(g.Counts.Rejects)
			want := 0
			for _, n := range tc.rejects {
				want += n
			}
			if err != nil || int(g.Counts.Records) != tc.records || rejects != want || g.Counts.BadTS != 0 {
				t.Errorf("%+v, error %v; want %d records, rejects %v", g.Counts, err, tc.records, tc.rejects)
			}
			if diff := cmp.Diff(tc.rows, g.Rows[:len(tc.rows)]); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			checkReader(t, tc.file, object, raw.Options{})
		})
	}
}
