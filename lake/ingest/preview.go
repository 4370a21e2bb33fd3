package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/reader"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// previewRows is how many rows a Preview shows, previewRecords and previewBytes how many
	// records and decompressed bytes it looks at.
	previewRows, previewRecords, previewBytes = 3, 1000, 256 << 10
	// previewsAhead is how many objects are looked at before the first of them is shown.
	previewsAhead = 64
)

// Preview says what an ingest would do with one object, by its first records.
type Preview struct {
	// Dataset is the dataset that the object would be read into, where the caller knows it.
	Dataset string `json:"dataset,omitempty"`
	Object  string `json:"object"`
	Bytes   int64  `json:"bytes"`
	// Choice is what the ingest chooses, and Extras are the columns that it keeps beside, "*" for
	// all others. The format alone is known of an archive, whose Members choose for themselves:
	// these are the first ones.
	Choice
	Extras  []string        `json:"extras,omitempty"`
	Members []PreviewMember `json:"members,omitempty"`
	// Sample are the first rows.
	Sample []PreviewRow `json:"sample"`
	// Records is how many records were looked at. Rejected of them would be rejected, by reason,
	// the first one at First.
	Records  int64            `json:"records"`
	Rejected map[string]int64 `json:"rejected,omitempty"`
	First    *Reject          `json:"first_reject,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
	// Whole is set if the whole object was read. For an object without records, Empty says what it
	// holds.
	Whole bool   `json:"whole,omitempty"`
	Empty string `json:"empty,omitempty"`
	// Refused says why the ingest would fail, Unread what of the object it would skip.
	Refused string   `json:"refused,omitempty"`
	Unread  []string `json:"unread,omitempty"`
}

// PreviewMember is a member of an archive.
type PreviewMember struct {
	Name string `json:"name"`
	Choice
}

// PreviewRow is a row as it would be stored: the canonical URL, the time, and the size.
type PreviewRow struct {
	URL  string     `json:"url"`
	Time *time.Time `json:"time"`
	Size *int64     `json:"size"`
}

// PreviewTotals are what Previews looked at.
type PreviewTotals struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Refused objects would fail the ingest. Unread ones it would skip, as a whole or in part.
	Refused int `json:"refused"`
	Unread  int `json:"unread"`
	// Rows is how many rows the samples have.
	Rows int `json:"rows"`
	// Records counts the records that were read; Rejected of them would be rejected. Partly counts
	// the objects that were not read to the end.
	Records  int64 `json:"records"`
	Rejected int64 `json:"rejected"`
	Partly   int   `json:"partly"`
	// Notes say which inputs would not be read.
	Notes []string `json:"notes,omitempty"`
}

// Add adds the preview of one object.
func (t *PreviewTotals) Add(p *Preview) {
	t.Objects++
	t.Bytes += p.Bytes
	t.Rows += len(p.Sample)
	t.Records += p.Records
	for _, n := range p.Rejected {
		t.Rejected += n
	}
	if !p.Whole {
		t.Partly++
	}
	if p.Refused != "" {
		t.Refused++
	}
	if len(p.Unread) > 0 {
		t.Unread++
	}
}

// Fails says why an ingest of these objects into one dataset would fail, "" if it would not, or if
// that shows only when everything is read.
func (t *PreviewTotals) Fails(spec *Spec) string {
	switch limit := spec.maxRejectRate(); {
	case t.Refused > 0:
		return fmt.Sprintf("%d of %d objects would be refused; mend them, or leave them out (--exclude, --skip-unreadable)",
			t.Refused, t.Objects)
	case t.Unread > 0 && t.Rows == 0:
		return "the inputs hold no records that can be read"
	case t.Partly > 0:
		return ""
	case t.Records == 0:
		return "the inputs hold no records"
	case t.Records == t.Rejected:
		return fmt.Sprintf("none of %d records would be kept", t.Records)
	case float64(t.Rejected) > limit*float64(t.Records):
		return fmt.Sprintf("%d of %d records would be rejected, more than the allowed share of %v (--max-reject-rate)",
			t.Rejected, t.Records, limit)
	}
	return ""
}

// Previews calls each for every object of a spec, in the order in which an ingest reads them. It
// writes nothing. The error is the one with which an ingest would fail before it looks at any
// object, or that of each.
func Previews(ctx context.Context, spec Spec, each func(*Preview) error) (PreviewTotals, error) {
	spec, err := spec.OnDate()
	if err != nil {
		return PreviewTotals{}, err
	}
	sel, err := newSelection(spec.Include, spec.Exclude)
	if err != nil {
		return PreviewTotals{}, err
	}
	in := inputs{planning: true}
	objects, err := in.ofSpec(ctx, &spec, sel, maxObjects)
	if err != nil {
		return PreviewTotals{}, err
	}
	totals, err := PreviewObjects(ctx, &spec, objects, each)
	totals.Notes = sel.notes()
	return totals, err
}

// PreviewObjects is Previews of objects that were listed already.
func PreviewObjects(
	ctx context.Context, spec *Spec, objects []Object, each func(*Preview) error,
) (totals PreviewTotals, err error) {
	in := inputs{planning: true}
	for some := range slices.Chunk(objects, previewsAhead) {
		ready := make([]*Preview, len(some))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(planReads)
		for i, o := range some {
			g.Go(func() (err error) {
				ready[i], err = in.preview(ctx, o, spec)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return totals, err
		}
		for _, p := range ready {
			totals.Add(p)
			if err := each(p); err != nil {
				return totals, err
			}
		}
	}
	return totals, nil
}

// preview looks at one object. Its error is none of the object's content.
func (in *inputs) preview(ctx context.Context, o object, spec *Spec) (*Preview, error) {
	p := &Preview{Object: o.Name, Bytes: o.Bytes, Choice: Choice{Format: emptyFormat}, Sample: []PreviewRow{}}
	if err := ctx.Err(); err != nil || o.Bytes == 0 {
		p.Whole, p.Empty = true, "it has no bytes"
		return p, err
	}
	err := in.withinMemory(ctx, spec.rawOptions(), func(opt raw.Options) error {
		*p = Preview{Object: o.Name, Bytes: o.Bytes, Choice: Choice{Format: unreadFormat}, Sample: []PreviewRow{}}
		src, err := in.open(ctx, o, 0)
		if err != nil {
			return err
		}
		defer src.Close()
		r, err := reader.New(src, o.Name, opt)
		if err != nil {
			return inputError(o, err)
		}
		return p.look(o, r, spec)
	})
	var input *InputError
	switch {
	case skips(spec, err):
		errors.As(err, &input)
		p.Unread = append(p.Unread, positioned(input.Line, input.Offset, input.Reason))
	case errors.As(err, &input):
		p.Refused = positioned(input.Line, input.Offset, input.Reason)
		if input.Object != o.Name {
			p.Refused = input.Error() // a member of the archive
		}
	case err != nil:
		return nil, err
	}
	return p, nil
}

// look reads the first records.
func (p *Preview) look(o object, r *reader.Reader, spec *Spec) error {
	plan := r.Plan()
	p.Choice, p.Notes = plan.Choice(), r.Notes()
	if plan.AllExtras {
		p.Extras = []string{"*"}
	}
	for i := range plan.Extras {
		p.Extras = append(p.Extras, plan.Extras[i].Label())
	}
	norm, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{StripParams: spec.StripParams})
	if err != nil {
		return err
	}
	var urls [][]byte
	for p.Records < previewRecords && r.Offset() < previewBytes {
		if name, member, ok := r.Member(); ok && (len(p.Members) == 0 || p.Members[len(p.Members)-1].Name != name) {
			p.Members = append(p.Members, PreviewMember{Name: shortened(name), Choice: member.Choice()})
		}
		rec, rej, err := r.Next()
		if err == io.EOF {
			p.Whole = true
			break
		}
		if err != nil {
			return inputError(o, err)
		}
		p.Records++
		if rej != nil {
			p.reject(o, *rej)
			continue
		}
		if len(urls) < recordBatch {
			urls = append(urls, slices.Clone(rec.URL))
		}
		p.add(o, rec, norm, spec)
	}
	if p.Records == 0 && p.Whole {
		p.Empty = foundNothing(r.Counts())
	}
	if !spec.Unwrap && mostlyWrapped(urls) {
		p.Notes = append(slices.Clip(p.Notes), wrappedNote)
	}
	if n := r.Counts().BadTS; n > 0 {
		p.Notes = append(slices.Clip(p.Notes), badTSNote(n, r.BadTS()))
	}
	if n := r.Counts().Spaced; n > 0 {
		p.Notes = append(slices.Clip(p.Notes), spacedNote(n))
	}
	unread, _ := r.Unread()
	for _, u := range unread {
		p.Unread = append(p.Unread, u.Member+": "+positioned(u.Line, u.Offset, u.Reason))
	}
	return nil
}

// foundNothing says what an object without records holds.
func foundNothing(c raw.Counts) string {
	var found []string
	for _, f := range []struct {
		n    int64
		what string
	}{{c.Members, "members"}, {c.LeftOut, "members left out by their names"}, {c.Blank, "blank lines or rows"},
		{c.Comments, "comments or records without a capture or URL"}} {
		if f.n > 0 {
			found = append(found, fmt.Sprintf("%d %s", f.n, f.what))
		}
	}
	if found == nil {
		return "nothing but its frame or header"
	}
	return "only " + strings.Join(found, ", ")
}

// add adds a record to the sample.
func (p *Preview) add(o object, rec *raw.Record, norm *urlnorm.Normalizer, spec *Spec) {
	text := rec.URL
	if spec.Unwrap {
		if page, ok := unwrapped(rec); ok {
			text = page
		}
	}
	u, err := norm.Parse(text)
	var rejected *urlnorm.RejectError
	if errors.As(err, &rejected) {
		p.reject(o, raw.Reject{Member: rec.Member, Line: rec.Line, Offset: rec.Offset, Reason: string(rejected.Reason)})
		return
	}
	if len(p.Sample) == previewRows {
		return
	}
	row := PreviewRow{URL: u.String()}
	if rec.HasTS {
		t := time.UnixMilli(rec.TS).UTC()
		row.Time = &t
	}
	if rec.HasSize {
		size := rec.Size
		row.Size = &size
	}
	p.Sample = append(p.Sample, row)
}

func (p *Preview) reject(o object, r raw.Reject) {
	if p.Rejected == nil {
		p.Rejected = map[string]int64{}
		p.First = &Reject{Object: shortened(o.member(r.Member)), Line: r.Line, Offset: r.Offset, Reason: r.Reason, Value: r.Value}
	}
	p.Rejected[r.Reason]++
}
