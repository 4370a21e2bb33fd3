package command

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
)

// The commands and a server over HTTP, on files and on S3: rows vanish from all versions with one
// refresh, and come back.
func TestTakedown(t *testing.T) {
	for _, kind := range []string{"file", "s3"} {
		t.Run(kind, func(t *testing.T) {
			url := "file://" + t.TempDir()
			if kind == "s3" {
				url = testenv.S3(t)
			}
			testTakedown(t, url)
		})
	}
}

func testTakedown(t *testing.T, url string) {
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, batch := range []string{"b1", "b2"} {
		testlake.Ingest(t, store, "seeds", batch, []testlake.Record{
			{URL: "https://www.example.com/a/" + batch}, {URL: "http://www.example.com/a/" + batch},
			{URL: "https://example.com/b/" + batch}, {URL: "https://other.test/" + batch},
		})
		versions = append(versions, testlake.Publish(t, store).Version)
	}
	server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer server.Close()
	handler := api.New(server, slog.New(slog.DiscardHandler), api.NewMetrics(server, blob.NewCounting(store)))
	type answer struct {
		Epoch    int `json:"takedown_epoch"`
		Datasets []struct {
			Rows int `json:"url_count_est"`
		}
	}
	// get returns the rows of example.com in a version, and the epoch.
	get := func(version string) (rows, epoch int) {
		if err := server.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/domain/example.com?version="+version, nil))
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, d := range a.Datasets {
			rows += d.Rows
		}
		return rows, a.Epoch
	}
	id := ""
	for _, c := range []struct {
		args   string
		out    string
		code   int
		first  int // rows of example.com in the first version, and in the second
		second int
		epoch  int
	}{
		{"takedown", "no verb given", 2, 3, 6, 0},
		{"takedown list", "No takedown is in force.", 0, 3, 6, 0},
		{"takedown add --reason x", "give one of --domain", 2, 3, 6, 0},
		{"takedown add --domain example.com --host x.com --reason x", "give one of", 2, 3, 6, 0},
		{"takedown add --domain example.com", "--reason TEXT", 2, 3, 6, 0},
		{"takedown add --domain www.example.com --reason x", "use --host www.example.com", 2, 3, 6, 0},
		{"takedown add --domain example.com --dataset seed --reason x", `did you mean "seeds"?`, 1, 3, 6, 0},
		{"takedown add --domain example.com --from 2020 --to 2019 --reason x", "is not before", 2, 3, 6, 0},
		{"takedown add --prefix www.example.com/a/ --dry-run", "would hide 4 rows of 1 domain in 1 dataset", 0, 3, 6, 0},
		{"takedown add --prefix example.com/b/ --from 2020 --dry-run", "2 rows without a time", 0, 3, 6, 0},
		{"takedown add --prefix https://www.example.com/a/ --reason x --json", `"epoch": 1`, 0, 2, 4, 1},
		{"takedown list", "prefix https://www.example.com/a/", 0, 2, 4, 1},
		{"takedown add --prefix https://WWW.example.com/a/ --reason y", "already", 0, 2, 4, 1},
		{"versions", "6  current", 0, 2, 4, 1},
		{"datasets", "6", 0, 2, 4, 1},
		{"status", "6 rows", 0, 2, 4, 1},
		{"takedown status ID", "Something of it is still in 2 parts", 3, 2, 4, 1},
		{"takedown status ID --deep --json", `"gone": false`, 3, 2, 4, 1},
		{"takedown purge ID", "in no bucket with versioning", 0, 2, 4, 1},
		{"takedown status 20200101-0123456789", "no takedown in force with that id", 1, 2, 4, 1},
		{"takedown add --domain example.com --reason x", "hides 6 rows", 0, 0, 0, 2},
		{"verify --deep --all-versions", "No problems found", 0, 0, 0, 2},
		{"takedown lift ID --reason z", "is lifted, in epoch 3", 0, 0, 0, 3},
		{"takedown lift ID", "no takedown in force with that id", 1, 0, 0, 3},
		{"takedown status ID", "It hides nothing", 0, 0, 0, 3},
		{"takedown purge ID", "was lifted", 1, 0, 0, 3},
		{"takedown list --all", "lifted", 0, 0, 0, 3},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "ID", id))
		if len(args) > 1 || args[0] != "takedown" {
			args = append(args, "--lake", url)
		}
		stdout, stderr, code := starter(t, args...)
		if code != c.code || !strings.Contains(stdout+stderr, c.out) {
			t.Errorf("%s: exit %d, want %d\n%s%s, want %s", c.args, code, c.code, stdout, stderr, c.out)
		}
		if id == "" && strings.Contains(c.args, "--json") {
			var res struct{ ID string }
			if err := json.Unmarshal([]byte(stdout), &res); err != nil {
				t.Fatal(err)
			}
			id = res.ID
		}
		for i, want := range []int{c.first, c.second} {
			if rows, epoch := get(versions[i]); rows != want || epoch != c.epoch {
				t.Fatalf("%s: version %d has %d rows in epoch %d, want %d in %d", c.args, i, rows, epoch, want, c.epoch)
			}
		}
	}
}
