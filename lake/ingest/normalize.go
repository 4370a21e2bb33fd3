package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/unwrap"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// SplitResult is the result of one Normalize.
type SplitResult struct {
	// Records is the number of records read. Kept of them became rows, before equal rows are
	// merged. The others are Rejected, by reason.
	Records  int64            `json:"records"`
	Kept     int64            `json:"kept"`
	Rejected map[string]int64 `json:"rejected"`
	// Bytes is the stored size of the split's objects.
	Bytes int64 `json:"bytes"`
	// Listed is how many of the rejected records are in the split's list, the first ones; 0 if all
	// are.
	Listed int64 `json:"listed_rejects,omitempty"`
	// Files is the number of shuffle files written.
	Files int `json:"files"`
}

// splitRecord is splits/{split}.json.
type splitRecord struct {
	lake.KeyedHeader
	SplitResult
	// Objects are the split's, in order.
	Objects []pieceRecord `json:"objects"`
	// Partitions are the partitions with rows, in ascending order. They count rows before any are
	// merged, so that the merge plan does not depend on which equal rows met in one split.
	Partitions []partition       `json:"partitions"`
	Shuffled   []row.ShuffleFile `json:"shuffled"`
	Rejects    *lake.FrameObject `json:"reject_list,omitempty"`
	First      []Reject          `json:"first_rejects,omitempty"`
	Findings   findings          `json:"findings,omitzero"`
	// Notes are those of builds that did not name their objects.
	Notes []string `json:"notes,omitempty"`
}

// pieceRecord is the result of one object or range. The rejects of a range of text count lines from
// the range's first one.
type pieceRecord struct {
	lake.Input
	Range *raw.Range `json:"range,omitempty"`
	// Lines is the number of lines of the range.
	Lines int64 `json:"lines,omitempty"`
	// Worst are the rejects of the object, or of those members of an archive that have the most.
	Worst []FileRejects `json:"worst,omitempty"`

	before int64 // lines of the object before the range; set by join
	list   bool  // it has nothing but URLs
}

// written returns the keys of the objects that the split has written.
func (s *splitRecord) written() (keys []string) {
	for i := range s.Shuffled {
		keys = append(keys, s.Shuffled[i].Key)
	}
	if s.Rejects != nil {
		keys = append(keys, s.Rejects.Key)
	}
	return keys
}

// partition counts the rows of one partition and the bytes of their keys.
type partition struct {
	Partition int   `json:"partition"`
	Rows      int64 `json:"rows"`
	KeyBytes  int64 `json:"key_bytes"`
}

// firstRejects is how many rejects an error names.
const firstRejects = 3

// Normalize reads the objects of one split and writes their rows by partition, and a list of the
// records that are rejected. progress may be nil; it is called from the caller's goroutine.
func Normalize(ctx context.Context, store blob.Store, run string, split int, progress func(Progress)) (SplitResult, error) {
	return normalize(ctx, store, run, split, progress, defaultLimits)
}

func normalize(
	ctx context.Context, store blob.Store, run string, split int, progress func(Progress), lim limits,
) (SplitResult, error) {
	p, err := readPlan(ctx, store, run)
	if err != nil {
		return SplitResult{}, err
	}
	var done splitRecord
	if ok, err := loadResult(ctx, store, splitKey(run, split), &done, (*splitRecord).written); err != nil || ok {
		return done.SplitResult, err
	}
	out, _, err := normalizeSplit(ctx, store, p, split, nil, progress, lim)
	if err != nil {
		return SplitResult{}, err
	}
	return out.SplitResult, save(ctx, store, splitKey(run, split), out)
}

// normalizeSplit is Normalize without saving the results. It returns the split's record. With
// postings the split is all of the batch: if its rows fit into memory, they are merged, too, and
// normalizeSplit returns the records of all merge tasks.
func normalizeSplit(
	ctx context.Context, store blob.Store, p *plan, split int, postings NewPostings,
	progress func(Progress), lim limits,
) (*splitRecord, []mergedRecord, error) {
	pieces, err := p.pieces(ctx, store, split)
	if err != nil {
		return nil, nil, err
	}
	list, err := lake.LoadSuffixList(ctx, store, p.Rules.PublicSuffix)
	if err != nil {
		return nil, nil, err
	}
	norm, err := urlnorm.New(list, urlnorm.Options{StripParams: p.Spec.StripParams})
	if err != nil {
		return nil, nil, &InputError{Reason: err.Error(), Err: err}
	}
	n := &normalizer{
		ctx: ctx, store: store, plan: p, split: split, lim: lim, postings: postings,
		norm: norm, origins: originCaches.Get().(*urlnorm.Origins),
		rows: row.NewBuffer(lim.arena), report: progress, rejects: rejectWriter{lim: lim.rejects},
	}
	if n.report == nil {
		n.report = func(Progress) {}
	}
	n.out.Rejected = map[string]int64{}
	for i := range pieces {
		n.progress.BytesTotal += pieces[i].bytes()
	}
	defer n.release()
	defer n.rejects.abort()
	for i := range pieces {
		if err := n.piece(&pieces[i]); err != nil {
			return nil, nil, n.inputs.unreadable(ctx, pieces, &p.Spec, err)
		}
	}
	merged, err := n.finish()
	return &n.out, merged, err
}

