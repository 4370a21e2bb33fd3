package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/client"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// exampleTB is the part of testing.TB that examples, which have none, need to start a server.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (e *exampleTB) Helper()                  {}
func (e *exampleTB) Name() string             { return "Example" }
func (e *exampleTB) Context() context.Context { return context.Background() }
func (e *exampleTB) Cleanup(f func())         { e.ends = append(e.ends, f) }
func (e *exampleTB) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "urlake-example-")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (e *exampleTB) end() {
	for _, f := range slices.Backward(e.ends) {
		f()
	}
}

// exampleClient is a client of a server of a small lake.
func exampleClient() (c *client.Client, end func()) {
	tb, store := &exampleTB{}, blob.NewMemory()
	day := time.Date(2024, 6, 14, 0, 0, 0, 0, time.UTC)
	record := func(url string, days int) testlake.Record {
		return testlake.Record{URL: url, TS: day.AddDate(0, 0, days).UnixMilli(), HasTS: true, Size: 1000, HasSize: true}
	}
	testlake.Ingest(tb, store, "captures", "b1", []testlake.Record{
		record("https://example.com/", 0), record("https://example.com/", 30), record("https://docs.example.com/a", 60),
	})
	testlake.Ingest(tb, store, "smallweb", "b1", []testlake.Record{
		{URL: "https://example.com/"}, {URL: "https://example.org/"}, {URL: "https://ada.github.io/"}, {URL: "https://bea.github.io/"},
	})
	testlake.Publish(tb, store)
	c, err := client.New(serve(tb, store), client.Options{})
	if err != nil {
		panic(err)
	}
	return c, tb.end
}

func ExampleClient_Domain() {
	c, end := exampleClient()
	defer end()
	domain, err := c.Domain(context.Background(), "https://docs.example.com/a?b", client.Query{})
	if err != nil {
		panic(err)
	}
	fmt.Println(domain.Host, "is a host of", domain.Domain)
	for _, d := range domain.Datasets {
		fmt.Println(d.Name, d.Rows)
	}
	// Output:
	// docs.example.com is a host of example.com
	// captures 3
	// smallweb 1
}

func ExampleClient_URLs() {
	c, end := exampleClient()
	defer end()
	since := client.Selection{From: time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC)}
	for u, err := range c.URLs(context.Background(), "example.com", "captures", client.URLsOptions{Selection: since}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(u.Time.Format(time.DateOnly), u.URL)
	}
	// Unordered output:
	// 2024-07-14 https://example.com/
	// 2024-08-13 https://docs.example.com/a
}

func ExampleClient_URLRows() {
	c, end := exampleClient()
	defer end()
	distinct := client.URLsOptions{Selection: client.Selection{Unique: true}, Fields: []string{"host", "path", "rows"}}
	for u, err := range c.URLRows(context.Background(), "example.com", "captures", distinct) {
		if err != nil {
			panic(err)
		}
		fmt.Println(u.Host, u.Path, u.Rows)
	}
	// Unordered output:
	// docs.example.com /a 1
	// example.com / 2
}

func ExampleClient_URLStream() {
	c, end := exampleClient()
	defer end()
	s, err := c.URLStream(context.Background(), "example.org", "smallweb", client.CSV, client.URLsOptions{Fields: []string{"url", "host"}})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	if _, err := io.Copy(os.Stdout, s); err != nil { // errors.Is(err, client.ErrCut) if it broke off
		panic(err)
	}
	// Output:
	// url,host
	// https://example.org/,example.org
}

func ExampleClient_Holders() {
	c, end := exampleClient()
	defer end()
	holders, err := c.Holders(context.Background(), "https://example.com/#top", client.Query{})
	if err != nil {
		panic(err)
	}
	for _, h := range holders.Datasets {
		fmt.Println(h.Name, h.Rows)
	}
	// Output:
	// captures 2
	// smallweb 1
}

func ExampleClient_Domains() {
	c, end := exampleClient()
	defer end()
	for d, err := range c.Domains(context.Background(), client.DomainsOptions{Suffix: ".github.io"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Domain, d.Rows)
	}
	// Output:
	// ada.github.io 1
	// bea.github.io 1
}

func ExampleClient_Lookup() {
	c, end := exampleClient()
	defer end()
	list := []string{"www.example.org", "absent.test", "mailto:me"}
	for f, err := range c.Lookup(context.Background(), slices.Values(list), client.LookupOptions{Matrix: true}) {
		if err != nil {
			panic(err)
		}
		if f.Reason != "" {
			fmt.Println(f.Line, f.Asked, f.Reason)
			continue
		}
		fmt.Println(f.Line, f.Domain, f.Rows)
	}
	// Output:
	// 1 example.org map[smallweb:1]
	// 2 absent.test map[smallweb:0]
	// 3 mailto:me scheme
}

func ExampleClient_Dataset() {
	c, end := exampleClient()
	defer end()
	d, err := c.Dataset(context.Background(), "captures", client.At{})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Rows, "rows of", d.Domains, "domain, most of", d.ByRows[0].Domain)
	// Output: 3 rows of 1 domain, most of example.com
}

func ExampleKind() {
	c, end := exampleClient()
	defer end()
	for _, err := range c.URLs(context.Background(), "example.com", "nothing", client.URLsOptions{}) {
		fmt.Println(errors.Is(err, client.UnknownDataset), err)
	}
	// Output: true urlake: 404 The version has no such dataset: unknown dataset: "nothing"
}
