package mph
import ("testing";"math/rand/v2";"encoding/binary")
func BenchmarkZZ(b *testing.B) {
	n := int(1e7)
	keys := randomKeys(n)
	table := benchTable(b, keys)
	rng := rand.New(rand.NewPCG(2, 3))
	asked := make([]Key, 1<<20)
	slots := make([]uint64, len(asked))
	for i := range asked { asked[i] = keys[rng.IntN(n)]; slots[i],_,_ = table.Slot(asked[i].ID) }
	var bt batch
	out := make([]uint32, 256)
	rep := func(b *testing.B) { b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/256, "ns/key") }
	b.Run("ordinals", func(b *testing.B) { for i := 0; b.Loop(); i++ { f := i*256%len(asked); copy(bt.slot[:], slots[f:f+256]); table.ordinals(&bt, asked[f:f+256], out) }; rep(b) })
	b.Run("loads", func(b *testing.B) { for i := 0; b.Loop(); i++ { f := i*256%len(asked); copy(bt.slot[:], slots[f:f+256]);
		recs := table.records
		for j := range 256 { off := bt.slot[j]*16; bt.word[j] = binary.LittleEndian.Uint64(recs[off:]) } }; rep(b) })
	b.Run("sum", func(b *testing.B) { s := uint64(0); for i := 0; b.Loop(); i++ { f := i*256%len(asked);
		recs := table.records
		for j := range 256 { off := slots[f+j]*16; s += binary.LittleEndian.Uint64(recs[off:]) } }; rep(b); _ = s })
	b.Run("slots", func(b *testing.B) { for i := 0; b.Loop(); i++ { f := i*256%len(asked); for j := range 256 { bt.key[j] = asked[f+j].ID }; table.slots(&bt, 256) }; rep(b) })
}
