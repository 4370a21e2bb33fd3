//go:build unix

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/frontier/api"
)

// agingWriter makes a folder look as if it had not been touched for two hours, when something is
// written for the first time.
type agingWriter struct {
	http.ResponseWriter
	dir  string
	aged bool
}

func (w *agingWriter) Write(p []byte) (n int, err error) {
	if !w.aged {
		w.aged = true
		before := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(w.dir, before, before); err != nil {
			return 0, err
		}
	}
	return w.ResponseWriter.Write(p)
}

// TestASnapshotStaysWhileItIsSent holds that a snapshot does not expire while a file is sent that
// takes longer than a snapshot stays.
func TestASnapshotStaysWhileItIsSent(t *testing.T) {
	api.SetKeepInterval(t, 0)
	servers, _ := start(t, 1, own)
	var urls strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&urls, "{\"url\":\"https://a.example/%d\",\"metadata\":%q}\n", i, strings.Repeat("x", 200))
	}
	if _, text := request(t, "POST", servers[0].URL+"/v1/urls", urls.String()); strings.Count(text, "added") != 1000 {
		t.Fatal(text)
	}
	_, text := request(t, "POST", servers[0].URL+"/v1/snapshots", "")
	var made struct {
		ID string
		frontier.SnapshotPart
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	var largest frontier.SnapshotFile
	for _, f := range made.Files {
		if f.Size > largest.Size {
			largest = f
		}
	}
	g := servers[0].Config.Handler.(*gate)
	dir := filepath.Join(g.dir, "snapshots", made.ID)
	answer := httptest.NewRecorder()
	g.ServeHTTP(&agingWriter{ResponseWriter: answer, dir: dir},
		httptest.NewRequestWithContext(t.Context(), "GET", "/v1/snapshots/"+made.ID+"/files/"+largest.Path, nil))
	if answer.Code != 200 || int64(answer.Body.Len()) != largest.Size || largest.Size < 100_000 {
		t.Fatalf("%d, %d bytes of %+v", answer.Code, answer.Body.Len(), largest)
	}
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the snapshot counts as unread since %v: %v", info.ModTime(), err)
	}
}
