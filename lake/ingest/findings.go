package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/raw"
)

// Choice is how objects were read.
type Choice = raw.Choice

// Group are the objects of a batch that were read alike.
type Group struct {
	Choice
	// Objects is how many there are; First is the first one, and Bytes their stored size.
	Objects int    `json:"objects"`
	First   string `json:"first"`
	Bytes   int64  `json:"bytes"`
}

// note is a note about one or more objects.
type note struct {
	Text    string `json:"text"`
	Objects int    `json:"objects"`
	First   string `json:"first"`
}

// String names the note's objects before its text.
func (n *note) String() string {
	if n.Objects > 1 {
		return fmt.Sprintf("%s and %d more: %s", n.First, n.Objects-1, n.Text)
	}
	return n.First + ": " + n.Text
}

// FileRejects are the rejects of one object, or of one member of an archive.
type FileRejects struct {
	Object string `json:"object"`
	// Records is how many records it has, Rejected how many of them were rejected, by reason.
	Records  int64            `json:"records"`
	Rejected map[string]int64 `json:"rejected"`
	// First is the first of them.
	First Reject `json:"first"`
}

// All returns how many records were rejected.
func (f *FileRejects) All() (n int64) {
	for _, count := range f.Rejected {
		n += count
	}
	return n
}

// String says how many of the file's records were rejected, why, and where the first one is.
func (f *FileRejects) String() string {
	return fmt.Sprintf("%s: %d of %d records (%s), the first at%s", f.Object, f.All(), f.Records, reasons(f.Rejected),
		location(f.First.Line, f.First.Offset))
}

// findings are what reading a split told about its objects. They do not depend on how a batch was
// split: lists have everything, and limits are applied when the splits' findings are joined.
type findings struct {
	Groups []Group `json:"groups,omitempty"`
	Notes  []note  `json:"notes,omitempty"`
	// Untimed counts the rows without a time that came from formats that can have one; UntimedIn is
	// the first object with such a row.
	Untimed   int64  `json:"untimed,omitempty"`
	UntimedIn string `json:"untimed_in,omitempty"`
	// BadTS counts the rows whose time could not be read, in a column that no caller had named;
	// BadTSIn is the first object with such a row, and BadTSValue the value there.
	BadTS      int64  `json:"bad_ts,omitempty"`
	BadTSIn    string `json:"bad_ts_in,omitempty"`
	BadTSValue string `json:"bad_ts_value,omitempty"`
	// Spaced counts the URLs that have a space inside; SpacedIn is the first object with such a
	// URL.
	Spaced   int64  `json:"spaced,omitempty"`
	SpacedIn string `json:"spaced_in,omitempty"`
	// Unwrapped counts records whose URL wrapped another.
	Unwrapped   int64         `json:"unwrapped,omitempty"`
	Unread      []lake.Unread `json:"unread,omitempty"`
	UnreadCount int64         `json:"unread_count,omitempty"`
}

func (f *findings) chose(c Choice, object string, bytes int64) {
	f.group(Group{Choice: c, Objects: 1, First: shortened(object), Bytes: bytes})
}

func (f *findings) group(g Group) {
	if i := slices.IndexFunc(f.Groups, func(have Group) bool { return have.Choice == g.Choice }); i >= 0 {
		f.Groups[i].Objects += g.Objects
		f.Groups[i].Bytes += g.Bytes
		return
	}
	f.Groups = append(f.Groups, g)
}

// note adds notes about an object.
func (f *findings) note(object string, texts ...string) {
	for _, text := range texts {
		f.add(note{Text: shortened(text), Objects: 1, First: shortened(object)})
	}
}

func (f *findings) add(n note) {
	if i := slices.IndexFunc(f.Notes, func(have note) bool { return have.Text == n.Text }); i >= 0 {
		f.Notes[i].Objects += n.Objects
		return
	}
	f.Notes = append(f.Notes, n)
}

// maxUnread is how many unread objects and members a batch record names.
const maxUnread = 1000

func (f *findings) unread(all int64, first ...lake.Unread) {
	f.UnreadCount += all
	f.Unread = append(f.Unread, first[:min(len(first), maxUnread-len(f.Unread))]...)
}