// originCaches holds empty caches of origins whose memory is used again.
var originCaches = sync.Pool{New: func() any { return urlnorm.NewOrigins(0) }}

func (n *normalizer) release() {
	n.rows.Release()
	n.origins.Reset()
	originCaches.Put(n.origins)
}

// normalizer is one Normalize in progress.
type normalizer struct {
	ctx      context.Context
	store    blob.Store
	plan     *plan
	split    int
	lim      limits
	inputs   inputs
	report   func(Progress)
	postings NewPostings

	norm    *urlnorm.Normalizer
	origins *urlnorm.Origins
	rows    *row.Buffer
	// firstHost plus an origin's number is the number of its host in rows; several numbers may
	// stand for one host. Hosts are added to rows only before these are used, by nameHosts, so that
	// a record of a known origin needs its number alone.
	firstHost uint32

	scratch [recordBatch]raw.Record
	lines   [recordBatch]text.Position
	urls    [recordBatch][]byte
	parsed  [recordBatch]urlnorm.Parsed

	progress Progress
	// partRows and keyBytes are those of each partition in the files written so far.
	partRows, keyBytes [row.Partitions]int64
	rejects            rejectWriter
	firstInRange       int // out.First up to this one may count lines from the first of a range
	out                splitRecord
	rawURL             []byte
	url                []byte

	object FileRejects // the current object or range
	// member is the current member of an archive.
	member     FileRejects
	memberName string
}

// piece reads one object, or a range of it.
func (n *normalizer) piece(p *piece) error {
	in := pieceRecord{Input: lake.Input{Name: p.Name, Bytes: p.bytes(), Format: emptyFormat}, Range: p.Range}
	before := n.progress.BytesRead
	if in.Bytes > 0 {
		if err := n.read(p, &in, before); err != nil {
			return err
		}
	}
	n.progress.BytesRead = before + in.Bytes
	n.out.Bytes += in.Bytes
	n.out.Objects = append(n.out.Objects, in)
	return n.tick()
}

// emptyFormat is the format of an object without bytes.
const emptyFormat = "empty"

func (n *normalizer) read(p *piece, in *pieceRecord, start int64) error {
	records := n.progress.Records
	var from int64
	if p.Range != nil {
		from = p.Range.Stored
	}
	o := p.object
	src, err := n.inputs.open(n.ctx, o, from)
	if err != nil {
		return err
	}
	defer src.Close()
	src.pages, _ = n.ctx.Value(pageMemoryKey{}).(int64)
	var r *reader.Reader
	switch {
	case p.Range != nil:
		r, err = reader.OpenRange(src, o.Name, *p.Plan, *p.Range)
	case p.Plan != nil:
		r, err = reader.Open(src, o.Name, *p.Plan)
	default:
		r, err = reader.New(src, o.Name, n.plan.Spec.rawOptions())
	}
	if err != nil {
		in.Format = unreadFormat
		return n.skip(src, inputError(o, err))
	}
	in.Format, in.list = formatOf(r.Plan()), !canHaveTime(r.Plan())
	n.object, n.member = FileRejects{Object: shortened(o.Name)}, FileRejects{}
	if err := n.records(p, in, r, start, from); err != nil {
		if err := n.skip(src, err); err != nil {
			return err
		}
	}
	n.endMember(in)
	in.Records += n.progress.Records - records
	in.BadTS = r.Counts().BadTS
	if f := &n.out.Findings; in.BadTS > 0 {
		if f.BadTS += in.BadTS; f.BadTSIn == "" {
			f.BadTSIn, f.BadTSValue = shortened(o.Name), r.BadTS()
		}
	}
	if n.out.Findings.Spaced += r.Counts().Spaced; n.out.Findings.SpacedIn == "" && n.out.Findings.Spaced > 0 {
		n.out.Findings.SpacedIn = shortened(o.Name)
	}
	notes := r.Notes()
	if p.Range == nil || p.Range.From == 0 {
		p := r.Plan()
		n.out.Findings.chose(p.Choice(), o.Name, o.Bytes)
	} else {
		notes = notes[len(r.Plan().Notes):] // the first range has those of the plan
	}
	n.out.Findings.note(o.Name, notes...)
	n.unreadMembers(o, r)
	if in.Rejects > 0 && len(in.Worst) == 0 {
		in.Worst = []FileRejects{n.object}
		in.Worst[0].Records = in.Records
	}
	if p.Range != nil {
		in.Lines = r.Lines()
	}
	return src.check()
}

