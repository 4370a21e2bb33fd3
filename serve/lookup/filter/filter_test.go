package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

func set(t *testing.T, texts ...string) *Set {
	t.Helper()
	s := &Set{}
	for _, text := range texts {
		if err := s.Add(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return s
}

func TestFilters(t *testing.T) {
	extras := `{"n":7,"status":"404","mime":"text/html; charset=x","none":null,"list":[1,2],"ok":true,"a b":"x"}`
	for text, want := range map[string]bool{
		"status=404": true, "status=40": false, "status!=404": false, "status!=200": true, "n=7": true, "n!=7": false, "n~^[0-9]$": true,
		"mime~html": true, "mime~^html": false, "mime~(?i)HTML": true, "absent=": false, "absent!=x": true, "absent~.*": false,
		"none=null": false, "none!=null": true, "list=[1,2]": true, "ok=true": true, "a b=x": true, "status~": true, "status=": false,
	} {
		s := set(t, text)
		if texts := s.Texts(); s.Len() != 1 || texts[0] != text {
			t.Errorf("%s: %q", text, texts)
		}
		for range 2 {
			if got, err := s.Passes(extras); got != want || err != nil {
				t.Errorf("%s: %v, %v", text, got, err)
			}
		}
		for _, none := range []string{"", "{", "[]", "x"} {
			if got, err := s.Passes(none); got != strings.Contains(text, "!=") || err != nil {
				t.Errorf("%s of %q: %v, %v", text, none, got, err)
			}
		}
		// With another condition both have to hold.
		for other, holds := range map[string]bool{"n=7": true, "n=8": false} {
			if got, err := set(t, text, other).Passes(extras); got != (want && holds) || err != nil {
				t.Errorf("%s and %s: %v, %v", text, other, got, err)
			}
		}
	}
	for _, text := range []string{"", "status", "=404", "~x", "!=x", "a!b", "mime~(", "x=\x00", "x=" + strings.Repeat("y", maxFilter)} {
		if s := (&Set{}); s.Add(text) == nil || s.Len() != 0 {
			t.Errorf("%.20q is a filter", text)
		}
	}
}

// TestSizesAreThoseOfPrograms compares sizes with what regular expressions are compiled to.
func TestSizesAreThoseOfPrograms(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 2))
	var text func(depth int) string
	text = func(depth int) string {
		kinds := 12
		if depth == 0 {
			kinds = 5
		}
		switch rng.IntN(kinds) {
		case 0, 1:
			return []string{"a", "bc", "", "ü"}[rng.IntN(4)]
		case 2:
			return []string{".", `\w`, "[a-cx]", `[^\d-]`, `\pL`, "(?i:k)", "(?s:.)"}[rng.IntN(7)]
		case 3, 4:
			return []string{"^", "$", `\b`, `\z`, "(?m:^)"}[rng.IntN(5)]
		case 5, 6:
			return text(depth-1) + text(depth-1)
		case 7:
			return "(?:" + text(depth-1) + "|" + text(depth-1) + "|" + text(depth-1) + ")"
		case 8:
			return "(" + text(depth-1) + ")"
		default:
			sub := "(?:" + text(depth-1) + ")"
			return sub + []string{"*", "+", "?", "*?", "{3}", "{2,}", "{1,}", "{0,4}", "{2,5}", "{0,}"}[rng.IntN(10)]
		}
	}
	larger := 0
	for range 20_000 {
		p := text(4)
		re, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			continue // e.g. repeated too often
		}
		size := sizeOf(re)
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		// Two are in each program, to fail and to end.
		if n := len(prog.Inst) - 2; n > 2*size+2 {
			t.Fatalf("%q has size %d, and %d instructions", p, size, n)
		} else if n >= size/2 {
			larger++
		}
	}
	if larger < 10_000 {
		t.Errorf("only %d sizes are not more than twice the instructions", larger)
	}
}

