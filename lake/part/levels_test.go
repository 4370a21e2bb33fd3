package part

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/rle"
)

func TestLevelsOfRunsAreReadByParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 1))
	for range 5000 {
		w := levelWriter{have: 8}
		var want []byte
		for range rng.IntN(8) {
			n, defined := 1+rng.IntN(1<<rng.IntN(9)), rng.IntN(2)
			w.add(n, defined == 1)
			want = append(want, slices.Repeat([]byte{byte(defined)}, n)...)
		}
		w.flush()
		got, err := (&rle.Encoding{BitWidth: 1}).DecodeLevels(nil, w.dst)
		if err != nil || len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("%x: %v, want %v: %v", w.dst, got, want, err)
		}
		if groups := (len(want)+7)/8 + 3; len(w.dst) > groups {
			t.Fatalf("%d bytes for %d levels", len(w.dst), len(want))
		}
	}
}
