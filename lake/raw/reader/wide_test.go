package reader

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/lake/raw"
)

// TestWideObjectsAreReadInLittleTime reads objects with as much of something as their size allows.
// Each takes a second or two on a busy machine; quadratic time would be minutes.
func TestWideObjectsAreReadInLittleTime(t *testing.T) {
	many := func(n int, f func(i int) string, sep string) string {
		var s []string
		for i := range n {
			s = append(s, f(i))
		}
		return strings.Join(s, sep)
	}
	num := func(i int) string { return fmt.Sprintf("c%d", i) }
	for name, text := range map[string]string{
		"csv header": "url," + many(100_000, num, ",") + "\nhttp://a.com/," + many(100_000, num, ",") + "\n",
		"csv same":   "url," + many(100_000, func(int) string { return "a" }, ",") + "\nhttp://a.com/\n",
		"tsv":        "url\t" + many(100_000, num, "\t") + "\nhttp://a.com/\n",
		"spaced":     "url " + many(100_000, num, " ") + "\nhttp://a.com/ 1 2\n",
		"cdx":        " CDX a b " + many(100_000, func(int) string { return "a" }, " ") + "\nhttp://a.com/ 20200101000000\n",
		"jsonl":      `{"url":"http://a.com/",` + many(20_000, func(i int) string { return fmt.Sprintf(`"m%d":"http://a.com/%d"`, i, i) }, ",") + "}\n",
		"json dups":  `{"url":"http://a.com/",` + many(20_000, func(i int) string { return `"m":1` }, ",") + "}\n",
		"json map":   "{" + many(5_000, func(i int) string { return fmt.Sprintf(`"m%d":{"url":"http://a.com/%d","k%d":1}`, i, i, i) }, ",") + "}",
		"json deep":  strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"legends":    many(5_000, func(i int) string { return fmt.Sprintf(" CDX a b %c %c %c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676) }, "\n") + "\nhttp://a.com/ 20200101000000\n",
		"cdxj":       `com,a)/ ` + strings.Repeat(" {", 50_000) + "\n",
		"cdxj keys":  strings.Repeat("com,a)/ "+strings.Repeat("x", 200)+" {\"a\": {\n", 1000),
		"cdxj blank": "com,a)/ 20200101000000 {\"url\":\"http://a.com/\"}\ncom,a)/ " + strings.Repeat("x {", 100_000) + " 20200101000000 {}\n",
	} {
		for _, opt := range []raw.Options{{}, {Extras: []string{"*"}}} {
			start := time.Now()
			if r, err := New(strings.NewReader(text), "a.txt", opt); err == nil {
				if _, err := readAll(r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if !errors.Is(err, raw.ErrInput) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("%s, extras %v: %v", name, opt.Extras, took)
			}
		}
	}
}
