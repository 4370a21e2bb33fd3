package text

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// spacedParser reads the rows of a table with blanks between its fields: any run of spaces and tabs
// separates two fields, so that columns may be aligned. There are no quotes; a lone - is an empty
// field. A line that begins with # is a comment.
type spacedParser struct{ csvParser }

func newSpacedParser(in *Input, plan raw.Plan, f Fields) *spacedParser {
	p := &spacedParser{*newCSVParser(in, plan, f)}
	p.dash, p.blanks = true, true
	return p
}

func (p *spacedParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte {
		if p.in.second {
			return line // a blank at its beginning is behind an empty field
		}
		line = TrimSpace(line)
		switch {
		case len(line) == 0:
			p.fields.Counts.Blank++
			return nil
		case line[0] == '#':
			p.fields.Counts.Comments++
			return nil
		case p.skip > 0:
			p.skip--
			return nil
		}
		return line
	})
	if line == nil {
		return err
	}
	p.splitSpaced(line)
	p.scanned, p.two = false, false
	rej.Reason = p.rowRecord(rec)
	return nil
}

// splitSpaced cuts a line without blanks around it into its first width fields.
func (p *csvParser) splitSpaced(line []byte) {
	p.row, p.cells = line, p.cells[:0]
	for i := 0; i < len(line) && len(p.cells) < p.width; {
		end := i
		for end < len(line) && !isBlank(line[end]) {
			end++
		}
		p.cells = append(p.cells, cell{start: i, end: end})
		for i = end; i < len(line) && isBlank(line[i]); i++ {
		}
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// SpacedRows reads the rows of a table between blanks without a plan.
type SpacedRows struct {
	parser csvParser
	cells  [][]byte
}

// NewSpacedRows returns the rows of an object.
func NewSpacedRows(in *Input) *SpacedRows {
	return &SpacedRows{parser: csvParser{in: in, width: maxSpacedFields}}
}

// maxSpacedFields is how many fields of a line are looked at without a plan.
const maxSpacedFields = 1000

// Next is [Rows.Next]. Comments are left out, as blank rows are.
func (r *SpacedRows) Next() (cells [][]byte, reason string, err error) {
	for {
		line, long, err := r.parser.in.ReadLine()
		if err != nil {
			return nil, "", err
		}
		if long {
			return nil, raw.TooLong, nil
		}
		if line = TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		r.parser.splitSpaced(line)
		r.cells = r.cells[:0]
		for _, c := range r.parser.cells {
			r.cells = append(r.cells, line[c.start:c.end])
		}
		return r.cells, "", nil
	}
}

// CrawlLogColumns are the fields of a line of crawl.log, the log of Heritrix about every URL that
// it tried to fetch (https://heritrix.readthedocs.io/en/latest/operating.html#crawl-log). The last
// one is only there if the crawl is set so, and may have blanks.
var CrawlLogColumns = []string{
	"logged", raw.Status, "size", "url", "path", raw.Via, raw.MIME, "thread", "timestamp", raw.Digest,
	"source", "annotations", "info",
}

// Numbers of columns of a crawl log, from 1.
const (
	CrawlLogLogged    = 1
	CrawlLogSize      = 3
	CrawlLogURL       = 4
	CrawlLogTimestamp = 9
	crawlLogFields    = 11 // at least
)

// crawlLogParser reads lines of crawl.log. A URL that could not be fetched is a record too; its
// status is negative.
//
// Two lines without a line break between them are two records, or one behind a line that was cut.
//
// The time of a capture is when its fetch began, which the WARC record and the CDX line of the
// capture have too, and as there in whole seconds. Of a URL that was never fetched it is when the
// line was written.
type crawlLogParser struct {
	csvParser
	fetched bool // the time is that of the fetch
}

func newCrawlLogParser(in *Input, plan raw.Plan, f Fields) *crawlLogParser {
	p := &crawlLogParser{csvParser: *newCSVParser(in, plan, f)}
	p.dash = true
	if p.ts == CrawlLogTimestamp-1 {
		p.ts, p.fetched = -1, true
	}
	p.width = len(CrawlLogColumns)
	return p
}

func (p *crawlLogParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, func(line []byte) []byte {
		line = TrimSpace(line)
		if len(line) == 0 {
			p.fields.Counts.Blank++
			return nil
		}
		return line
	})
	if line == nil {
		return err
	}
	p.splitSpaced(line)
	if p.mayBeTwo() {
		if at := secondLogLine(line); at > 0 {
			p.in.unread(line[at:])
			line = TrimSpace(line[:at])
			p.splitSpaced(line)
		}
	}
	if len(p.cells) < crawlLogFields {
		rej.Reason = raw.BadLog
		return nil
	}
	if n := len(p.cells); n == len(CrawlLogColumns) {
		p.cells[n-1].end = len(line) // a JSON object
	}
	if rej.Reason = p.record(rec); rej.Reason != "" || !p.fetched {
		return nil
	}
	// The fetch's beginning in 17 digits, + and its duration in milliseconds.
	begin, _, _ := bytes.Cut(p.cell(CrawlLogTimestamp-1), []byte{'+'})
	if len(begin) == 0 {
		begin = p.cell(CrawlLogLogged - 1)
	}
	if !p.fields.SetTS(rec, begin) {
		rej.Reason = raw.BadTS
	} else if rec.HasTS {
		rec.TS -= (rec.TS%1000 + 1000) % 1000
	}
	return nil
}

// mayBeTwo reports whether the line has more fields than a line has, or has them elsewhere.
func (p *crawlLogParser) mayBeTwo() bool {
	const longest = len("2020-01-02T03:04:05.000Z")
	n := len(p.cells)
	return n == len(CrawlLogColumns) && p.cells[n-1].end < len(p.row) || p.cells[0].end > longest ||
		n >= crawlLogFields && p.row[p.cells[7].start] != '#'
}

// secondLogLine returns the offset in line of a second line that no line break precedes, 0 if there
// is none. The first may have lost its end.
func secondLogLine(line []byte) int {
	for at := 0; at < len(line); at++ {
		begin := at
		for at < len(line) && !isBlank(line[at]) {
			at++
		}
		field := line[begin:at]
		if t := bytes.LastIndexByte(field, 'T'); t >= len("2020-01-02") {
			begin += t - len("2020-01-02")
		} else {
			begin += len(bytes.TrimRight(field, "0123456789"))
		}
		if begin > 0 && IsCrawlLogLine(line[begin:]) {
			return begin
		}
	}
	return 0
}

// IsCrawlLogLine reports whether line is one of crawl.log.
func IsCrawlLogLine(line []byte) bool {
	if len(line) == 0 || !isNumber(line[:1]) {
		return false
	}
	p := csvParser{width: crawlLogFields}
	p.splitSpaced(line)
	return len(p.cells) == crawlLogFields && isLogTime(p.cell(0)) && isNumber(bytes.TrimPrefix(p.cell(1), []byte{'-'})) &&
		(isNumber(p.cell(2)) || string(p.cell(2)) == "-") && bytes.IndexByte(p.cell(3), ':') > 0 &&
		line[p.cells[7].start] == '#'
}

// isLogTime reports whether b begins like a date, 2024-01-02T, or has 14 or 17 digits.
func isLogTime(b []byte) bool {
	if len(b) >= 20 && b[4] == '-' && b[7] == '-' && b[10] == 'T' {
		return isNumber(b[:4])
	}
	return (len(b) == 14 || len(b) == 17) && isNumber(b)
}

func isNumber(b []byte) bool { return len(b) > 0 && timestamp.AllDigits(b) }
