package command

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/mock"
	failure "go.temporal.io/api/failure/v1"
	workflow "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/workflows"
)

// hostile is a text that would colour, retitle, reorder and break the lines of a terminal. C1
// controls are in it both as UTF-8 and as a single byte.
const (
	hostile = "\x1b[31mred\x1b]0;title\x07\nEverything is fine\t\x7f\u009b2J\x9b2J\u202egnp"
	escaped = `\x1b[31mred\x1b]0;title\a\nEverything is fine\t\x7f\u009b2J\x9b2J\u202egnp`
)

// checkPrintable fails the test if text, which may have several lines, can steer a terminal.
func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s is not UTF-8: %q", what, text)
	}
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Errorf("%s has the character %q: %q", what, r, text)
		}
	}
}

func TestDatasetsEscapesLicences(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("https://a.test/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testlake.IngestSpec(t, store, ingest.Spec{Lake: store.URL(), Dataset: "d", Inputs: []string{list}, Licence: hostile})
	for _, published := range []bool{false, true} {
		if published {
			testlake.Publish(t, store)
		}
		out, errs, code := starter(t, "datasets", "--lake", dir)
		if code != cli.ExitDone {
			t.Fatalf("exit %d, %s", code, errs)
		}
		checkPrintable(t, "the table", out)
		// The registry is JSON, which has no invalid UTF-8.
		want := strings.ReplaceAll(escaped, `\x9b`, "\ufffd")
		if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[1], want) {
			t.Errorf("the table is not a header and one line that ends in %s:\n%s", want, out)
		}
		out, errs, code = starter(t, "datasets", "--json", "--lake", dir)
		checkPrintable(t, "the JSON", out)
		var sets []struct{ Licence string }
		if err := json.Unmarshal([]byte(out), &sets); code != cli.ExitDone || err != nil || len(sets) != 1 {
			t.Fatalf("exit %d, %v, %s%s", code, err, out, errs)
		}
		if want := strings.ToValidUTF8(hostile, "\ufffd"); sets[0].Licence != want {
			t.Errorf("the licence in JSON is %q, want %q", sets[0].Licence, want)
		}
	}
}

// TestFlagsWithControlCharactersAreRefused checks the flags whose values readers get to see.
func TestFlagsWithControlCharactersAreRefused(t *testing.T) {
	for _, flag := range []string{"--title", "--source", "--licence"} {
		_, errs, code := starter(t, "ingest", "--lake", t.TempDir(), "--dataset", "d", flag, hostile, "/nowhere")
		checkPrintable(t, "the error", errs)
		if code != cli.ExitUsage || !strings.Contains(errs, flag+" has characters that do not print") {
			t.Errorf("%s: exit %d, %s", flag, code, errs)
		}
	}
}

// TestReportEscapesMemberNames ingests a tar archive, whose members can have any name, and prints
// the result as watchIngest does.
func TestReportEscapesMemberNames(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range map[string]string{
		hostile + ".csv": "url\nhttps://a.test/\nhttps://\n",
		hostile + ".jpg": "no records",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), hostile[:5]+"list.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	done := testlake.IngestSpec(t, store, ingest.Spec{Lake: store.URL(), Dataset: "d", Inputs: []string{path}})
	if len(done.Worst) == 0 || len(done.Notes) == 0 {
		t.Fatalf("no rejects or no notes: %+v", done)
	}
	var out bytes.Buffer
	printIngest(&out, &workflows.IngestResult{Dataset: "d", Batch: "b", WorstFiles: done.Worst, Notes: done.Notes,
		Groups: done.Groups, GroupCount: 2, UnreadCount: 1, Unread: []lake.Unread{{Name: hostile, Reason: hostile}},
	}, time.Second)
	checkPrintable(t, "the report", out.String())
	if lines, want := strings.Count(out.String(), "\n"), 7+len(done.Worst)+len(done.Notes)+2+2; lines != want {
		t.Errorf("%d lines, want %d:\n%s", lines, want, &out)
	}
	if !strings.Contains(out.String(), `list.tar`) || !strings.Contains(out.String(), `Everything is fine`) {
		t.Errorf("the names are missing:\n%s", &out)
	}
}

func TestRetriesAndPublishResultsAreEscaped(t *testing.T) {
	c, run := &mocks.Client{}, &mocks.WorkflowRun{}
	run.On("GetID").Return("w")
	run.On("Get", mock.Anything, mock.Anything).Return(func(_ context.Context, result any) error {
		*result.(*workflows.PublishResult) = workflows.PublishResult{
			Version: "v", SkippedBatches: 1, Skipped: []publish.Skipped{{Dataset: "d", Batch: "b", Reason: hostile}},
			Lost: []string{hostile},
		}
		return nil
	})
	c.On("DescribeWorkflowExecution", mock.Anything, "w", "").Return(&workflowservice.DescribeWorkflowExecutionResponse{
		PendingActivities: []*workflow.PendingActivityInfo{{LastFailure: &failure.Failure{Message: hostile}}},
	}, nil)

	var out, errs bytes.Buffer
	cmd := New()
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetContext(t.Context())
	newWaitLog(&errs, nil, c, run).update(t.Context(), "")
	if err := watchPublish(cmd, &global{}, c, run); err != nil {
		t.Error(err)
	}
	printRebuilt(&out, &workflows.RebuildResult{Rebuilt: publish.Rebuilt{Lost: []string{hostile}, Restored: []string{hostile}}})
	checkPrintable(t, "the retry", errs.String())
	checkPrintable(t, "the result", out.String())
	if n := strings.Count(errs.String(), escaped); n != 1 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("the retry is printed as %q", &errs)
	}
	if n := strings.Count(out.String(), escaped); n != 4 || strings.Count(out.String(), "\n") != 7 {
		t.Errorf("the result is printed as %q", &out)
	}
}

func TestNormalizePrintsASCII(t *testing.T) {
	for _, raw := range []string{
		"https://a.test/" + hostile, "https://a.test/?" + hostile, "https://" + hostile + "/", hostile,
		"https://a\u202eb.test/", "https://xn--a.test/\u2028", "https://[::1]/\x7f",
	} {
		out, errs, code := starter(t, "normalize", raw)
		if code != cli.ExitDone || errs != "" {
			t.Errorf("%q: exit %d, %q", raw, code, errs)
		}
		checkPrintable(t, raw, strings.Replace(out, "\t", " ", 1))
		if strings.Count(out, "\n") != 1 {
			t.Errorf("%q is normalized to %q", raw, out)
		}
	}
}
