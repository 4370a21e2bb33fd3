package move

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partwriter"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/rowsort"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// smallPart is the size of a part that is written again with the domains that its partition
	// gains, although it has none of them. Otherwise every change of the list would leave another
	// small part.
	smallPart = 256 << 10

	// maxGains is the most gained domains of a partition that are told apart. If there are more,
	// all parts of the partition are written again.
	maxGains = 1 << 20

	// readRows is how many rows are read at once: a page or two.
	readRows = part.PageRows
)

// rewrite makes the postings objects with parts that lose or gain rows again, and writes the batch
// record.
func (m *mover) rewrite(s *scanned) (Result, error) {
	incoming, err := m.incoming(s)
	if err != nil {
		return Result{}, err
	}
	done := map[int]*rewritten{}
	left := m.record.Parts
	for i, o := range m.objects {
		own := left[:len(o.Parts())]
		left = left[len(own):]
		if len(s.Lost[i]) == 0 && len(incoming[i]) == 0 {
			continue
		}
		r := new(rewritten)
		name := fmt.Sprintf("object-%06d.json", i)
		ok, err := m.load(name, r)
		if err != nil {
			return Result{}, err
		}
		if !ok {
			w := rewriter{mover: m, number: i, object: o, parts: own, found: s, out: r}
			if err := w.run(incoming[i]); err != nil {
				return Result{}, err
			}
			if err := m.save(name, r); err != nil {
				return Result{}, err
			}
		} else {
			m.progress.Written += r.Written
		}
		done[i] = r
		if err := m.report(); err != nil {
			return Result{}, err
		}
	}
	return m.finish(s, done)
}

// incoming returns, for each postings object, the domain_prefixes that rows move to. Objects have
// ranges of prefixes; a prefix between two objects goes to the first of them.
func (m *mover) incoming(s *scanned) ([][]string, error) {
	width := 0
	if p := m.record.Parts[0].DomainPrefix; p != lake.AnyPrefix {
		width = len(p)
	}
	firsts := make([]string, len(m.objects)) // the first prefix of each object
	left := m.record.Parts
	for i, o := range m.objects {
		n := len(o.Parts())
		if n == 0 {
			return nil, codec.Corrupt(o.Key(), "directory", -1, "parts", "none")
		}
		firsts[i] = left[0].DomainPrefix
		left = left[n:]
	}
	if !slices.IsSorted(firsts) {
		return nil, codec.Corrupt(m.ref.Key(), "parts", -1, "ascending partitions", firsts)
	}
	out := make([][]string, len(m.objects))
	for partition, rows := range s.Rows {
		if rows == 0 {
			continue
		}
		prefix := rowsort.PrefixOf(partition, width)
		i, found := slices.BinarySearch(firsts, prefix)
		if !found {
			i = max(0, i-1)
		}
		if n := len(out[i]); n == 0 || out[i][n-1] != prefix {
			out[i] = append(out[i], prefix)
		}
	}
	return out, nil
}

// rewriter makes a postings object again.
type rewriter struct {
	*mover
	number    int
	object    *postings.Reader
	parts     []lake.Part // of the object
	found     *scanned
	out       *rewritten
	collector *postings.Collector
}

// run writes the new parts of the object and its postings. incoming are the prefixes that rows move
// to.
func (w *rewriter) run(incoming []string) error {
	w.collector = postings.NewCollector(w.ref.DatasetID, w.ref.Batch, w.opt.TempDir)
	defer w.collector.Close()
	prefixes := slices.Clone(incoming)
	for _, p := range w.parts {
		prefixes = append(prefixes, p.DomainPrefix)
	}
	slices.Sort(prefixes)
	for _, prefix := range slices.Compact(prefixes) {
		if err := w.partition(prefix); err != nil {
			return err
		}
	}
	if len(w.out.Parts) == 0 {
		return nil
	}
	var err error
	w.out.Postings, w.out.Domains, err = w.collector.Finish(w.ctx, w.store)
	w.out.Bytes += w.out.Postings.Bytes
	return err
}

