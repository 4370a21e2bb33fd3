package postgres

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urlake/urlake/export/domain64"
)

const (
	// DefaultPartitionRows is how many URLs a TLD, a site or a subdomain has at least that gets a
	// partition of its own.
	DefaultPartitionRows = 10_000_000
	// maxRanges bounds the TLDs, sites and subdomains with a partition of their own. A plan that
	// cannot prune locks these, and those for what is between them, which are rarely more.
	maxRanges = 128
	// urlsTable is the partitioned table, staged the table that rows are copied into.
	urlsTable = "urls"
	staged    = "load_urls"
)

// bounds is a range of domain64 as PostgreSQL compares it: from lo on, and up to hi inclusive.
type bounds struct{ Lo, Hi int64 }

// holds reports whether b is within a.
func (a bounds) holds(b bounds) bool { return a.Lo <= b.Lo && b.Hi <= a.Hi }

// values is the FOR VALUES clause. PostgreSQL's upper bounds are exclusive, and what follows the
// largest number is MAXVALUE.
func (a bounds) values() string {
	lo, hi := "MINVALUE", "MAXVALUE"
	if a.Lo != math.MinInt64 {
		lo = fmt.Sprint(a.Lo)
	}
	if a.Hi != math.MaxInt64 {
		hi = fmt.Sprint(a.Hi + 1)
	}
	return fmt.Sprintf("FROM (%s) TO (%s)", lo, hi)
}

// check is the condition that proves that a table has rows of the range alone.
func (a bounds) check() string {
	return fmt.Sprintf("domain64 BETWEEN %s AND %s", literal(a.Lo), literal(a.Hi))
}

// literal is a BIGINT in SQL. The smallest one has no literal of its own: a minus is an operator.
func literal(n int64) string {
	if n == math.MinInt64 {
		return "(-9223372036854775807 - 1)"
	}
	return fmt.Sprintf("(%d)::bigint", n)
}

var everything = bounds{math.MinInt64, math.MaxInt64}

// own is a range that gets a partition of its own, and what it is called by people.
type own struct {
	bounds
	Label string // hexadecimal digits of the number, as in 01_000001
	Name  string // for people, as in example.com
}

// partition is a table of the tree below urls.
type partition struct {
	Name string `json:"name"`
	// Parent is "" for a partition of urls itself.
	Parent string `json:"parent,omitempty"`
	Of     bounds `json:"of"`
	// Divided tells that the partition has partitions, and no rows of its own.
	Divided bool   `json:"divided,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// divide returns the partitions below urls: one for each range of its own, and others for what is
// between them. Ranges of own are disjoint or within each other. Together the partitions cover all
// numbers, so that a later version finds a place for each row, and no default partition is needed,
// which would be locked when another one is attached.
//
// Names are made of numbers, so that they cannot collide: dropping the dots and hyphens of names
// would give a-b.com and ab.com one table.
func divide(ranges []own) []partition {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b own) int { return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(b.Hi, a.Hi)) })
	sorted = slices.CompactFunc(sorted, func(a, b own) bool { return a.bounds == b.bounds })
	var all []partition
	divideBelow("", everything, sorted, &all)
	return all
}

func divideBelow(parent string, of bounds, ranges []own, all *[]partition) {
	at, more := of.Lo, true
	gap := func(hi int64) {
		*all = append(*all, partition{
			Name: fmt.Sprintf("%s_rest_%016x", urlsTable, uint64(at)), Parent: parent, Of: bounds{at, hi},
			Comment: "what has no partition of its own",
		})
	}
	for len(ranges) > 0 {
		r := ranges[0]
		n := 1
		for n < len(ranges) && r.holds(ranges[n].bounds) {
			n++
		}
		if at < r.Lo {
			gap(r.Lo - 1)
		}
		p := partition{Name: urlsTable + "_" + r.Label, Parent: parent, Of: r.bounds, Divided: n > 1, Comment: r.Name}
		*all = append(*all, p)
		if n > 1 {
			divideBelow(p.Name, r.bounds, ranges[1:n], all)
		}
		ranges = ranges[n:]
		if more = r.Hi < of.Hi; more {
			at = r.Hi + 1
		}
	}
	if more {
		gap(of.Hi)
	}
}

// ownOf returns the range of a code and of everything below it.
func ownOf(l domain64.Layout, c domain64.Code, name string) own {
	r := l.Range(c)
	b := bounds{r.From, r.To - 1}
	if r.Open {
		b.Hi = math.MaxInt64
	}
	at, _ := l.Level(c)
	fields := strings.Split(strings.ToLower(l.Format(c)), ":")
	return own{b, strings.Join(fields[:at+1], "_"), name}
}

// quote quotes a name for SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText quotes a text for SQL, where no parameter is possible.
func quoteText(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return "'" + s + "'"
}
