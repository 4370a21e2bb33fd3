package inventory

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/internal/cli"
)

// maxLine bounds a line of a list, in bytes. A key of S3 has at most 1,024, and URL encoding
// makes three of one.
const maxLine = 1 << 20

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
	number := 0
	for lines.Scan() {
		number++
		prefix := strings.TrimSuffix(lines.Text(), "\r")
		if encoded {
			var err error
			if prefix, err = url.QueryUnescape(prefix); err != nil {
				return fmt.Errorf("line %d is not URL-encoded: %w", number, err)
			}
		}
		if err := cmp.Or(q.row(folderOf(prefix), asJSON), ctx.Err()); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %s", number+1, cli.Size(maxLine))
	}
	return lines.Err()
}

// row prints the line of a folder.
func (q *query) row(prefix string, asJSON bool) error {
	pos, found, err := q.x.Lookup([]byte(prefix))
	if err != nil {
		return err
	}
	var n prefixtree.Node
	r := row{Prefix: prefix, Found: found}
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