// partition writes the new parts of a partition and copies the postings of the others.
func (w *rewriter) partition(prefix string) error {
	first, last, err := rowsort.PartitionsOf(prefix)
	if err != nil {
		return codec.Corrupt(w.ref.Key(), "parts", -1, "a domain prefix", err)
	}
	p := partition{rewriter: w, prefix: prefix, first: first, last: last, gains: map[uint64]bool{}}
	for n := range w.parts {
		if w.parts[n].DomainPrefix == prefix {
			p.numbers = append(p.numbers, n)
			p.again = append(p.again, slices.Contains(w.found.Lost[w.number], n))
		}
	}
	p.buffer = rowsort.NewBuffer(w.limits.arena)
	defer p.buffer.Release()
	return p.run()
}

// partition is a partition that is made again.
type partition struct {
	*rewriter
	prefix      string
	first, last byte
	numbers     []int  // of its parts in the object
	again       []bool // for each of them, whether it is written again

	buffer   *rowsort.Buffer
	runs     []rowsort.Run
	gains    map[uint64]bool // ids of the domains that rows move to
	manyGain bool            // there are more of them than limits.gains
}

func (p *partition) run() error {
	rows := int64(0)
	for _, n := range p.found.Rows[int(p.first) : int(p.last)+1] {
		rows += n
	}
	if rows > 0 {
		if err := p.loadMoved(); err != nil {
			return err
		}
	}
	if rows > 0 || slices.Contains(p.again, true) {
		if err := p.choose(rows > 0); err != nil {
			return err
		}
	}
	written := false
	for i, n := range p.numbers {
		switch {
		case !p.again[i]:
			if err := p.collector.Copy(p.ctx, p.object, n); err != nil {
				return err
			}
			p.out.Parts = append(p.out.Parts, p.parts[n])
		case !written:
			written = true
			if err := p.write(rows); err != nil {
				return err
			}
		}
	}
	if rows > 0 && !written {
		return p.write(rows)
	}
	return nil
}

// loadMoved loads the rows that move to the partition and finds their domains.
func (p *partition) loadMoved() error {
	if err := p.buffer.Load(p.ctx, p.shuffle, p.first, p.last, func() error {
		if err := p.noteGains(); err != nil {
			return err
		}
		return p.spill()
	}); err != nil {
		return err
	}
	return p.noteGains()
}

// noteGains adds the domains of the rows in the buffer to gains.
func (p *partition) noteGains() error {
	if p.buffer.Len() == 0 {
		return nil
	}
	return p.buffer.Rows(p.ctx, p.first, p.last, (*gainSink)(p))
}

// gainSink is a row.Sink that adds domains to gains.
type gainSink partition

func (g *gainSink) Rows(hosts []row.SortedHost, rows []row.SortedRow) (int, error) {
	for i := range hosts {
		if id := hosts[i].DomainID; !g.gains[id] {
			if g.manyGain = len(g.gains) == g.limits.gains; g.manyGain {
				break
			}
			g.gains[id] = true
		}
	}
	return len(rows), nil
}

// spill writes the rows in the buffer to a sorted run.
func (p *partition) spill() error {
	if p.buffer.Len() == 0 {
		return nil
	}
	r, err := p.buffer.WriteRun(p.ctx, p.store, p.runKey(0, len(p.runs)))
	p.runs = append(p.runs, r)
	return err
}

func (p *partition) runKey(pass, n int) string {
	return fmt.Sprintf("%smerging/%06d/%s-%d-%06d", p.staging, p.number, p.prefix, pass, n)
}

// choose decides which parts are written again: those that lose rows, those with a domain that
// gains rows, and those that share a domain with one of these, so that the rows of a domain stay in
// order over all parts.
func (p *partition) choose(gaining bool) error {
	shares := make([]bool, len(p.numbers)) // its last domain continues in the next part
	var last []byte
	for i, n := range p.numbers {
		number := 0
		for d, err := range p.object.PartDomains(p.ctx, n) {
			if err != nil {
				return err
			}
			if number == 0 && i > 0 {
				shares[i-1] = string(last) == string(d.Name)
			}
			number++
			last = append(last[:0], d.Name...)
			if gaining && !p.again[i] {
				p.again[i] = p.manyGain || p.gains[urlnorm.DomainID(string(d.Name))]
			}
		}
		if err := p.ctx.Err(); err != nil {
			return err
		}
	}
	if end := len(p.numbers) - 1; gaining && end >= 0 && !slices.Contains(p.again, true) {
		p.again[end] = p.parts[p.numbers[end]].Bytes < p.limits.smallPart
	}
	for i := 1; i < len(p.again); i++ {
		p.again[i] = p.again[i] || p.again[i-1] && shares[i-1]
	}
	for i := len(p.again) - 1; i > 0; i-- {
		p.again[i-1] = p.again[i-1] || p.again[i] && shares[i-1]
	}
	return nil
}

