package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/frontier/arena"
)

// TestHeapsEqualSortedLists pushes to and pops from some heaps at random, in rising, falling and
// random order. Each has to give its entries like a sorted list.
func TestHeapsEqualSortedLists(t *testing.T) {
	const queues = 5
	rng := rand.New(rand.NewPCG(2, 7))
	var h heaps[arena.Place]
	var texts arena.Arena
	var roots [queues]node
	var want [queues][]ranked[arena.Place]
	most := 0
	for i := range 20_000 {
		q := rng.IntN(queues)
		if i%2000 >= 1200 && len(want[q]) > 0 {
			var got arena.Place
			roots[q], got = h.pop(roots[q])
			if got != want[q][0].data {
				t.Fatalf("step %d: entry %v, want %v", i, got, want[q][0])
			}
			want[q] = want[q][1:]
		} else {
			k := rank{seq: uint64(i) + 1}
			switch q {
			case 0: // in order
			case 1:
				k.class = 1<<48 - 1 - uint64(i)
			case 2:
				k.class = rng.Uint64N(3) << 32
			default:
				k.class = rng.Uint64N(1 << 48)
			}
			e := ranked[arena.Place]{k, texts.Keep([]byte(fmt.Sprint(i)))}
			roots[q] = h.push(roots[q], k, e.data)
			want[q] = append(want[q], e)
			sortRanked(want[q])
		}
		n := 0
		for _, some := range want {
			n += len(some)
		}
		most = max(most, n)
		if got := h.appendAll(nil, roots[q]); len(got) != len(want[q]) || len(got) > 0 && h.at(roots[q]).rank() != want[q][0].rank {
			t.Fatalf("step %d: %d entries, want %d", i, len(got), len(want[q]))
		} else if i%100 == 0 {
			if sortRanked(got); !slices.Equal(got, want[q]) {
				t.Fatalf("step %d: %v, want %v", i, got, want[q])
			}
		}
	}
	if int(h.last) != most {
		t.Errorf("%d nodes for at most %d entries at a time", h.last, most)
	}
}

// TestHeapsStayLow holds that no way to the right is long, in which order entries may come.
func TestHeapsStayLow(t *testing.T) {
	const n = 1 << 16
	for name, class := range map[string]func(i int) uint64{
		"rising":  func(i int) uint64 { return uint64(i) },
		"falling": func(i int) uint64 { return uint64(n - i) },
		"equal":   func(int) uint64 { return 7 },
	} {
		var h heaps[arena.Place]
		root := node(0)
		for i := range n {
			root = h.push(root, rank{class(i), uint64(i + 1)}, arena.Place{})
			if height := h.at(root).height; height > 17 {
				t.Fatalf("%s: a way of %d nodes among %d", name, height, i+1)
			}
		}
	}
}

// TestQueueTableEqualsMap adds, finds, removes and releases queues at random.
func TestQueueTableEqualsMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	table, want := newQueueTable(), map[string]*queue{}
	var removed []*queue
	most := 0
	for i := range 60_000 {
		name := QueueName("c", fmt.Sprint(rng.IntN(3000)))
		id := IDOfQueue(name)
		q := table.get(&id)
		if q != want[name] {
			t.Fatalf("step %d: %q: %v, want %v", i, name, q, want[name])
		}
		switch {
		case q == nil:
			q = table.add(id, name)
			want[name] = q
			q.n[waits] = uint32(i)
		case i/10_000%2 == 1:
			table.remove(q)
			removed = append(removed, q)
			delete(want, name)
			if table.name(q) != name || q.id != id {
				t.Fatalf("%q has another name once it is removed", name)
			}
		}
		most = max(most, table.len()+len(removed))
		if len(removed) > 100 {
			var numbers []uint32
			for _, q := range removed {
				numbers = append(numbers, q.number)
			}
			table.release(numbers)
			removed = nil
		}
		if table.len() != len(want) {
			t.Fatalf("step %d: %d queues, want %d", i, table.len(), len(want))
		}
	}
	n := 0
	for q := range table.all() {
		if name := table.name(q); want[name] != q || table.at(q.number) != q {
			t.Fatalf("%q: %v, want %v", name, q, want[name])
		}
		n++
	}
	if n != len(want) || table.used != most {
		t.Errorf("%d queues, want %d; memory for %d, want %d", n, len(want), table.used, most)
	}
	if size := table.names.Size(); size > 2*(table.used+table.n)*10 {
		t.Errorf("the names of %d queues take %d bytes", n, size)
	}
}
