package frontier

import (
	"math"
	"testing"
)

// TestRestsAt says how long the rests are while files are written.
func TestRestsAt(t *testing.T) {
	for _, c := range []struct {
		fullness float64
		adds     bool
		want     int
	}{
		{0, false, longRests}, {2, true, longRests}, {2.1, true, 0}, {4, false, longRests},
		{4.1, false, shorterRests}, {8, false, shorterRests}, {8.1, false, 0}, {math.Inf(1), false, 0},
	} {
		if got := restsAt(c.fullness, c.adds); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
