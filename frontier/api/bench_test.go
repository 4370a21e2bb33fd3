//go:build unix

package api_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
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
	before := processor(b)
	b.ResetTimer()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/seen", bytes.NewReader(asked.Bytes())))
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64((processor(b)-before).Nanoseconds())/float64(lines*b.N), "cpu-ns/line")
}

// processor is how much time of processors this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// answerTo is an http.ResponseWriter that keeps the last answer.
type answerTo struct {
	header http.Header
	bytes.Buffer
}

func (w *answerTo) Header() http.Header              { return w.header }
func (w *answerTo) WriteHeader(int)                  {}
func (w *answerTo) EnableFullDuplex() error          { return nil }
func (w *answerTo) SetReadDeadline(time.Time) error  { return nil }
func (w *answerTo) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkWork lets 16 workers claim 100,000 URLs of 5,000 domains, 20 at a time, and then report
// all of them, without connections. It prints bytes allocated and processor time for each URL.
func BenchmarkWork(b *testing.B) {
	servers, _ := start(b, 1, time.Minute)
	h := servers[0].Config.Handler
	const workers, each, urls = 16, 20, 100_000
	var reports [workers][][]byte
	post := func(w *answerTo, path string, body []byte) {
		clear(w.header)
		w.Reset()
		h.ServeHTTP(w, httptest.NewRequest("POST", path, bytes.NewReader(body)))
	}
	all := func(do func(worker int, w *answerTo)) {
		var running sync.WaitGroup
		for n := range workers {
			running.Go(func() { do(n, &answerTo{header: http.Header{}}) })
		}
		running.Wait()
	}
	measured := func(name string, do func(worker int, w *answerTo)) {
		var before, after runtime.MemStats
		used := processor(b)
		runtime.ReadMemStats(&before)
		all(do)
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/urls, "B/"+name)
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/urls, "allocs/"+name)
		b.ReportMetric(float64((processor(b)-used).Nanoseconds())/urls, "cpu-ns/"+name)
	}
	next := 0
	for b.Loop() {
		var lines bytes.Buffer
		for range urls {
			fmt.Fprintf(&lines, "{\"url\":\"https://site%d.example/path/to/page-%d.html\"}\n", next%5000, next)
			next++
		}
		post(&answerTo{header: http.Header{}}, "/v1/urls", lines.Bytes())
		var claimed atomic.Int64
		measured("claimed", func(worker int, w *answerTo) {
			for claimed.Load() < urls {
				post(w, "/v1/claims", fmt.Appendf(nil, `{"max":%d,"wait_ms":10}`, each))
				var report []byte
				for part := range bytes.SplitSeq(w.Bytes(), []byte(`{"lease":"`)) {
					if lease, rest, _ := bytes.Cut(part, []byte(`"`)); bytes.HasPrefix(rest, []byte(`,"url"`)) {
						report = fmt.Appendf(report, "{\"status\":200,\"lease\":\"%s\"}\n", lease)
						claimed.Add(1)
					}
				}
				reports[worker] = append(reports[worker], report)
			}
		})
		var settled atomic.Int64
		measured("reported", func(worker int, w *answerTo) {
			for _, report := range reports[worker] {
				post(w, "/v1/results", report)
				settled.Add(int64(bytes.Count(w.Bytes(), []byte(`"settled"`))))
			}
			reports[worker] = nil
		})
		if settled.Load() != urls {
			b.Fatalf("%d of %d URLs are settled", settled.Load(), urls)
		}
	}
}
