package part

// DomainRuns are the domains of rows that follow each other, and what counting needs to know of the rows besides. Equal neighbours, which in a
// part are all rows of a domain, are one run: a page says how long it is without its strings being made.
type DomainRuns struct {
	Text []byte
	Runs []DomainRun
	// Measures has TS and Size of all rows, and which have one. It has no rows where none has either.
	Measures Columns
}

// domainRun is a domain and its rows.
type DomainRun struct {
	End  int // in text
	Rows int64
}

// Len is the number of runs.
func (d *DomainRuns) Len() int { return len(d.Runs) }

// Run returns run i. The domain is valid until the next rows are read.
func (d *DomainRuns) Run(i int) (domain []byte, rows int64) {
	start := 0
	if i > 0 {
		start = d.Runs[i-1].End
	}
	return d.Text[start:d.Runs[i].End], d.Runs[i].Rows
}

// DomainSink is told what domains parts have while they are written, so that nobody has to read them again to know.
type DomainSink interface {
	// Domains tells of the next rows of the open part, which follow those of the call before. They are valid during the call.
	Domains(rows *DomainRuns) error
	// EndPart ends the open part, whose file is complete but not in the store yet: PartWriter.Finish tells whether all are. What follows is the next one's.
	EndPart(p *Written) error
}

// begin begins a page.
func (d *DomainRuns) Begin() { d.Text, d.Runs = d.Text[:0], d.Runs[:0] }

// start says that the rows of the page from row on have another domain than those before.
func (d *DomainRuns) Start(row int, domain []byte) {
	d.End(row)
	d.Text = append(d.Text, domain...)
	d.Runs = append(d.Runs, DomainRun{len(d.Text), -int64(row)})
}

// end says that what was started last ends before row.
func (d *DomainRuns) End(row int) {
	if n := len(d.Runs); n > 0 {
		d.Runs[n-1].Rows += int64(row)
	}
}
