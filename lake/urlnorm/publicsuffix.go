package urlnorm

import (
	_ "embed"
	"math/bits"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/publicsuffix"
)

// publicsuffix.txt is the list of golang.org/x/net/publicsuffix: its version, then its rules as the list
// writes them (names are ASCII), those of fewest labels first. The package itself walks binary
// searches, which takes longer than all the rest of parsing a canonical URL.
//
//go:generate go test -run ^TestPublicSuffixRulesAreThoseOfTheModule$ -update .
//go:embed publicsuffix.txt
var publicSuffixList string

// suffixTable holds the rules as a tree of labels, the last label of names at the root. Its nodes lie in
// an open-addressed table and are found by their parent and label.
type suffixTable struct {
	// filter has a bit for the hash of every node. Most look-ups are of the registered label of a
	// domain, which is no node, and end here: its 16 KiB stay in a core's first cache.
	filter [1 << (filterBits - 6)]uint64
	// pairs has a bit for the hash of every node that is the second label from the end, and wild one for every top-level domain with a wildcard.
	// A name of two labels or more that is in neither has a suffix of one label, whether there is a rule for that or not: most are.
	pairs [1 << (filterBits - 6)]uint64
	wild  [1 << (wildBits - 6)]uint64
	nodes [1 << tableBits]suffixNode
	list  string
}

const (
	tableBits  = 14 // 1.6 slots a node
	filterBits = 17
	wildBits   = 12
	rootNode   = 1 << tableBits // the parent of top-level domains: no slot

	// maxTableHost is the longest host that is looked up in the table: the dots of one are a uint64.
	maxTableHost = 64
)

// suffixNode is a label of some rules: a slot of the table, free when length is 0.
type suffixNode struct {
	tail   uint64 // see labelTail
	label  uint32 // where the label stands in the list
	parent uint16 // its slot, or rootNode
	length uint8  // of the label
	kind   uint8
}

// What a node is. It may be a rule and have others below, and be none and a wildcard.
const (
	isRule      uint8 = 1 << iota // the name of the node is a public suffix
	isException                   // it is none, though a wildcard says so
	isWildcard                    // every name of one label more is a public suffix
)

// suffixes is the table, nil where publicsuffix.txt is not of the compiled-in package's version. That is so in
// a program whose go.mod asks for another golang.org/x/net than this module's: there the package is asked.
var suffixes = sync.OnceValue(func() *suffixTable {
	return newSuffixTable(publicSuffixList, publicsuffix.List.String())
})

// newSuffixTable takes a list and the version that it is to be of. That top-level domains come
// first gives them slots that are found at once.
func newSuffixTable(list, version string) *suffixTable {
	if !strings.HasPrefix(list, version+"\n") {
		return nil
	}
	t := &suffixTable{list: list}
	for start, end := len(version)+1, 0; start < len(list); start = end + 1 {
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
		var tails [2]uint64 // of the last labels, the last first
		labels := 0
		for labelEnd := end; labelEnd >= start; labels++ {
			label := start + strings.LastIndexByte(list[start:labelEnd], '.') + 1
			node = t.insert(node, label, labelEnd)
			if labels < len(tails) {
				tails[labels] = labelTail(list, label, labelEnd)
			}
			labelEnd = label - 1
		}
		t.nodes[node].kind |= kind
		switch {
		case labels > 1:
			bit := pairHash(tails[0], tails[1])
			t.pairs[bit/64] |= 1 << (bit % 64)
		case kind == isWildcard:
			bit := wildHash(tails[0])
			t.wild[bit/64] |= 1 << (bit % 64)
		}
	}
	return t
}

// insert returns the slot of the node for the label list[start:end] below parent.
func (t *suffixTable) insert(parent uint32, start, end int) uint32 {
	tail := labelTail(t.list, start, end)
	hash := nodeHash(parent, tail, end-start)
	if node := t.find(hash, parent, tail, t.list, start, end); node != noNode {
		return node
	}
	i := uint32(hash >> (64 - tableBits))
	for t.nodes[i].length != 0 {
		i = (i + 1) % (1 << tableBits)
	}
	t.nodes[i] = suffixNode{tail: tail, label: uint32(start), parent: uint16(parent), length: uint8(end - start)}
	bit := hash >> (64 - filterBits)
	t.filter[bit/64] |= 1 << (bit % 64)
	return i
}

