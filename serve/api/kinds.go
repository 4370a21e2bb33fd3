package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/serve/api/openapi"
	"github.com/urlake/urlake/serve/ui"
)

// findKind returns the kind of that name.
func findKind(name string) (*openapi.Kind, bool) {
	i := slices.IndexFunc(openapi.Problems, func(k openapi.Kind) bool { return k.Name == name })
	if i < 0 {
		return nil, false
	}
	return &openapi.Problems[i], true
}

// problem explains one kind of problem, as a page if the client prefers pages.
func (h *handler) problem(r *request) error {
	k, ok := findKind(r.PathValue("kind"))
	if !ok {
		return newProblem(http.StatusNotFound, "no-such-path", "No such path", "there is no kind of problem with this name; /api lists all kinds")
	}
	r.header.Set("Vary", "Accept")
	if prefersHTML(r.Header.Values("Accept")) {
		return r.page(&ui.Problem{
			Name: k.Name, Title: k.Title, Statuses: statusLines(k.Statuses), Meaning: k.Meaning, Remedy: k.Remedy,
			Members: shownMembers(k),
		})
	}
	d := &r.doc
	d.open('{')
	d.text("type", openapi.ProblemPath+k.Name)
	d.text("title", k.Title)
	d.array("statuses")
	for _, status := range k.Statuses {
		d.next()
		d.buf = strconv.AppendInt(d.buf, int64(status), 10)
	}
	d.close(']')
	d.text("meaning", k.Meaning)
	d.text("remedy", k.Remedy)
	d.array("members")
	for _, m := range k.Members {
		d.element()
		d.text("name", m.Name)
		d.text("meaning", m.Meaning)
		d.close('}')
	}
	d.close(']')
	d.close('}')
	return nil
}

// shownMembers are the members of a kind for a page.
func shownMembers(k *openapi.Kind) (list []ui.Member) {
	for _, m := range k.Members {
		list = append(list, ui.Member{Name: m.Name, Meaning: m.Meaning})
	}
	return list
}

// statusLines formats statuses as e.g. 404 Not Found.
func statusLines(statuses []int) (lines []string) {
	for _, status := range statuses {
		lines = append(lines, strconv.Itoa(status)+" "+http.StatusText(status))
	}
	return lines
}

// prefersHTML reports whether header fields Accept rank text/html above application/json. Without
// any, and for */*, JSON is the answer: programs send that, and browsers name text/html.
func prefersHTML(accept []string) bool {
	page, data := 0.0, 0.0
	for _, item := range strings.Split(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(item, ";")
		weight := 1.0
		for _, p := range strings.Split(parameters, ";") {
			if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "q="); ok {
				weight, _ = strconv.ParseFloat(q, 64) // what is no number is not preferred
			}
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "text/html", "application/xhtml+xml":
			page = max(page, weight)
		case "application/json", "application/problem+json":
			data = max(data, weight)
		}
	}
	return page > data
}
