package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/urlake/urlake/client"
)

// exampleServer stands in for a urlake server.
func exampleServer() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/domain/example.com":
			_, _ = io.WriteString(w, `{"domain":"example.com","datasets":[{"dataset_id":1,"name":"captures","url_count_est":3},`+
				`{"dataset_id":2,"name":"smallweb","url_count_est":1}],"next":null}`)
		case strings.HasPrefix(r.URL.Path, "/v1/domain/example.com/datasets/captures/") && !r.URL.Query().Has("cursor"):
			_, _ = io.WriteString(w, `{"items":[{"url_id":"4ca4ca394042cceb","url":"https://example.com/","ts":"2024-06-14T00:00:00.000Z"}],`+
				`"next":"/v1/domain/example.com/datasets/captures/urls?cursor=dXrYGzQJ"}`)
		case strings.HasPrefix(r.URL.Path, "/v1/domain/example.com/datasets/captures/"):
			_, _ = io.WriteString(w, `{"items":[{"url_id":"08a7b6c5d4e3f2a1","url":"https://example.com/a","ts":null}],"next":null}`)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"type":"/problems/unknown-dataset","title":"The version has no such dataset","status":404}`)
		}
	}))
}

func ExampleClient_Domain() {
	server := exampleServer()
	defer server.Close()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		panic(err)
	}
	domain, err := c.Domain(context.Background(), "example.com", client.At{})
	if err != nil {
		panic(err)
	}
	for _, d := range domain.Datasets {
		fmt.Println(d.Name, d.Rows)
	}
	// Output:
	// captures 3
	// smallweb 1
}

func ExampleClient_URLs() {
	server := exampleServer()
	defer server.Close()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		panic(err)
	}
	for u, err := range c.URLs(context.Background(), "example.com", "captures", client.URLsOptions{PageSize: 1}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(u.ID, u.URL)
	}
	// Output:
	// 4ca4ca394042cceb https://example.com/
	// 08a7b6c5d4e3f2a1 https://example.com/a
}

func ExampleIsKind() {
	server := exampleServer()
	defer server.Close()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		panic(err)
	}
	for _, err := range c.URLs(context.Background(), "example.com", "nothing", client.URLsOptions{}) {
		fmt.Println(client.IsKind(err, "unknown-dataset"), err)
	}
	// Output:
	// true urlake: 404 The version has no such dataset
}
