package zstdtext

import "math/bits"

// maxFSELog is the largest table accuracy written here. RFC 8878 allows 9 for some tables; the
// ninth bit saves less than it costs to build.
const maxFSELog = 8

// fseSymbol tells how encoding a symbol changes the state.
type fseSymbol struct {
	deltaBits uint32 // (state + deltaBits) >> 16 is the number n of low bits of the state to write
	deltaFind int32  // (state >> n) + deltaFind is the index of the next state in fseEncoder.states
}

// fseEncoder is the encoding form of an FSE table (RFC 8878, 4.1).
type fseEncoder struct {
	log     uint
	symbols [64]fseSymbol // by code; the largest code is 52
	states  [1 << maxFSELog]uint16
}

// normalize scales counts, whose sum is total, to probabilities whose sum is 1<<log. A count that
// is not zero gets a probability that is not zero.
func normalize(norm []int16, counts []uint32, total uint32, log uint) {
	size := uint32(1) << log
	left := int32(size)
	largest := 0
	for s, c := range counts {
		if c == 0 {
			norm[s] = 0
			continue
		}
		p := max(1, (c<<log+total/2)/total)
		norm[s] = int16(p)
		left -= int32(p)
		if counts[s] > counts[largest] {
			largest = s
		}
	}
	// Rounding leaves a difference. The most probable symbol absorbs it at the least cost.
	if left >= 0 || -left < int32(norm[largest])/4 {
		norm[largest] += int16(left)
		return
	}
	for ; left < 0; left++ {
		largest = 0
		for s, p := range norm[:len(counts)] {
			if p > norm[largest] {
				largest = s
			}
		}
		norm[largest]--
	}
}

// init builds the table of a distribution, in which -1 stands for "less than one" (RFC 8878,
// 4.1.1).
func (f *fseEncoder) init(norm []int16, log uint) {
	size := uint32(1) << log
	var spread [1 << maxFSELog]uint8
	var next [64]uint16
	high := size - 1
	sum := uint16(0)
	for s, p := range norm {
		next[s] = sum
		if p < 0 {
			spread[high] = uint8(s)
			high--
			p = 1
		}
		sum += uint16(p)
	}
	step, mask := size>>1+size>>3+3, size-1
	at := uint32(0)
	for s, p := range norm {
		for ; p > 0; p-- {
			spread[at&(1<<maxFSELog-1)] = uint8(s)
			at = (at + step) & mask
			for at > high {
				at = (at + step) & mask
			}
		}
	}
	for i, s := range spread[:size] {
		n := &next[s&63]
		f.states[*n&(1<<maxFSELog-1)] = uint16(size) + uint16(i)
		*n++
	}
	f.setSymbols(norm, log)
}

// setSymbols fills f.symbols.
func (f *fseEncoder) setSymbols(norm []int16, log uint) {
	f.log = log
	size := uint32(1) << log
	total := int32(0)
	for s, p := range norm {
		switch p {
		case 0:
		case -1, 1:
			f.symbols[s] = fseSymbol{uint32(log)<<16 - size, total - 1}
			total++
		default:
			out := uint32(log) - uint32(bits.Len16(uint16(p-1))-1)
			f.symbols[s] = fseSymbol{out<<16 - uint32(p)<<out, total - int32(p)}
			total += int32(p)
		}
	}
}

// initRLE builds the table of a single symbol, which takes no bits.
func (f *fseEncoder) initRLE(symbol uint8) {
	f.log = 0
	f.symbols[symbol&63] = fseSymbol{}
	f.states[0] = 0
}

// initialState returns the encoder's first state, in which a decoder ends up: that of the symbol
// encoded first, which is the last one of the block.
func (f *fseEncoder) initialState(symbol uint32) uint32 {
	s := f.symbols[symbol&0x3f]
	out := (s.deltaBits + 1<<15) >> 16
	v := out<<16 - s.deltaBits
	return uint32(f.states[(v>>out+uint32(s.deltaFind))&(1<<maxFSELog-1)])
}

// appendNorm appends the description of a distribution (RFC 8878, 4.1.1).
func appendNorm(dst []byte, norm []int16, log uint) []byte {
	acc, n := uint64(log-5), uint(4)
	remaining := int32(1)<<log + 1
	threshold := int32(1) << log
	width := log + 1
	for s := 0; remaining > 1; {
		p := int32(norm[s])
		s++
		most := 2*threshold - 1 - remaining
		if p < 0 {
			remaining--
		} else {
			remaining -= p
		}
		v := p + 1
		if v >= threshold {
			v += most
		}
		acc |= uint64(v) << n
		n += width
		if v < most {
			n--
		}
		for remaining < threshold {
			width--
			threshold >>= 1
		}
		if p == 0 && remaining > 1 {
			zeros := 0
			for norm[s] == 0 {
				s++
				zeros++
			}
			for ; zeros >= 3; zeros -= 3 {
				acc |= 3 << n
				n += 2
				for ; n >= 8; n -= 8 {
					dst = append(dst, byte(acc))
					acc >>= 8
				}
			}
			acc |= uint64(zeros) << n
			n += 2
		}
		for ; n >= 8; n -= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	if n > 0 {
		dst = append(dst, byte(acc))
	}
	return dst
}

// log2[i] is the cost of a symbol of probability i/256, -log2(i/256), in units of 1/costUnit bits.
var log2 = func() (cost [257]uint16) {
	for i := 1; i <= 256; i++ {
		// Eight fractional bits of the logarithm, one by each squaring.
		v, frac := uint64(i)<<(32-bits.Len(uint(i))), uint(0) // v in [1<<31, 1<<32)
		for range 8 {
			v = v * v >> 31
			frac <<= 1
			if v >= 1<<32 {
				frac |= 1
				v >>= 1
			}
		}
		cost[i] = uint16((9-bits.Len(uint(i)))<<8) - uint16(frac)
	}
	return cost
}()

// costUnit is how many units of cost make a bit.
const costUnit = 256

// cost estimates what symbols with these counts take under a distribution, in units of 1/costUnit
// bits. It returns false if one of them has no probability.
func cost(counts []uint32, norm []int16, log uint) (uint32, bool) {
	sum := uint32(0)
	for s, c := range counts {
		if c == 0 {
			continue
		}
		if s >= len(norm) || norm[s] == 0 {
			return 0, false
		}
		p := max(norm[s], -norm[s])
		sum += c * uint32(log2[uint(p)<<(8-log)])
	}
	return sum, true
}
