package raw

import "testing"

func TestCheckRejectsInvalidOptions(t *testing.T) {
	for _, opt := range []Options{
		{Format: Tar}, {Format: "xml"}, {MaxLine: -1}, {MaxLine: maxMaxLine + 1},
		{TSFormat: "%Q"}, {TSFormat: "today"}, {TSFormat: "%"},
	} {
		if opt.Check() == nil {
			t.Errorf("%+v is valid", opt)
		}
	}
	for _, opt := range []Options{{}, {Format: Auto}, {MaxLine: 1}, {MaxLine: maxMaxLine}, {TSFormat: "%Y"}} {
		if err := opt.Check(); err != nil {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}
