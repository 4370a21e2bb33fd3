package postgres

import (
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/export/domain64"
)

const (
	// MaxPartitions bounds the names with a partition of their own in each dataset. A plan that
	// cannot prune locks these, and those for what is between them.
	MaxPartitions = 128
	// urlsTable is partitioned by dataset.
	urlsTable = "urls"
)

// partition is a partition by domain64.
type partition struct {
	// From and To are the first and the last number, as PostgreSQL compares them.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Name is what the numbers are of, "" for what has no partition of its own.
	Name string `json:"name,omitempty"`
}

// tableName is the name of a table in a load. The number of the load is part of it, so that tables
// that were detached are in nobody's way.
func tableName(dataset uint32, load int64) string {
	return fmt.Sprintf("%s_%d_%d", urlsTable, dataset, load)
}

// suffix is what the partition's name has behind that of its table. Names are made of numbers, so
// that they cannot collide: dropping the dots and hyphens would give a-b.com and ab.com one table.
func (p *partition) suffix() string { return fmt.Sprintf("_%016x", uint64(p.From)) }

// values is the FOR VALUES clause. PostgreSQL's upper bounds are exclusive, and what follows the
// largest number is MAXVALUE.
func (p *partition) values() string {
	lo, hi := "MINVALUE", "MAXVALUE"
	if p.From != math.MinInt64 {
		lo = fmt.Sprint(p.From)
	}
	if p.To != math.MaxInt64 {
		hi = fmt.Sprint(p.To + 1)
	}
	return fmt.Sprintf("FROM (%s) TO (%s)", lo, hi)
}

// leaves are the names in a load of the tables that rows are in.
func (p *plan) leaves(load int64) (names []string) {
	for _, dataset := range p.loaded() {
		name := tableName(dataset, load)
		for _, part := range p.Partitions {
			names = append(names, name+part.suffix())
		}
		if len(p.Partitions) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// divide returns the partitions for names and for what is between them, none without names. They
// cover all numbers, so that each row has a place. A name within another one divides its numbers.
func divide(l domain64.Layout, codes []domain64.Code, names []domain64.Name) []partition {
	if len(codes) == 0 {
		return nil
	}
	own := make([]partition, len(codes))
	starts := []int64{math.MinInt64}
	for i, c := range codes {
		r := l.Range(c)
		own[i] = partition{r.From, r.To - 1, names[i].Host()}
		starts = append(starts, r.From)
		if r.Open {
			own[i].To = math.MaxInt64
		} else {
			starts = append(starts, r.To)
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	var all []partition
	for i, from := range starts {
		p := partition{From: from, To: math.MaxInt64}
		if i+1 < len(starts) {
			p.To = starts[i+1] - 1
		}
		smallest := uint64(math.MaxUint64)
		for _, o := range own {
			if n := uint64(o.To - o.From); o.From <= p.From && p.To <= o.To && n <= smallest {
				p.Name, smallest = o.Name, n
			}
		}
		all = append(all, p)
	}
	return all
}
