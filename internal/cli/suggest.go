package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError turns an error of a flag into a *UsageError, with the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		// Flags behind a misspelt verb are those of the verb that was meant.
		return unknownVerb(cmd, cmd.Flags().Arg(0))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return &UsageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if name, ok := Nearest(unknown.GetSpecifiedName(), names); ok {
		return Usagef("%w; did you mean --%s?", err, name)
	}
	return &UsageError{err}
}

// unknownVerb is the error for a word that is none of the verbs of cmd, with the verb that was
// probably meant.
func unknownVerb(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if name, ok := Nearest(word, names); ok {
		return Usagef("unknown command %q for %q; did you mean %q?", word, cmd.CommandPath(), name)
	}
	return Usagef("unknown command %q for %q", word, cmd.CommandPath())
}

// Nearest returns the name that someone who typed word probably meant: one that begins with word or
// with which word begins, or one that few typing errors turn into it. The first of several equally
// near ones is taken.
func Nearest(word string, names []string) (best string, ok bool) {
	word = strings.ToLower(word)
	least := 1 + max(1, len(word)/3) // more errors than that make another word
	for _, name := range names {
		d := edits(word, name)
		if len(word) > 1 && (strings.HasPrefix(name, word) || strings.HasPrefix(word, name)) {
			d = min(d, 1)
		}
		if d < least {
			best, least = name, d
		}
	}
	return best, best != ""
}

// edits is how many characters have to be inserted, removed, replaced, or swapped with their
// neighbour to make b of a.
func edits(a, b string) int {
	// row[j] is the number for the first i characters of a and the first j of b; last and before
	// are those of the two shorter beginnings of a.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
