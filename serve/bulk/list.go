// Package bulk reads lists of domains and writes what a version of a lake has of them. The server's
// API and the command line share it, so both take and give the same forms. docs/api.md describes
// them.
package bulk

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Format is the form of a list.
type Format string

const (
	Lines  Format = "lines"  // one domain, host or URL a line
	CSV    Format = "csv"    // in the first column, or in one named domain, host or url
	NDJSON Format = "ndjson" // a string a line, or an object with a member of such a name
)

// columns are the names of columns and members that hold what is asked for.
var columns = []string{"domain", "host", "url"}

// Question is one domain, host or URL of a list.
type Question struct {
	// Line is where it is in the list, from 1; 0 for one that is not of a list.
	Line int
	Text []byte
	// Problem says why the line has no text to look up, or is empty. Text is then the line.
	Problem string
}

// Limits bound a list. A limit of 0 is none.
type Limits struct {
	// Questions is the number of lines that are no comments, LineBytes the length of one.
	Questions, LineBytes int
}

// LimitError says which limit a list is over.
type LimitError struct {
	// Limit is "lines" or "line_bytes".
	Limit string
	// Line is where the limit is passed.
	Line, Max int
}

func (e *LimitError) Error() string {
	if e.Limit == "lines" {
		return fmt.Sprintf("line %d: the list has more than %d lines", e.Line, e.Max)
	}
	return fmt.Sprintf("line %d is longer than %d bytes", e.Line, e.Max)
}

var byteOrderMark = []byte("\ufeff")

// Detect tells the format of a list by its first line that is neither empty nor a comment.
func Detect(data []byte) Format {
	data = bytes.TrimPrefix(data, byteOrderMark)
	var line []byte
	for more := true; more && len(line) == 0; {
		line, data, more = bytes.Cut(data, []byte{'\n'})
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '#' {
			line = nil
		}
	}
	switch {
	case len(line) == 0:
		return Lines
	case line[0] == '{' || line[0] == '"' && json.Valid(line):
		return NDJSON
	}
	record, err := newCSVReader(line).Read()
	switch {
	case err != nil:
		return Lines
	case column(record) >= 0, len(record) > 1 && !strings.Contains(record[0], "/"):
		return CSV
	}
	return Lines
}

// Parse reads a list. Empty lines have no question, nor have lines that begin with # unless the
// list is CSV. A line that cannot be read is a question with a Problem. The questions refer to
// data. The error is a *LimitError.
func Parse(data []byte, f Format, limits Limits) ([]Question, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if err := limits.checkLines(data); err != nil {
		return nil, err
	}
	if f == CSV {
		return parseCSV(data, limits)
	}
	var all []Question
	for number := 1; len(data) > 0; number++ {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		q := Question{Line: number, Text: line}
		if f == NDJSON {
			q.Text, q.Problem = parseJSON(line)
		}
		if all = append(all, q); limits.Questions > 0 && len(all) > limits.Questions {
			return nil, &LimitError{"lines", number, limits.Questions}
		}
	}
	return all, nil
}

// checkLines checks the lengths of lines.
func (l Limits) checkLines(data []byte) error {
	if l.LineBytes == 0 {
		return nil
	}
	for number := 1; len(data) > 0; number++ {
		n := bytes.IndexByte(data, '\n')
		if n < 0 {
			n = len(data)
		}
		if n > l.LineBytes {
			return &LimitError{"line_bytes", number, l.LineBytes}
		}
		data = data[min(n+1, len(data)):]
	}
	return nil
}

// parseJSON reads a line of NDJSON.
func parseJSON(line []byte) (text []byte, problem string) {
	if line[0] == '"' && len(line) > 1 && isPlain(line[1:len(line)-1]) && line[len(line)-1] == '"' {
		return line[1 : len(line)-1], ""
	}
	const wanted = `want a JSON string, or an object with a member "domain", "host" or "url"`
	var value any
	if err := json.Unmarshal(line, &value); err != nil {
		return line, wanted + ": " + err.Error()
	}
	switch v := value.(type) {
	case string:
		return []byte(v), ""
	case map[string]any:
		for _, name := range columns {
			if s, ok := v[name].(string); ok {
				return []byte(s), ""
			}
		}
	}
	return line, wanted
}

// isPlain reports whether a JSON string with these bytes is these bytes.
func isPlain(s []byte) bool {
	return !slices.ContainsFunc(s, func(c byte) bool { return c < ' ' || c == '"' || c == '\\' }) && utf8.Valid(s)
}

func newCSVReader(data []byte) *csv.Reader {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	r.TrimLeadingSpace = true
	r.ReuseRecord = true
	return r
}

// column returns the column that a header names, -1 if the record is no header.
func column(record []string) int {
	for _, name := range columns {
		at := slices.IndexFunc(record, func(field string) bool { return strings.EqualFold(strings.TrimSpace(field), name) })
		if at >= 0 {
			return at
		}
	}
	return -1
}

// parseCSV reads a list that is CSV.
func parseCSV(data []byte, limits Limits) ([]Question, error) {
	r := newCSVReader(data)
	var all []Question
	chosen := 0
	for first := true; ; first = false {
		begin := r.InputOffset()
		record, err := r.Read()
		if err == io.EOF {
			return all, nil
		}
		q := Question{}
		var bad *csv.ParseError
		switch {
		case errors.As(err, &bad):
			q.Line, q.Problem = bad.StartLine, fmt.Sprintf("CSV: %v in column %d", bad.Err, bad.Column)
			q.Text, _, _ = bytes.Cut(bytes.TrimLeft(data[begin:], "\r\n"), []byte{'\n'})
			q.Text = bytes.TrimSpace(q.Text)
		case err != nil:
			return nil, err
		case first && column(record) >= 0:
			chosen = column(record)
			continue
		default:
			if q.Line, _ = r.FieldPos(0); chosen < len(record) {
				q.Text = []byte(strings.TrimSpace(record[chosen]))
			} else {
				q.Problem = fmt.Sprintf("CSV: no column %d, which the first line names", chosen+1)
			}
		}
		if all = append(all, q); limits.Questions > 0 && len(all) > limits.Questions {
			return nil, &LimitError{"lines", q.Line, limits.Questions}
		}
	}
}
