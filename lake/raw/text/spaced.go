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
	if len(p.second) > 0 {
		p.nextSecond(rec, rej)
		return nil
	}
	line, err := p.in.nextLine(rej, func(line []byte) []byte {
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
	p.scanned = false
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

// IsCrawlLogLine reports whether line is one of crawl.log.
func IsCrawlLogLine(line []byte) bool {
	if len(line) == 0 || !isNumber(line[:1]) || !bytes.Contains(line, []byte(" #")) {
		return false
	}
	f := bytes.Fields(line)
	return len(f) >= crawlLogFields && isLogTime(f[0]) && isStatus(f[1]) &&
		(isNumber(f[2]) || string(f[2]) == "-") && bytes.IndexByte(f[3], ':') > 0 && f[7][0] == '#'
}

// isLogTime reports whether b begins like a date, 2024-01-02T, or has 14 or 17 digits.
func isLogTime(b []byte) bool {
	if len(b) >= 20 && b[4] == '-' && b[7] == '-' && b[10] == 'T' {
		return isNumber(b[:4])
	}
	return (len(b) == 14 || len(b) == 17) && isNumber(b)
}

func isStatus(b []byte) bool { return isNumber(bytes.TrimPrefix(b, []byte{'-'})) && len(b) <= 6 }

func isNumber(b []byte) bool { return len(b) > 0 && timestamp.AllDigits(b) }
