package raw

import (
	"fmt"
	"strings"
)

// Choice is how objects were read: their format, and the columns that were chosen or named. A
// column is its name, or its number where it has none; "" means none.
type Choice struct {
	// Format is the format, whatever its compression: "csv"; "empty" for an object without bytes.
	Format string `json:"format"`
	URL    string `json:"url_column,omitempty"`
	TS     string `json:"ts_column,omitempty"`
	Size   string `json:"size_field,omitempty"`
}

// Choice returns the choice of a plan.
func (p *Plan) Choice() Choice {
	c := Choice{Format: p.Format}
	if p.Members != nil || p.Format == Lines { // members of an archive have choices of their own
		return c
	}
	c.URL = p.URL.Label()
	c.TS = p.TS.Label()
	c.Size = p.Size.Label()
	return c
}

// Label returns the name of a column, shortened, or its number; "" for nil.
func (c *Column) Label() string {
	switch {
	case c == nil:
		return ""
	case c.Name == "" && c.Number > 0:
		return fmt.Sprint(c.Number)
	}
	return Shortened(c.Name)
}

// String describes a choice for people.
func (c Choice) String() string {
	var s []string
	for _, f := range []struct{ what, column string }{{"URL", c.URL}, {"time", c.TS}, {"size", c.Size}} {
		if f.column != "" {
			s = append(s, fmt.Sprintf("%s in %q", f.what, f.column))
		}
	}
	return strings.Join(append([]string{c.Format}, s...), ", ")
}

// maxText is how many bytes of a name, a note or a reason are in results and errors. Members of
// archives can have names of a megabyte, with which Temporal would deliver neither.
const maxText = 4096

// Shortened returns text without its middle if it is longer than maxText.
func Shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	const half = (maxText - len("…")) / 2
	return strings.ToValidUTF8(text[:half], "") + "…" + strings.ToValidUTF8(text[len(text)-half:], "")
}
