package lookup

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// Snapshot is one open version, as certain takedowns leave it and as a principal may read it. These
// three do not change until its Release; it is not valid afterwards. Requests share it, so it has
// nothing of a request. Its methods are safe for concurrent use.
//
// What the principal may not read does not exist for the methods: members, Dataset, FindDataset
// and the view leave it out, and everything else asks them.
type Snapshot struct {
	*openVersion
	seen *view
	// readable are the ids of those datasets of the version that may be read, nil for all.
	readable *roaring.Bitmap
	// audience tells apart the answers of principals who may read different datasets.
	audience string
}

// Reader is who asks, and by which list. The zero value may read everything.
type Reader struct {
	list *access.List
	// group has all who may read the same; see access.List.Group.
	group string
}

// All reports whether the reader may read all datasets, of every version and of those to come.
func (r Reader) All() bool { return r.list == nil || r.list.All(r.group) }

type readerKey struct{}

// As returns a context whose requests are those of the principal of that name, "" for one who says
// none, and what it may read. All requests of the context go by one list of readers, the newest
// that the server has read. The error says why nobody can tell who may read what.
func (s *Server) As(ctx context.Context, name string) (context.Context, Reader, error) {
	r, err := s.readerNamed(name)
	if err != nil || r.list == nil {
		return ctx, r, err
	}
	return context.WithValue(ctx, readerKey{}, r), r, nil
}

func (s *Server) readerNamed(name string) (Reader, error) {
	if s.opt.Access == nil {
		return Reader{}, nil
	}
	list, err := s.opt.Access.List()
	if err != nil {
		if errors.Is(err, access.ErrNotRead) {
			err = s.notReady()
		}
		return Reader{}, err
	}
	return Reader{list, list.Group(name)}, nil
}

// readerOf returns who asks with ctx.
func (s *Server) readerOf(ctx context.Context) (Reader, error) {
	if s.opt.Access == nil {
		return Reader{}, nil
	}
	if r, ok := ctx.Value(readerKey{}).(Reader); ok {
		return r, nil
	}
	return s.readerNamed("")
}

// visible is what a reader may read of a version.
type visible struct {
	ids      *roaring.Bitmap // nil for all
	audience string

	mu   sync.Mutex
	last *Snapshot // what was made last
	from *view     // of this
}

// visibleCache keeps what readers may read of a version. All are of the newest list that a request
// came with.
type visibleCache struct {
	mu   sync.Mutex
	list *access.List
	of   map[string]*visible // by group
}

// visibleDatasets is how many datasets the cached lists of one open version have together, about 5
// MB of them. There is room for the lists of minVisible groups in any case.
const (
	visibleDatasets = 1 << 15
	minVisible      = 8
)

// as returns the version as a reader may read it. The caller has it pinned, and passes the pin on.
func (s *openVersion) as(ctx context.Context, r Reader) (*Snapshot, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	if r.list == nil {
		return v.whole, nil
	}
	return s.visibleTo(r).of(v), nil
}

// visibleTo finds out what a reader may read.
func (s *openVersion) visibleTo(r Reader) *visible {
	c := &s.visible
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list != r.list {
		c.list, c.of = r.list, map[string]*visible{}
	}
	if found := c.of[r.group]; found != nil {
		return found
	}
	made := &visible{ids: roaring.New()}
	hash := xxh3.New()
	for i := range s.every {
		if d := &s.every[i]; r.list.May(r.group, d.Name) {
			made.ids.Add(d.ID)
			_, _ = hash.Write(codec.AppendU32(nil, d.ID))
		}
	}
	if made.ids.GetCardinality() == uint64(len(s.every)) {
		made.ids = nil
	} else {
		made.ids.RunOptimize()
		sum := hash.Sum128().Bytes()
		made.audience = hex.EncodeToString(sum[:])
	}
	if len(c.of) >= max(minVisible, visibleDatasets/max(1, len(s.every))) {
		for group := range c.of { // any other one
			delete(c.of, group)
			break
		}
	}
	c.of[r.group] = made
	return made
}

// of returns a version as the reader may read it. All requests of a reader share it.
func (a *visible) of(v *view) *Snapshot {
	if a.ids == nil {
		return v.whole
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from != v {
		a.last = &Snapshot{openVersion: v.whole.openVersion, seen: v.only(a.ids), readable: a.ids, audience: a.audience}
		a.from = v
	}
	return a.last
}

// only returns what may be read of a view with all datasets.
func (v *view) only(readable *roaring.Bitmap) *view {
	seen := *v
	seen.datasets, seen.rows = make([]catalog.Dataset, 0, readable.GetCardinality()), 0
	for i := range v.datasets {
		if d := &v.datasets[i]; readable.Contains(d.ID) {
			seen.datasets = append(seen.datasets, *d)
			seen.rows += d.Rows
		}
	}
	return &seen
}

// view returns the version as it was acquired: without what takedowns hide and without datasets
// that may not be read.
//
//nolint:unparam // the error is that of the shared version's method, which this one stands before
func (s *Snapshot) view(context.Context) (*view, error) { return s.seen, nil }

// at is view with other takedowns than those that the snapshot was acquired with.
func (s *Snapshot) at(ctx context.Context, t *takedowns) (*view, error) {
	if s.seen.takedowns == t {
		return s.seen, nil
	}
	v, err := s.viewBy(ctx, t)
	if err != nil || s.readable == nil {
		return v, err
	}
	return v.only(s.readable), nil
}

// mayRead reports whether a dataset may be read, if the version has it.
func (s *Snapshot) mayRead(dataset uint32) bool {
	return s.readable == nil || s.readable.Contains(dataset)
}

// visibleOf returns the datasets of a set that may be read, nil if there are none. It does not
// change the set.
func (s *Snapshot) visibleOf(set *roaring.Bitmap) *roaring.Bitmap {
	if s.readable == nil || set == nil {
		return set
	}
	if set = roaring.And(set, s.readable); set.IsEmpty() {
		return nil
	}
	return set
}

// Audience tells apart the answers of principals who may read different datasets of the version:
// two with the same audience get the same answers. It is "" for whoever may read all. What keeps
// answers, or names them by an ETag, has to keep or name them by it. It says nothing about other
// datasets.
func (s *Snapshot) Audience() string { return s.audience }
