package rowsort

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/row"
)

// bufferHost is a host with rows. Hosts may be there several times. It has no pointers and is half a line of a core's cache: there are millions, which are gone through in no order.
type bufferHost struct {
	id     uint64 // of the domain
	rows   uint32
	name   uint32 // its place in names
	length uint16 // of the name
	domain uint16 // the length of the domain, which is the name's end; where ownDomain is added to it, it stands behind the name
	data   uint32 // where its rows lie one behind the other, where they are not in blocks
	bytes  uint32 // of these, or 0
}

// ownDomain is above the length of any domain.
const ownDomain = 1 << 15

// nameBytes is what a host has in names.
func (h *bufferHost) nameBytes() int {
	if h.domain < ownDomain {
		return int(h.length)
	}
	return int(h.length) + int(h.domain-ownDomain)
}

// domainBytes is the length of a host's domain.
func (h *bufferHost) domainBytes() int { return int(h.domain &^ ownDomain) }

// hostCount counts what was added of a host.
type hostCount struct {
	rows, bytes uint32
}

// hostRef finds a host. Cache sorts like the beginning of its domain; see domainCache.
type hostRef struct {
	cache     uint64
	host      uint32
	partition uint8
}

// hostName is the name of a host.
func (b *Buffer) hostName(h *bufferHost) string {
	return row.View(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][:h.length])
}

// domainName is the domain of a host.
func (b *Buffer) domainName(h *bufferHost) string {
	end := h.nameBytes()
	return row.View(b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):][end-h.domainBytes() : end])
}

// sameHost reports whether two are one host.
func (b *Buffer) sameHost(h, k *bufferHost) bool {
	return h.length == k.length && b.hostName(h) == b.hostName(k) && b.domainName(h) == b.domainName(k)
}

// compareHosts orders hosts by domain and name, the same by number.
func (b *Buffer) compareHosts(x, y hostRef) int {
	h, k := &b.hosts[x.host], &b.hosts[y.host]
	// Domains with the same id are not to be mixed.
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

// sortRefs sorts hosts by what is cached of their domains. To is memory for as many. Where they are many it sorts them by the upper halves of their caches, which tell most of them apart, eleven bits at a
// time from the last (Knuth, The Art of Computer Programming 3, 5.2.5), and then those that are left together.
func sortRefs(order, to []hostRef) {
	if len(order) < radixSort {
		slices.SortFunc(order, func(x, y hostRef) int { return cmp.Compare(x.cache, y.cache) })
		return
	}
	sortByDigits(order, to, refDigits/2*refDigit)
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
			sortByDigits(order[first:i], to, 0)
		}
	}
}

const (
	refDigit  = 11
	refDigits = 6
	radixSort = 1 << 9 // hosts, from which on digits take less than comparisons
)

// sortByDigits sorts hosts by half of the digits of their caches, those from a bit on.
func sortByDigits(order, to []hostRef, low int) {
	var counts [refDigits / 2][1 << refDigit]uint32
	for _, o := range order {
		for d := range counts {
			counts[d][o.cache>>(low+d*refDigit)&(1<<refDigit-1)]++
		}
	}
	from, to := order, to[:len(order)]
	for d := range counts {
		shift := low + d*refDigit
		c, sum := &counts[d], uint32(0)
		if c[order[0].cache>>shift&(1<<refDigit-1)] == uint32(len(order)) {
			continue // all alike
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

// arrange sorts hosts, by groups of n partitions, and puts their rows into that order.
func (b *Buffer) arrange(n int) {
	b.settle()
	// Assembly does not look whether a row's host is known.
	if i := slices.IndexFunc(b.counts[len(b.hosts):], func(c hostCount) bool { return c.rows > 0 }); i >= 0 {
		panic(fmt.Sprintf("a RowBuffer of %d hosts has rows of host %d", len(b.hosts), len(b.hosts)+i))
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
	if n < row.Partitions {
		for _, o := range order {
			b.ends[int(o.partition)/n]++
		}
		sum := 0
		for i := range b.ends {
			b.ends[i], sum = sum, sum+b.ends[i]
		}
		for _, o := range order {
			at := &b.ends[int(o.partition)/n]
			other[*at] = o
			*at++
		}
		order, other = other, order
	} else {
		b.ends[0] = len(order)
	}
	from := 0
	for _, end := range b.ends[:row.Partitions/n] {
		sortRefs(order[from:end], other[from:end])
		b.sortAlike(order[from:end])
		from = end
	}
	b.order, b.other = order, other
	b.place(order)
	b.partsOf = n
}

// sortAlike sorts hosts that are sorted by their caches.
func (b *Buffer) sortAlike(order []hostRef) {
	var starts, ends [askAhead]int
	for at := 0; at < len(order); {
		n := 0
		for ; n < askAhead && at < len(order); at++ {
			start := at
			for at+1 < len(order) && order[at+1].cache == order[start].cache {
				at++
			}
			if at > start {
				starts[n], ends[n] = start, at+1
				askHosts(order[start:min(at+1, start+askAhead)], b.hosts)
				n++
			}
		}
		for i, start := range starts[:n] {
			askNames(order[start:min(ends[i], start+askAhead)], b.hosts, b.names, b.chunks)
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

// A hostRef's cache is a number of twelve digits to the base of 40, one for each of the first bytes of its domain, which sorts like it: 0 for the end, and the others for - . 0 to 9 _ a
// to z, which are nearly all that domains have. Eight bytes as they are would leave half of the hosts alike with others.
const (
	domainDigits = 12
	domainBase   = 40
)

// domainDigit is the digit of a byte. That of one without a digit is one that is not above those of the bytes above it nor below those of
// the bytes below it, and 64 or 128 more: it is the last, and those behind are 0, or where it is 128, the largest.
var domainDigit = func() (digits [256]uint8) {
	var next uint8 // the digit of the next byte that has one
	const all = "-.0123456789_abcdefghijklmnopqrstuvwxyz"
	for c := range digits {
		switch {
		case int(next) == len(all):
			digits[c] = next | 128
		case all[next] == byte(c):
			next++
			digits[c] = next
		default:
			digits[c] = next + 1 | 64
		}
	}
	return digits
}()

// domainCache is the cache of a domain.
func domainCache(domain string) (cache uint64) {
	n := min(len(domain), domainDigits)
	for i := range n {
		digit := domainDigit[domain[i]]
		if digit >= 64 {
			return domainCacheOdd(cache, digit, domainDigits-i-1)
		}
		cache = cache*domainBase + uint64(digit)
	}
	return cache * domainPowers[domainDigits-n]
}

// domainCacheOdd adds the last digit, with n behind it.
func domainCacheOdd(cache uint64, digit uint8, n int) uint64 {
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
