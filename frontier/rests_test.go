package frontier

import (
	"math"
	"slices"
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

// TestFullnessOf holds that full shards count as part of all, unless one of them is far fuller.
func TestFullnessOf(t *testing.T) {
	for _, c := range []struct {
		all     []float64
		written float64
		want    float64
	}{
		{nil, 0, 0}, {[]float64{1, 2, 6}, 6, 3}, {[]float64{0, 0, 0, 40}, 40, 10}, {[]float64{0, 40, 0, 0}, 0, 10},
		{append(make([]float64, 31), 32), 32, 8}, {append(make([]float64, 31), 32), 0, 1},
		{[]float64{0, math.Inf(1)}, 0, math.Inf(1)},
	} {
		if got := fullnessOf(c.all, c.written); got != c.want {
			t.Errorf("%v, %v: %v, want %v", c.all, c.written, got, c.want)
		}
	}
}

// TestFullestFirst: a shard that waits to be opened again is before all others.
func TestFullestFirst(t *testing.T) {
	fullness := map[int]float64{0: 1, 1: 0, 2: 7, 3: 3}
	var all []*owned
	for number := range fullness {
		all = append(all, &owned{number: number})
		all[len(all)-1].doubtful.Store(number == 1)
	}
	var got []int
	for _, s := range fullestFirst(all, func(s *owned) float64 { return fullness[s.number] }) {
		got = append(got, s.number)
	}
	if want := []int{1, 2, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
