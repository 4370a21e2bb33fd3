package frontier

// Files robots.txt are kept so that many workers fetch each once, for each host and port, with the
// time until which it holds. They are in one file of a shard, not in Redis: a million of them are
// some gigabytes. Losing them costs no more than fetching them again.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/urlake/urlake/frontier/robots"
)

// lockWait is how long Open waits for another process to close the file.
const lockWait = 5 * time.Second

// robotsEntry is the robots.txt of a host.
type robotsEntry struct {
	// Host is the host, with its port if that is not the default.
	Host string
	Text []byte
	// Expires is until when the file holds, in milliseconds since 1970.
	Expires int64
	// Delay is the Crawl-delay that it asks for, 0 if it asks for none.
	Delay time.Duration
}

// robotsStore keeps files by key and host. It may be used by several goroutines.
type robotsStore struct {
	db *bbolt.DB
	// some says that the store is not empty.
	some    atomic.Bool
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

var bucket = []byte("robots")

// errDamaged means that a part of the file cannot be read. What is put replaces it, or the file is
// to be deleted while nobody has it open.
var errDamaged = errors.New("robots.txt files are damaged; fetch them again")

// header is the part of a value before the compressed text: expiry and delay in milliseconds.
const header = 16

// openRobotsStore opens the store in a file, or makes it. A file that is damaged is replaced, and
// Damaged says why. Sync waits for the disk after each change.
func openRobotsStore(name string, sync bool) (s *robotsStore, damaged, err error) {
	s, err = openRobotsFile(name, sync)
	if err != nil && !errors.Is(err, bolterrors.ErrTimeout) && !os.IsPermission(err) {
		if _, missing := os.Stat(name); missing == nil {
			damaged = err
			if err = os.Rename(name, name+".damaged"); err == nil {
				s, err = openRobotsFile(name, sync)
			}
		}
	}
	return s, damaged, err
}

func openRobotsFile(name string, sync bool) (opened *robotsStore, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil { // the library panics over pages that it cannot read
			opened, err = nil, fmt.Errorf("%s: %w: %v", name, errDamaged, p)
		}
	}()
	// Without the list of free pages in the file, the library would read all of it now.
	db, err := bbolt.Open(name, 0o666, &bbolt.Options{Timeout: lockWait, NoSync: !sync, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &robotsStore{db: db}
	fresh := false
	err = s.view(func(b *bbolt.Bucket) error {
		if fresh = b == nil; !fresh {
			first, _ := b.Cursor().First()
			s.some.Store(first != nil)
		}
		return nil
	})
	if err == nil && fresh {
		err = db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket(bucket)
			return err
		})
	}
	if err == nil {
		s.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(64<<10))
	}
	if err == nil {
		s.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(robots.MaxText))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), db.Close())
	}
	return s, nil
}

// Close closes the store.
func (s *robotsStore) Close() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.caught(&err)
	s.decoder.Close()
	return errors.Join(s.encoder.Close(), s.db.Close())
}

// view and update call do in a transaction. The library follows offsets of damaged pages wherever
// they lead, and panics.
func (s *robotsStore) view(do func(b *bbolt.Bucket) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.caught(&err)
	return s.db.View(func(tx *bbolt.Tx) error { return do(tx.Bucket(bucket)) })
}

func (s *robotsStore) update(do func(b *bbolt.Bucket) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.caught(&err)
	return s.db.Update(func(tx *bbolt.Tx) error { return do(tx.Bucket(bucket)) })
}

func (s *robotsStore) caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %w: %v", s.db.Path(), errDamaged, p)
	}
}

func name(key, host string) []byte { return []byte(key + "\x00" + host) }

// Put keeps a file of a host of a key.
func (s *robotsStore) Put(key string, f robotsEntry) error {
	value := binary.BigEndian.AppendUint64(nil, uint64(f.Expires))
	value = binary.BigEndian.AppendUint64(value, uint64(f.Delay.Milliseconds()))
	value = s.encoder.EncodeAll(f.Text[:min(len(f.Text), robots.MaxText)], value)
	s.some.Store(true)
	return s.update(func(b *bbolt.Bucket) error { return b.Put(name(key, f.Host), value) })
}

