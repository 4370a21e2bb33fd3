package many

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/ingest"
)

func TestDatasetNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		path string // below the input
		file bool
		want string // "" for an error
	}{
		{"seeds-2024.txt", true, "seeds-2024"},
		{"seeds-2024.csv.gz", true, "seeds-2024"},
		{"CC-MAIN-2024-10.CDX.ZST", true, "CC-MAIN-2024-10"},
		{"v1.2.txt", true, "v1.2"},
		{"v1.2", true, "v1.2"},
		{"2024/10/seeds.txt", true, "2024-10-seeds"},
		{"list (2) – neu.txt", true, "list-2-neu"},
		{"_hidden.txt", true, "hidden"},
		{"a b.txt", true, "a-b"},
		{"trailing-.txt", true, "trailing"},
		{"under_score.tar.gz", true, "under_score"},
		{".gz", true, "gz"},
		{"news.txt", false, "news.txt"},    // a folder
		{"100 %.txt", true, "dataset-100"}, // not an id
		{"20241201.csv.gz", true, "dataset-20241201"},
		{"日本.txt", true, ""},
		{"-.txt", true, ""},
		{long + ".txt", true, strings.Repeat("x", 111) + "-"},
	} {
		got, err := DatasetName(strings.Split(c.path, "/"), c.file, false)
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), c.path)):
			t.Errorf("%s: %q, %v; want an error that names it", c.path, got, err)
		case c.want == "":
		case len(c.path) > 200 && strings.HasPrefix(got, c.want) && len(got) == 128:
		case got != c.want || err != nil:
			t.Errorf("%s: %q, %v; want %q", c.path, got, err, c.want)
		}
	}
	// Two long names that differ only at their ends are two datasets.
	one, _ := DatasetName([]string{long + "1.txt"}, true, false)
	two, _ := DatasetName([]string{long + "2.txt"}, true, false)
	if one == two {
		t.Errorf("both are %s", one)
	}
	// The names of local files are percent-escaped in their URLs.
	if got, err := DatasetName([]string{"a%20b.txt"}, true, true); got != "a-b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func object(name, below string) ingest.Listed {
	l := ingest.Listed{}
	l.Name = name
	if below != "" {
		l.Below = strings.Split(below, "/")
	}
	return l
}

func TestNamed(t *testing.T) {
	files := []ingest.Listed{
		object("file:///in/a.txt", "a.txt"), object("file:///in/sub/a.txt", "sub/a.txt"), object("file:///other/b.csv", ""),
		object("file:///in/a.txt", ""), // given twice
	}
	lists, loose := named(files, FromFiles)
	var names []string
	for _, l := range lists {
		names = append(names, l.Dataset)
	}
	if got := strings.Join(names, " "); got != "a b sub-a" || len(loose) > 0 {
		t.Errorf("%q, %q", got, loose)
	}
	if len(lists[0].Objects) != 1 {
		t.Errorf("an object that is given twice: %+v", lists[0])
	}

	files = append(files, object("file:///third/a.txt.gz", ""), object("file:///in/%E6%97%A5.txt", "%E6%97%A5.txt"))
	lists, _ = named(files, FromFiles)
	if len(lists) != 4 {
		t.Fatalf("%+v", lists)
	}
	for i, wants := range [][]string{{"\u65e5.txt"}, {"file:///in/a.txt ", "file:///third/a.txt.gz", "dataset a"}, {""}, {""}} {
		l := lists[i]
		for _, want := range wants {
			if !strings.Contains(l.Refused, want) || (l.Refused == "") != (want == "") || (l.Refused == "") != (len(l.Objects) == 1) {
				t.Errorf("%+v; want %q", l, want)
			}
		}
	}

	folders := []ingest.Listed{
		object("s3://b/in/x/2.txt", "x/2.txt"), object("s3://b/in/x/1/1.txt", "x/1/1.txt"),
		object("s3://b/in/y.d/1.txt", "y.d/1.txt"), object("s3://b/in/loose.txt", "loose.txt"),
	}
	lists, loose = named(folders, FromFolders)
	if len(lists) != 2 || lists[0].Dataset != "x" || lists[1].Dataset != "y.d" ||
		lists[0].From != "s3://b/in/x" || len(lists[0].Objects) != 2 || lists[0].Objects[0].Name != "s3://b/in/x/1/1.txt" {
		t.Errorf("%+v", lists)
	}
	if len(loose) != 1 || loose[0] != "s3://b/in/loose.txt" {
		t.Errorf("loose: %q", loose)
	}
}
