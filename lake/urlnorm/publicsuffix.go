package urlnorm

import (
	"math/bits"
	"net/netip"
	"strings"
)

// suffixTable holds the rules of a list as a tree of labels. The last label of a name is a child of
// the root. Nodes are in an open-addressed table, keyed by parent and label.
type suffixTable struct {
	// filter has a bit set for the hash of every node. Most lookups are of the registered label of
	// a domain, which is no node, and end here: the filter's 16 KiB stay in the L1 cache.
	filter [1 << (filterBits - 6)]uint64
	// pairs has a bit set for every node that is the second label from the end, and wild for every
	// top-level domain with a wildcard. A name of two labels or more that is in neither, as most
	// are, has a suffix of one label, with or without a rule.
	pairs [1 << (filterBits - 6)]uint64
	wild  [1 << (wildBits - 6)]uint64
	nodes []suffixNode // a power of two
	used  int          // nodes that are not free
	shift uint8        // from a hash to a slot of nodes
	list  string       // wordSize bytes, then the rules
}

const (
	filterBits = 17
	wildBits   = 12

	// Slots and offsets in the list have 24 bits. Those of the longest list need 22.
	rootNode = 1<<24 - 1 // the parent of top-level domains, which has no slot

	// maxTableHost is the longest host that is looked up with its dots as bits of a uint64.
	maxTableHost = 64
)

// suffixNode is a label of some rules, in a slot of the table. The slot is free where below is 0.
type suffixNode struct {
	key   uint64 // labelKey of the label
	below uint32 // the slot of the parent or rootNode, and in the low byte the length of the label
	label uint32 // offset of the label in the list, and in the low byte the kind
}

func (n *suffixNode) kind() uint8 { return uint8(n.label) }

// Kinds of nodes. A node may be a rule and have nodes below it, and be a wildcard without a rule.
const (
	isRule      uint8 = 1 << iota // the name of the node is a public suffix
	isException                   // the name is no public suffix, despite a wildcard
	isWildcard                    // every name of one more label is a public suffix
)

// newSuffixTable builds the table of rules in their canonical text, see SuffixList.Text. As
// top-level domains come first, they get slots that are found at once.
func newSuffixTable(rules string) *suffixTable {
	// Most names of rules have one label more than another, so there are few more nodes than rules.
	slotBits := bits.Len(uint(strings.Count(rules, "\n") * 3 / 2))
	for {
		if t := buildSuffixTable(rules, slotBits); t != nil {
			return t
		}
		slotBits++
	}
}

// buildSuffixTable returns nil if more than two thirds of so many slots would be used.
func buildSuffixTable(rules string, slotBits int) *suffixTable {
	t := &suffixTable{
		list:  strings.Repeat("\n", wordSize) + rules,
		nodes: make([]suffixNode, 1<<slotBits), shift: uint8(64 - slotBits),
	}
	var end int
	for start := wordSize; start < len(t.list); start = end + 1 {
		end = start + strings.IndexByte(t.list[start:], '\n')
		kind := isRule
		switch t.list[start] {
		case '!':
			kind = isException
			start += len("!")
		case '*':
			kind = isWildcard
			start += len("*.")
		}
		node := uint32(rootNode)
		var keys [2]uint64 // of the last two labels, the last first
		labels := 0
		for labelEnd := end; labelEnd >= start; labels++ {
			label := start + strings.LastIndexByte(t.list[start:labelEnd], '.') + 1
			if node = t.insert(node, label, labelEnd); node == noNode {
				return nil
			}
			if labels < len(keys) {
				keys[labels] = labelKey(t.list, label, labelEnd)
			}
			labelEnd = label - 1
		}
		t.nodes[node].label |= uint32(kind)
		switch {
		case labels > 1:
			bit := pairHash(keys[0], keys[1])
			t.pairs[bit/64] |= 1 << (bit % 64)
		case kind == isWildcard:
			bit := wildHash(keys[0])
			t.wild[bit/64] |= 1 << (bit % 64)
		}
	}
	return t
}

// insert returns the slot of the node for the label list[start:end] below parent, and adds the node
// if there is none, or returns noNode if there is no room for it.
func (t *suffixTable) insert(parent uint32, start, end int) uint32 {
	key := labelKey(t.list, start, end)
	hash := nodeHash(parent, key, end-start)
	if node := t.find(hash, parent, key, t.list, start, end); node != noNode {
		return node
	}
	if t.used++; 3*t.used > 2*len(t.nodes) {
		return noNode
	}
	mask := uint32(len(t.nodes) - 1)
	i := uint32(hash>>(t.shift&63)) & mask
	for t.nodes[i].below != 0 {
		i = (i + 1) & mask
	}
	t.nodes[i] = suffixNode{key: key, below: parent<<8 | uint32(end-start), label: uint32(start) << 8}
	bit := hash >> (64 - filterBits)
	t.filter[bit/64] |= 1 << (bit % 64)
	return i
}

const noNode = ^uint32(0)

// find returns the slot of the node for s[start:end] below parent, whose labelKey and nodeHash are
// given, or noNode. The label has at most 255 bytes.
func (t *suffixTable) find(hash uint64, parent uint32, key uint64, s string, start, end int) uint32 {
	mask := uint32(len(t.nodes) - 1)
	for i := uint32(hash >> (t.shift & 63)); ; i++ {
		i &= mask
		n := &t.nodes[i]
		if n.below == 0 {
			return noNode
		}
		if length := end - start; n.key == key && n.below == parent<<8|uint32(length) &&
			(length <= wordSize || t.list[n.label>>8:][:length-wordSize] == s[start:end-wordSize]) {
			return i
		}
	}
}

