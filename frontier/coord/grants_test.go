//go:build unix

package coord_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/ready"
)

// grantsOf returns until when each lease lasts by what Redis has, as the format says: the grant of
// the highest number counts. It returns how many leases the grants have, too.
func grantsOf(t *testing.T, client *redis.Client) (until map[coord.Lease]int64, all int) {
	t.Helper()
	grants, err := client.HGetAll(t.Context(), "{f:0}:grants").Result()
	if err != nil {
		t.Fatal(err)
	}
	until = map[coord.Lease]int64{}
	byNumber := func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	}
	for _, number := range slices.SortedFunc(maps.Keys(grants), byNumber) {
		b := []byte(grants[number])
		ends := int64(binary.LittleEndian.Uint64(b))
		for b = b[8:]; len(b) > 0; all++ {
			n, size := binary.Uvarint(b)
			until[coord.Lease(b[size:size+int(n)])] = ends
			b = b[size+int(n):]
		}
	}
	return until, all
}

// TestGrants leases, prolongs, ends and lets end at random, and reports some of all leases that
// there ever were, some twice, and some with a wrong token. What the owner says has to be what
// simple rules say, and Redis has every lease that holds, also after the shard was opened again.
func TestGrants(t *testing.T) {
	f, client := begin(t)
	s := own(t, f)
	rng := rand.New(rand.NewPCG(7, 7))
	var all []coord.Lease
	model := map[coord.Lease]int64{} // until when the leases last that did not end
	now := int64(1_000_000)
	some := func() (list []coord.Lease) {
		for range 1 + rng.IntN(60) {
			if len(all) > 0 {
				list = append(list, all[max(0, len(all)-1-rng.IntN(300))])
			}
		}
		return list
	}
	live := func(asked []coord.Lease) []bool {
		want := make([]bool, len(asked))
		for i, l := range asked {
			want[i] = model[l] > now && !slices.Contains(asked[:i], l)
		}
		return want
	}
	lived, expired, opened := 0, 0, 0
	for step := range 3000 {
		now += int64(rng.IntN(40))
		switch rng.IntN(8) {
		case 0, 1:
			first, until := len(all), now+int64(rng.IntN(3000))
			for range 1 + rng.IntN(60) {
				token := rng.Uint64() * uint64(rng.IntN(8)) // some have none
				all = append(all, coord.NewLease(token, uint64(len(all)+1), fmt.Sprintf("c\x00site%d.example", rng.IntN(9))))
				model[all[len(all)-1]] = until
			}
			if err := s.Lease(t.Context(), until, all[first:], ready.Claim{}); err != nil {
				t.Fatal(err)
			}
		case 2:
			ended := some()
			for _, l := range ended {
				delete(model, l)
			}
			if rng.IntN(2) == 0 {
				s.End(ended)
				continue
			}
			var seqs []uint64
			for _, l := range ended {
				seqs = append(seqs, l.Seq())
			}
			s.EndEntries(seqs)
		case 3:
			asked, until := some(), now+int64(rng.IntN(3000))
			want := live(asked)
			got, err := s.Extend(t.Context(), now, until, asked)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("step %d: prolonged %v, %v; want %v", step, got, err, want)
			}
			for i, l := range asked {
				if want[i] {
					model[l] = until
				}
			}
		case 4:
			for calls, more := 0, true; more; calls++ {
				if calls > 10_000 {
					t.Fatalf("step %d: leases do not end", step)
				}
				var ended []coord.Lease
				var err error
				if ended, more, err = s.Expire(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				for _, l := range ended {
					if until, ok := model[l]; !ok || until > now {
						t.Fatalf("step %d: %q has ended, %v, %d of %d", step, l, ok, until, now)
					}
					delete(model, l)
					expired++
				}
			}
			for l, until := range model {
				if until <= now {
					t.Fatalf("step %d: the time of %q is over", step, l)
				}
			}
			if _, has := grantsOf(t, client); has > 1000+8*len(model) {
				t.Errorf("step %d: Redis has %d leases, %d hold", step, has, len(model))
			}
		case 5:
			if rng.IntN(10) > 0 {
				continue
			}
			var leases []coord.Lease
			_, s, leases = open(t, client)
			var ended []coord.Lease // as the files say
			holds := 0
			for _, l := range leases {
				if _, ok := model[l]; ok {
					holds++
				} else {
					ended = append(ended, l)
				}
			}
			if holds != len(model) {
				t.Fatalf("step %d: %d of %d leases are there", step, holds, len(model))
			}
			s.End(ended)
			opened++
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
			want := live(asked)
			got, _, err := s.Report(t.Context(), now, asked, reports, coord.Backoff{Delay: time.Second, Longest: time.Hour})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("step %d: %v, %v; want %v", step, got, err, want)
			}
			for _, l := range got {
				if l {
					lived++
				}
			}
		}
		if step%50 == 0 {
			redis, _ := grantsOf(t, client)
			for l, until := range model {
				if redis[l] != until {
					t.Fatalf("step %d: Redis has %q until %d, not %d", step, l, redis[l], until)
				}
			}
		}
	}
	if lived < 1000 || expired < 100 || opened < 10 {
		t.Errorf("%d live leases were reported, %d have ended in time, the shard was opened %d times", lived, expired, opened)
	}
}
