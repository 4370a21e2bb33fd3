package mph

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/urlake/urlake/internal/testenv"
)

// Of any number of keys, records are read where slots lead and nowhere else, and nothing is read or written behind keys, records and ordinals.
func TestOrdinalsOfEightLanes(t *testing.T) {
	if !hasLanes {
		t.Skip("this processor has no such lanes")
	}
	rng := rand.New(rand.NewPCG(12, 12))
	sizes := []int{511, 512, 500, 505}
	for n := range 40 {
		sizes = append(sizes, n+1)
	}
	for _, n := range sizes {
		for _, slots := range []int{1, 2, 7, 300} {
			for _, domains := range []uint64{0, 1, 200, MaxDomains} {
				memory := testenv.Guarded(t, n*int(unsafe.Sizeof(Key{})))
				keys := unsafe.Slice((*Key)(unsafe.Pointer(&memory[0])), n)
				for i := range memory {
					memory[i] = byte(rng.Uint32()) // what pads keys means nothing
				}
				records := testenv.Guarded(t, slots*recordSize)
				for i := range slots {
					p := records[i*recordSize:]
					binary.LittleEndian.PutUint64(p, rng.Uint64N(4)<<62|uint64(i))
					binary.LittleEndian.PutUint32(p[8:], rng.Uint32N(3)<<31)
					binary.LittleEndian.PutUint32(p[12:], []uint32{0, 1, 199, 200, 1 << 31, MaxDomains - 1, MaxDomains, sideFlag}[rng.IntN(8)])
				}
				out := testenv.Guarded(t, n*4)
				ordinals := unsafe.Slice((*uint32)(unsafe.Pointer(&out[0])), n)
				b := new(batch)
				for i := range b.slot {
					b.slot[i] = rng.Uint64() // where another batch's would stand
				}
				wantOdd := 0
				want := make([]uint32, n)
				for i := range keys {
					slot := rng.IntN(slots)
					b.slot[i] = uint64(slot)
					p := records[slot*recordSize:]
					id, check, ordinal := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint32(p[12:])
					keys[i].ID, keys[i].Check = id, check
					want[i] = ordinal
					switch rng.IntN(6) {
					case 0:
						b.slot[i] = []uint64{absentSlot, uint64(slots), uint64(slots) | 1<<60, absentSlot >> 4}[rng.IntN(4)]
						want[i] = Absent
						continue
					case 1:
						keys[i].ID ^= 1 << rng.IntN(64)
						want[i] = Absent
						continue
					case 2:
						keys[i].Check ^= 1 << rng.IntN(32)
						want[i] = Absent
						wantOdd++
						continue
					}
					if uint64(ordinal) >= domains {
						want[i] = Absent
						wantOdd++
					}
				}
				odd := ordinalsAVX512(b, keys, unsafe.SliceData(records), uint64(slots), domains, unsafe.SliceData(ordinals))
				if odd != wantOdd {
					t.Fatalf("%d keys: %d records say not what the ordinal is, want %d", n, odd, wantOdd)
				}
				for i := range want {
					if ordinals[i] != want[i] {
						t.Fatalf("%d keys: ordinal %d is %d, want %d", n, i, ordinals[i], want[i])
					}
				}
			}
		}
	}
}
