package detect

import (
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
	"github.com/urlake/urlake/lake/raw/text"
)

// planParquet is Detect for Parquet: columns are named by their path, the URL column is chosen as among the
// members of JSON.
func (d *detector) PlanParquet(o *parquetin.Object) error {
	d.Plan.Format = raw.Parquet
	err := d.nameColumns(func(want string) (raw.Column, error) {
		n := o.Find(want)
		if n == nil || n.Leaf < 0 {
			return raw.Column{}, d.noColumn(want, o.Names(), "")
		}
		return raw.Column{Name: o.Name(n), Number: n.Leaf + 1}, nil
	}, func(want string) (raw.Column, error) {
		if o.Find(want) == nil {
			return raw.Column{}, d.noColumn(want, o.Names(), "")
		}
		return raw.Column{Name: want}, nil // perhaps a group
	})
	if err != nil {
		return err
	}
	if d.opt.URLColumn == "" && o.IsLakePart() {
		d.planLakePart(o)
		return nil
	}
	if d.opt.URLColumn == "" {
		if err := d.chooseParquetURL(o); err != nil {
			return err
		}
	}
	if d.opt.TSColumn == "" {
		return d.chooseParquetTS(o)
	}
	return nil
}

// planLakePart plans a part of a lake.
func (d *detector) planLakePart(o *parquetin.Object) {
	column := func(name string) raw.Column { return raw.Column{Name: name, Number: o.Find(name).Leaf + 1} }
	d.Plan.LakePart, d.Plan.URL = true, column("path_query")
	if d.Plan.TS == nil {
		c := column("ts")
		d.Plan.TS = &c
	}
	if d.Plan.Size == nil {
		c := column("size")
		d.Plan.Size = &c
	}
	d.note("it is a part of a lake: its URLs are put together from scheme, host, port and path_query (--url-column chooses)")
}

// chooseParquetURL reads the first values of the columns with a name for URLs and, if those do not do, of all others of text.
func (d *detector) chooseParquetURL(o *parquetin.Object) error {
	var leaves []*leaf
	var nodes []*parquetin.Field
	collect := func(named bool) error {
		for _, n := range o.Leaves {
			l := &leaf{path: n.Short, class: NameClass(n.Short[len(n.Short)-1])}
			if parquetin.KindOf(n.Desc) != parquetin.TextKind || (l.class > 0) != named || len(leaves) == parquetin.MaxParquetColumns {
				continue
			}
			if err := d.sampleParquet(o, n, l); err != nil {
				return err
			}
			leaves, nodes = append(leaves, l), append(nodes, n)
		}
		return nil
	}
	if err := collect(true); err != nil {
		return err
	}
	best, also := chooseLeaf(leaves, sampleRows)
	if best == nil || best.urls+best.hosts == 0 {
		if err := collect(false); err != nil {
			return err
		}
		rows := 0
		for _, l := range leaves {
			rows = max(rows, l.values)
		}
		best, also = chooseLeaf(leaves, rows)
	}
	if best == nil && o.Meta.NumRows == 0 {
		return nil // no records, whatever they would have been
	}
	if best == nil {
		return d.refuse("no column of this Parquet file looks like URLs; its columns are "+raw.QuoteNames(o.Names()), "name one by its path (--url-column urls.url)")
	}
	n := nodes[slices.Index(leaves, best)]
	d.Plan.URL = raw.Column{Name: o.Name(n), Number: n.Leaf + 1}
	d.noteURL(best, also)
	return nil
}

func (d *detector) chooseParquetTS(o *parquetin.Object) error {
	for _, n := range o.Leaves {
		if len(n.Full) != 1 || !isTSName(n.Name) || n.Repeated || n.Leaf+1 == d.Plan.URL.Number {
			continue
		}
		l := &leaf{}
		if err := d.sampleParquet(o, n, l); err != nil {
			return err
		}
		if l.values > 0 && l.times == l.values {
			d.Plan.TS, d.Plan.TSChosen = &raw.Column{Name: o.Name(n), Number: n.Leaf + 1}, true
		}
		return nil
	}
	return nil
}

// sampleParquet looks at the first values of a column.
func (d *detector) sampleParquet(o *parquetin.Object, n *parquetin.Field, l *leaf) error {
	r, err := o.Reader(1)
	if err != nil {
		return err
	}
	c, err := parquetin.NewColumn(n)
	if err != nil {
		return nil // no column that a record can be read from
	}
	for g := range o.Meta.NumRowGroups() {
		if err := c.Open(r, g); err != nil {
			return err
		}
		for seen := 0; seen < sampleRows; seen++ {
			ok, err := c.Peek()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !c.Null() {
				var content []byte
				ms, isTime := c.Time()
				if !isTime {
					content = text.TrimSpace(c.Text(nil))
				}
				if isTime || len(content) > 0 {
					l.values++
				}
				if isTime && plausibleTime(ms) || !isTime && d.isTime(string(content)) {
					l.times++
				}
				if v := string(content); looksURL(v) {
					l.urls++
				} else if looksHost(v) {
					l.hosts++
				}
			}
			c.Pass()
		}
		if l.values > 0 {
			break
		}
	}
	return nil
}
