package row

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// bufferHost is one number of a host. There are millions of them, accessed in no order. So it is
// half a cache line, and it has no pointers, which the garbage collector would follow.
type bufferHost struct {
	id     uint64 // of the domain
	rows   uint32
	name   uint32 // offset of its name in names
	length uint16 // of the name
	domain uint16 // length of the domain, which the name ends with; with ownDomain added, it follows the name
	data   uint32 // offset of its rows, if Load put them one after the other
	bytes  uint32 // size of these rows; 0 if its rows are in blocks
}

// ownDomain is larger than the length of any domain.
const ownDomain = 1 << 15

// nameBytes returns the size of the host's name and its own domain in names.
func (h *bufferHost) nameBytes() int {
	if h.domain < ownDomain {
		return int(h.length)
	}
	return int(h.length) + int(h.domain-ownDomain)
}

// domainBytes returns the length of the host's domain.
func (h *bufferHost) domainBytes() int { return int(h.domain &^ ownDomain) }

// hostCount is the number of rows that were added of a host, and their size without host numbers.
type hostCount struct {
	rows, bytes uint32
}

// hostRef refers to a host in an order of hosts.
type hostRef struct {
	cache     uint64 // domainCache of its domain: sorts like the domain's first bytes
	host      uint32 // number
	partition uint8
}

// hostName returns the name of a host.
func (b *Buffer) hostName(h *bufferHost) string {
	return View(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][:h.length])
}

// domainName returns the domain of a host.
func (b *Buffer) domainName(h *bufferHost) string {
	end := h.nameBytes()
	return View(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][end-h.domainBytes() : end])
}

// sameHost reports whether h and k are numbers of one host.
func (b *Buffer) sameHost(h, k *bufferHost) bool {
	return h.length == k.length && b.hostName(h) == b.hostName(k) && b.domainName(h) == b.domainName(k)
}

// compareHosts orders hosts by domain, name and number.
func (b *Buffer) compareHosts(x, y hostRef) int {
	h, k := &b.hosts[x.host], &b.hosts[y.host]
	// Different domains may have the same id.
	if hd, kd := b.domainName(h), b.domainName(k); h.id != k.id || hd != kd {
		if c := strings.Compare(hd, kd); c != 0 {
			return c
		}
	}
	if c := strings.Compare(b.hostName(h), b.hostName(k)); c != 0 {
		return c
	}
	return int(x.host) - int(y.host)
}

// sortRefs sorts hosts by their caches. Scratch has memory for as many hosts. Many hosts are first
// sorted by the upper halves of their caches, which differ for most hosts, with a radix sort of
// eleven bits at a time from the lowest (Knuth, The Art of Computer Programming 3, 5.2.5). Then
// each group with equal upper halves is sorted.
func sortRefs(order, scratch []hostRef) {
	if len(order) < radixSort {
		slices.SortFunc(order, func(x, y hostRef) int { return cmp.Compare(x.cache, y.cache) })
		return
	}
	sortByDigits(order, scratch, refDigits/2*refDigit)
	for i := 0; i < len(order); {
		first, alike := i, true
		for i++; i < len(order) && order[i].cache>>(refDigits/2*refDigit) == order[first].cache>>(refDigits/2*refDigit); i++ {
			alike = alike && order[i].cache == order[first].cache
		}
		switch n := i - first; {
		case alike:
		case n <= insertSort:
			for k := first + 1; k < i; k++ {
				o, j := order[k], k
				for ; j > first && order[j-1].cache > o.cache; j-- {
					order[j] = order[j-1]
				}
				order[j] = o
			}
		case n < radixSort:
			slices.SortFunc(order[first:i], func(x, y hostRef) int { return cmp.Compare(x.cache, y.cache) })
		default:
			sortByDigits(order[first:i], scratch, 0)
		}
	}
}

const (
	refDigit  = 11     // bits of a digit
	refDigits = 6      // digits of a cache
	radixSort = 1 << 9 // number of hosts from which a radix sort is faster than comparisons
)

