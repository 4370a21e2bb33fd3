package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table prints rows under a header line, in aligned columns. A column whose header begins with > is
// aligned right. Cells are escaped.
func Table(w io.Writer, header string, rows [][]string) error {
	cols := strings.Fields(header)
	widths := make([]int, len(cols))
	all := append([][]string{make([]string, len(cols))}, rows...)
	for i, c := range cols {
		all[0][i] = strings.TrimPrefix(c, ">")
	}
	for _, r := range all {
		for i := range r {
			r[i] = Escape(r[i])
			widths[i] = max(widths[i], len(r[i]))
		}
	}
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, r := range all {
		for i, cell := range r {
			if strings.HasPrefix(cols[i], ">") {
				cell = strings.Repeat(" ", widths[i]-len(cell)) + cell
			}
			end := "\t"
			if i == len(r)-1 {
				end = "\n"
			}
			fmt.Fprint(tw, cell, end)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// Count formats n with its thousands separated by commas.
func Count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Short formats n with about three digits: 950, 1.5k, 23M.
func Short(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "" || v >= 10 {
		return fmt.Sprintf("%.0f%s", v, unit)
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}

// Plural formats a number of things: 1 batch, 2 batches.
func Plural(n int64, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "ch"):
		thing += "es"
	default:
		thing += "s"
	}
	return Count(n) + " " + thing
}

// Size formats a number of bytes with a binary unit: 17.8 KiB.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// ShellWord returns an argument as one types it in a shell.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:~@%+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
