package markup

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/raw"
)

// results are the URLs and reasons of outcomes.
func results(outcomes []outcome) (all []string) {
	for _, o := range outcomes {
		all = append(all, o.URL+o.Reason)
	}
	return all
}

// TestDamageBesideDamage reads files with several damaged records in a row.
func TestDamageBesideDamage(t *testing.T) {
	long := strings.Repeat("a", 400)
	for text, want := range map[string][]string{
		"<urlset><ur><loc>http://a/</loc></url><ur><loc>http://b/</loc></url><ur><loc>http://c/</loc></url>" +
			"<url><loc>http://d/</loc></url></urlset>": {"bad_markup", "bad_markup", "bad_markup", "http://d/"},
		"<urlset><url <loc>http://a/</loc></url><url <loc>http://b/</loc></url></urlset>": {"bad_markup", "bad_markup"},
		"<urlset><url><loc>http://a/</loc></url" + strings.Repeat(" ", 400) + "><url><loc>http://b/</loc></url></urlset>": {
			"too_long_line", "http://b/"},
		"<urlset><!-- <url><loc>http://a/</loc></url> " + long + " --><url><loc>http://b/</loc></url></urlset>": {"http://b/"},
		"<urlset><!-- " + long[:100] + "<url><loc>http://b/</loc></url><!-- " + long[:250] + " --><url><loc>http://c/</loc></url></urlset>": {
			"bad_markup", "http://b/", "http://c/"},
		`<urlset xml:base="http://a/"><url><loc>` + long[:250] + `</loc></url></urlset>`: {long[:250]},
	} {
		got, _, err := all(t, strings.NewReader(text), raw.Sitemap)
		if err != io.EOF || !slices.Equal(results(got), want) {
			t.Errorf("%s: %q, want %q, error %v", text, results(got), want, err)
		}
	}
	if _, _, err := all(t, strings.NewReader("<urlset><!-- "+long+"</urlset>"), raw.Sitemap); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a long comment without an end: %v", err)
	}
}

// TestBasesDoNotAddUp resolves the bases of channels within the root's, and no base of many KiB.
func TestBasesDoNotAddUp(t *testing.T) {
	item := "<item><link>x</link></item>"
	for text, want := range map[string][]string{
		`<rss xml:base="http://a/b/"><channel xml:base="c/">` + item + `</channel><channel xml:base="d/">` + item +
			`</channel><channel>` + item + `</channel></rss>`: {"http://a/b/c/x", "http://a/b/d/x", "http://a/b/x"},
		`<rss xml:base="http://a/"><channel xml:base="` + strings.Repeat("%41", 85) + `/">` +
			"<item><link>" + strings.Repeat("x", 60) + `</link></item></channel></rss>`: {"too_long_line"},
	} {
		got, _, err := all(t, strings.NewReader(text), raw.RSS)
		if err != io.EOF || !slices.Equal(results(got), want) {
			t.Errorf("%s: %q, want %q, error %v", text, results(got), want, err)
		}
	}
	if got := rebase("http://a/", strings.Repeat("a", maxBase)); got != "" {
		t.Errorf("a base of %d bytes", len(got))
	}
}

// TestEndTagOfManyBlanks holds that a tag without an end is not buffered.
func TestEndTagOfManyBlanks(t *testing.T) {
	for _, text := range []string{"<urlset><url><loc>http://a/</loc></url ", "<urlset></urlset ", "<urlset><!-- "} {
		blanks := io.LimitReader(repeated(' '), 64<<20)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := all(t, io.MultiReader(strings.NewReader(text), blanks), raw.Sitemap)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 || err == nil {
			t.Errorf("%s: %d KiB allocated, error %v", text, got>>10, err)
		}
	}
}

// repeated yields one byte for ever.
type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// TestTimesOfMail reads times in zones with names. What a name means on this machine is nothing to
// the record.
func TestTimesOfMail(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, time.Local = range []*time.Location{time.UTC, berlin} {
		for text, want := range map[string]int64{
			"Mon, 06 May 2024 08:00:00 +0200":        6,
			"Mon, 06 May 2024 08:00:00 +0200 (CEST)": 6,
			"Mon, 06 May 2024 08:00:00 GMT":          8,
			"Mon, 06 May 2024 08:00:00 UTC":          8,
			"Mon, 06 May 2024 08:00:00 UT":           8,
			"Mon, 06 May 2024 08:00:00 EDT":          12,
			"Mon, 06 May 2024 08:00:00 CEST":         -1,
			"Mon, 06 May 2024 08:00:00 MSK":          -1,
			"Mon, 06 May 2024 08:00:00 +02":          -1,
		} {
			got, _, err := all(t, strings.NewReader("<rss><channel><item><link>http://a/</link><pubDate>"+text+"</pubDate></item></channel></rss>"), raw.RSS)
			if err != io.EOF || len(got) != 1 {
				t.Fatalf("%s: %v, %v", text, got, err)
			}
			hour := (got[0].TS - time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC).UnixMilli()) / 3_600_000
			if want < 0 && got[0].TS != 0 || want >= 0 && (got[0].Reason != "" || hour != want) {
				t.Errorf("%s in %v: %d o'clock UTC, want %d; %q", text, time.Local, hour, want, got[0].Reason)
			}
		}
	}
}

// TestManyDeclarations finds the root behind many declarations in linear time.
func TestManyDeclarations(t *testing.T) {
	for _, declaration := range []string{"<!a[] >", "<!a[ ]>", "<!a>"} {
		begun := time.Now()
		name, _, entities, _ := rootTag([]byte(strings.Repeat(declaration, 4<<20/len(declaration)) + "<urlset>"))
		if took := time.Since(begun); name != "urlset" || entities || took > 10*time.Second {
			t.Errorf("%s: root %q in %v", declaration, name, took)
		}
	}
}