// canHaveTime reports whether objects of a plan may have a time beside the URL.
func canHaveTime(p raw.Plan) bool {
	switch p.Format {
	case raw.Lines:
		return false
	case raw.CSV, raw.TSV:
		return len(p.Columns) != 1
	case raw.JSON, raw.JSONLines:
		return p.URL.Name != ""
	}
	return true
}

// unreadFormat is the format of an object that was skipped.
const unreadFormat = "unreadable"

// skip notes that an object is not read, or not from the position of err on, if the Spec says so
// and the object's content is at fault. What was read of it stays. Otherwise it returns err.
func (n *normalizer) skip(src *rawObject, err error) error {
	if !skips(&n.plan.Spec, err) {
		return err
	}
	if err := src.check(); err != nil {
		return err // it was changed while it was read
	}
	var e *InputError
	errors.As(err, &e)
	n.out.Findings.unread(1, lake.Unread{Name: e.Object, Reason: positioned(e.Line, e.Offset, e.Reason)})
	return nil
}

// positioned puts a position, if there is one, before a reason.
func positioned(line, offset int64, reason string) string {
	if line == 0 && offset <= 0 {
		return reason
	}
	return strings.TrimSpace(location(line, offset)) + ": " + reason
}

// unreadMembers notes the members of an archive that its reader has skipped.
func (n *normalizer) unreadMembers(o object, r *reader.Reader) {
	first, all := r.Unread()
	for _, u := range first {
		n.out.Findings.unread(0, lake.Unread{Name: shortened(o.member(u.Member)),
			Reason: shortened(positioned(u.Line, u.Offset, u.Reason))})
	}
	n.out.Findings.unread(all)
}

