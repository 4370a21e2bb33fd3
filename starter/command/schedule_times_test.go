package command

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/internal/cli"
)

func TestCronLines(t *testing.T) {
	for _, valid := range []string{
		"0 3 * * *", "*/15 0-6,18 1,15 jan-MAR mon-fri", "59 23 31 12 7", "0 0 ? * 0", "5/10 * * * *", "@daily", "@every 1h",
	} {
		if err := checkCron(valid); err != nil {
			t.Errorf("%q: %v", valid, err)
		}
	}
	for _, invalid := range []string{
		"", "0 3 * *", "0 3 * * * *", "60 3 * * *", "0 24 * * *", "0 3 0 * *", "0 3 * 13 *", "0 3 * * 8", "-1 * * * *",
		"*/0 * * * *", "*/x * * * *", "5-1 * * * *", "1, * * * *", "0 3 * foo *", "0 3 * * funday", "0 3 * * mon-",
		"300 * * * *",
	} {
		var usage *cli.UsageError
		if err := checkCron(invalid); !errors.As(err, &usage) {
			t.Errorf("%q: %v, want a *cli.UsageError", invalid, err)
		}
	}
}