// joined returns the findings of all splits together.
func joined(splits []splitRecord) findings {
	var all findings
	for i := range splits {
		f := &splits[i].Findings
		for _, g := range f.Groups {
			all.group(g)
		}
		for _, n := range f.Notes {
			all.add(n)
		}
		if all.Untimed += f.Untimed; all.UntimedIn == "" {
			all.UntimedIn = f.UntimedIn
		}
		if all.BadTS += f.BadTS; all.BadTSIn == "" {
			all.BadTSIn, all.BadTSValue = f.BadTSIn, f.BadTSValue
		}
		if all.Spaced += f.Spaced; all.SpacedIn == "" {
			all.SpacedIn = f.SpacedIn
		}
		all.Unwrapped += f.Unwrapped
		all.unread(f.UnreadCount, f.Unread...)
	}
	return all
}

const (
	// maxGroups, maxNotes, maxExamples and maxWorst are how many groups, notes, rejects and files
	// with rejects a FinishResult has.
	maxGroups, maxNotes, maxExamples, maxWorst = 10, 10, 5, 5
	// maxShownUnread is how many unread objects a FinishResult names; the batch record has more.
	maxShownUnread = 10
)

// notes returns the notes of a batch. merged is how many of its rows were merged.
func (f *findings) notes(merged int64) []string {
	var out []string
	for _, n := range f.Notes[:min(len(f.Notes), maxNotes)] {
		out = append(out, n.String())
	}
	if more := len(f.Notes) - maxNotes; more > 0 {
		out = append(out, fmt.Sprintf("and %d further notes on single objects; ingest --dry-run shows all", more))
	}
	if f.Spaced > 0 {
		out = append(out, f.SpacedIn+": "+spacedNote(f.Spaced))
	}
	if f.BadTS > 0 {
		out = append(out, f.BadTSIn+": "+badTSNote(f.BadTS, f.BadTSValue))
	}
	if merged > 0 && f.Untimed > 0 {
		out = append(out, fmt.Sprintf("records merged into equal ones: %d; records of tables without a time: %d, the first in %s; "+
			"if they are captures, name the column of their time (--ts-column)", merged, f.Untimed, f.UntimedIn))
	}
	return out
}

// spacedNote is the note about n URLs with spaces.
func spacedNote(n int64) string {
	return fmt.Sprintf("URLs with a space inside, which becomes %%20: %d; if these are no URLs, "+
		"name the format (--format)", n)
}

// badTSNote returns the note about n times that could not be read. example is the first of them.
func badTSNote(n int64, example string) string {
	if example != "" {
		example = fmt.Sprintf(", the first %q", example)
	}
	return fmt.Sprintf("times that cannot be read, whose rows have none: %d%s (--ts-column and --ts-format say how "+
		"they are read)", n, example)
}

// worst returns the files with the most rejects, the most first.
func worst(splits []splitRecord) []FileRejects {
	var all []FileRejects
	for i := range splits {
		for _, o := range splits[i].Objects {
			files := o.Worst
			if o.Range != nil && len(files) == 0 {
				files = []FileRejects{{Object: o.Name, Records: o.Records}}
			}
			for _, f := range files {
				// The ranges of an object follow one another.
				if n := len(all); n > 0 && o.Range != nil && o.Range.From > 0 && all[n-1].Object == f.Object {
					all[n-1] = all[n-1].plus(f)
					continue
				}
				all = append(all, f)
			}
		}
	}
	all = slices.DeleteFunc(all, func(f FileRejects) bool { return len(f.Rejected) == 0 })
	return worstOf(all)
}

// plus returns f and the rejects of a later range of the same object.
func (f FileRejects) plus(g FileRejects) FileRejects {
	f.Records += g.Records
	if len(f.Rejected) == 0 {
		f.Rejected, f.First = map[string]int64{}, g.First
	}
	f.Rejected = maps.Clone(f.Rejected)
	for reason, n := range g.Rejected {
		f.Rejected[reason] += n
	}
	return f
}

// worstOf sorts files by their rejects and returns the first maxWorst.
func worstOf(all []FileRejects) []FileRejects {
	slices.SortStableFunc(all, func(a, b FileRejects) int {
		return cmp.Or(cmp.Compare(b.All(), a.All()), strings.Compare(a.Object, b.Object))
	})
	return all[:min(len(all), maxWorst)]
}