// records reads all records of an object or range.
func (n *normalizer) records(p *piece, in *pieceRecord, r *reader.Reader, start, from int64) error {
	list := r.IsList() && !n.plan.Spec.Unwrap
	sample := p.Range == nil || p.Range.From == 0
	for {
		before := n.progress.Records
		var read int
		var rej *raw.Reject
		var err error
		records := n.scratch[:]
		if list {
			read, rej, err = r.NextURLs(n.urls[:], n.lines[:])
			records = nil
		} else {
			read, rej, err = r.NextBatch(records)
			for i := range records[:read] {
				n.urls[i] = records[i].URL
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return inputError(p.object, err)
		}
		if sample && read > 0 {
			n.noteWrapped(p.Name, n.urls[:read])
			sample = false
		}
		if n.plan.Spec.Unwrap {
			n.unwrap(records[:read])
		}
		if err := n.batch(&p.object, in, records, read); err != nil {
			return err
		}
		if rej != nil {
			n.progress.Records++
			n.count(in, &p.object, rej.Member)
			if err := n.reject(&p.object, in, rej); err != nil {
				return err
			}
		}
		if n.progress.Records/progressEvery != before/progressEvery {
			n.progress.BytesRead = start + min(r.CompressedOffset()-from, in.Bytes)
			if err := n.tick(); err != nil {
				return err
			}
		}
	}
}

// unwrap takes the URLs of pages from those of archives' copies.
func (n *normalizer) unwrap(records []raw.Record) {
	for i := range records {
		if page, ok := unwrapped(&records[i]); ok {
			n.urls[i] = page
			n.out.Findings.Unwrapped++
		}
	}
}

// unwrapped returns the page's URL if a record's URL is that of an archive's copy, and gives the
// record the time of the copy if it has none.
func unwrapped(rec *raw.Record) (page []byte, ok bool) {
	page, ms, hasTime, ok := unwrap.URL(rec.URL)
	if ok && hasTime && !rec.HasTS {
		rec.TS, rec.HasTS = ms, true
	}
	return page, ok
}

// noteWrapped notes that most of an object's first URLs wrap others, if nothing unwraps them.
func (n *normalizer) noteWrapped(name string, urls [][]byte) {
	if n.plan.Spec.Unwrap {
		return
	}
	if mostlyWrapped(urls) {
		n.out.Findings.note(name, wrappedNote)
	}
}

// wrappedNote is the note of an object with such URLs.
const wrappedNote = "most of its first URLs are those of an archive's copies, which hold the page's URL; --unwrap takes that"

// mostlyWrapped reports whether most URLs wrap others.
func mostlyWrapped(urls [][]byte) bool {
	found := 0
	for _, u := range urls {
		if _, _, _, ok := unwrap.URL(u); ok {
			found++
		}
	}
	return found*2 > len(urls)
}

// formatOf returns the name of a format in batch records.
func formatOf(p raw.Plan) string {
	if p.Compression == "none" {
		return p.Format
	}
	return p.Format + "+" + p.Compression
}

// tick reports progress and returns the context's error.
func (n *normalizer) tick() error {
	n.report(n.progress)
	return n.ctx.Err()
}

// recordBatch is how many records are read, parsed and added at a time.
const recordBatch = 256

// batch adds a number of URLs as rows or as rejects. They belong to records or, for lists, where
// records is nil, to lines.
func (n *normalizer) batch(o *object, in *pieceRecord, records []raw.Record, urls int) error {
	for start := 0; start < urls; {
		done := start + n.norm.ParseBatch(n.origins, n.urls[start:urls], n.parsed[start:])
		for i := start; i < done; {
			if records == nil && !n.plan.Spec.KeepRaw {
				added := n.rows.AddParsed(n.firstHost, n.parsed[i:done])
				n.progress.Records += int64(added)
				n.progress.Kept += int64(added)
				i += added
				if n.rows.Full() {
					if err := n.shuffle(); err != nil {
						return fmt.Errorf("%s: %w", o.Name, err)
					}
				}
				if i == done {
					break
				}
				if added > 0 && n.parsed[i].Kind != urlnorm.OtherOrigin {
					continue
				}
			}
			rec := raw.Record{URL: n.urls[i], Line: n.lines[i].Line, Offset: n.lines[i].Offset}
			if records != nil {
				rec = records[i]
			}
			if err := n.addRecord(o, in, &rec, &n.parsed[i]); err != nil {
				return err
			}
			i++
		}
		if start = done; start < urls {
			n.nameHosts()
			n.origins.Reset()
			n.firstHost = uint32(n.rows.Hosts())
		}
	}
	return nil
}

// addRecord adds a record as a row or as a reject.
func (n *normalizer) addRecord(o *object, in *pieceRecord, rec *raw.Record, p *urlnorm.Parsed) error {
	n.progress.Records++
	n.count(in, o, rec.Member)
	var reason string
	if p.Reject != nil {
		reason = string(p.Reject.Reason)
	} else {
		var err error
		if reason, err = n.addRow(rec, p); err != nil {
			return fmt.Errorf("%s byte %d: %w", shortened(o.member(rec.Member)), rec.Offset, err)
		}
	}
	if reason == "" {
		if !rec.HasTS && !in.list {
			f := &n.out.Findings
			if f.Untimed++; f.UntimedIn == "" {
				f.UntimedIn = shortened(o.Name)
			}
		}
		return nil
	}
	return n.reject(o, in, &raw.Reject{Member: rec.Member, Line: rec.Line, Offset: rec.Offset, Reason: reason})
}

// addRow adds a record as a row, or returns the reason why it is rejected.
func (n *normalizer) addRow(rec *raw.Record, p *urlnorm.Parsed) (reason string, err error) {
	if p.Kind != urlnorm.OtherOrigin && !rec.HasTS && !rec.HasSize && rec.Extras == nil && !n.plan.Spec.KeepRaw {
		err = n.rows.AddPlain(n.firstHost+p.Origin, p.PathQuery, p.Kind == urlnorm.HTTPSOrigin)
	} else {
		o := n.origins.At(p.Origin)
		tail := row.Suffix{
			Scheme: o.Scheme, Port: o.Port, TS: rec.TS, HasTS: rec.HasTS, Size: rec.Size, HasSize: rec.HasSize,
			Extras: unsafe.String(unsafe.SliceData(rec.Extras), len(rec.Extras)), // Add copies it
		}
		if n.plan.Spec.KeepRaw {
			tail.RawURL = n.keepRaw(rec.URL, o, p.PathQuery)
		}
		err = n.rows.Add(n.firstHost+p.Origin, p.PathQuery, &tail)
	}
	if errors.Is(err, row.ErrRowTooLarge) {
		return RowTooLarge, nil
	}
	if err != nil {
		return "", err
	}
	n.progress.Kept++
	if n.rows.Full() {
		return "", n.shuffle()
	}
	return "", nil
}

// nameHosts adds the hosts of all origins to rows. Rows can be sorted and written only after that.
func (n *normalizer) nameHosts() {
	known := n.rows.Hosts() - int(n.firstHost)
	if known == n.origins.Len() {
		return
	}
	n.rows.GrowHosts(n.origins.Len() - known)
	for i := known; i < n.origins.Len(); i++ {
		o := n.origins.At(uint32(i))
		n.rows.PlainHost(o.Domain, o.Host, o.DomainID)
	}
}

// keepRaw returns a record's original URL as it is stored: without user info, and with bytes that
// are not UTF-8 escaped one by one, as in the canonical form. It returns "" if that is the
// canonical form.
func (n *normalizer) keepRaw(rawURL []byte, o urlnorm.Origin, pathQuery []byte) string {
	u := urlnorm.URL{Scheme: o.Scheme, Host: o.Host, Domain: o.Domain, Port: o.Port,
		PathQuery: unsafe.String(unsafe.SliceData(pathQuery), len(pathQuery))}
	n.rawURL = urlnorm.WithoutUserInfo(n.rawURL[:0], rawURL)
	n.url = u.AppendTo(n.url[:0])
	if bytes.Equal(n.rawURL, n.url) {
		return ""
	}
	if utf8.Valid(n.rawURL) {
		return string(n.rawURL)
	}
	var b []byte
	for rest := n.rawURL; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			b = fmt.Appendf(b, "%%%02X", rest[0])
		} else {
			b = append(b, rest[:size]...)
		}
		rest = rest[size:]
	}
	return string(b)
}

