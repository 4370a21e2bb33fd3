package api

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
)

// treeParameters are the parameters of trees, sorted. A link to the next page keeps those in
// treeSelecting.
var (
	treeParameters = []string{
		"cursor", "dataset", "depth", "explain", "limit", "min_bytes", "min_count", "path", "sort", "top", "version",
	}
	treeSelecting = []string{"dataset", "depth", "min_bytes", "min_count", "path"}
)

// treeRows is the weight of a tree. It may read many rows and list as many nodes as a large page.
func treeRows(*request) int64 { return lookup.MaxLimit }

// treeQuery reads the parameters of a tree, except the datasets. Limit is what the client asks for.
func (r *request) treeQuery() (q tree.Query, limit int64, err error) {
	if q.Target, err = lookup.ParseTarget(r.PathValue("d")); err != nil {
		return q, 0, err
	}
	for _, name := range []string{"dataset", "path", "sort"} {
		if r.query.Has(name) && r.query.Get(name) == "" {
			return q, 0, badParameter(name, "is empty; give it a value, or leave it out")
		}
	}
	q.Path, q.Cursor = r.query.Get("path"), r.query.Get("cursor")
	depth, err := r.number("depth", 1, 1)
	if err != nil {
		return q, 0, err
	}
	if depth > tree.MaxDepth {
		return q, 0, badParameter("depth", "is at most "+strconv.Itoa(tree.MaxDepth)+"; go on from one of the nodes by path")
	}
	q.Depth = int(depth)
	if q.MinCount, err = r.number("min_count", 0, 0); err != nil {
		return q, 0, err
	}
	if q.MinBytes, err = r.number("min_bytes", 0, 0); err != nil {
		return q, 0, err
	}
	if limit, err = r.number("limit", tree.DefaultLimit, 1); err != nil {
		return q, 0, err
	}
	q.Sort = tree.ByName
	if r.query.Has("top") {
		if r.query.Has("limit") {
			return q, 0, badParameter("top", "is sort=rows with a limit, and cannot be combined with limit; leave one out")
		}
		if limit, err = r.number("top", 0, 1); err != nil {
			return q, 0, err
		}
		q.Sort = tree.ByRows
	}
	if r.query.Has("sort") {
		if q.Sort, err = tree.ParseSort(r.query.Get("sort")); err != nil {
			return q, 0, badParameter("sort", err.Error())
		}
	}
	return q, limit, nil
}

// tree answers what is below a host or a directory of a domain.
func (h *handler) tree(r *request) error {
	q, limit, err := r.treeQuery()
	if err != nil {
		return err
	}
	ctx, trace := r.explain()
	snap, err := h.pin(ctx, r)
	if err != nil {
		return err
	}
	defer snap.Release()
	if r.query.Has("dataset") {
		if q.Datasets, err = datasetIDs(snap, r.query.Get("dataset")); err != nil {
			return err
		}
	}
	q.Limit = r.shorten(min(limit, tree.DefaultListed))
	q.Reserve = r.need
	page, err := h.trees.Answer(ctx, snap, q)
	if err != nil {
		return err
	}
	if limit > tree.DefaultListed && page.Cursor != "" && page.StoppedBy == "" {
		page.StoppedBy = "limit"
	}
	d := &r.doc
	d.open('{')
	r.describe(snap, &page.Answer)
	d.text("path", page.Path)
	d.next()
	d.buf = tree.AppendSums(d.buf, &page.Node)
	d.number("total_children", int64(page.Children))
	d.number("matching_children", int64(page.Matching))
	d.key("children")
	d.buf, d.comma = tree.AppendNodes(d.buf, page.Nodes), true
	d.number("returned", int64(len(page.Nodes)))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.textOrNull("next_cursor", page.Cursor)
	if page.Cursor != "" && q.Sort != tree.ByName {
		r.query.Set("sort", string(q.Sort)) // top= says it in another way
	}
	r.next(page.Cursor, page.Version, strconv.Itoa(q.Limit), append([]string{"sort"}, treeSelecting...)...)
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged, slog.String("domain_id", urlnorm.FormatID(page.DomainID)), slog.Int("nodes", len(page.Nodes)),
		slog.Int("indexed", page.Indexed), slog.Int("scanned", page.Scanned), slog.Int64("rows_read", page.RowsRead))
	return nil
}

// treeProblem is the answer to a tree that is too large, nil for other errors.
func treeProblem(err error) *problem {
	var rows *lookup.TooManyRowsError
	var nodes *tree.TooManyNodesError
	var limit string
	var most int64
	switch {
	case errors.As(err, &rows):
		limit, most = "rows", rows.Max
	case errors.As(err, &nodes):
		limit, most = "nodes", int64(nodes.Max)
	default:
		return nil
	}
	return newProblem(http.StatusUnprocessableEntity, "tree-too-large", "The tree is too large for one answer",
		err.Error()+"; ask for a deeper path, less depth or one dataset",
		member{"limit", limit}, member{"maximum", strconv.FormatInt(most, 10)})
}