// write writes the rows that move to the partition, and those that stay in the parts that are
// written again, to new parts.
func (p *partition) write(moved int64) error {
	want := moved
	if slices.Contains(p.again, true) {
		// What Load has added stays apart from what is added below.
		if err := p.spill(); err != nil {
			return err
		}
	}
	for i, n := range p.numbers {
		if p.again[i] {
			stay, err := p.addPart(n)
			if err != nil {
				return err
			}
			want += stay
		}
	}
	w := partwriter.New(p.ctx, p.store, partwriter.Options{
		Dataset: p.ref.DatasetID, Batch: p.ref.Batch, Prefix: p.prefix, TempDir: p.opt.TempDir, Domains: p.collector,
	})
	defer w.Abort()
	sink := &countedRows{sink: w, mover: p.mover}
	var err error
	if len(p.runs) == 0 {
		err = p.buffer.Rows(p.ctx, p.first, p.last, sink)
	} else if err = p.spill(); err == nil {
		p.buffer.Shrink() // MergeRuns allocates its own memory
		err = rowsort.MergeRuns(p.ctx, p.store, p.runs, func(pass, n int) string { return p.runKey(1+pass, n) }, sink)
	}
	if err != nil {
		return err
	}
	if sink.records != want {
		return fmt.Errorf("partition %s: %d rows were written, want %d", p.prefix, sink.records, want)
	}
	written, err := w.Finish()
	if err != nil {
		return err
	}
	p.out.Written += sink.records
	p.out.New += len(written)
	for i := range written {
		p.out.Parts = append(p.out.Parts, written[i].Part)
		p.out.Bytes += written[i].Part.Bytes
	}
	return nil
}

// addPart adds the rows of a part that stay in their domains to the buffer and returns their
// number.
func (p *partition) addPart(n int) (stay int64, err error) {
	blocks, err := p.object.Pages(p.ctx, n)
	if err != nil {
		return 0, err
	}
	key := p.parts[n].Key
	scan := postings.PartScanner{Key: key, Read: p.readerOf(key)}
	var domain, host string
	var affected, moves bool
	number, hasNumber := uint32(0), false
	for r, err := range scan.Scan(p.ctx, blocks, readRows, p.columns()) {
		if err != nil {
			return 0, err
		}
		for i := range r.Rows {
			if newDomain := r.Domain[i] != domain; newDomain || r.Host[i] != host {
				if newDomain {
					domain = strings.Clone(r.Domain[i])
					affected = p.change.affects(domain)
				}
				host, hasNumber = strings.Clone(r.Host[i]), false
				moves = affected && p.change.Domain(host) != domain
			}
			if moves {
				continue
			}
			if !hasNumber {
				if number, err = p.buffer.Host(domain, host, urlnorm.DomainID(domain)); err != nil {
					return 0, err
				}
				hasNumber = true
			}
			if err := addRow(p.buffer, number, r.Columns, i); err != nil {
				return 0, err
			}
			if stay++; p.buffer.Full() {
				if err := p.spill(); err != nil {
					return 0, err
				}
				hasNumber = false
			}
		}
		if err := p.report(); err != nil {
			return 0, err
		}
	}
	return stay, nil
}

// countedRows counts the rows that a sink takes and reports progress.
type countedRows struct {
	sink    row.Sink
	mover   *mover
	records int64
}

func (c *countedRows) Rows(hosts []row.SortedHost, rows []row.SortedRow) (int, error) {
	n, err := c.sink.Rows(hosts, rows)
	before := c.records
	c.records += int64(n)
	c.mover.progress.Written += int64(n)
	if err == nil && c.records/readRows > before/readRows {
		err = c.mover.report()
	}
	return n, err
}