const noNode = ^uint32(0)

// find returns the slot of the node for s[start:end] below parent, of the tail and hash given, and
// noNode where there is none.
func (t *suffixTable) find(hash uint64, parent uint32, tail uint64, s string, start, end int) uint32 {
	for i := uint32(hash >> (64 - tableBits)); ; i = (i + 1) % (1 << tableBits) {
		n := &t.nodes[i]
		if n.length == 0 {
			return noNode
		}
		if n.tail == tail && int(n.length) == end-start && uint32(n.parent) == parent &&
			(n.length <= 8 || t.list[n.label:][:n.length-8] == s[start:end-8]) {
			return i
		}
	}
}

// nodeHash mixes what tells nodes apart, less what a long label has before its tail.
func nodeHash(parent uint32, tail uint64, length int) uint64 {
	h := (tail ^ uint64(parent)<<40 ^ uint64(length)<<56) * 0x9e3779b97f4a7c15
	return (h ^ h>>32) * 0xd6e8feb86659fd93
}

// pairHash is the bit of the last two labels, of the tails given, in pairs; wildHash that of the last one in wild.
func pairHash(last, second uint64) uint64 {
	h := (last ^ bits.RotateLeft64(second, 25)) * 0x9e3779b97f4a7c15
	return (h ^ h>>32 ^ second) * 0xd6e8feb86659fd93 >> (64 - filterBits)
}

func wildHash(last uint64) uint64 { return last * 0x9e3779b97f4a7c15 >> (64 - wildBits) }

// labelTail is the last eight bytes of the label s[start:end], or all of it, with its last byte on top
// and zeros below. There are at least eight bytes before end, whatever they are.
func labelTail(s string, start, end int) uint64 {
	b := s[end-8 : end]
	v := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	unused := uint(64-8*min(end-start, 8)) & 63 // what is returned for no bytes matters to nobody: no rule has such a label
	return v >> unused << unused
}

// domain returns where the registrable domain starts in host, which is s[start:] and neither empty nor longer than
// maxTableHost; bit i of dots tells that its byte i is a dot. At least eight bytes stand before the host,
// or seven if it has no empty label: eight are read at once.
func (t *suffixTable) domain(s string, start int, dots uint64) int {
	if last := bits.Len64(dots); last > 0 {
		// Most names have no rule of two labels.
		second := bits.Len64(dots & (1<<(uint(last-1)&63) - 1))
		tail := labelTail(s, start+last, len(s))
		pair, wild := pairHash(tail, labelTail(s, start+second, start+last-1)), wildHash(tail)
		if (t.pairs[pair/64]>>(pair%64)|t.wild[wild/64]>>(wild%64))&1 == 0 {
			return second
		}
	}
	// Positions are within the host, as in publicsuffix.PublicSuffix, whose steps these are.
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
		tail := labelTail(s, start+label, start+end)
		hash := nodeHash(node, tail, end-label)
		if bit := hash >> (64 - filterBits); t.filter[bit/64]>>(bit%64)&1 == 0 {
			break
		}
		if node = t.find(hash, node, tail, s, start+label, start+end); node == noNode {
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
		suffix = bits.Len64(dots) // without a rule it is the last label
	}
	if suffix == 0 {
		return 0
	}
	return bits.Len64(dots & (1<<(uint(suffix-1)&63) - 1))
}

// Domain returns the registrable domain (eTLD+1, private suffixes included) of a canonical host. An IP
// address, localhost and a bare public suffix are their own domains. The result is a suffix of host.
func Domain(host string) string {
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

// isAddress reports whether host is an IP address, with brackets or without.
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

// PSLVersion identifies the public suffix list that is compiled in. Domains of two builds are
// comparable only where this is equal.
func PSLVersion() string { return publicsuffix.List.String() }
