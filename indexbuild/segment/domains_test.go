package segment

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

// The frames that starts find for a name and a prefix are compared with all domains.
func TestDomainStartsEqualBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	m.files = []FileInfo{{DatasetID: 1, DomainPrefix: "any", Path: "urls/1", Batch: "b", Rows: 1}}
	var names []string
	for range 20_000 {
		// Some names are beginnings of others.
		name := strings.Repeat("ab", rng.IntN(3)) + fmt.Sprintf("%c%d", 'a'+rng.IntN(4), rng.IntN(90_000))
		names = append(names, name[:1+rng.IntN(len(name))])
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i, name := range names {
		m.add(name, 1, Totals{Rows: 1}, []Tuple{{FirstRow: int64(i), Rows: 1}})
	}
	m.files[0].Rows, m.groups = int64(len(names)), [][]int64{{int64(len(names))}}
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 0), Options{})
	startsEqualBruteForce(t, rng, s.Names(), names)
	startsEqualBruteForce(t, rng, s.Reversed(), m.reversed())
}

func startsEqualBruteForce(t *testing.T, rng *rand.Rand, list *Names, names []string) {
	t.Helper()
	starts := list.Starts()
	if n := (len(names) + DomainsPerFrame - 1) / DomainsPerFrame; starts == nil || starts.Len() != n || n < 5 {
		t.Fatalf("%d names, starts of %+v", len(names), starts)
	}
	for i := range starts.Len() {
		first := names[i*DomainsPerFrame]
		if i == 0 && len(starts.At(i)) != 0 || !strings.HasPrefix(first, string(starts.At(i))) {
			t.Errorf("frame %d of %q starts with %q", i, first, starts.At(i))
		}
		if i == 0 {
			continue
		}
		before, at := names[i*DomainsPerFrame-1], string(starts.At(i))
		if at <= before || at[:len(at)-1] > before {
			t.Errorf("frame %d starts with %q after %q", i, at, before)
		}
	}
	for range 3000 {
		prefix := names[rng.IntN(len(names))]
		prefix = prefix[:rng.IntN(len(prefix)+1)]
		start := prefix + names[rng.IntN(len(names))][:rng.IntN(2)]
		from, to := -1, -1 // the frames of the first and of the last
		for i, name := range names {
			if name >= start && strings.HasPrefix(name, prefix) {
				if to = i / DomainsPerFrame; from < 0 {
					from = to
				}
			}
		}
		lo, hi := starts.Find(start, prefix)
		if from >= 0 && (lo > from || hi <= to) || hi-lo > to-from+3 {
			t.Fatalf("from %q with %q: frames %d to %d, want %d to %d", start, prefix, lo, hi, from, to)
		}
	}
	texts, err := list.Texts(t.Context(), 1, 3)
	if err != nil || !bytes.Equal(bytes.Join(texts, nil), []byte(strings.Join(names[DomainsPerFrame:3*DomainsPerFrame], "\n")+"\n")) {
		t.Errorf("frames 1 and 2: %v", err)
	}
}
