// Package catalog is what a lake holds: its datasets, its batches, and its published versions.
//
// The registry (registry/datasets.json) has the names and ids of the datasets and the rules by
// which new rows are made. What an ingest or a retirement has finished waits in documents below
// pending/ until a publish makes it part of a version. The manifest (index/manifest.json) lists the
// kept versions with their tags, and names the current one and the takedowns, which hide rows in
// all versions. It is the only mutable object that readers follow.
//
// # Commits
//
// Registry and manifest are sealed JSON documents that are replaced by conditional put: a reader
// sees the old state or the new one, and whoever loses the race begins again with the other one's
// document. Whatever grows with the lake is in maps of package pieces, which the states of a
// document share: datasets, batches, what was retired, and takedowns. Objects are written in the
// order parts, batch record, pending document, segment files, segment.json, version, manifest, and
// read in reverse, so every object that a manifest leads to exists.
//
// # Waiting
//
// Whoever finishes something writes one pending document, after the batch records that it names.
//
//	pending/{dataset}/{start}-{run}.json   changes of one dataset
//	pending/many/{start}-{run}.json        changes of several datasets
//
// Its key has the time at which the ingest began and the run, so writers never meet: nothing is
// read or replaced. A publish reads all documents. Of two changes of a batch the one that began
// later wins, whichever finished first, also if a version has it already: a version keeps the
// starts of its batches, and of what was retired. A commit deletes the documents that its parent
// has in full. So what the newest version has is still named here, and is published again if that
// version is lost.
//
// # Takedowns
//
// A Takedown is a rule that names a domain, a host, a URL or a prefix of URLs, and perhaps a
// dataset and a span of time. Takedowns is a set of them in memory; a Matcher tells which rows of
// one domain they hide. The TakedownDocument that a manifest names has the rules in force, the
// record of every rule that there was, and the segments that the rules have been applied to.
// Whoever changes the rules writes another document and replaces the manifest. The text of a rule
// is in the list of the rules in force only. The record stays after the rule was lifted, with a
// digest in the place of the text.
//
// docs/formats has a page for each document: registry.md, pending.md, manifest.md, version.md,
// takedowns.md and pieces.md. The map in pieces is a package of its own because the numbers of
// exports and the lists of large ingests are kept in it too; it knows nothing of lakes.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// ErrBusy means that the store rejected replacing a document again and again, although nobody had
// changed it. Try again later.
var ErrBusy = errors.New("store rejects replacing the document; try again later")

// errAgain has replace begin another attempt.
var errAgain = errors.New("another attempt")

// maxRejections is how many times in a row a store may reject a conditional put of a document that
// nobody has changed. S3 answers 409 while another put of the key is in flight; if that one fails,
// the document stays as it was.
const maxRejections = 8

// replace replaces a document by conditional put. In each attempt it calls next, which reads the
// document and returns the bytes that take its place and the condition for that, or nil if there is
// nothing to change. If another writer comes first, the next attempt follows, however often that
// happens: another write has succeeded each time. After a put whose reply was lost, next finds its
// own change. An error of next about damage counts only if the document is still the one that next
// has read: what a later one has no longer may be collected meanwhile.
func replace(
	ctx context.Context, store blob.Store, key string, next func() ([]byte, blob.Condition, error),
) error {
	rejections := 0
	for round := 1; ; round++ {
		data, cond, err := next()
		switch {
		case errors.Is(err, errAgain):
		case err != nil:
			if !lake.IsDamage(err) || cond.IfMatch == "" {
				return err
			}
			if now, statErr := store.Stat(ctx, key); statErr != nil || now.ETag == cond.IfMatch {
				return err
			}
		case data == nil:
			return nil
		default:
			if _, err = store.Put(ctx, key, data, cond); err == nil {
				return nil
			}
			// Any error, a rejection too, may follow a success whose reply was lost.
			now, statErr := store.Stat(ctx, key)
			switch {
			case statErr != nil && !errors.Is(statErr, blob.ErrNotExist):
				return cmp.Or(context.Cause(ctx), err)
			case now.ETag != cond.IfMatch:
				rejections = 0
			case !errors.Is(err, blob.ErrPrecondition):
				return err
			default:
				if rejections++; rejections == maxRejections {
					return fmt.Errorf("%w: %w", ErrBusy, err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(time.Duration(min(round, 32)) * 5 * time.Millisecond)): // spreads the writers
		}
	}
}

// condition is that of a put in the place of the object with that ETag, "" for none.
func condition(etag string) blob.Condition {
	return blob.Condition{IfMatch: etag, IfAbsent: etag == ""}
}

// entries yields the decoded entries of a map with from <= key < to. An error is the last thing
// that it yields.
func entries[T any](
	ctx context.Context, m *pieces.Map, from, to []byte, decode func(pieces.Entry) (T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for e, err := range m.Range(ctx, from, to) {
			var v T
			if err == nil {
				v, err = decode(e)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// find returns the decoded entries of those keys that a map has, in the order of the keys.
func find[T any](
	ctx context.Context, m *pieces.Map, keys [][]byte, decode func(pieces.Entry) (T, error),
) (found []T, err error) {
	all, err := m.GetMany(ctx, keys)
	for _, e := range all {
		if e == nil {
			continue
		}
		v, err := decode(*e)
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, err
}

// names yields the keys of all pieces of some maps, without reading leaves. An error is the last
// thing that it yields.
func names(ctx context.Context, maps ...*pieces.Map) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, m := range maps {
			for key, err := range m.Names(ctx) {
				if !yield(key, err) || err != nil {
					return
				}
			}
		}
	}
}

// xxh64 is the hash of the bytes of an object, 16 hex digits.
func xxh64(data []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(data)) }

// checker keeps the first problem of a decoded document.
type checker struct {
	file string
	err  error
}

func (c *checker) that(section string, ok bool, want, got any) {
	if !ok && c.err == nil {
		c.err = codec.Corrupt(c.file, section, -1, want, got)
	}
}

func (c *checker) equal(section string, want, got any) { c.that(section, want == got, want, got) }

func (c *checker) hex(section, s string, digits int) {
	c.that(section, len(s) == digits && hexDigits.MatchString(s), fmt.Sprintf("%d hex digits", digits), s)
}