// shuffle writes the rows in memory to a shuffle file.
func (n *normalizer) shuffle() error {
	n.nameHosts()
	f, err := n.rows.WriteShuffle(n.ctx, n.store,
		shuffleKey(n.plan.Run, n.split, len(n.out.Shuffled), n.lim.arena), &n.partRows, &n.keyBytes)
	if err != nil {
		return err
	}
	n.out.Shuffled = append(n.out.Shuffled, f)
	n.firstHost = 0
	return nil
}

// reject counts a rejected record, and lists it if the list is not full. It returns an *InputError
// if the split has so many rejects that reading on is in vain.
func (n *normalizer) reject(o *object, in *pieceRecord, rej *raw.Reject) error {
	r := Reject{Object: o.member(rej.Member), Line: rej.Line, Offset: rej.Offset, Reason: rej.Reason, Value: rej.Value}
	in.Rejects++
	n.tally(r, rej.Member)
	n.progress.Rejected++
	n.out.Rejected[r.Reason]++
	if len(n.out.First) < maxExamples {
		example := r
		example.Object = shortened(r.Object)
		n.out.First = append(n.out.First, example)
		if in.Range != nil && in.Range.From > 0 && r.Offset >= 0 {
			n.firstInRange = len(n.out.First)
		}
	}
	if err := n.tooManyRejects(r); err != nil {
		return err
	}
	if n.rejects.full {
		return nil
	}
	if n.rejects.w == nil {
		if err := n.rejects.create(n.ctx, n.store, rejectsKey(n.plan.Run, n.split)); err != nil {
			return err
		}
	}
	return n.rejects.add(r)
}

// count counts a record of an archive's member.
func (n *normalizer) count(in *pieceRecord, o *object, member string) {
	if member == "" {
		return
	}
	if n.memberName != member {
		n.endMember(in)
		n.memberName = member
		n.member = FileRejects{Object: shortened(o.member(member))}
	}
	n.member.Records++
}

// endMember keeps the rejects of the current member if they are among the most.
func (n *normalizer) endMember(in *pieceRecord) {
	if len(n.member.Rejected) > 0 {
		in.Worst = worstOf(append(in.Worst, n.member))
	}
	n.member, n.memberName = FileRejects{}, ""
}

