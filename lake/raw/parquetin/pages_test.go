package parquetin

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// A delta-encoded page cannot claim more values than it has bytes for.
func TestSkipDelta(t *testing.T) {
	delta := func(v ...uint64) []byte {
		var b []byte
		for _, n := range v {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	// Three values 7, 8, 9: one block of four miniblocks, deltas 1 of width 0.
	good := append(delta(128, 4, 3, 14), append(delta(2), 0, 0, 0, 0)...)
	if rest, err := skipDelta(append(bytes.Clone(good), "rest"...)); err != nil || string(rest) != "rest" {
		t.Errorf("bytes behind the sequence: %q, %v", rest, err)
	}
	for name, b := range map[string][]byte{
		"a block of four billion values": delta(1<<32-128, 1, 3, 14, 2, 0),
		"two billion values":             append(delta(128, 4, 1<<31, 14), append(delta(2), 0, 0, 0, 0)...),
		"no miniblocks":                  delta(128, 0, 3, 14, 2, 0),
		"widths over 64":                 append(delta(128, 4, 3, 14, 2), 65, 0, 0, 0),
		"an end inside a block":          good[:len(good)-2],
	} {
		if _, err := skipDelta(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
