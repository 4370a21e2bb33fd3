package api

import (
	"strings"
	"sync"

	"github.com/urlake/urlake/serve/api/openapi"
)

// described is the description of the interface.
var described = sync.OnceValues(func() (*openapi.Document, error) { return openapi.Load(openapi.Problems) })

// openapi serves the description as OpenAPI 3.1.
func (h *handler) openapi(r *request) error {
	doc, err := described()
	if err != nil {
		return err
	}
	r.doc.buf = append(r.doc.buf, doc.JSON...)
	return nil
}

// reference serves the description as a page. Its examples name the server as the client does.
func (h *handler) reference(r *request) error {
	doc, err := described()
	if err != nil {
		return err
	}
	page := doc.Page
	page.Base = r.base()
	return r.page(&page)
}

// base is the address by which the client reached the server. A Host header with anything but a
// host and a port is not repeated, because people paste the page's examples into a shell.
func (r *request) base() string {
	special := func(c rune) bool {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !plain && !strings.ContainsRune(".-:[]", c)
	}
	host := r.Host
	if host == "" || strings.ContainsFunc(host, special) {
		host = "localhost:8080"
	}
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + host
	}
	return "http://" + host
}
