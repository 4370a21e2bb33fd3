package part

// DomainRuns holds the domains of consecutive rows as runs of equal neighbours, with the timestamps
// and sizes of these rows. All rows of a domain are neighbours in a part, so there is one run for a
// domain, and no string for each row.
type DomainRuns struct {
	// Measures has TS, HasTS, Size and HasSize of all rows. Its Rows is 0 if no row has either
	// value.
	Measures Columns

	text []byte // the domains, one after the other
	runs []domainRun
}

// domainRun is one domain and the number of its rows.
type domainRun struct {
	end  int // of the domain in text
	rows int64
}

// Len is the number of runs.
func (d *DomainRuns) Len() int { return len(d.runs) }

// Run returns the domain of run i and the number of its rows. The domain is valid until the next
// reset.
func (d *DomainRuns) Run(i int) (domain []byte, rows int64) {
	start := 0
	if i > 0 {
		start = d.runs[i-1].end
	}
	return d.text[start:d.runs[i].end], d.runs[i].rows
}

// last is the domain of the last run, empty if there is none. It is valid until the next Reset.
func (d *DomainRuns) last() []byte {
	if len(d.runs) == 0 {
		return nil
	}
	domain, _ := d.Run(len(d.runs) - 1)
	return domain
}

// reset removes all runs and measures and keeps their memory.
func (d *DomainRuns) reset() {
	m := &d.Measures
	m.Rows, m.TS, m.HasTS, m.Size, m.HasSize = 0, m.TS[:0], m.HasTS[:0], m.Size[:0], m.HasSize[:0]
	d.text, d.runs = d.text[:0], d.runs[:0]
}

// append begins a run of rows rows. Its domain is prefix and suffix joined; prefix may be a part of
// last.
func (d *DomainRuns) append(prefix, suffix []byte, rows int64) {
	d.text = append(append(d.text, prefix...), suffix...)
	d.runs = append(d.runs, domainRun{len(d.text), rows})
}

// extend adds rows to the last run. There has to be one.
func (d *DomainRuns) extend(rows int64) { d.runs[len(d.runs)-1].rows += rows }

// DomainSink receives the domains of parts while the parts are written, so that no part has to be
// read again for them. A sink is called by one goroutine at a time.
type DomainSink interface {
	// Domains receives the next rows of the open part. They are valid during the call.
	Domains(rows *DomainRuns) error
	// EndPart ends the open part. Its file is complete but not yet in the store: it is there when
	// the writer's Finish has returned without an error. Later calls of Domains belong to the next
	// part.
	EndPart(p *Written) error
}
