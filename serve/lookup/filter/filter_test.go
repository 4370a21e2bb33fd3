package filter

import (
	"strings"
	"testing"
)

func TestFilters(t *testing.T) {
	extras := `{"n":7,"status":"404","mime":"text/html; charset=x","none":null,"list":[1,2],"ok":true,"a b":"x"}`
	for text, want := range map[string]bool{
		"status=404": true, "status=40": false, "status!=404": false, "status!=200": true, "n=7": true, "n!=7": false, "n~^[0-9]$": true,
		"mime~html": true, "mime~^html": false, "mime~(?i)HTML": true, "absent=": false, "absent!=x": true, "absent~.*": false,
		"none=null": false, "none!=null": true, "list=[1,2]": true, "ok=true": true, "a b=x": true, "status~": true, "status=": false,
	} {
		f, err := Parse(text)
		if err != nil || f.String() != text {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for range 2 {
			if got := f.Passes(extras); got != want {
				t.Errorf("%s: %v", text, got)
			}
		}
		if got := f.Passes(""); got != strings.Contains(text, "!=") {
			t.Errorf("%s without extras: %v", text, got)
		}
	}
	for _, text := range []string{"", "status", "=404", "~x", "!=x", "a!b", "mime~(", "x=\x00", "x=" + strings.Repeat("y", maxFilter)} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%.20q is a filter", text)
		}
	}
	for _, object := range []string{"{", "[]", "x"} {
		if _, ok := memberOf(object, "a"); ok {
			t.Errorf("%s has a member", object)
		}
	}
}
