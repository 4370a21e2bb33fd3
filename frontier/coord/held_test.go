//go:build unix

package coord_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/coord"
)

// TestReportEqualsRedis leases, prolongs, ends and lets end at random, and reports some of all
// leases that there ever were, some twice, and some with a wrong token. What the owner says of them
// from memory has to be what Redis has, also after it was opened again.
func TestReportEqualsRedis(t *testing.T) {
	f, client := begin(t)
	s := own(t, f)
	rng := rand.New(rand.NewPCG(7, 7))
	var all []coord.Lease
	now := int64(1_000_000)
	some := func() (list []coord.Lease) {
		for range 1 + rng.IntN(5) {
			if len(all) > 0 {
				list = append(list, all[max(0, len(all)-1-rng.IntN(30))])
			}
		}
		return list
	}
	lived := 0
	for step := range 2000 {
		now += int64(rng.IntN(40))
		switch rng.IntN(7) {
		case 0, 1:
			first := len(all)
			for range 1 + rng.IntN(4) {
				all = append(all, coord.NewLease(rng.Uint64(), uint64(len(all)+1), fmt.Sprintf("c\x00site%d.example", rng.IntN(9))))
			}
			if err := s.Lease(t.Context(), "c", now+int64(rng.IntN(1500)), all[first:], nil); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := s.End(t.Context(), some()); err != nil {
				t.Fatal(err)
			}
		case 3:
			if _, err := s.Extend(t.Context(), now, now+int64(rng.IntN(1500)), some()); err != nil {
				t.Fatal(err)
			}
		case 4:
			if rng.IntN(3) > 0 {
				continue
			}
			if _, _, err := s.Expire(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		case 5:
			if rng.IntN(10) == 0 {
				s = own(t, f)
			}
		default:
			asked := some()
			if len(asked) > 0 && rng.IntN(3) == 0 {
				l := asked[0]
				asked = slices.Insert(asked, 0, coord.NewLease(rng.Uint64(), l.Seq(), l.Queue()))
			}
			var reports []coord.Report
			if rng.IntN(3) == 0 {
				for range asked {
					reports = append(reports, coord.Report{Failed: rng.IntN(2) == 0, Answered: rng.IntN(2) == 0})
				}
			}
			want := make([]bool, len(asked))
			for i, l := range asked {
				until, err := client.ZScore(t.Context(), "{f:0}:leases", string(l)).Result()
				want[i] = err == nil && int64(until) > now && !slices.Contains(asked[:i], l)
				if want[i] {
					lived++
				}
			}
			got, err := s.Report(t.Context(), now, asked, reports, coord.Backoff{Delay: time.Second, Longest: time.Hour})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("step %d: %v, %v; want %v", step, got, err, want)
			}
		}
	}
	if lived < 200 {
		t.Errorf("%d live leases were reported", lived)
	}
}
