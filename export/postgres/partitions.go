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
	// DefaultPartitionRows is how many rows a TLD, a site or a subdomain has at least in a dataset
	// that gets a partition of its own there.
	DefaultPartitionRows = 10_000_000
	// maxRanges bounds the TLDs, sites and subdomains of a dataset with a partition of their own. A
	// plan that cannot prune locks these, and those for what is between them, which are rarely
	// more.
	maxRanges = 128
	// urlsTable and idMapTable are partitioned by dataset.
	urlsTable  = "urls"
	idMapTable = "id_map"
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

var everything = bounds{math.MinInt64, math.MaxInt64}

// own is a range that gets a partition of its own, and what it is called by people.
type own struct {
	bounds
	Label string // hexadecimal digits of the number, as in 01_000001
	Name  string // for people, as in example.com
}

// table is a table of a load.
type table struct {
	// Of is urls or id_map.
	Of      string `json:"of"`
	Dataset uint32 `json:"dataset"`
	// Suffix is what the table's name has behind the number of the load, "" for the table of the
	// whole dataset. Parent is the suffix of the table that it is a partition of.
	Suffix string `json:"suffix,omitempty"`
	Parent string `json:"parent,omitempty"`
	Range  bounds `json:"range"`
	// Divided tells that the table has partitions, and no rows of its own.
	Divided bool   `json:"divided,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// name is the name of the table in a load. The number of the load is part of it, so that tables
// that were detached are in nobody's way.
func (t *table) name(load int64) string { return tableName(t.Of, t.Dataset, load) + t.Suffix }

func tableName(of string, dataset uint32, load int64) string {
	return fmt.Sprintf("%s_%d_%d", of, dataset, load)
}

// leaves are the tables that rows are copied into.
func (p *plan) leaves() (leaves []*table) {
	for i := range p.Tables {
		if t := &p.Tables[i]; !t.Divided {
			leaves = append(leaves, t)
		}
	}
	return leaves
}

// divide returns the tables for a dataset's rows of urls, parents first: one without ranges;
// otherwise one for each range, and others for what is between them. Ranges are disjoint or within
// each other. Together the partitions cover all numbers, so that each row has a place.
//
// Names are made of numbers, so that they cannot collide: dropping the dots and hyphens of names
// would give a-b.com and ab.com one table.
func divide(dataset uint32, ranges []own) []table {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b own) int { return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(b.Hi, a.Hi)) })
	sorted = slices.CompactFunc(sorted, func(a, b own) bool { return a.bounds == b.bounds })
	all := []table{{Of: urlsTable, Dataset: dataset, Range: everything, Divided: len(sorted) > 0}}
	if len(sorted) > 0 {
		divideBelow(all[0], sorted, &all)
	}
	return all
}

func divideBelow(parent table, ranges []own, all *[]table) {
	at, more := parent.Range.Lo, true
	add := func(suffix string, of bounds, divided bool, comment string) table {
		t := table{
			Of: parent.Of, Dataset: parent.Dataset, Suffix: suffix, Parent: parent.Suffix,
			Range: of, Divided: divided, Comment: comment,
		}
		*all = append(*all, t)
		return t
	}
	gap := func(hi int64) {
		add(fmt.Sprintf("_rest_%016x", uint64(at)), bounds{at, hi}, false, "what has no partition of its own")
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
		t := add("_"+r.Label, r.bounds, n > 1, r.Name)
		if n > 1 {
			divideBelow(t, ranges[1:n], all)
		}
		ranges = ranges[n:]
		if more = r.Hi < parent.Range.Hi; more {
			at = r.Hi + 1
		}
	}
	if more {
		gap(parent.Range.Hi)
	}
}

// ownOf returns the range of a name and of everything below it.
func ownOf(l domain64.Layout, c domain64.Code, name domain64.Name) own {
	r := l.Range(c)
	b := bounds{r.From, r.To - 1}
	if r.Open {
		b.Hi = math.MaxInt64
	}
	at, _ := l.Level(c)
	fields := strings.Split(strings.ToLower(l.Format(c)), ":")
	return own{b, strings.Join(fields[:at+1], "_"), name.Host()}
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
