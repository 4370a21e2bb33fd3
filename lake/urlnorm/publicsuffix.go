package urlnorm

import (
	_ "embed"
	"math/bits"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/publicsuffix"
)

// publicsuffix.txt holds the list of golang.org/x/net/publicsuffix: its version, then its rules in
// the list's syntax (names are ASCII), those with the fewest labels first. The module's own lookup
// is a binary search a label and takes longer than all other parsing of a canonical URL.
//
//go:generate go test -run ^TestPublicSuffixRulesAreThoseOfTheModule$ -update .
//go:embed publicsuffix.txt
var publicSuffixList string

// suffixTable holds the rules as a tree of labels. The last label of a name is a child of the root.
// Nodes are in an open-addressed table, keyed by parent and label.
type suffixTable struct {
	// filter has a bit set for the hash of every node. Most lookups are of the registered label of
	// a domain, which is no node, and end here: the filter's 16 KiB stay in the L1 cache.
	filter [1 << (filterBits - 6)]uint64
	// pairs has a bit set for every node that is the second label from the end, and wild for every
	// top-level domain with a wildcard. A name of two labels or more that is in neither, as most
	// are, has a suffix of one label, with or without a rule.
	pairs [1 << (filterBits - 6)]uint64
	wild  [1 << (wildBits - 6)]uint64
	nodes [1 << tableBits]suffixNode
	list  string
}

const (
	tableBits  = 14 // 1.6 slots per node
	filterBits = 17
	wildBits   = 12
	rootNode   = 1 << tableBits // the parent of top-level domains, which has no slot

	// maxTableHost is the longest host that is looked up in the table: its dots are bits of a
	// uint64.
	maxTableHost = 64
)

// suffixNode is a label of some rules, in a slot of the table. The slot is free where length is 0.
type suffixNode struct {
	key    uint64 // labelKey of the label
	label  uint32 // offset of the label in the list
	parent uint16 // its slot, or rootNode
	length uint8  // of the label
	kind   uint8
}

// Kinds of nodes. A node may be a rule and have nodes below it, and be a wildcard without a rule.
const (
	isRule      uint8 = 1 << iota // the name of the node is a public suffix
	isException                   // the name is no public suffix, despite a wildcard
	isWildcard                    // every name of one more label is a public suffix
)

// suffixes returns the table, or nil where publicsuffix.txt is not of the compiled-in module's
// version. That is the case in a program whose go.mod selects another golang.org/x/net than this
// module's; there domainOf uses the module.
var suffixes = sync.OnceValue(func() *suffixTable {
	return newSuffixTable(publicSuffixList, publicsuffix.List.String())
})

// newSuffixTable parses a list that has to be of the version given. As top-level domains come
// first, they get slots that are found at once.
func newSuffixTable(list, version string) *suffixTable {
	if !strings.HasPrefix(list, version+"\n") {
		return nil
	}
	t := &suffixTable{list: list}
	var end int
	for start := len(version) + 1; start < len(list); start = end + 1 {
		end = start + strings.IndexByte(list[start:], '\n')
		kind := isRule
		switch list[start] {
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
			label := start + strings.LastIndexByte(list[start:labelEnd], '.') + 1
			node = t.insert(node, label, labelEnd)
			if labels < len(keys) {
				keys[labels] = labelKey(list, label, labelEnd)
			}
			labelEnd = label - 1
		}
		t.nodes[node].kind |= kind
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
// if there is none.
func (t *suffixTable) insert(parent uint32, start, end int) uint32 {
	key := labelKey(t.list, start, end)
	hash := nodeHash(parent, key, end-start)
	if node := t.find(hash, parent, key, t.list, start, end); node != noNode {
		return node
	}
	i := uint32(hash >> (64 - tableBits))
	for t.nodes[i].length != 0 {
		i = (i + 1) % (1 << tableBits)
	}
	t.nodes[i] = suffixNode{key: key, label: uint32(start), parent: uint16(parent), length: uint8(end - start)}
	bit := hash >> (64 - filterBits)
	t.filter[bit/64] |= 1 << (bit % 64)
	return i
}

const noNode = ^uint32(0)

// find returns the slot of the node for s[start:end] below parent, whose labelKey and nodeHash are
// given, or noNode.
func (t *suffixTable) find(hash uint64, parent uint32, key uint64, s string, start, end int) uint32 {
	for i := uint32(hash >> (64 - tableBits)); ; i = (i + 1) % (1 << tableBits) {
		n := &t.nodes[i]
		if n.length == 0 {
			return noNode
		}
		if n.key == key && int(n.length) == end-start && uint32(n.parent) == parent &&
			(n.length <= 8 || t.list[n.label:][:n.length-8] == s[start:end-8]) {
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
	// These are the steps of publicsuffix.PublicSuffix. Positions are relative to the host.
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
		kind = t.nodes[node].kind
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

// domainOf returns the registrable domain (eTLD+1, private suffixes included) of a canonical host.
// An IP address, localhost and a bare public suffix are their own domains. The result is a suffix
// of host.
func domainOf(host string) string {
	if host == "" || isAddress(host) {
		return host
	}
	if t := suffixes(); t != nil && len(host) <= maxTableHost {
		var s [wordSize + maxTableHost]byte
		var dots uint64
		for i := range len(host) {
			if s[wordSize+i] = host[i]; host[i] == '.' {
				dots |= 1 << i
			}
		}
		return host[t.domain(view(s[:wordSize+len(host)]), wordSize, dots):]
	}
	suffix, _ := publicsuffix.PublicSuffix(host)
	if len(suffix) == len(host) {
		return host
	}
	return host[strings.LastIndexByte(host[:len(host)-len(suffix)-1], '.')+1:]
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

// PSLVersion identifies the public suffix list that is compiled in. Domains found by two builds are
// comparable only if it is equal in both.
func PSLVersion() string { return publicsuffix.List.String() }
