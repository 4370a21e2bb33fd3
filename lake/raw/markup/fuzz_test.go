package markup

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// outcome is what a parser returned for a record, in comparable form.
type outcome struct {
	URL, Extras, Reason string
	TS                  int64
	At                  text.Position
}

// all reads an object by a format, with records of up to 300 bytes.
func all(t *testing.T, r io.Reader, format string) (outcomes []outcome, counts raw.Counts, end error) {
	t.Helper()
	plan := raw.Plan{Format: format, URL: raw.Column{Number: 1}, MaxLine: 300}
	for i, name := range Columns(format)[1:] {
		plan.Extras = append(plan.Extras, raw.Column{Name: name, Number: i + 2})
	}
	if format != raw.NTriples {
		plan.TS, plan.TSChosen = &raw.Column{Number: 2}, true
	}
	f, err := text.NewFields(plan, &counts)
	if err != nil {
		t.Fatal(err)
	}
	in := text.NewInput(r, plan.MaxLine)
	p, err := NewParser(in, plan, f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var rec raw.Record
		var rej raw.Reject
		if err := p.Next(&rec, &rej); err != nil {
			return outcomes, counts, err
		}
		o := outcome{URL: string(rec.URL), Extras: string(rec.Extras), Reason: rej.Reason, TS: rec.TS, At: in.Record()}
		if o.Reason == "" && o.URL == "" {
			t.Fatalf("neither record nor reject: %+v", o)
		}
		outcomes = append(outcomes, o)
	}
}

// FuzzMarkup reads any bytes in every format. How they arrive changes nothing, each record and
// reject has a place of its own, and the end is io.EOF or that the object is truncated.
func FuzzMarkup(f *testing.F) {
	for _, s := range []string{
		"<?xml version=\"1.0\"?><urlset xmlns:i=\"x\"><!-- a -->\n<url><loc>http://a/?x&amp;y&z</loc><i:loc>b</i:loc></url></urlset>",
		"<rss><channel><item><title><![CDATA[<item>]]></title><link>http://a/</link><guid>http://b/</guid></item></channel></rss>",
		"<feed xml:base='http://a/'><entry><link rel='alternate' href='b'/><updated>2024-05-06</updated></entry></feed>",
		"<opml><body><outline text=\"a\"><outline type='rss' xmlUrl=\"http://a/\"/></outline></body></opml>",
		"<DL><p><DT><A HREF=\"http://a/\" ADD_DATE=\"1\">a &amp; b</A>\n<DT><A HREF='b'>c</DL><p>",
		"<http://a/>; rel=\"original\",\n<http://b/>; rel=memento; datetime=\"Mon, 06 May 2024 00:00:00 GMT\",",
		"<http://a/> <b> \"c\\\"d\"@en .\n_:a <b> <http://c/\\u00e4> <d> . # e\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		Sniff(data)
		Encoding(data)
		for _, format := range raw.MarkupFormats {
			got, counts, end := all(t, bytes.NewReader(data), format)
			same, sameCounts, sameEnd := all(t, iotest.OneByteReader(bytes.NewReader(data)), format)
			if !equal(got, same) || counts != sameCounts || !errors.Is(end, sameEnd) {
				t.Fatalf("%s: in one piece %+v, %+v, %v\nbyte by byte %+v, %+v, %v", format, got, counts, end, same, sameCounts, sameEnd)
			}
			if end != io.EOF && !errors.Is(end, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: ends with %v", format, end)
			}
			for i := 1; i < len(got); i++ {
				if got[i].At.Offset <= got[i-1].At.Offset || got[i].At.Line < got[i-1].At.Line {
					t.Fatalf("%s: %+v follows %+v", format, got[i], got[i-1])
				}
			}
		}
	})
}

func equal(a, b []outcome) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
