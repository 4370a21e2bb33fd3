package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// Classes of names of times, best first. Names of no class have the class 0.
const (
	classTS      = 1 + iota // ts, timestamp
	classCapture            // when the page was fetched or seen
	classTime               // a single word for a time
	classDate               // several words, one of them for a time, or a word for an event
)

// Words of the names of times.
var (
	captureWords = wordSet("crawl crawled crawltime fetch fetched fetchtime capture captured archived " +
		"visit visited access accessed retrieved scraped harvested seen snapshot collected")
	timeWords = wordSet("t time date datetime timestamp epoch unixtime year")
	dateWords = wordSet("time date datetime timestamp ts epoch year month yearmonth yyyymm created created_at createdat published pubdate " +
		"publish posted updated modified lastmod added when")
	// noTimeWords are words of times that are no property of the URL.
	noTimeWords = wordSet("birth born dob death expires expiry expiration expire end due zone timezone duration " +
		"until deadline")
)

// timeClass returns the class of a column's name: how well it says that the column holds the
// records' time.
func timeClass(name string) int {
	if isTSName(name) {
		return classTS
	}
	if len(name) > 64 {
		return 0
	}
	words := splitWords(name)
	has := func(set map[string]bool) bool {
		return slices.ContainsFunc(words, func(w string) bool { return set[w] })
	}
	at := len(words) > 1 && (words[len(words)-1] == "at" || words[len(words)-1] == "on")
	switch {
	case len(words) == 0 || has(noTimeWords):
		return 0
	case has(captureWords) && (len(words) == 1 || at || has(dateWords) || words[0] == "last" || words[0] == "first"):
		return classCapture
	case len(words) == 1 && timeWords[words[0]]:
		return classTime
	case has(dateWords) || at:
		return classDate
	}
	return 0
}

// isTSName reports whether a column has one of the two names that say that it is the record's time.
func isTSName(name string) bool {
	return strings.EqualFold(name, "ts") || strings.EqualFold(name, "timestamp")
}

// timePatterns are the forms of times that are tried without being asked for. Where the day and the
// month can be either, more than one reads all values, and none is chosen.
var timePatterns = func() []timePattern {
	var all []timePattern
	for _, p := range []string{
		"%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y", "%m/%d/%y %H:%M", "%m/%d/%y",
		"%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y", "%d/%m/%y %H:%M", "%d/%m/%y",
		"%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y",
		"%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d",
		"%a, %d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %Z", "%a %b %d %H:%M:%S %z %Y",
		"%d %b %Y", "%b %d, %Y", "%Y/%m", "%m/%Y", "%b %Y",
	} {
		f, err := timestamp.NewFormat(p)
		if err != nil {
			panic(err)
		}
		all = append(all, timePattern{p, f})
	}
	return all
}()

type timePattern struct {
	pattern string
	format  timestamp.Format
}

// maxTimeText is the longest text that is tried as a time.
const maxTimeText = 48

// timeColumn is a column that may hold the records' time, and what its sampled values look like.
type timeColumn struct {
	column raw.Column
	class  int
	isDate bool // its name is date
	// values is how many values were sampled, times how many are times from 1990 to 2100 as they
	// are, dates how many of these are no mere number, epochs how many are numbers as long as times
	// since 1970, hours how many are ten digits that are an hour, and as seconds beyond 2032.
	values, times, dates, epochs, hours int
	unread                              string        // the first value that is no time as it is
	patterns                            []timePattern // the patterns that read all values
}

func (d *detector) newTimeColumn(c raw.Column, name string) *timeColumn {
	return &timeColumn{column: c, class: timeClass(name), isDate: strings.EqualFold(name, "date")}
}

