package part

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go/encoding/delta"
)

func TestDeltaPackedIsReadByParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for n := range 400 {
		values := make([]int32, n)
		for i := range values {
			switch n % 4 {
			case 0:
				values[i] = rng.Int32N(60)
			case 1:
				values[i] = int32(rng.Uint32())
			case 2:
				values[i] = int32(n)
			case 3:
				values[i] = []int32{math.MinInt32, math.MaxInt32, 0, -1}[rng.IntN(4)]
			}
		}
		packed := appendDeltaPacked(nil, values)
		byOther, err := (&delta.BinaryPackedEncoding{}).DecodeInt32(nil, packed)
		if err != nil {
			t.Fatalf("%d values: parquet-go: %v", n, err)
		}
		if !slices.Equal(byOther, values) {
			t.Fatalf("%d values: %s", n, cmp.Diff(values, byOther))
		}
	}
}
