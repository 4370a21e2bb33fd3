package shard

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

func importing(t *testing.T, s *Shard, queue, url string, at int64, status uint16) AddStatus {
	t.Helper()
	statuses, _, err := s.Import([]Entry{{Queue: queue, URL: url, Depth: 3}}, []Visit{{Time: at, Status: status, Content: fmt.Sprint(at)}})
	if err != nil {
		t.Fatal(err)
	}
	return statuses[0]
}

func allVisits(t *testing.T, s *Shard, since, from int64) (all []Visit) {
	t.Helper()
	if _, err := s.Visits(since, from, func(_ int64, v Visit) bool {
		all = append(all, v)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// Visits are imported in any order, each several times, while the shard dies now and then. A map
// says what has to come of it.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	rng := rand.New(rand.NewPCG(1, 2))
	queue := QueueName("c", "a.test")
	latest := map[string]int64{} // in seconds
	var want []Visit
	for i := range 2000 {
		url := fmt.Sprintf("https://a.test/%d", rng.IntN(300))
		second := 1_600_000_000 + int64(rng.IntN(1_000_000))
		status := importing(t, s, queue, url, second*1000+int64(rng.IntN(1000)), uint16(200+i%300))
		if (status == Added) != (second > latest[url]) {
			t.Fatalf("%s at %d: status %d, its latest visit is of %d", url, second, status, latest[url])
		}
		if status == Added {
			latest[url] = second
			want = append(want, Visit{URL: url, Status: uint16(200 + i%300)})
		}
		if i%500 == 499 {
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 999 {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			s = reopen(t, s, dir)
		}
	}
	got := allVisits(t, s, 0, 0)
	if len(got) != len(want) {
		t.Fatalf("%d visits, want %d", len(got), len(want))
	}
	times := map[string]int64{}
	for i, v := range got {
		if v.URL != want[i].URL || v.Status != want[i].Status || v.Content != fmt.Sprint(v.Time) || v.Depth != 3 || v.Queue != queue {
			t.Fatalf("visit %d is %+v, want %+v", i, v, want[i])
		}
		times[v.URL] = v.Time / 1000
	}
	if !maps.Equal(times, latest) {
		t.Errorf("the latest visits are not those that were imported last")
	}
	// Whatever the order of times, none that is late enough is missed.
	for _, since := range []int64{0, 1_600_300_000_000, 1_600_999_999_000} {
		n, all := 0, 0
		for _, v := range got {
			if v.Time >= since {
				n++
			}
		}
		for _, v := range allVisits(t, s, since, 0) {
			if v.Time >= since {
				all++
			}
		}
		if all != n {
			t.Errorf("since %d: %d visits, want %d", since, all, n)
		}
	}
	counts, _ := s.Count("c", queue)
	if counts.Done() != int64(len(latest)) || counts.All() != counts.Done() {
		t.Errorf("%+v, want %d done", counts, len(latest))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// reopen opens a shard that was not closed, as after a crash of the process.
func reopen(t *testing.T, s *Shard, dir string) *Shard {
	t.Helper()
	if err := s.closeFiles(); err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

// A URL that waits, or is leased, is settled by an imported visit.
func TestImportSettles(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	queue := QueueName("c", "a.test")
	if _, _, err := add(s, []Entry{{Queue: queue, URL: "https://a.test/1"}, {Queue: queue, URL: "https://a.test/2"}}); err != nil {
		t.Fatal(err)
	}
	taken, _, err := s.Take(queue, 1)
	if err != nil || len(taken) != 1 {
		t.Fatalf("%v, %v", taken, err)
	}
	_, done, err := s.Import([]Entry{{Queue: queue, URL: "https://a.test/1"}, {Queue: queue, URL: "https://a.test/2"}},
		[]Visit{{Time: 5000, Status: 200}, {Time: 6000, Status: 404}})
	if err != nil || len(done.Ended) != 1 || done.Ended[0].Seq != taken[0].Seq {
		t.Fatalf("%+v, %v", done, err)
	}
	if again, left, err := s.Take(queue, 10); err != nil || len(again) != 0 || left != 0 {
		t.Errorf("%v, %d, %v", again, left, err)
	}
	if ok, err := s.Done(taken[0].Seq, Visit{Time: 7000, Status: 200}, 0); ok || err != nil {
		t.Errorf("the lease of what was imported settles: %v", err)
	}
	for url, status := range map[string]uint16{"https://a.test/1": 200, "https://a.test/2": 404} {
		if st, ok := s.Seen(queue, url); !ok || !st.Settled || st.Status != status {
			t.Errorf("%s: %v, %+v", url, ok, st)
		}
	}
	// Without a time it is one of now, once.
	if a, b := importing(t, s, queue, "https://a.test/3", 0, 200), importing(t, s, queue, "https://a.test/3", 0, 200); a != Added || b != Known {
		t.Errorf("without a time: %d, %d", a, b)
	}
	ahead := time.Now().Add(1000 * time.Hour).UnixMilli()
	if a := importing(t, s, queue, "https://a.test/4", ahead, 200); a != Added {
		t.Errorf("a time that lies ahead: %d", a)
	}
	if all := allVisits(t, s, 0, 0); all[len(all)-1].Time >= ahead {
		t.Errorf("a time that lies ahead is kept: %d", all[len(all)-1].Time)
	}
}

// The number of a visit that was told of is the same after a crash.
func TestToldVisitsAreCertain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	queue := QueueName("c", "a.test")
	importing(t, s, queue, "https://a.test/1", 5000, 200) // and no Commit
	n := len(allVisits(t, s, 0, 0))
	s = reopen(t, s, dir)
	defer s.Close()
	if after := len(allVisits(t, s, 0, 0)); n != 1 || after < n {
		t.Errorf("%d visits were told, and after a crash there are %d", n, after)
	}
	if _, err := s.Visits(0, 2, func(int64, Visit) bool { return true }); !errors.Is(err, ErrPosition) {
		t.Errorf("a position that no visit can have: %v", err)
	}
}
