package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/urlake/urlake/frontier"
)

// reason says in words of JSON what is wrong with a line or a body, and of which field.
func reason(err error) string {
	var long *http.MaxBytesError
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case errors.As(err, &long):
		return fmt.Sprintf("it is longer than %d bytes", long.Limit)
	case errors.As(err, &meaning):
		field := field(meaning.JSONPointer)
		if errors.Is(meaning.Err, json.ErrUnknownName) {
			return "unknown field " + field
		}
		if field == "" {
			field = "it"
		}
		return field + " has to be " + wanted(meaning.GoType)
	case errors.As(err, &syntax):
		switch {
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF) && syntax.ByteOffset == 0:
			return "it is empty, and has to be JSON"
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
			return fmt.Sprintf("no JSON: it ends too early, after byte %d", syntax.ByteOffset)
		case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
			return "field " + field(syntax.JSONPointer) + " is there twice"
		}
		return fmt.Sprintf("no JSON: %s, after byte %d", syntax.Err, syntax.ByteOffset)
	}
	return err.Error()
}

// field is the name of a field: robots.host for /robots/host.
func field(p jsontext.Pointer) string {
	var names []string
	for name := range p.Tokens() {
		names = append(names, name)
	}
	return strings.Join(names, ".")
}

// wanted says what a field of a type may be.
func wanted(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return wantedTime
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1)
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// checkDepth refuses a depth that would be a date.
func checkDepth(depth uint32) error {
	if depth >= frontier.Dated {
		return errDepth
	}
	return nil
}

var errDepth = fmt.Errorf("depth has to be a whole number from 0 to %d", frontier.Dated-1)

// wantedTime is what is said of a text that is no time.
const wantedTime = "a time with its zone, as 2026-11-26T08:33:09Z"