// nodeHash hashes the parent, key and length of a node.
func nodeHash(parent uint32, key uint64, length int) uint64 {
	h := (key ^ uint64(parent)<<40 ^ uint64(length)<<56) * 0x9e3779b97f4a7c15
	return (h ^ h>>32) * 0xd6e8feb86659fd93
}

// pairHash is the bit in pairs for the keys of the last two labels.
func pairHash(last, second uint64) uint64 {
	h := (last ^ bits.RotateLeft64(second, 25)) * 0x9e3779b97f4a7c15
	return (h ^ h>>32 ^ second) * 0xd6e8feb86659fd93 >> (64 - filterBits)
}

// wildHash is the bit in wild for the key of the last label.
func wildHash(last uint64) uint64 { return last * 0x9e3779b97f4a7c15 >> (64 - wildBits) }

// labelKey is the last eight bytes of the label s[start:end], or all of a shorter one, with the
// last byte on top and zeros at the bottom. s has at least eight bytes before end, of any value.
func labelKey(s string, start, end int) uint64 {
	b := s[end-8 : end]
	v := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	// The value for an empty label does not matter: no rule has one.
	unused := uint(64-8*min(end-start, 8)) & 63
	return v >> unused << unused
}

// domain returns where the registrable domain starts in host, relative to it. host is s[start:],
// not empty and at most maxTableHost bytes long. Bit i of dots is set if byte i of host is a dot.
// There are at least eight bytes in s before the host, or seven if it has no empty label, because
// labels are read eight bytes at a time.
func (t *suffixTable) domain(s string, start int, dots uint64) int {
	if last := bits.Len64(dots); last > 0 {
		// Most names have no rule of two labels.
		second := bits.Len64(dots & (1<<(uint(last-1)&63) - 1))
		key := labelKey(s, start+last, len(s))
		pair, wild := pairHash(key, labelKey(s, start+second, start+last-1)), wildHash(key)
		if (t.pairs[pair/64]>>(pair%64)|t.wild[wild/64]>>(wild%64))&1 == 0 {
			return second
		}
	}
	// These are the steps of match, which takes any host. Positions are relative to the host.
	above := dots // the dots before end
	end := len(s) - start
	suffix := -1
	node := uint32(rootNode)
	kind := uint8(0)
	for {
		label := bits.Len64(above)
		if kind&isWildcard != 0 {
			suffix = label
		}
		key := labelKey(s, start+label, start+end)
		hash := nodeHash(node, key, end-label)
		if bit := hash >> (64 - filterBits); t.filter[bit/64]>>(bit%64)&1 == 0 {
			break
		}
		if node = t.find(hash, node, key, s, start+label, start+end); node == noNode {
			break
		}
		kind = t.nodes[node].kind()
		if kind&isException != 0 {
			suffix = end + 1
			break
		}
		if kind&isRule != 0 {
			suffix = label
		}
		if label == 0 {
			break
		}
		end = label - 1
		above &= 1<<(uint(end)&63) - 1
	}
	if suffix < 0 {
		suffix = bits.Len64(dots) // without a rule, the suffix is the last label
	}
	if suffix == 0 {
		return 0
	}
	return bits.Len64(dots & (1<<(uint(suffix-1)&63) - 1))
}

// match returns where the public suffix of a name starts, and the kind of the rule that says so,
// or 0 if no rule does and the suffix is the last label. It takes names of any length.
func (t *suffixTable) match(host string) (suffix int, kind uint8) {
	var buf [wordSize + maxName]byte
	s := view(append(buf[:wordSize], host...)) // as labelKey wants it
	suffix = -1
	node := uint32(rootNode)
	above := uint8(0) // the kind of the node before
	for end := len(host); ; {
		label := strings.LastIndexByte(host[:end], '.') + 1
		if above&isWildcard != 0 {
			suffix, kind = label, isWildcard
		}
		if end-label > maxLabel {
			break // no rule has such a label
		}
		key := labelKey(s, wordSize+label, wordSize+end)
		if node = t.find(nodeHash(node, key, end-label), node, key, s, wordSize+label, wordSize+end); node == noNode {
			break
		}
		above = t.nodes[node].kind()
		if above&isException != 0 {
			suffix, kind = end+1, isException
			break
		}
		if above&isRule != 0 {
			suffix, kind = label, isRule
		}
		if label == 0 {
			break
		}
		end = label - 1
	}
	if suffix < 0 {
		suffix = strings.LastIndexByte(host, '.') + 1
	}
	return suffix, kind
}

// domainBefore returns where the registrable domain starts in a host whose public suffix is given.
func domainBefore(host string, suffix int) int {
	if suffix == 0 {
		return 0
	}
	return strings.LastIndexByte(host[:suffix-1], '.') + 1
}

// isAddress reports whether host is an IP address, with or without brackets.
func isAddress(host string) bool {
	switch last := host[len(host)-1]; {
	case host[0] == '[':
		return true
	case '0' <= last && last <= '9', strings.IndexByte(host, ':') >= 0:
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return false
}
