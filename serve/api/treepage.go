package api

import (
	"net/url"
	"slices"
	"strings"

	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
	"github.com/urlake/urlake/serve/ui"
)

// treePageParameters are the parameters of the page of a tree, sorted.
var treePageParameters = []string{"cursor", "dataset", "domain", "path", "sort", "version"}

// treePages serves the page of what is below path= of domain=, in dataset= or in all. The last
// two and sort= may be empty, as the form sends them. Without a domain it is the start page.
func (h *handler) treePages(r *request) error {
	page := &ui.Page{Query: r.query.Get("domain")}
	return h.pageOf(r, page, func(snap *lookup.Snapshot) error {
		if page.Query == "" {
			return fillStart(r, snap, page)
		}
		return h.fillTree(r, snap, page)
	})
}

func (h *handler) fillTree(r *request, snap *lookup.Snapshot, page *ui.Page) error {
	target, err := lookup.ParseTarget(page.Query)
	if err != nil {
		return err
	}
	q := tree.Query{
		Target: target, Path: strings.TrimSpace(r.query.Get("path")), Sort: tree.ByRows, Limit: r.shorten(tree.DefaultLimit),
		Cursor: r.query.Get("cursor"), Reserve: r.need,
	}
	if text := r.query.Get("sort"); text != "" {
		if q.Sort, err = tree.ParseSort(text); err != nil {
			return badParameter("sort", err.Error())
		}
	}
	dataset := r.query.Get("dataset")
	if dataset != "" {
		id, err := datasetID(snap, dataset)
		if err != nil {
			return err
		}
		q.Datasets, dataset = []uint32{id}, idText(id)
	}
	answer, err := h.trees.Answer(r.Context(), snap, q)
	if err != nil {
		return err
	}
	r.of(answer.TakedownEpoch, snap)
	holders, err := snap.Domain(r.Context(), target, "")
	if err != nil {
		return err
	}
	domain := answer.Domain
	link := func(path string) string {
		return withQuery("/tree", "domain", domain, "path", path, "dataset", dataset, "sort", r.query.Get("sort"), "version", page.Named)
	}
	t := &ui.Tree{
		Domain: domain, Path: answer.Path, Dataset: dataset, Sort: string(q.Sort), Whole: answer.Rows,
		TreeNode: treeNodeOf(&answer.Node), Matching: answer.Matching, Later: q.Cursor != "",
		Datasets: pagePath("domain", domain, "version", page.Named),
	}
	for i := range holders.Datasets {
		d := &holders.Datasets[i]
		t.Choices = append(t.Choices, ui.Choice{Value: idText(d.ID), Text: d.Name})
	}
	if dataset != "" && !slices.ContainsFunc(t.Choices, func(c ui.Choice) bool { return c.Value == dataset }) {
		own, _ := snap.Dataset(q.Datasets[0]) // Answer has checked that it exists
		t.Choices = append(t.Choices, ui.Choice{Value: dataset, Text: own.Name})
	}
	t.Up = append(t.Up, ui.Link{Text: domain, Path: link("")})
	for at := 0; at < len(answer.Path); {
		end := at + strings.IndexByte(answer.Path[at:], '/') + 1
		t.Up = append(t.Up, ui.Link{Text: answer.Path[at:end], Path: link(answer.Path[:end])})
		at = end
	}
	for i := range answer.Nodes {
		n := treeNodeOf(&answer.Nodes[i])
		n.Link = link(answer.Nodes[i].Path)
		t.Nodes = append(t.Nodes, n)
	}
	if host, dir, ok := strings.Cut(answer.Path, "/"); ok && dataset != "" {
		t.URLs = pagePath("domain", domain, "dataset", dataset, "host", host, "prefix", "/"+dir, "version", page.Named)
	}
	page.Tree = t
	of := []string{"path", answer.Path, "dataset", dataset, "sort", string(q.Sort)}
	page.JSON = withQuery("/v1/domain/"+url.PathEscape(domain)+"/tree", append(of, "version", page.Named)...)
	if answer.Cursor != "" {
		page.Next = withQuery("/tree", append(of, "domain", domain, "cursor", answer.Cursor, "version", answer.Version)...)
	}
	return nil
}

func treeNodeOf(n *tree.Node) ui.TreeNode {
	const most = 1<<63 - 1
	return ui.TreeNode{
		Name: n.Name, Direct: n.Direct, Children: n.Children,
		Sums: ui.Sums{Rows: n.Rows, Size: n.Size, HasSize: n.HasSize && n.Size < most, SizeOverflows: n.HasSize && n.Size == most},
	}
}
