package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// document is what "versions --json" prints: the manifest, and of each version what its
// document says.
type document struct {
	*catalog.Manifest
	Versions []version `json:"versions"`
}

// version has the names of the HTTP API, but for the members of the manifest.
type version struct {
	catalog.VersionRef
	Current bool     `json:"current"`
	Tags    []string `json:"tags"`
	Created string   `json:"created"`
	BuiltBy string   `json:"built_by"`
	// Parent is null for the lake's first version.
	Parent        *string `json:"parent"`
	CanonicalForm string  `json:"canonical_form"`
	PublicSuffix  string  `json:"public_suffix_list"`
	catalog.Counts
	// What the version has more than its parent, null if the manifest no longer lists the parent.
	DatasetsAdded *int   `json:"datasets_added"`
	BatchesAdded  *int   `json:"batches_added"`
	RowsAdded     *int64 `json:"rows_added"`
}

// printVersions prints the versions of the manifest, as JSON or for people.
func printVersions(ctx context.Context, out io.Writer, store blob.Store, m *catalog.Manifest, asJSON bool) error {
	hidden, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
	if err != nil {
		return err
	}
	list, err := m.Summaries(ctx, 0, len(m.Versions), func(ctx context.Context, ref catalog.VersionRef) (catalog.Summary, error) {
		s, err := catalog.ReadSummary(ctx, store, ref)
		s.Counts.Rows -= hidden.Hidden(s.Views)
		return s, err
	})
	if err != nil {
		return err
	}
	if !asJSON {
		return printText(out, list)
	}
	doc := document{Manifest: m, Versions: make([]version, len(list))}
	for i := range list {
		s := &list[i]
		v := &doc.Versions[i]
		*v = version{
			VersionRef: s.VersionRef, Current: s.Current, Tags: append([]string{}, s.Tags...),
			Created: s.Created, BuiltBy: s.BuiltBy, Parent: &s.Parent,
			CanonicalForm: s.CanonicalForm, PublicSuffix: s.PublicSuffix, Counts: s.Counts,
		}
		if s.Parent == "" {
			v.Parent = nil
		}
		if c := s.Change; c != nil {
			v.DatasetsAdded, v.BatchesAdded, v.RowsAdded = &c.Datasets, &c.Batches, &c.Rows
		}
	}
	return cli.WriteJSON(out, doc, true)
}

// columns is the width that the lines under a version stay within.
const columns = 100

// printText prints a line of a table for each version, and under it what changed.
func printText(out io.Writer, list []catalog.Summary) error {
	rows := make([][]string, 0, len(list))
	for i := range list {
		mark := ""
		if list[i].Current {
			mark = "current"
		}
		c := &list[i].Counts
		rows = append(rows, []string{list[i].ID, fmt.Sprint(c.Datasets), fmt.Sprint(c.Batches), fmt.Sprint(c.Segments),
			cli.Count(c.Rows), mark})
	}
	var text bytes.Buffer
	if err := cli.Table(&text, "VERSION >DATASETS >BATCHES >SEGMENTS >ROWS STATE", rows); err != nil {
		return err
	}
	i := -1 // the first line is the header
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
		if i >= 0 {
			if tags := list[i].Tags; len(tags) > 0 {
				cli.Fprintf(out, "  tagged %s\n", someTags(tags))
			}
			changed, built := describeChange(&list[i]), "built by "+list[i].BuiltBy
			if len("  "+changed+"; "+built) <= columns {
				cli.Fprintf(out, "  %s; %s\n", changed, built)
			} else {
				cli.Fprintf(out, "  %s\n  %s\n", changed, built)
			}
		}
		i++
	}
	return nil
}

// describeChange says in words what a version changed.
func describeChange(s *catalog.Summary) string {
	switch {
	case s.Parent == "":
		return "the first version"
	case s.Change == nil:
		return "follows " + s.Parent + ", which is no longer kept"
	}
	var changes []string
	for _, c := range []struct {
		n     int64
		thing string
	}{
		{int64(s.Change.Datasets), "dataset"}, {int64(s.Change.Batches), "batch"}, {s.Change.Rows, "row"},
	} {
		switch {
		case c.n > 0:
			changes = append(changes, "+"+cli.Plural(c.n, c.thing))
		case c.n < 0:
			changes = append(changes, "-"+cli.Plural(-c.n, c.thing))
		}
	}
	if changes == nil {
		return "as many datasets, batches and rows as " + s.Parent + reordered(s)
	}
	return strings.Join(changes, ", ") + " since " + s.Parent
}

// reordered says what became of the segments and parts of the parent. A compaction changes nothing
// else.
func reordered(s *catalog.Summary) string {
	text := ""
	for _, c := range []struct {
		after, change int64
		thing         string
	}{
		{int64(s.Counts.Segments), int64(s.Change.Segments), "segment"}, {s.Counts.Parts, s.Change.Parts, "part"},
	} {
		if c.change != 0 {
			text += fmt.Sprintf("; %s became %d", cli.Plural(c.after-c.change, c.thing), c.after)
		}
	}
	return text
}

// shownTags is how many tags of a version its line names; --json and "starter tag" list all.
const shownTags = 5

// someTags names the first tags of a version.
func someTags(tags []string) string {
	text := strings.Join(tags[:min(len(tags), shownTags)], ", ")
	if more := len(tags) - shownTags; more > 0 {
		text += fmt.Sprintf(" and %s", cli.Plural(int64(more), "other"))
	}
	return text
}
