package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
)

const (
	// lookupLines and lookupBytes are what a server takes in one request.
	lookupLines = 100_000
	lookupBytes = 16 << 20
)

// LookupOptions are the settings of a lookup of a list. The zero value asks for the totals in each
// dataset.
type LookupOptions struct {
	At
	// Datasets are ids or names of the only datasets that count. None means all.
	Datasets []string
	// Presence asks only which datasets have a domain, which is faster.
	Presence bool
	// Matrix asks for a column for each dataset: those in Datasets, or else all that hold one of
	// the domains of a request. A server makes up to 1,000 columns.
	Matrix bool
}

func (opt *LookupOptions) path(form Format) string {
	return at("/v1/domains:lookup", "version", opt.Version, "dataset", strings.Join(opt.Datasets, ","),
		"totals", flag(opt.Presence, "0"), "matrix", flag(opt.Matrix, "1"), "format", string(form))
}

// Found is what the datasets have of one element of a list.
type Found struct {
	// Line is the number of the element in the list, from 1, Asked its text.
	Line  int64  `json:"line"`
	Asked string `json:"asked"`
	// Reason says why the text is no host or URL: scheme, no_host, host, port, too_long or line,
	// with Detail. Both are empty if it is one. Otherwise nothing of what follows is there.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`

	Domain   string `json:"domain"`
	DomainID ID     `json:"domain_id"`
	// Host is there if it is not the domain itself. PublicSuffix is whether names below the domain
	// are domains of their own.
	Host         string `json:"host,omitempty"`
	PublicSuffix bool   `json:"public_suffix,omitempty"`
	// PublicSuffixList and OtherDomains are as in Answered.
	PublicSuffixList string   `json:"public_suffix_list,omitempty"`
	OtherDomains     []string `json:"other_domains,omitempty"`

	// Total counts the datasets that contain the domain, and Datasets are these. With Presence they
	// have no totals, and with Matrix neither is there.
	Total    int64     `json:"total_datasets,omitempty"`
	Datasets []Holding `json:"datasets,omitempty"`

	// Rows and Sizes are the columns of a matrix, by the name of the dataset. With Presence there
	// is Present in their place.
	Rows    map[string]int64 `json:"url_count_est,omitempty"`
	Sizes   map[string]Size  `json:"size,omitempty"`
	Present map[string]bool  `json:"present,omitempty"`
}

// Size is a sum of sizes in a matrix. Valid is false if no row has one, or if the sum is 2⁶³−1 or
// more, which Overflow says.
type Size struct {
	Bytes           int64
	Valid, Overflow bool
}

// MarshalJSON implements json.Marshaler.
func (s Size) MarshalJSON() ([]byte, error) {
	switch {
	case s.Overflow:
		return []byte(`"overflow"`), nil
	case !s.Valid:
		return []byte("null"), nil
	}
	return json.Marshal(s.Bytes)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case `"overflow"`:
		*s = Size{Overflow: true}
		return nil
	case "null":
		*s = Size{}
		return nil
	}
	s.Valid, s.Overflow = true, false
	return json.Unmarshal(data, &s.Bytes)
}

// Lookup yields what the datasets have of the domains, hosts or URLs of a list of any length: one
// answer for each, in their order. It takes 100,000 of them, or 16 MiB, from the list at a time and
// sends them in one request. All answers are of one version.
func (c *Client) Lookup(ctx context.Context, list iter.Seq[string], opt LookupOptions) iter.Seq2[*Found, error] {
	return func(yield func(*Found, error) bool) {
		next, stop := iter.Pull(list)
		defer stop()
		var body bytes.Buffer
		var line []byte // that had no room in the request before
		for before := int64(0); ; {
			lines := int64(0)
			for body.Reset(); lines < lookupLines; lines++ {
				if line == nil {
					text, ok := next()
					if !ok {
						break
					}
					line = asLine(text)
				}
				if lines > 0 && body.Len()+len(line) > lookupBytes {
					break
				}
				body.Write(line)
				line = nil
			}
			if lines == 0 {
				return
			}
			s, err := c.LookupStream(ctx, body.Bytes(), NDJSON, NDJSON, opt)
			if err != nil {
				yield(nil, err)
				return
			}
			got := int64(0)
			misplaced := false
			more, err := each(s, func(f *Found) bool {
				got++
				if misplaced = f.Line != got; misplaced {
					return false
				}
				f.Line += before
				return yield(f, nil)
			})
			switch {
			case err == nil && misplaced, err == nil && more && got != lines:
				err = fmt.Errorf("urlake: %s: answer %d of %d is not that of its line", s.request, got, lines)
			case err == nil && !more:
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			before += lines
			opt.Version = s.Version
		}
	}
}

// asLine is text as a line of a list, whatever is in it.
func asLine(text string) []byte {
	line, _ := json.Marshal(text) // of text there is no error
	return append(line, '\n')
}

// LookupStream looks up a list that has one of the forms Text (a domain, host or URL a line), CSV
// and NDJSON, in one request, and returns the answers as the server writes them: as NDJSON or CSV.
// The list has up to 100,000 lines and 16 MiB. The caller closes the stream.
func (c *Client) LookupStream(ctx context.Context, list []byte, listForm, form Format, opt LookupOptions) (*Stream, error) {
	return c.stream(ctx, &request{path: opt.path(form), accept: form.mediaType(), body: list, contentType: listForm.mediaType()})
}
