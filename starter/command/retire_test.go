package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/starter/retire"
)

// The whole life of retired batches, as the verbs tell it: of one, of all of a dataset, and of all
// that the lake has.
func TestRetireAndRestore(t *testing.T) {
	dir, store := versionedLake(t) // alpha has 3 and 1 rows, beta 1,500
	run := func(want int, args ...string) (out, errs string) {
		t.Helper()
		out, errs, code := starter(t, append(args, "--lake", dir)...)
		if code != want {
			t.Fatalf("%v: exit %d, %s%s", args, code, out, errs)
		}
		return out, errs
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"retire"}, cli.ExitUsage, "--dataset NAME"},
		{[]string{"retire", "--dataset", "alpha", "--wait", "--no-publish"}, cli.ExitUsage, "--wait"},
		{[]string{"retire", "--dataset", "alpha", "--deadline", "soon"}, cli.ExitUsage, "soon"},
		{[]string{"retire", "--dataset", "alpah"}, cli.ExitFailed, `did you mean "alpha"?`},
		{[]string{"retire", "--dataset", "somethingelse"}, cli.ExitFailed, "starter datasets"},
		{[]string{"retire", "--dataset", "77"}, cli.ExitFailed, "no dataset of the id 77"},
		{[]string{"retire", "--dataset", "1", "--batch", "bb1"}, cli.ExitFailed, `did you mean "b1"?`},
		{[]string{"rejects", "--dataset", "1", "--batch", "bb1"}, cli.ExitFailed, "dataset alpha has no finished batch"},
		{[]string{"acl", "--dataset", "1"}, cli.ExitDone, ""},
		{[]string{"acl", "--dataset", "77"}, cli.ExitFailed, "no dataset of the id 77"},
		{[]string{"diff", "--dataset", "77"}, cli.ExitFailed, `has a dataset "77"`},
		{[]string{"diff", "--dataset", "1"}, cli.ExitDone, ""},
		{[]string{"retire", "--dataset", "alpha", "--batch", "bb1"}, cli.ExitFailed, `did you mean "b1"?`},
		{[]string{"restore", "--dataset", "alpha"}, cli.ExitFailed, "no batch of alpha is retired"},
		{[]string{"restore", "--dataset", "alpha", "--batch", "b1"}, cli.ExitFailed, "batch b1 of alpha is not retired"},
		{[]string{"retire", "--dataset", "alpha"}, cli.ExitFailed, "Temporal"}, // which is asked first
	} {
		_, errs := run(c.code, c.args...)
		has(errs, c.want)
	}
	before, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run(cli.ExitDone, "retire", "--dataset", "alpha", "--dry-run", "--json")
	var dry retire.Selection
	if err := json.Unmarshal([]byte(out), &dry); err != nil {
		t.Fatal(err)
	}
	if !dry.DryRun || dry.Rows != 4 || dry.Bytes == 0 || len(dry.Batches) != 2 || dry.Batches[0].Rows != 3 || !dry.Batches[0].Published {
		t.Errorf("%s", out)
	}
	out, _ = run(cli.ExitDone, "status")
	has(out, "0 finished batches to be published")

	out, _ = run(cli.ExitDone, "retire", "--dataset", "alpha", "--batch", "b2", "--no-publish")
	has(out, "Retired 1 batch of alpha: 1 row, ", "b2 (1 row)", "The next publish makes a version of it.")
	out, _ = run(cli.ExitDone, "status")
	has(out, "0 finished batches to be published, 1 retired batch to be left out\n", "alpha b2 is retired")
	testlake.Publish(t, store)
	out, _ = run(cli.ExitDone, "retire", "--dataset", "alpha", "--no-publish")
	has(out, "Retired 1 batch of alpha: 3 rows", "Retired already: 1 batch of alpha", "  b2\n")
	testlake.Publish(t, store)
	out, _ = run(cli.ExitDone, "datasets")
	if lines := strings.Split(out, "\n"); !strings.Contains(lines[1], "alpha  retired") || !strings.Contains(lines[2], "beta   published") {
		t.Errorf("%s", out)
	}
	out, _ = run(cli.ExitDone, "versions")
	has(out, "-1 batch, -1 row since "+before.CurrentVersion, "-1 dataset, -1 batch, -3 rows")
	out, _ = run(cli.ExitDone, "diff", before.CurrentVersion, "current", "--json")
	has(out, `"removed"`)
	run(cli.ExitDone, "retire", "--dataset", "beta", "--no-publish")
	testlake.Publish(t, store)
	out, _ = run(cli.ExitDone, "status", "--json")
	has(out, `"segments": 0`, `"rows": 0`, `"unpublished": []`)
	out, _ = run(cli.ExitDone, "status")
	has(out, "0 rows of 0 datasets in 0 batches")
	run(cli.ExitDone, "verify", "--deep")
	run(cli.ExitDone, "versions", "--parts")
	_, errs := run(cli.ExitFailed, "versions", "--parts", "--sql")
	has(errs, "has no rows")
	run(cli.ExitDone, "diff")

	out, _ = run(cli.ExitDone, "restore", "--dataset", "alpha", "--dry-run")
	has(out, "Would restore 2 batches of alpha: 4 rows", "b1 (3 rows), b2 (1 row)")
	run(cli.ExitDone, "restore", "--dataset", "alpha", "--no-publish")
	run(cli.ExitDone, "restore", "--dataset", "beta", "--batch", "b1", "--no-publish")
	testlake.Publish(t, store)
	out, _ = run(cli.ExitDone, "diff", before.CurrentVersion, "current")
	if strings.Contains(out, "added") && !strings.Contains(out, "0 added") {
		t.Errorf("the restored lake differs: %s", out)
	}
	out, _ = run(cli.ExitDone, "datasets")
	has(out, "alpha  published", "beta   published")
	run(cli.ExitDone, "verify", "--deep")
}

// A batch of which objects are lost can be retired, and is not restored.
func TestRestoreNeedsAllObjects(t *testing.T) {
	dir, store := versionedLake(t)
	if out, errs, code := starter(t, "retire", "--lake", dir, "--dataset", "alpha", "--no-publish"); code != cli.ExitDone {
		t.Fatal(out, errs)
	}
	testlake.Publish(t, store)
	for info, err := range store.List(t.Context(), "urls/dataset_id=1/") {
		if err == nil && strings.Contains(info.Key, "part-b2-") {
			err = store.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, errs, code := starter(t, "restore", "--lake", dir, "--dataset", "alpha", "--no-publish")
	if code != cli.ExitFailed || !strings.Contains(errs, "nothing is restored") || !strings.Contains(errs, "batch b2 of alpha") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if out, errs, code := starter(t, "restore", "--lake", dir, "--dataset", "alpha", "--batch", "b1", "--no-publish"); code != cli.ExitDone {
		t.Fatal(out, errs)
	}
}
