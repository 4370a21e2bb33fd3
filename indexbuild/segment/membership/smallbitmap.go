package membership

import "encoding/binary"

// Most sets are one container of Roaring's portable form, of few and small numbers. These two
// functions write and read such bitmaps without the library's, which allocate and take ten times as
// long. A test compares them with the library.
//
//	array  u32 12346 | u32 1 container | u16 key 0 | u16 n-1
//	       u32 16, where the values start | n × u16
//	runs   u16 12347 | u16 0: 1 container | u8 1: it has runs | u16 key 0 | u16 n-1
//	       u16 r | r × {u16 first | u16 further}
const (
	arrayCookie = 12346
	runCookie   = 12347
	arrayHeader = 16
	runHeader   = 11
	// maxSmallValues bounds the sets to those for which a container of bits is never smaller.
	maxSmallValues = 1024
)

// appendBitmap appends the set of values, which ascend, as the library writes it after RunOptimize:
// as runs where these are shorter. It returns false for a set that is empty, large, or not of one
// container.
func appendBitmap(out []byte, values []uint32) ([]byte, bool) {
	n := len(values)
	if n == 0 || n > maxSmallValues || values[n-1] > 1<<16-1 {
		return out, false
	}
	runs := 1
	for i := 1; i < n; i++ {
		if values[i] != values[i-1]+1 {
			runs++
		}
	}
	le := binary.LittleEndian
	if 2+4*runs >= 2*n {
		out = le.AppendUint32(out, arrayCookie)
		out = le.AppendUint32(out, 1)
		out = le.AppendUint32(out, uint32(n-1)<<16)
		out = le.AppendUint32(out, arrayHeader)
		for _, v := range values {
			out = le.AppendUint16(out, uint16(v))
		}
		return out, true
	}
	out = append(le.AppendUint32(out, runCookie), 1)
	out = le.AppendUint32(out, uint32(n-1)<<16)
	out = le.AppendUint16(out, uint16(runs))
	for from := 0; from < n; {
		to := from + 1
		for to < n && values[to] == values[to-1]+1 {
			to++
		}
		out = le.AppendUint16(out, uint16(values[from]))
		out = le.AppendUint16(out, uint16(to-from-1))
		from = to
	}
	return out, true
}

// readSmallBitmap appends the values of a bitmap that takes all of data to out. It returns false
// for bitmaps that appendBitmap does not write, valid or not.
func readSmallBitmap(data []byte, out []uint32) ([]uint32, bool) {
	le := binary.LittleEndian
	start := len(out)
	switch {
	case len(data) > arrayHeader && le.Uint32(data) == arrayCookie:
		n := int(le.Uint16(data[10:])) + 1
		if n > maxSmallValues || len(data) != arrayHeader+2*n ||
			le.Uint32(data[4:]) != 1 || le.Uint16(data[8:]) != 0 || le.Uint32(data[12:]) != arrayHeader {
			return out, false
		}
		for at := arrayHeader; at < len(data); at += 2 {
			v := uint32(le.Uint16(data[at:]))
			if at > arrayHeader && v <= out[len(out)-1] {
				return out[:start], false
			}
			out = append(out, v)
		}
		return out, true
	case len(data) > runHeader && le.Uint32(data) == runCookie:
		n, runs := int(le.Uint16(data[7:]))+1, int(le.Uint16(data[9:]))
		if n > maxSmallValues || runs == 0 || len(data) != runHeader+4*runs ||
			data[4] != 1 || le.Uint16(data[5:]) != 0 {
			return out, false
		}
		next := uint32(0) // the least value that the next run may start with
		for at := runHeader; at < len(data); at += 4 {
			v, further := uint32(le.Uint16(data[at:])), uint32(le.Uint16(data[at+2:]))
			if v < next || v+further > 1<<16-1 || len(out)-start+int(further) >= n {
				return out[:start], false
			}
			next = v + further + 2
			for ; ; v++ {
				out = append(out, v)
				if further == 0 {
					break
				}
				further--
			}
		}
		if len(out)-start != n {
			return out[:start], false
		}
		return out, true
	}
	return out, false
}
