package inventory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"unicode/utf8"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/internal/cli"
)

const (
	// listBatch is how many lines of a list are looked up together.
	listBatch = 4096
	// maxLine bounds a line of a list, in bytes. A key of S3 has at most 1,024, each of which may
	// be encoded with three.
	maxLine = 1 << 20
)

// row is what query --prefixes --json says of a folder.
type row struct {
	Prefix    string  `json:"prefix"`
	PrefixURL *string `json:"prefix_url,omitempty"`
	Found     bool    `json:"found"`
	Objects   uint64  `json:"objects"`
	Bytes     uint64  `json:"bytes"`
	Folders   uint64  `json:"folders"`
}

// list prints a line for each folder that a list names, in its order.
func (q *query) list(ctx context.Context, in io.Reader, encoded, asJSON bool) error {
	if !asJSON {
		fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "OBJECTS", "SIZE", "FOLDERS", "NAME")
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	var prefixes [][]byte
	positions := make([]uint64, listBatch)
	answer := func() error {
		if err := q.x.Lookups(prefixes, positions[:len(prefixes)]); err != nil {
			return err
		}
		for i, p := range prefixes {
			if err := q.row(p, positions[i], asJSON); err != nil {
				return err
			}
		}
		prefixes = prefixes[:0]
		return ctx.Err()
	}
	number := 0
	for lines.Scan() {
		number++
		p := bytes.Clone(bytes.TrimSuffix(lines.Bytes(), []byte("\r")))
		if encoded {
			plain, err := url.QueryUnescape(string(p))
			if err != nil {
				return fmt.Errorf("line %d is not URL-encoded: %w", number, err)
			}
			p = []byte(plain)
		}
		if len(p) > 0 && p[len(p)-1] != '/' {
			p = append(p, '/')
		}
		if prefixes = append(prefixes, p); len(prefixes) == listBatch {
			if err := answer(); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %s", number+1, cli.Size(maxLine))
	} else if err != nil {
		return err
	}
	return answer()
}

// row prints the line of a folder.
func (q *query) row(prefix []byte, pos uint64, asJSON bool) error {
	var n prefixtree.Node
	var err error
	r := row{Prefix: string(prefix), Found: pos != prefixtree.NotFound}
	if r.Found {
		if n, err = q.x.Node(pos); err != nil {
			return err
		}
	}
	name := r.Prefix
	if name == "" {
		name = "(all)"
	}
	switch {
	case !asJSON && !r.Found:
		_, err = fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "-", "-", "-", cli.Escape(name))
		return err
	case !asJSON:
		return q.line(n, 0, name)
	}
	if !utf8.ValidString(r.Prefix) {
		escaped := url.QueryEscape(r.Prefix)
		r.PrefixURL = &escaped
	}
	if r.Found {
		r.Objects, r.Bytes = n.Objects, n.Bytes
		if r.Folders, err = q.children(n); err != nil {
			return err
		}
	}
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = q.w.Write(append(doc, '\n'))
	return err
}
