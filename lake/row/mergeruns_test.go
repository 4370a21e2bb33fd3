package row

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// keyList is a section of keys.
type keyList struct {
	keys [][]byte
	last []byte
}

func (s *keyList) next(context.Context) (key []byte, shared int, err error) {
	if len(s.keys) == 0 {
		return nil, 0, nil
	}
	key = s.keys[0]
	shared = codec.CommonPrefix(s.last, key)
	// Overwrite the previous key: it is valid only until this call.
	for i := range s.last {
		s.last[i] = '!'
	}
	s.last = bytes.Clone(key)
	s.keys = s.keys[1:]
	return s.last, shared, nil
}

// Keys of one to three letters are often equal or prefixes of each other. mergeKeys passes them
// sorted and with the lengths of their common prefixes, for any number of sections.
func TestMergeKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	for round := range 3000 {
		sections := make([]section, rng.IntN(20))
		var want [][]byte
		letters := 1 + rng.IntN(3)
		for i := range sections {
			keys := make([][]byte, rng.IntN(12))
			for j := range keys {
				keys[j] = make([]byte, 1+rng.IntN(1+rng.IntN(30)))
				for k := range keys[j] {
					keys[j][k] = byte(rng.IntN(letters))
				}
			}
			slices.SortFunc(keys, bytes.Compare)
			want = append(want, keys...)
			sections[i] = &keyList{keys: keys}
		}
		slices.SortFunc(want, bytes.Compare)
		var last []byte
		n := 0
		err := mergeKeys(context.Background(), sections, func(key []byte, shared int) error {
			if n == len(want) || !bytes.Equal(key, want[n]) || shared != codec.CommonPrefix(last, key) {
				return fmt.Errorf("key %d is %q with a common prefix of %d bytes after %q", n, key, shared, last)
			}
			last = bytes.Clone(key)
			n++
			return nil
		})
		if err != nil || n != len(want) {
			t.Fatalf("round %d: %d keys of %d: %v", round, n, len(want), err)
		}
	}
}