// sortByDigits sorts hosts by half of the digits of their caches, from bit low on.
func sortByDigits(order, scratch []hostRef, low int) {
	var counts [refDigits / 2][1 << refDigit]uint32
	for _, o := range order {
		for d := range counts {
			counts[d][o.cache>>(low+d*refDigit)&(1<<refDigit-1)]++
		}
	}
	from, to := order, scratch[:len(order)]
	for d := range counts {
		shift := low + d*refDigit
		c, sum := &counts[d], uint32(0)
		if c[order[0].cache>>shift&(1<<refDigit-1)] == uint32(len(order)) {
			continue // this digit is the same for all
		}
		for i, n := range c {
			c[i] = sum
			sum += n
		}
		for _, o := range from {
			at := &c[o.cache>>shift&(1<<refDigit-1)]
			to[*at] = o
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &order[0] {
		copy(order, from)
	}
}

// arrange sorts hosts by groups of width partitions and lists the offsets of their rows in that
// order.
func (b *Buffer) arrange(width int) {
	b.finishAdding()
	// A row's host must be known before rows are listed by host.
	if i := slices.IndexFunc(b.counts[len(b.hosts):], func(c hostCount) bool { return c.rows > 0 }); i >= 0 {
		panic(fmt.Sprintf("row: a buffer of %d hosts has rows of host %d", len(b.hosts), len(b.hosts)+i))
	}
	order := slices.Grow(b.order[:0], len(b.hosts))
	for i := range b.hosts {
		h := &b.hosts[i]
		if n := b.counts[i].rows; n > 0 {
			h.rows, h.bytes = n, 0
		}
		if h.rows > 0 {
			order = append(order, hostRef{domainCache(b.domainName(h)), uint32(i), uint8(h.id >> 56)})
		}
	}
	other := slices.Grow(b.other[:0], len(order))[:len(order)]
	clear(b.ends[:])
	if width < Partitions {
		for _, o := range order {
			b.ends[int(o.partition)/width]++
		}
		sum := 0
		for i := range b.ends {
			b.ends[i], sum = sum, sum+b.ends[i]
		}
		for _, o := range order {
			at := &b.ends[int(o.partition)/width]
			other[*at] = o
			*at++
		}
		order, other = other, order
	} else {
		b.ends[0] = len(order)
	}
	from := 0
	for _, end := range b.ends[:Partitions/width] {
		sortRefs(order[from:end], other[from:end])
		b.sortAlike(order[from:end])
		from = end
	}
	b.order, b.other = order, other
	b.listOffsets(order)
	b.groupWidth = width
}

// sortAlike sorts hosts that are sorted by their caches: each group with equal caches by name. It
// collects up to touchBatch groups at a time, so that the cache misses of their hosts overlap.
func (b *Buffer) sortAlike(order []hostRef) {
	var starts, ends [touchBatch]int
	for at := 0; at < len(order); {
		n := 0
		for ; n < touchBatch && at < len(order); at++ {
			start := at
			for at+1 < len(order) && order[at+1].cache == order[start].cache {
				at++
			}
			if at > start {
				starts[n], ends[n] = start, at+1
				n++
			}
		}
		for i, start := range starts[:n] {
			b.touchNames(order[start:min(ends[i], start+touchBatch)])
		}
		for i, start := range starts[:n] {
			alike := order[start:ends[i]]
			if len(alike) > insertSort {
				slices.SortFunc(alike, b.compareHosts)
				continue
			}
			for i := 1; i < len(alike); i++ {
				o, j := alike[i], i
				for ; j > 0 && b.compareHosts(alike[j-1], o) > 0; j-- {
					alike[j] = alike[j-1]
				}
				alike[j] = o
			}
		}
	}
}

// The cache of a domain is a number of twelve digits to the base of 40, one for each of its first
// bytes. Digit 0 is the end of the domain; the others are - . 0 to 9 _ a to z, nearly all bytes
// that domains have. Eight plain bytes would be equal for half of the hosts.
const (
	domainDigits = 12
	domainBase   = 40
)

// domainDigit has the digit of each byte. A byte outside of the alphabet has a digit that keeps the
// order: no larger than the digits of larger bytes and no smaller than those of smaller bytes. It
// is the last digit of its cache, marked by adding 64 or 128. The digits after it are 0; after 128
// they are the largest.
var domainDigit = func() (digits [256]uint8) {
	var next uint8 // the digit of the next byte that has one
	const alphabet = "-.0123456789_abcdefghijklmnopqrstuvwxyz"
	for c := range digits {
		switch {
		case int(next) == len(alphabet):
			digits[c] = next | 128
		case alphabet[next] == byte(c):
			next++
			digits[c] = next
		default:
			digits[c] = next + 1 | 64
		}
	}
	return digits
}()

// domainCache returns the cache of a domain: if x < y, domainCache(x) <= domainCache(y).
func domainCache(domain string) (cache uint64) {
	n := min(len(domain), domainDigits)
	for i := range n {
		digit := domainDigit[domain[i]]
		if digit >= 64 {
			return domainCacheOther(cache, digit, domainDigits-i-1)
		}
		cache = cache*domainBase + uint64(digit)
	}
	return cache * domainPowers[domainDigits-n]
}

// domainCacheOther appends the digit of a byte outside of the alphabet, and n digits after it.
func domainCacheOther(cache uint64, digit uint8, n int) uint64 {
	cache = cache*domainBase + uint64(digit&63)
	cache *= domainPowers[n]
	if digit >= 128 {
		cache += domainPowers[n] - 1
	}
	return cache
}

// domainPowers are the powers of domainBase.
var domainPowers = func() (powers [domainDigits + 1]uint64) {
	powers[0] = 1
	for i := range domainDigits {
		powers[i+1] = powers[i] * domainBase // the last is nine tenths of 1<<64
	}
	return powers
}()