// tally counts a reject of the current object or member.
func (n *normalizer) tally(r Reject, member string) {
	f := &n.object
	if member != "" {
		f = &n.member
	}
	if f.Rejected == nil {
		f.Rejected = map[string]int64{}
		f.First = r
		f.First.Object = f.Object
	}
	f.Rejected[r.Reason]++
}

// tooManyRejects returns an error if the split is taken for a decompression bomb, whose end is far:
// most of its records so far, up to the reject r, are not URLs, and these are tens of millions and
// more than the split has stored bytes. The other splits cannot be known, and the rate is one of
// the whole batch. But a record takes at least a byte, so that a split without compression never
// gets there, however bad it is, and real data hardly: compressed, a line takes several bytes. The
// outcome depends on the input alone.
func (n *normalizer) tooManyRejects(r Reject) error {
	rejected, limit := n.progress.Rejected, n.plan.Spec.maxRejectRate()
	if rejected < n.lim.hopeless || rejected <= n.progress.BytesTotal || float64(rejected) <= limit*float64(n.progress.Records) {
		return nil
	}
	first := slices.Clone(n.out.First[:min(len(n.out.First), firstRejects)])
	for i := range first {
		if i < n.firstInRange {
			first[i].Line = 0 // it counts from the range's first line
		}
	}
	name := shortened(r.Object)
	return &InputError{
		Object: name, Offset: r.Offset, Rejects: first,
		Reason: fmt.Sprintf("%s: reading stopped here, since %d of %d records so far were rejected (%s), "+
			"more than the allowed share of %v (--max-reject-rate)",
			name, rejected, n.progress.Records, reasons(n.out.Rejected), limit),
	}
}

// finish writes the remaining rows and rejects. It returns the results of the merge tasks if it has
// done them.
func (n *normalizer) finish() (merged []mergedRecord, err error) {
	n.out.Records, n.out.Kept = n.progress.Records, n.progress.Kept
	done := false
	if n.postings != nil && len(n.out.Shuffled) == 0 && n.rows.Len() > 0 {
		n.nameHosts()
		var rows, keyBytes [row.Partitions]int64
		n.rows.Count(&rows, &keyBytes)
		n.out.Partitions = partitions(&rows, &keyBytes)
		if merged, done, err = n.merge(); err != nil {
			return nil, err
		}
	}
	if !done {
		if n.rows.Len() > 0 {
			if err := n.shuffle(); err != nil {
				return nil, err
			}
		}
		n.out.Partitions = partitions(&n.partRows, &n.keyBytes)
	}
	if n.rejects.w != nil {
		o, err := n.rejects.finish()
		if err != nil {
			return nil, err
		}
		if n.out.Rejects = &o; n.rejects.full {
			n.out.Listed = n.rejects.lines
		}
	}
	n.out.Files = len(n.out.Shuffled)
	return merged, nil
}

// partitions returns the partitions with rows.
func partitions(rows, keyBytes *[row.Partitions]int64) (out []partition) {
	for i := range rows {
		if rows[i] > 0 {
			out = append(out, partition{Partition: i, Rows: rows[i], KeyBytes: keyBytes[i]})
		}
	}
	return out
}

// merge writes the parts of a batch whose rows are all in memory, so that they need not be staged.
// done is false if a part would have more than one row group, since such a part is written to local
// disk first.
func (n *normalizer) merge() (merged []mergedRecord, done bool, err error) {
	m, err := newMergePlan(n.plan, []splitRecord{n.out}, n.lim)
	var refused *InputError
	if errors.As(err, &refused) {
		return nil, true, nil // whole returns the error
	}
	if err != nil {
		return nil, false, err
	}
	width := row.Partitions >> (4 * m.Width)
	var rowsOf, bytesOf [row.Partitions]int64
	for _, p := range n.out.Partitions {
		rowsOf[p.Partition/width] += p.Rows
		bytesOf[p.Partition/width] += p.KeyBytes
	}
	for i := range rowsOf {
		if part.MaxPlainBytes(n.plan.Batch, rowsOf[i], bytesOf[i]) > part.RowGroupBytes {
			return nil, false, nil
		}
	}
	rows := func(_ string, first, last byte, sink row.Sink) error {
		return n.rows.Rows(n.ctx, first, last, sink)
	}
	for _, t := range m.TaskList {
		out, err := mergeTask(n.ctx, n.store, n.plan, t, rows, "", n.postings,
			func(Progress) { n.report(n.progress) })
		if err != nil {
			return nil, false, err
		}
		merged = append(merged, out)
	}
	return merged, true, nil
}