func expiresOf(value []byte) int64 { return int64(binary.BigEndian.Uint64(value)) }
func delayOf(value []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint64(value[8:])) * time.Millisecond
}

// Get returns the file of a host of a key. It is false if there is none that holds at a time.
func (s *robotsStore) Get(key, host string, now int64) (f robotsEntry, ok bool, err error) {
	err = s.view(func(b *bbolt.Bucket) error {
		value := b.Get(name(key, host))
		if len(value) < header || expiresOf(value) <= now {
			return nil
		}
		text, err := s.decoder.DecodeAll(value[header:], nil)
		if err != nil {
			return fmt.Errorf("%s: robots.txt of %s: %w: %w", s.db.Path(), host, errDamaged, err)
		}
		f, ok = robotsEntry{host, text, expiresOf(value), delayOf(value)}, true
		return nil
	})
	return f, ok, err
}

// Head is Get without the text.
func (s *robotsStore) Head(key, host string, now int64) (f robotsEntry, ok bool, err error) {
	err = s.view(func(b *bbolt.Bucket) error {
		if value := b.Get(name(key, host)); len(value) >= header && expiresOf(value) > now {
			f, ok = robotsEntry{host, nil, expiresOf(value), delayOf(value)}, true
		}
		return nil
	})
	return f, ok, err
}

// Empty says that the store has no files.
func (s *robotsStore) Empty() bool { return !s.some.Load() }

// Expiries returns until when the files of hosts hold, for each a key and a host, and 0 where there
// is none that holds at a time. It is nil if the store is empty.
func (s *robotsStore) Expiries(now int64, hosts [][2]string) (until []int64, err error) {
	if s.Empty() {
		return nil, nil
	}
	until = make([]int64, len(hosts))
	var scratch []byte
	err = s.view(func(b *bbolt.Bucket) error {
		for i, h := range hosts {
			scratch = append(append(append(scratch[:0], h[0]...), 0), h[1]...)
			if value := b.Get(scratch); len(value) >= header && expiresOf(value) > now {
				until[i] = expiresOf(value)
			}
		}
		return nil
	})
	return until, err
}

// Files calls yield with the files of a key that hold at a time, without their texts, by host,
// until it returns false.
func (s *robotsStore) Files(key string, now int64, yield func(robotsEntry) bool) error {
	prefix := name(key, "")
	return s.view(func(b *bbolt.Bucket) error {
		c := b.Cursor()
		for k, value := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = c.Next() {
			if len(value) >= header && expiresOf(value) > now &&
				!yield(robotsEntry{string(k[len(prefix):]), nil, expiresOf(value), delayOf(value)}) {
				break
			}
		}
		return nil
	})
}

// Forget removes the files that do not hold at a time, of up to limit that it looks at. It begins
// after a name, and returns that of the last one, nil after the end.
func (s *robotsStore) Forget(now int64, after []byte, limit int) (last []byte, err error) {
	if !s.some.Load() {
		return nil, nil
	}
	var over [][]byte
	err = s.view(func(b *bbolt.Bucket) error {
		c := b.Cursor()
		k, value := c.Seek(append(bytes.Clone(after), 0))
		for n := 0; k != nil; k, value = c.Next() {
			if n++; n > limit {
				return nil
			}
			last = bytes.Clone(k)
			if len(value) < header || expiresOf(value) <= now {
				over = append(over, last)
			}
		}
		last = nil
		return nil
	})
	if err != nil || len(over) == 0 {
		return last, err
	}
	return last, s.update(func(b *bbolt.Bucket) error {
		for _, k := range over {
			if value := b.Get(k); len(value) >= header && expiresOf(value) > now {
				continue // it was replaced meanwhile
			}
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}
