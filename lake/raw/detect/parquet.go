package detect

import (
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/parquetin"
)

// Parquet is Detect for a Parquet object. Columns are named by their path in the schema. The URL
// column is chosen as among the members of JSON, by reading the first values of the columns.
func Parquet(name string, o *parquetin.Object, opt raw.Options) (raw.Plan, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return raw.Plan{}, err
	}
	d, err := newDetector(name, nil, opt)
	if err != nil {
		return raw.Plan{}, err
	}
	if err := d.planParquet(o); err != nil {
		return raw.Plan{}, err
	}
	return d.plan, nil
}

func (d *detector) planParquet(o *parquetin.Object) error {
	d.plan.Format = raw.Parquet
	err := d.planNamed(func(want string) (raw.Column, error) {
		f := o.Find(want)
		if f == nil || !f.IsColumn() {
			return raw.Column{}, d.noColumn(want, o.Names(), "")
		}
		return raw.Column{Name: o.Name(f), Number: f.Number()}, nil
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
	if d.plan.AllExtras {
		var names []string
		for _, f := range o.Unknown() {
			if f.IsColumn() {
				names = append(names, o.Name(f))
			}
		}
		if len(names) > 0 {
			d.note("columns have types that this build does not know and are no extras: %s", raw.QuoteNames(names))
		}
	}
	if d.opt.TSColumn == "" {
		return d.chooseParquetTS(o)
	}
	return nil
}

// planLakePart plans a part of a lake, which has all its columns.
func (d *detector) planLakePart(o *parquetin.Object) {
	column := func(name string) raw.Column { return raw.Column{Name: name, Number: o.Find(name).Number()} }
	d.plan.LakePart, d.plan.URL = true, column("path_query")
	if d.plan.TS == nil && !d.noTime {
		c := column("ts")
		d.plan.TS = &c
	}
	if d.plan.Size == nil {
		c := column("size")
		d.plan.Size = &c
	}
	d.note("it is a part of a lake: its URLs are put together from scheme, host, port and path_query " +
		"(--url-column chooses)")
}

// chooseParquetURL samples the text columns with a name for URLs. If none of them holds URLs or
// hosts, it samples all other text columns too.
func (d *detector) chooseParquetURL(o *parquetin.Object) error {
	var leaves []*leaf
	var fields []*parquetin.Field
	sample := func(named bool) error {
		for _, f := range o.Columns() {
			path := f.Path()
			l := &leaf{path: path, class: nameClass(path[len(path)-1])}
			if !f.IsText() || (l.class > 0) != named || len(leaves) == parquetin.MaxColumns {
				continue
			}
			if err := d.sampleParquet(o, f, l); err != nil {
				return err
			}
			leaves, fields = append(leaves, l), append(fields, f)
		}
		return nil
	}
	if err := sample(true); err != nil {
		return err
	}
	best, also := chooseLeaf(leaves, sampleRows)
	if best == nil || best.urls+best.hosts == 0 && !best.isReversed() {
		if err := sample(false); err != nil {
			return err
		}
		rows := 0
		for _, l := range leaves {
			rows = max(rows, l.values)
		}
		best, also = chooseLeaf(leaves, rows)
	}
	if best == nil && o.NumRows() == 0 {
		return nil // without records no column is missing
	}
	if best == nil {
		return d.reject("no column of this Parquet file looks like URLs; its columns are "+raw.QuoteNames(o.Names()),
			"name one by its path (--url-column urls.url)")
	}
	f := fields[slices.Index(leaves, best)]
	d.plan.URL = raw.Column{Name: o.Name(f), Number: f.Number()}
	d.noteURL(best, also)
	return nil
}

// chooseParquetTS chooses the time among the columns beside the URL that have a name for times.
// They are in the group with the URL or in a group around it, and have one value for each record.
func (d *detector) chooseParquetTS(o *parquetin.Object) error {
	var candidates []*timeColumn
	url := o.Find(d.plan.URL.Name)
	for _, f := range o.Columns() {
		if f.Number() == d.plan.URL.Number || len(candidates) == maxTimes || !f.IsBeside(url) {
			continue
		}
		path := f.Path()
		c := d.newTimeColumn(raw.Column{Name: o.Name(f), Number: f.Number()}, path[len(path)-1])
		if c.class == 0 {
			continue
		}
		l := &leaf{time: c}
		if err := d.sampleParquet(o, f, l); err != nil {
			return err
		}
		candidates = append(candidates, c)
	}
	d.chooseTime(candidates)
	return nil
}

// maxTimes is how many columns of Parquet are sampled for times.
const maxTimes = 16

// sampleParquet counts in l what the first values of a column look like.
func (d *detector) sampleParquet(o *parquetin.Object, f *parquetin.Field, l *leaf) error {
	return o.Sample(f, sampleRows, func(v parquetin.Value) {
		l.values++
		if l.time != nil && v.IsTime {
			l.time.values++
			if plausibleTime(v.Time) {
				l.time.times++
				l.time.dates++
			}
		} else if l.time != nil {
			l.time.observe(d, string(v.Text))
		}
		l.observeText(string(v.Text))
	})
}
