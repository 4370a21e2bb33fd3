package api

import (
	_ "embed"
	"net/http"
)

// document describes the interface: OpenAPI 3.1. Tests hold all requests of this package's tests,
// and their answers, against it, and the routes and fields of the code.
//
//go:embed openapi.yaml
var document []byte

func (h *Handler) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(document)
}
