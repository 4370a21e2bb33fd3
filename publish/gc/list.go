package gc

import (
	"time"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/lease"
)

// garbage is an object that nothing refers to.
type garbage struct {
	lease.TrashObject
	kind Kind
}

// counts are how many objects of a batch there are.
type counts struct{ records, postings, rejects, parts int32 }

// lister lists the objects of a lake. It does so twice for those of batches: the first time it
// counts them. Of a batch with one record and as many parts as that has, nothing is garbage, and
// its record need not be read. So a collection reads the records of those batches alone of which
// something changed.
type lister struct {
	c     *collection
	refs  *references
	known map[uint64]bool   // hashes of keys that are written down already
	count map[uint64]counts // by hashOf

	found []garbage
}

// probeAge is how old a probe is that nobody waits for any more: it takes seconds, by clocks that
// may be some minutes off.
const probeAge = time.Hour

func probeBegan(key string) time.Time {
	began, _ := blob.ProbeBegan(key[len(catalog.ProbeRoot):])
	return began
}

// batchRoots are the folders of the objects of batches.
var batchRoots = []string{batchRoot, rejectRoot, partRoot}

func (l *lister) list() error {
	for _, root := range []string{
		versionRoot, segmentRoot, catalog.VersionPiecesRoot, catalog.TakedownRoot, lake.DeletionRoot, catalog.RegistryPiecesRoot,
		many.TakenRoot, numbers.PiecesRoot, many.ReportRoot, catalog.ProbeRoot,
	} {
		if err := l.each(root, true, l.look); err != nil {
			return err
		}
	}
	for _, root := range batchRoots {
		if err := l.each(root, true, l.countBatch); err != nil {
			return err
		}
	}
	for _, root := range batchRoots {
		if err := l.each(root, false, l.look); err != nil {
			return err
		}
	}
	return nil
}

// find notes an object that nothing refers to, if it is not written down already.
func (l *lister) find(g garbage) {
	if !l.known[xxh3.HashString(g.Key)] {
		l.found = append(l.found, g)
	}
}

// each calls do with every object below root that a collection may delete. New tells that they are
// listed for the first time.
func (l *lister) each(root string, first bool, do func(key string, bytes int64, o object) error) error {
	for info, err := range l.c.store.List(l.c.ctx, root) {
		if err != nil {
			return err
		}
		if first {
			l.c.out.Objects.add(info.Size)
			if n := l.c.out.Objects.Objects; n%1000 == 0 {
				l.c.opt.Progress(Progress{Step: "mark", Objects: n})
			}
		}
		o, ok := parse(info.Key)
		if !ok {
			continue
		}
		if err := do(info.Key, info.Size, o); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) countBatch(_ string, _ int64, o object) error {
	h := hashOf(o.batch)
	n := l.count[h]
	switch o.kind {
	case Records:
		n.records++
	case Postings:
		n.postings++
	case Rejects:
		n.rejects++
	case Parts:
		n.parts++
	}
	l.count[h] = n
	return nil
}

// clean reports whether all objects of a batch belong to its one record.
func (l *lister) clean(b catalog.BatchName) bool {
	recs, n := l.refs.of(b), l.count[hashOf(b)]
	if len(recs) != 1 || recs[0].parts != n.parts {
		return false
	}
	return n.records <= 1 && n.postings <= 1 && n.rejects <= 1
}

// look keeps an object that nothing refers to.
func (l *lister) look(key string, bytes int64, o object) error {
	switch o.kind {
	case Records, Postings, Rejects, Parts:
		if l.clean(o.batch) {
			return nil
		}
	}
	if o.kind == Probes && l.c.now.Sub(probeBegan(key)) < probeAge {
		return nil
	}
	has, err := l.refs.has(l.c.ctx, key, o)
	if has || err != nil {
		return err
	}
	l.find(garbage{lease.TrashObject{Key: key, Bytes: bytes}, o.kind})
	return nil
}