// observe counts a value that is not blank.
func (c *timeColumn) observe(d *detector, v string) {
	c.values++
	if len(v) > maxTimeText {
		c.patterns, c.unread = nil, cmp.Or(c.unread, v[:maxTimeText])
		return
	}
	if d.isTime(v) {
		c.times++
		if looksDate(v) {
			c.dates++
		}
		if n := len(v); (n == 10 || n == 13) && timestamp.AllDigits([]byte(v)) {
			c.epochs++
			if ms, ok := timestamp.ParseDigits([]byte(v)); ok && plausibleTime(ms) {
				c.hours++
			}
		}
	} else {
		c.unread = cmp.Or(c.unread, v)
	}
	if d.opt.TSFormat != "" {
		return
	}
	if c.values == 1 {
		c.patterns = slices.Clone(timePatterns)
	}
	c.patterns = slices.DeleteFunc(c.patterns, func(p timePattern) bool {
		ms, ok := p.format.Parse([]byte(v))
		return !ok || !plausibleTime(ms)
	})
}

// readable reports whether all values are times as they are, or by a pattern that nothing else
// contradicts. If the column's name says that it is a time, nine of ten values are enough.
func (c *timeColumn) readable() bool {
	return c.values > 0 && (c.times == c.values || len(c.patterns) == 1 || c.class > 0 && c.times*10 >= c.values*9)
}

// pattern returns the pattern that reads the values, "" if they are times as they are.
func (c *timeColumn) pattern() string {
	if c.values > 0 && c.hours == c.values {
		return "%Y%m%d%H"
	}
	if c.times == c.values || len(c.patterns) != 1 {
		return ""
	}
	return c.patterns[0].pattern
}

// minEpochs is how many numbers have to look like times since 1970 before a note says so.
const minEpochs = 20

// looksTime reports whether a person should be told that the column may be a time.
func (c *timeColumn) looksTime() bool {
	if c.values == 0 {
		return false
	}
	return len(c.patterns) > 0 || c.times == c.values &&
		(c.class > 0 || c.dates == c.values || c.epochs == c.values && c.values >= minEpochs)
}

// unreadable reports whether the column has the name of a time, and values that are neither times
// nor numbers. A date may be a number of days.
func (c *timeColumn) unreadable() bool {
	_, err := strconv.ParseFloat(c.unread, 64)
	return (c.class == classTS || c.class == classTime) && c.unread != "" && (err != nil || c.isDate)
}

// chooseTime chooses the time, if the options name none: the best name among the columns whose
// values are readable, and of equally good names the first. Without such a name it is the only
// column whose values are dates. Notes tell what was chosen, and what looks like a time and is not
// read.
func (d *detector) chooseTime(columns []*timeColumn) {
	if d.opt.TSColumn != "" || d.noTime {
		return
	}
	d.plan.TS, d.plan.TSChosen = nil, false
	var best *timeColumn
	for _, c := range columns {
		if c.class > 0 && c.readable() && (best == nil || c.class < best.class) {
			best = c
		}
	}
	if best == nil {
		var dates []*timeColumn
		for _, c := range columns {
			if c.class == 0 && c.readable() && (c.dates == c.values || c.pattern() != "") {
				dates = append(dates, c)
			}
		}
		if len(dates) == 1 {
			best = dates[0]
		}
	}
	var also []string
	for _, c := range columns {
		if c != best && c.looksTime() {
			also = append(also, c.column.Name)
		}
	}
	if best == nil {
		if len(also) > 0 {
			d.note("no time is read, so that equal URLs become one row; %s %s (--ts-column and --ts-format choose)",
				raw.QuoteNames(also), looksLikeTime(also))
		} else if i := slices.IndexFunc(columns, (*timeColumn).unreadable); i >= 0 {
			d.note("no time is read, so that equal URLs become one row; %q is a time by its name, and holds %q "+
				"(--ts-column and --ts-format say how it is read)", columns[i].column.Name, columns[i].unread)
		}
		return
	}
	d.plan.TS, d.plan.TSChosen = &best.column, true
	how := ""
	if p := best.pattern(); p != "" {
		d.plan.TSFormat = p
		how = fmt.Sprintf(" by %s", p)
	}
	if best.class == classTS && how == "" && len(also) == 0 {
		return
	}
	others := ""
	if len(also) > 0 {
		others = fmt.Sprintf("; %s %s too", raw.QuoteNames(also), looksLikeTime(also))
	}
	d.note("the time is read from %q%s%s (--ts-column chooses)", best.column.Name, how, others)
}

func looksLikeTime(columns []string) string {
	if len(columns) == 1 {
		return "looks like a time"
	}
	return "look like times"
}
