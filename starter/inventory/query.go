package inventory

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/internal/cli"
)

// query is a question about a folder. Answers are written as they are found, so that memory does
// not grow with them; with top it holds the largest folders of the folders that are open.
type query struct {
	x      *prefixtree.Index
	w      *bufio.Writer
	depth  uint32
	top    int
	order  prefixtree.Order
	filter prefixtree.Filter

	buf []byte
}

// answer prints the answer about a folder of the index in dir.
func (q *query) answer(ctx context.Context, dir, prefix string, asJSON bool) error {
	pos, ok, err := q.x.Lookup([]byte(folderOf(prefix)))
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if !ok {
		return q.notFound(dir, prefix)
	}
	n, err := q.x.Node(pos)
	if err == nil && asJSON {
		err = q.json(ctx, n, 0, "")
		q.w.WriteByte('\n')
	} else if err == nil {
		err = q.text(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// folderOf returns the folder that a person means: prefix as it is, or with a slash at its end.
func folderOf(prefix string) string {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return prefix
	}
	return prefix + "/"
}

// notFound names the nearest folder above one that is not there. The root always is, or its lookup
// fails.
func (q *query) notFound(dir, prefix string) error {
	above := strings.TrimSuffix(prefix, "/")
	for {
		above = above[:strings.LastIndexByte(above, '/')+1]
		_, ok, err := q.x.Lookup([]byte(above))
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		switch {
		case ok && above == "":
			return fmt.Errorf("%s: no object is below %q; without a prefix, query lists the folders that there are", dir, prefix)
		case ok:
			return fmt.Errorf("%s: no object is below %q; the nearest folder is %q", dir, prefix, above)
		}
		above = strings.TrimSuffix(above, "/")
	}
}

// eachChild calls yield with the children of a node that are printed.
func (q *query) eachChild(ctx context.Context, n prefixtree.Node, yield func(prefixtree.Node) error) error {
	if q.top > 0 {
		l, err := q.x.Descendants(n.Position, 1)
		if err != nil {
			return err
		}
		top, err := l.Top(ctx, q.top, q.order, q.filter)
		if err != nil {
			return err
		}
		for _, c := range top {
			if err := yield(c); err != nil {
				return err
			}
		}
		return nil
	}
	var failed error
	err := q.x.EachChild(n.Position, func(c prefixtree.Node) bool {
		if failed = ctx.Err(); failed == nil && q.filter.Match(&c) {
			failed = yield(c)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// prefix returns the prefix of a node, which is valid until the next call.
func (q *query) prefix(n prefixtree.Node) (string, error) {
	var err error
	q.buf, err = q.x.AppendPrefix(q.buf[:0], n.Position)
	return string(q.buf), err
}

func (q *query) children(n prefixtree.Node) (uint64, error) {
	l, err := q.x.Descendants(n.Position, 1)
	return l.Len(), err
}

func (q *query) text(ctx context.Context, n prefixtree.Node) error {
	prefix, err := q.prefix(n)
	if err != nil {
		return err
	}
	fmt.Fprintf(q.w, "%15s %10s %12s  %s\n", "OBJECTS", "SIZE", "FOLDERS", "NAME")
	if prefix == "" {
		prefix = "(all)"
	}
	if err := q.line(n, 0, prefix); err != nil {
		return err
	}
	return q.lines(ctx, n, 1)
}

// lines prints the folders in a node.
func (q *query) lines(ctx context.Context, n prefixtree.Node, depth uint32) error {
	if depth > q.depth {
		return nil
	}
	above, err := q.prefix(n)
	if err != nil {
		return err
	}
	return q.eachChild(ctx, n, func(c prefixtree.Node) error {
		prefix, err := q.prefix(c)
		if err != nil {
			return err
		}
		if err := q.line(c, int(depth), strings.TrimPrefix(prefix, above)); err != nil {
			return err
		}
		return q.lines(ctx, c, depth+1)
	})
}

func (q *query) line(n prefixtree.Node, indent int, name string) error {
	children, err := q.children(n)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(q.w, "%15s %10s %12s  %s%s\n", cli.Count(int64(n.Objects)), size(n.Bytes), cli.Count(int64(children)),
		strings.Repeat("  ", indent), cli.Escape(name))
	return err
}

// folder is what query --json says of a folder, before its children.
type folder struct {
	Prefix    string  `json:"prefix"`
	PrefixURL *string `json:"prefix_url,omitempty"`
	Objects   uint64  `json:"objects"`
	Bytes     uint64  `json:"bytes"`
	Levels    uint32  `json:"levels"` // of folders below it
	Folders   uint64  `json:"folders"`
}

// json prints a node and those below it, without a line end.
func (q *query) json(ctx context.Context, n prefixtree.Node, depth uint32, indent string) error {
	prefix, err := q.prefix(n)
	if err != nil {
		return err
	}
	f := folder{Prefix: prefix, Objects: n.Objects, Bytes: n.Bytes, Levels: n.MaxDepth - n.Depth}
	if !utf8.ValidString(prefix) {
		encoded := url.QueryEscape(prefix)
		f.PrefixURL = &encoded
	}
	if f.Folders, err = q.children(n); err != nil {
		return err
	}
	doc, err := json.Marshal(f)
	if err != nil {
		return err
	}
	q.w.WriteString(indent)
	if depth == q.depth {
		_, err = q.w.Write(doc)
		return err
	}
	q.w.Write(doc[:len(doc)-1])
	q.w.WriteString(`,"children":[`)
	any := false
	err = q.eachChild(ctx, n, func(c prefixtree.Node) error {
		if any {
			q.w.WriteByte(',')
		}
		any = true
		q.w.WriteByte('\n')
		return q.json(ctx, c, depth+1, indent+"  ")
	})
	if err != nil {
		return err
	}
	if any {
		q.w.WriteString("\n" + indent)
	}
	_, err = q.w.WriteString("]}")
	return err
}
