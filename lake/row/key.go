package row

import (
	"bytes"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// A row's key is its fields in sort order, encoded so that comparing keys as bytes compares rows
// field by field, absent fields first:
//
//	domain 00 host 00 path_query 00 scheme 00 port ts size extras [01 batch] 00 raw_url
//
// Strings end with a zero byte. None contains one but raw_url, which is last and ends with the key.
// Port is 00 for none, else 01 and a big-endian u16. Ts and size are 00 for none, else 01 and a
// big-endian u64 with its sign bit flipped. Everything before raw_url is the record: rows with
// equal records are one row.

const keySign = 1 << 63

// MaxKey is the length of the longest key in bytes. In effect it limits extras, since a canonical
// URL has at most 16 KiB and a raw one 64 KiB; it is eight times the longest line that is read by
// default. A merge holds one key of every run in memory.
const MaxKey = 8 << 20

// maxBatch is the most that a batch adds to a key.
const maxBatch = 1 + 64

// The fields of a key in their order. The last has everything from the scheme to the batch.
const (
	keyDomain = iota
	keyHost
	keyPath
	keySuffix
	keyFields
)

// Key parses ascending keys one after the other. Neighbours share long prefixes, so each step
// parses only what differs. The zero value is before the first key.
type Key struct {
	key []byte
	// changed is the first field that differs from the previous row, keyFields if none does.
	changed int
	// ends are where the fields end, terminators included. Everything up to the last is the record.
	ends [keyFields]int
	rows int64 // records so far, this one included

	// The arguments of Pass. The suffixes of consecutive records alternate between two addresses,
	// because a Sink may compare addresses.
	domainID uint64
	host     [1]SortedHost
	row      [1]SortedRow
	suffixes [2]Suffix
}

// Next steps to key, which it copies. It returns a *codec.CorruptError if no row has this key,
// ErrRowTooLarge if the key is longer than MaxKey, and ErrOrder if it is below the previous key.
func (k *Key) Next(key []byte) error { return k.follow(key, codec.CommonPrefix(k.key, key)) }

// follow is Next for a caller that knows the length of the longest common prefix of key and the
// previous key.
func (k *Key) follow(key []byte, shared int) error {
	if len(key) > MaxKey+maxBatch {
		return fmt.Errorf("%w: key of %d bytes, at most %d are allowed", ErrRowTooLarge, len(key), MaxKey)
	}
	if shared < len(k.key) && (shared == len(key) || k.key[shared] > key[shared]) {
		return ErrOrder
	}
	k.key = append(k.key[:shared], key[shared:]...)
	f := 0
	for f < keyFields && k.ends[f] > 0 && k.ends[f] <= shared {
		f++
	}
	if k.changed = f; f == keyFields {
		return nil
	}
	k.rows++
	for at := k.start(f); f < keySuffix; f++ {
		// Up to shared the field is the same as in the previous key, where it did not end.
		from := max(at, shared)
		n := bytes.IndexByte(k.key[from:], 0)
		if n < 0 {
			name := [...]string{"domain", "host", "path_query"}[f]
			return k.corrupt(codec.Corrupt("row key", name, int64(at), "a zero byte after it", "none"))
		}
		at = from + n + 1
		k.ends[f] = at
	}
	s := &k.suffixes[k.rows&1]
	if err := s.parse(k.key, k.ends[keyPath]); err != nil {
		return k.corrupt(err)
	}
	k.ends[keySuffix] = len(k.key) - len(s.RawURL)
	return nil
}

// corrupt resets k to before the first key.
func (k *Key) corrupt(err error) error {
	*k = Key{key: k.key[:0]}
	return err
}

// sameRecord reports whether the row differs from the previous one at most in its raw URL.
func (k *Key) sameRecord() bool { return k.changed == keyFields }

// start returns where a field starts.
func (k *Key) start(field int) int {
	if field == 0 {
		return 0
	}
	return k.ends[field-1]
}

// text returns the value of a string field.
func (k *Key) text(field int) []byte { return k.key[k.start(field) : k.ends[field]-1] }

// Pass passes the row to sink. The sink may keep nothing of it after the call.
func (k *Key) Pass(sink Sink) error {
	domain := View(k.text(keyDomain))
	if k.changed == keyDomain {
		k.domainID = urlnorm.DomainID(domain)
	}
	s := &k.suffixes[k.rows&1]
	s.RawURL = View(k.key[k.ends[keySuffix]:])
	k.host[0] = SortedHost{Domain: domain, Host: View(k.text(keyHost)), DomainID: k.domainID, Rows: 1}
	k.row[0] = SortedRow{Path: k.text(keyPath), Suffix: s}
	_, err := sink.Rows(k.host[:], k.row[:])
	return err
}
