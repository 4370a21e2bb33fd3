package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// TestInputsAreAllowedPreviewedSkippedAndExplained goes the way of a person with a folder of mixed
// files: a worker of a lake in S3 reads none of them until it is told to, and no others then. A
// preview shows what is chosen and refused. The ingest skips what cannot be read, and its rejects
// are explained.
func TestInputsAreAllowedPreviewedSkippedAndExplained(t *testing.T) {
	t.Parallel()
	root := testenv.NewS3Server(t).NewBucketURL(t)
	u := start(t, root+"/lake", nil)
	u.env = slices.DeleteFunc(u.env, func(s string) bool { return strings.HasPrefix(s, "URLAKE_ALLOW_INPUT=") })
	dir := t.TempDir()
	for name, text := range map[string]string{
		"data/a.csv":    "link,when,n\nhttp://a.example/1,2020-01-01,1\nhttp://a.example/2,then,2\nmailto:a,2020-01-01,3\n",
		"data/b.txt":    "http://b.example/\nhttps://web.archive.org/web/20200131235959/http://c.example/\n",
		"data/c.xml":    "<a/>",
		"secret/s.txt":  "http://secret.example/\n",
		"manifest.list": "",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(dir, "data/list")
	if err := errors.Join(os.Rename(filepath.Join(dir, "manifest.list"), list),
		os.WriteFile(list, []byte(dir+"/data/a.csv\n"+dir+"/data/b.txt\n"+dir+"/data/c.xml\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ingestOf := func(batch string, args ...string) (string, string, int) {
		return u.starter(t, append([]string{"ingest", "--lake", u.lake, "--dataset", "d", "--batch", batch, "--wait"}, args...)...)
	}
	work := func(args ...string) (stop func()) {
		worker := u.run(t, "worker", filepath.Join(u.bin, "worker"), append([]string{"--lake", u.lake, "--temp-dir", t.TempDir()}, args...)...)
		return func() {
			worker.Process.Signal(syscall.SIGTERM)
			worker.Wait()
		}
	}

	stop := work()
	_, errs, code := ingestOf("b", dir+"/data")
	if want := "file://" + dir + "/data: these workers may not read it; they read s3:// and no local file (worker --allow-input)"; code != 1 || !strings.Contains(errs, want) {
		t.Errorf("a local file, exit %d: %s", code, errs)
	}
	stop()
	if out, errs, code := u.starter(t, "datasets", "--lake", u.lake, "--json"); code == 0 && strings.Contains(out, `"d"`) {
		t.Errorf("the refused ingest left a dataset: %s %s", out, errs)
	}

	// Nothing of a preview needs the worker.
	args := []string{"--ts-column", "when", "--size-field", "n", "--unwrap", "--manifest", list}
	out, errs, code := u.starter(t, append([]string{"ingest", "--dry-run"}, args...)...)
	if code != 1 || !strings.Contains(out, "refused: it is a list of URLs, which has no columns") || !strings.Contains(errs, "2 of 3 objects would be refused") {
		t.Errorf("a preview, exit %d: %s %s", code, out, errs)
	}
	args = append(args, "--skip-unreadable", "--format", "auto")
	args = slices.DeleteFunc(args, func(s string) bool { return s == "--ts-column" || s == "when" || s == "--size-field" || s == "n" })
	out, errs, code = u.starter(t, append([]string{"ingest", "--dry-run", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("a preview, exit %d: %s", code, errs)
	}
	var previews []ingest.Preview
	for lines := json.NewDecoder(strings.NewReader(out)); ; {
		var p ingest.Preview
		if err := lines.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		previews = append(previews, p)
	}

	defer work("--allow-input", "file://"+dir+"/data/")()
	_, errs, code = ingestOf("b", dir+"/secret/s.txt")
	if code != 1 || !strings.Contains(errs, dir+"/secret/s.txt: these workers may not read it; they read file://"+dir+"/data/ (worker") {
		t.Errorf("another file, exit %d: %s", code, errs)
	}
	out, errs, code = ingestOf("b", args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{
		"1 object as csv, URL in \"link\"", "1 object as lines; the first: file://" + dir + "/data/b.txt",
		"unread          1 file, named in the record of the batch", "data/c.xml: it is XML", "unwrapped            1",
		"data/a.csv: 1 of 3 records (scheme 1), the first at line 4",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the result lacks %q:\n%s", want, out)
		}
	}
	var res struct {
		Groups []ingest.Group `json:"groups"`
		Unread []lake.Unread  `json:"unread"`
	}
	u.starterJSON(t, &res, append([]string{"ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--wait", "--json"}, args...)...)
	var chosen []ingest.Choice
	for _, g := range res.Groups {
		chosen = append(chosen, g.Choice)
	}
	var shown []ingest.Choice
	for _, p := range previews {
		if len(p.Unread) == 0 {
			shown = append(shown, p.Choice)
		}
	}
	if diff := cmp.Diff(shown, chosen); diff != "" || len(chosen) != 2 || len(res.Unread) != 1 {
		t.Errorf("-previewed +ingested: %s; unread %v", diff, res.Unread)
	}

	// The value of a bad time is shown, and of a URL nothing.
	if _, errs, code := ingestOf("c", "--ts-column", "when", "--max-reject-rate", "1", dir+"/data/a.csv"); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	out, errs, code = u.starter(t, "rejects", "--lake", u.lake, "--dataset", "d")
	if code != 0 {
		t.Fatalf("rejects, exit %d: %s", code, errs)
	}
	for _, want := range []string{
		"Dataset d, batch b: 1 of 5 records rejected (scheme 1)", "unread: file://" + dir + "/data/c.xml: it is XML",
		"Dataset d, batch c: 2 of 3 records rejected (bad_ts 1, scheme 1)", `bad_ts  file://` + dir + `/data/a.csv  line 3 (byte 44) "then"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("rejects lack %q:\n%s", want, out)
		}
	}
	var explained []struct {
		Batch  string               `json:"batch"`
		Groups []ingest.RejectGroup `json:"groups"`
	}
	u.starterJSON(t, &explained, "rejects", "--lake", u.lake, "--dataset", "d", "--batch", "c", "--json", "--places", "1")
	if len(explained) != 1 || len(explained[0].Groups) != 2 || explained[0].Groups[0].Places[0].Value != "then" {
		t.Errorf("%+v", explained)
	}
	for _, bad := range [][]string{{"--dataset", "none"}, {"--dataset", "d", "--batch", "none"}} {
		if _, errs, code := u.starter(t, append([]string{"rejects", "--lake", u.lake}, bad...)...); code != 1 || !bytes.Contains([]byte(errs), []byte("none")) {
			t.Errorf("rejects %v, exit %d: %s", bad, code, errs)
		}
	}
}
