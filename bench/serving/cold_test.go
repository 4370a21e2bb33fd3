package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// coldDelay is what each request to the store takes besides.
const coldDelay = 20 * time.Millisecond

// coldQueries is how many different queries of a kind are asked, one after the other.
const coldQueries = 500

// BenchmarkCold asks a read server for the first time: its lake is on S3, whose answers come after
// 20 ms, and for each kind of query it is started anew with an empty cache. It prints how long the
// start took, from the process to the first answer, and the times of the queries at the client.
// BENCH_ROWS says how large the lake is.
func BenchmarkCold(b *testing.B) {
	lake := testenv.S3(b)
	s3 := testenv.NewS3Server(b)
	dir := b.TempDir()
	if err := build(b.Context(), filepath.Dir(s3.Folder(lake))); err != nil {
		b.Fatal(err)
	}
	program, err := buildServe(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	work, err := newWorkload()
	if err != nil {
		b.Fatal(err)
	}
	// The expected answers come from the files themselves.
	p, err := startServe(b.Context(), program, s3.Folder(lake), filepath.Join(dir, "files"))
	if err != nil {
		b.Fatal(err)
	}
	want, err := p.ask(work)
	if err != nil {
		b.Fatal(err)
	}
	queries := coldOf(b, p, work, want)
	if err := p.stop(); err != nil {
		b.Fatal(err)
	}
	b.Setenv("AWS_ENDPOINT_URL_S3", distant(b, s3.Endpoint))
	for b.Loop() {
		fmt.Printf("%-36s %8s %8s %8s %8s %8s %8s\n", "ms at the client", "queries", "start", "first", "p50", "p95", "max")
		for i, kind := range queries {
			if err := kind.run(b.Context(), program, lake, filepath.Join(dir, fmt.Sprint("cache", i))); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// coldKind is a kind of query: its paths, and what the server answered that reads files.
type coldKind struct {
	name  string
	paths []string
	want  [][]byte
}

// coldOf makes the queries of all kinds, and asks a server for the answers.
func coldOf(b *testing.B, p *process, work *workload, known *answers) (kinds []coldKind) {
	rng := rand.New(rand.NewPCG(5, 5))
	var some []string // domains that the lake has
	seen := map[string]bool{}
	for _, path := range work.lookups {
		var a domainAnswer
		if len(some) < coldQueries && !seen[path] {
			if err := p.getJSON(path, &a); err != nil {
				b.Fatal(err)
			}
			if len(a.Datasets) > 0 {
				some = append(some, fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=%d", a.Domain, a.Datasets[0].ID, pageSize))
			}
		}
		seen[path] = true
	}
	var lookups, largest, prefixes, suffixes []string
	for path := range seen {
		lookups = append(lookups, path)
	}
	slices.Sort(lookups)
	rng.Shuffle(len(lookups), func(i, j int) { lookups[i], lookups[j] = lookups[j], lookups[i] })
	for range coldQueries {
		l := list{fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?", work.largest, known.dataset), known.rows}
		largest = append(largest, l.page(rng, pageSize))
	}
	for i := range 26 * 26 {
		part := string([]byte{'a' + byte(i/26), 'a' + byte(i%26)})
		prefixes = append(prefixes, "/v1/domains?limit=100&prefix="+part)
		suffixes = append(suffixes, "/v1/domains?limit=100&suffix="+part+".com")
	}
	for _, k := range []coldKind{
		{name: "datasets of a domain", paths: lookups}, {name: "first page of a domain", paths: some},
		{name: "page of the largest, any offset", paths: largest}, {name: "names with a prefix", paths: prefixes},
		{name: "names with a suffix", paths: suffixes},
	} {
		k.paths = k.paths[:min(len(k.paths), coldQueries)]
		for _, path := range k.paths {
			body, err := p.get(path)
			if err != nil {
				b.Fatal(err)
			}
			k.want = append(k.want, body)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// run asks all queries of a kind, and compares the answers.
func (k *coldKind) run(ctx context.Context, program, lake, cache string) error {
	began := time.Now()
	p, err := startServe(ctx, program, lake, cache)
	if err != nil {
		return err
	}
	started := time.Since(began)
	ms := make([]float64, len(k.paths))
	for i, path := range k.paths {
		began := time.Now()
		body, err := p.get(path)
		if err != nil {
			return err
		}
		ms[i] = float64(time.Since(began).Microseconds()) / 1000
		if string(body) != string(k.want[i]) {
			return fmt.Errorf("GET %s: %.300s, want %.300s", path, body, k.want[i])
		}
	}
	first := ms[0]
	q := quantiles(ms) // sorts them
	fmt.Printf("%-36s %8d %8.0f %8.1f %8.1f %8.1f %8.1f\n", k.name, len(ms), started.Seconds()*1000, first, q.P50, q.P95, ms[len(ms)-1])
	return p.stop()
}

// distant is the address of a proxy that answers like a store, later.
func distant(b *testing.B, store string) string {
	to, err := url.Parse(store)
	if err != nil {
		b.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // which is signed
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 100},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(coldDelay)
		proxy.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	return server.URL
}