// TestSizesAreBounded adds regular expressions that are compiled to more than a set may have.
func TestSizesAreBounded(t *testing.T) {
	for _, text := range []string{"a~" + strings.Repeat("a{1000}", 3), "a~((a?){30}){30}", "a~" + strings.Repeat(`\pL`, 60)} {
		err := (&Set{}).Add(text)
		if err == nil || !strings.Contains(err.Error(), "2000") {
			t.Errorf("%.30s: %v", text, err)
		}
	}
	s := set(t, "a~a{990}", "b~b{990}", "c=x")
	if err := s.Add("d~d{30}"); err == nil || !strings.Contains(err.Error(), "2") || s.Len() != 3 {
		t.Errorf("three that are too large together: %v", err)
	}
	if n := s.Memory(); n < 1000*1980 || n > 10_000*1980 {
		t.Errorf("two of 990 take %d bytes", n)
	}
	if n := set(t, "a=x", "b!=y").Memory(); n != 0 {
		t.Errorf("without regular expressions %d bytes", n)
	}
	// Nothing is compiled before it is needed.
	for _, extras := range []string{"", `{"b":"x"}`, `{"a":null}`} {
		if ok, err := s.Passes(extras); ok || err != nil || s.list[0].pattern != nil {
			t.Errorf("%q: %v, %v, %v", extras, ok, err, s.list[0].pattern)
		}
	}
}

// TestMatchesAreBounded has values that are too long for a regular expression.
func TestMatchesAreBounded(t *testing.T) {
	s := set(t, "v~a{999}", "w=x")
	value := func(n int) string {
		return fmt.Sprintf(`{"w":"%s","v":%q}`, strings.Repeat("x", n), strings.Repeat("x", n))
	}
	var large *TooLargeError
	if ok, err := s.Passes(value(2900)); ok || err != nil {
		t.Errorf("a value of 2900 bytes: %v, %v", ok, err)
	}
	if n := s.Work(); n < 2_900_000 || n > MaxMatch {
		t.Errorf("%d steps", n)
	}
	for range 2 {
		if _, err := s.Passes(value(3100)); !errors.As(err, &large) || large.Bytes != 3100 || large.Size < 999 {
			t.Errorf("a value of 3100 bytes: %v", err)
		}
	}
	// What is no regular expression has no such bound.
	before := s.Work()
	s = set(t, "w=x")
	if ok, err := s.Passes(value(1e6)); ok || err != nil {
		t.Errorf("a long value: %v, %v", ok, err)
	}
	if n := s.Work(); n < 2e6 || before > MaxMatch {
		t.Errorf("%d and %d steps", before, n)
	}
}

// BenchmarkSteps takes about as many steps in every case, which are those that take longest.
func BenchmarkSteps(b *testing.B) {
	for name, pattern := range map[string]string{
		"small": "(a|b|c)+d$", "optional": strings.Repeat("(a?){30}", 16) + "b$", "nested": "(((a{0,10}){0,10}){0,7})b$",
		"stars": strings.Repeat("(a*)*", 100) + "b$", "classes": strings.Repeat(`[a-y]?`, 160) + "b$",
		"letters": strings.Repeat(`\pL?`, 40) + "1$", "words": strings.Repeat(`(\b|a)?`, 140) + "b$",
	} {
		b.Run(name, func(b *testing.B) {
			var s Set
			if err := s.Add("v~" + pattern); err != nil {
				b.Fatal(err)
			}
			extras := fmt.Sprintf(`{"v":%q}`, strings.Repeat("a", MaxMatch/2/(s.size+1)))
			for b.Loop() {
				s.known = false
				if _, err := s.Passes(extras); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.Work()), "ns/step")
		})
	}
	b.Run("compile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			regexp.MustCompile("(((a{0,10}){0,10}){0,6})b$")
		}
	})
	b.Run("equal", func(b *testing.B) {
		var s Set
		if err := s.Add("v=x"); err != nil {
			b.Fatal(err)
		}
		extras := fmt.Sprintf(`{"mime":"text/html","status":404,"v":%q}`, strings.Repeat("a", 60))
		for b.Loop() {
			s.known = false
			_, _ = s.Passes(extras)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.Work()), "ns/step")
	})
}
