package frontier

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/internal/testenv"
)

// TestRestsAt says how long the rests are while files are written.
func TestRestsAt(t *testing.T) {
	for _, c := range []struct {
		fullness     float64
		adds, behind bool
		want         int
	}{
		{0, false, false, longRests}, {2, true, false, longRests}, {2.1, true, false, 0}, {4, false, false, longRests},
		{4.1, false, false, shorterRests}, {8, false, false, shorterRests}, {8.1, false, false, 0},
		{math.Inf(1), false, false, 0}, {2.1, true, true, longRests}, {4.1, true, true, shorterRests}, {8, false, true, shorterRests}, {8.1, true, true, 0},
	} {
		if got := restsAt(c.fullness, c.adds, c.behind); got != c.want {
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

// TestAddsWaitForRoom fills a shard far beyond what its memory is to have: adds wait until that is
// in files, or their clients have gone.
func TestAddsWaitForRoom(t *testing.T) {
	files, _, err := shard.Open(filepath.Join(t.TempDir(), "shard"), shard.Options{MemoryBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	f := &Frontier{owned: map[int]*owned{0: {files: files}}}
	if f.isFull() {
		t.Error("full of nothing")
	}
	queue := shard.QueueName("c", "a.example")
	for i := range 200 {
		url := "https://a.example/" + strconv.Itoa(i)
		_, _, err := files.Add([]shard.ID{shard.IDOf(queue+"\x00"+url, len(queue))}, []shard.Entry{{Queue: queue, URL: url}})
		if err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, "a full memory", f.isFull)
	gone, leave := context.WithCancel(t.Context())
	leave()
	f.waitForRoom(gone)
	waited := make(chan struct{})
	go func() {
		f.waitForRoom(t.Context())
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("did not wait")
	case <-time.After(10 * roomEvery):
	}
	if err := files.Flush(); err != nil {
		t.Fatal(err)
	}
	<-waited
	if f.isFull() {
		t.Errorf("waited for room in vain: %v times", files.Fullness())
	}
}
