//go:build unix

package api_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSeenLines asks for 10,000 URLs a request, of which a half were added, without a
// connection. It prints lines a second, and the processor time of one.
func BenchmarkSeenLines(b *testing.B) {
	servers, _ := start(b, 1, time.Minute)
	h := servers[0].Config.Handler
	var added, asked bytes.Buffer
	const lines = 10_000
	for i := range lines {
		line := fmt.Sprintf("{\"url\":\"https://site%d.example/path/to/page-%d.html\"}\n", i%500, i)
		asked.WriteString(line)
		if i%2 == 0 {
			added.WriteString(line)
		}
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/urls", &added))
	processor := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := processor()
	b.ResetTimer()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/seen", bytes.NewReader(asked.Bytes())))
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64((processor()-before).Nanoseconds())/float64(lines*b.N), "cpu-ns/line")
}
