package row

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// A row's key is its fields in the order rows are sorted by, written so that comparing
// keys as bytes compares rows field by field, what is absent first:
//
//	domain 00 host 00 path_query 00 scheme 00 port ts size extras 00 raw_url
//
// Strings end in a zero byte; none but raw_url, the last, can hold one. Port is 00 for none,
// else 01 and the number as big-endian u16. Ts and size are 00 for none, else 01 and a
// big-endian u64 with its sign bit flipped. Everything before raw_url is the record: rows with
// the same record are one row.

const keySign = 1 << 63

// MaxKey is the longest key in bytes. A canonical URL has at most 16 KiB and a raw one 64 KiB, so
// this bounds extras; eight times the longest line read by default. A merge holds one key of every run.
const MaxKey = 8 << 20

// A key's fields, in its order. What stands behind the last is the raw URL.
const (
	keyDomain = iota
	keyHost
	keyPath
	keyScheme
	keyPort
	keyTS
	keySize
	keyExtras
	keyFields
)

// keyFieldNames are the fields as errors name them.
var keyFieldNames = [keyFields]string{"domain", "host", "path_query", "scheme", "port", "ts", "size", "extras"}

// keyFieldWidth is the size of a field that is a number, 0 for a string.
var keyFieldWidth = [keyFields]int{keyPort: 2, keyTS: 8, keySize: 8}

var ErrOrder = errors.New("row is not after the one before")

// Key is where a walk over ascending keys stands. Neighbours share long beginnings, so that each step parses
// only what differs. The zero value stands before the first key.
type Key struct {
	key    []byte
	shared int // length of the common prefix with the key before
	// changed is the first field that differs from the row before, keyFields where none does.
	changed int
	// ends are where the fields end, terminators included. Everything up to the last is the record.
	ends [keyFields]int
	rows int64 // records so far, this one included

	// What Pass passes on. Tails are of this record and the one before, in turn.
	domainID uint64
	host     [1]SortedHost
	row      [1]SortedRow
	tails    [2]Suffix
}

// Next steps to key, which it copies. A key that AppendKey did not make is a *codec.CorruptError; one that is below
// that before it, an error too.
func (k *Key) Next(key []byte) error { return k.Follow(key, codec.CommonPrefix(k.key, key)) }

// follow is Next for a caller who knows the length of the longest common prefix.
func (k *Key) Follow(key []byte, shared int) error {
	if len(key) > MaxKey {
		return fmt.Errorf("%w: key of %d bytes, allowed are %d", ErrRowTooLarge, len(key), MaxKey)
	}
	if shared < len(k.key) && (shared == len(key) || k.key[shared] > key[shared]) {
		return ErrOrder
	}
	k.key = append(k.key[:shared], key[shared:]...)
	k.shared = shared
	f := 0
	for f < keyFields && k.ends[f] > 0 && k.ends[f] <= shared {
		f++
	}
	if k.changed = f; f == keyFields {
		return nil
	}
	k.rows++
	at := k.start(f)
	for ; f < keyFields; f++ {
		end := 0
		switch width := keyFieldWidth[f]; {
		case width == 0:
			// Up to shared the field is as it was before, and did not end.
			from := max(at, shared)
			n := bytes.IndexByte(k.key[from:], 0)
			if n < 0 {
				return k.corrupt(f, at, "a zero byte after it", "none")
			}
			end = from + n + 1
		case at == len(k.key):
			return k.corrupt(f, at, "a byte", "the end")
		case k.key[at] == 0:
			end = at + 1
		case k.key[at] != 1:
			return k.corrupt(f, at, "0 or 1", k.key[at])
		case len(k.key)-at-1 < width:
			return k.corrupt(f, at, fmt.Sprintf("%d bytes", width), len(k.key)-at-1)
		default:
			end = at + 1 + width
		}
		k.ends[f] = end
		at = end
	}
	return nil
}

// corrupt leaves k before the first key.
func (k *Key) corrupt(field, at int, want, got any) error {
	*k = Key{key: k.key[:0]}
	return codec.Corrupt("row key", keyFieldNames[field], int64(at), want, got)
}

// SameRecord reports that the row differs from the one before in its raw URL at most.
func (k *Key) SameRecord() bool { return k.changed == keyFields }

// start is where a field starts.
func (k *Key) start(field int) int {
	if field == 0 {
		return 0
	}
	return k.ends[field-1]
}

// text is the value of a field that is a string.
func (k *Key) text(field int) []byte { return k.key[k.start(field) : k.ends[field]-1] }

// rawURL is what stands behind the record.
func (k *Key) rawURL() []byte { return k.key[k.ends[keyFields-1]:] }

// port is -1 for none.
func (k *Key) port() int32 {
	at := k.start(keyPort)
	if k.key[at] == 0 {
		return -1
	}
	return int32(binary.BigEndian.Uint16(k.key[at+1:]))
}

// number is the value of ts or size.
func (k *Key) number(field int) (v int64, ok bool) {
	at := k.start(field)
	if k.key[at] == 0 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(k.key[at+1:]) ^ keySign), true
}

// Pass passes the row to sink.
func (k *Key) Pass(sink Sink) error {
	domain := View(k.text(keyDomain))
	if k.changed == keyDomain {
		k.domainID = urlnorm.DomainID(domain)
	}
	t := &k.tails[k.rows&1]
	*t = Suffix{Scheme: View(k.text(keyScheme)), Port: k.port(), Extras: View(k.text(keyExtras)), RawURL: View(k.rawURL())}
	t.TS, t.HasTS = k.number(keyTS)
	t.Size, t.HasSize = k.number(keySize)
	k.host[0] = SortedHost{Domain: domain, Host: View(k.text(keyHost)), DomainID: k.domainID, Rows: 1}
	k.row[0] = SortedRow{Path: k.text(keyPath), Tail: t}
	_, err := sink.Rows(k.host[:], k.row[:])
	return err
}

// Row is the row. Its strings are views into k, valid until the next step.
func (k *Key) Row() Row {
	r := Row{
		Domain: View(k.text(keyDomain)), Host: View(k.text(keyHost)), PathQuery: View(k.text(keyPath)), Scheme: View(k.text(keyScheme)),
		Port: k.port(), Extras: View(k.text(keyExtras)), RawURL: View(k.rawURL()),
	}
	r.TS, r.HasTS = k.number(keyTS)
	r.Size, r.HasSize = k.number(keySize)
	return r
}
