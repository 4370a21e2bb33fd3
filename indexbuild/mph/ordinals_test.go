package mph

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/urlake/urlake/internal/testenv"
)

// For any number of keys, ordinals reads the records at the keys' slots and
// no others, and nothing is read or written behind keys, records and ordinals.
func TestOrdinalsOfRecords(t *testing.T) {
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
					memory[i] = byte(rng.Uint32()) // the padding of keys is random too
				}
				records := testenv.Guarded(t, slots*recordSize)
				whole := rng.IntN(2) == 0
				for i := range slots {
					p := records[i*recordSize:]
					binary.LittleEndian.PutUint64(p, rng.Uint64N(4)<<62|uint64(i))
					binary.LittleEndian.PutUint32(p[8:], rng.Uint32N(3)<<31)
					ordinal := []uint32{0, 1, 199, 200, 1 << 31, MaxDomains - 1, MaxDomains, sideFlag}[rng.IntN(8)]
					binary.LittleEndian.PutUint32(p[12:], ordinal)
					if whole && domains > 0 {
						binary.LittleEndian.PutUint32(p[12:], uint32(rng.Uint64N(domains)))
					}
				}
				out := testenv.Guarded(t, n*4)
				ordinals := unsafe.Slice((*uint32)(unsafe.Pointer(&out[0])), n)
				b := new(batch)
				for i := range b.slot {
					b.slot[i] = rng.Uint64() // stale slots of another batch
				}
				wantErr := false
				want := make([]uint32, n)
				for i := range keys {
					slot := rng.IntN(slots)
					b.slot[i] = uint64(slot)
					p := records[slot*recordSize:]
					id, check := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint32(p[8:])
					ordinal := binary.LittleEndian.Uint32(p[12:])
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
						wantErr = wantErr || ordinal == sideFlag // the table has no side table
						continue
					}
					if uint64(ordinal) >= domains {
						want[i] = Absent
						wantErr = true
					}
				}
				table := &Table{
					name: "f", trailer: trailer{keys: uint64(slots), domains: domains}, records: records,
				}
				err := table.ordinals(b, keys, ordinals)
				if (err != nil) != wantErr {
					t.Fatalf("%d keys: %v", n, err)
				}
				for i := range want {
					if err == nil && ordinals[i] != want[i] {
						t.Fatalf("%d keys: ordinal %d is %d, want %d", n, i, ordinals[i], want[i])
					}
				}
			}
		}
	}
}
