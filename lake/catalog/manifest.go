package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// ManifestKey is the key of a lake's manifest.
	ManifestKey = "index/manifest.json"
	// ManifestFormat is the format version of manifests.
	ManifestFormat = 1
)

var (
	// ErrNoVersion means that nothing was ever published in this lake.
	ErrNoVersion = errors.New("no version published yet")
	// ErrUnknownVersion means that the manifest does not list the version or tag, or no longer.
	ErrUnknownVersion = errors.New("unknown version or tag")
	// ErrGeneration means that the manifest is older than one that this reader has seen, or differs
	// from one of the same generation. Likely causes are a store restored from a copy and two lakes
	// under one URL.
	ErrGeneration = errors.New("manifest went backwards")
)

// Manifest is the decoded index/manifest.json.
type Manifest struct {
	Format int `json:"format"`
	// Generation grows by one with every commit. A manifest that takes the place of a lost one has
	// a time in milliseconds since 1970, at least that in the newest version's id. That is more
	// than any lost manifest had, since ids are at least a millisecond apart.
	Generation uint64 `json:"generation"`
	// CurrentVersion is the id of the version that answers queries without version=.
	CurrentVersion string `json:"current_version"`
	// TakedownEpoch grows by one whenever a takedown is added or lifted. It is 0 if there never was
	// one. Takedowns apply to all versions.
	TakedownEpoch uint64 `json:"takedown_epoch"`
	// Versions lists the kept versions, oldest first.
	Versions []VersionRef `json:"versions"`
	// Swept is the number of the last sweep of a garbage collection (package lake/lease), 0 if
	// there was none. Whoever replaces the manifest waits until that sweep has ended.
	Swept uint64 `json:"swept,omitempty"`
	// Tags are names for some of the versions, ascending.
	Tags []Tag `json:"tags,omitempty"`
	// Takedowns names the state of the takedowns, nil if there never was one. It covers all
	// segments of all Versions.
	Takedowns *TakedownRef `json:"takedowns,omitempty"`

	// What the registry was told of when the manifest, or the one before it, was read.
	toldVersion string
	toldEpoch   uint64
}

// VersionRef names a version's object and gives the size and hash of its bytes.
type VersionRef struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	Bytes  int64  `json:"bytes"`
	XXH64  string `json:"xxh64"` // 16 hex digits
	// Commit is the id of the commit that made the version. A committer that missed the store's
	// reply recognises its own work by it.
	Commit string `json:"commit"`
}

// Version returns the reference of the version with this id or tag, or of the current one for
// Current and "".
func (m *Manifest) Version(name string) (VersionRef, error) {
	id := cmp.Or(name, m.CurrentVersion)
	if name == Current {
		id = m.CurrentVersion
	}
	if i, ok := m.findTag(name); ok {
		id = m.Tags[i].Version
	}
	for _, v := range m.Versions {
		if v.ID == id {
			return v, nil
		}
	}
	return VersionRef{}, m.unknownVersion(name)
}

// FindCommit returns the version that a commit made, if the manifest still lists it.
func (m *Manifest) FindCommit(commit string) (VersionRef, bool) {
	for _, v := range m.Versions {
		if v.Commit == commit {
			return v, true
		}
	}
	return VersionRef{}, false
}

// DecodeManifest decodes and checks the bytes of a manifest.
func DecodeManifest(data []byte) (*Manifest, error) {
	var m Manifest
	if err := codec.Unseal(data, ManifestKey, ManifestFormat, &m); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return &m, nil
}

func (m *Manifest) encode() ([]byte, error) {
	m.Format = ManifestFormat
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return codec.Seal(m)
}

func (m *Manifest) check() error {
	c := checker{file: ManifestKey}
	c.equal("format", ManifestFormat, m.Format)
	c.that("generation", m.Generation >= 1, "at least 1", m.Generation)
	current := false
	for i, v := range m.Versions {
		section := "versions[" + strconv.Itoa(i) + "]"
		c.that(section+".id", ValidVersionID(v.ID), "a version id", v.ID)
		if i > 0 {
			c.that(section+".id", m.Versions[i-1].ID < v.ID, "an id after "+m.Versions[i-1].ID, v.ID)
		}
		c.equal(section+".object", VersionKey(v.ID), v.Object)
		c.that(section+".bytes", v.Bytes > 0, "at least 1", v.Bytes)
		c.hex(section+".xxh64", v.XXH64, 16)
		c.that(section+".commit", validCommit(v.Commit), "a commit id", v.Commit)
		current = current || v.ID == m.CurrentVersion
	}
	c.that("current_version", current, "one of versions", m.CurrentVersion)
	m.checkTags(&c)
	c.that("takedowns", (m.Takedowns != nil) == (m.TakedownEpoch > 0), "those of the epoch", m.TakedownEpoch)
	if c.err == nil && m.Takedowns != nil {
		return m.Takedowns.Check(ManifestKey, m.TakedownEpoch)
	}
	return c.err
}

// newestVersion returns the id of the newest version object, listed by a manifest or not, and "" if
// there is none. If there are versions but no manifest, then the manifest was lost or the first
// commit is still in flight.
func newestVersion(ctx context.Context, store blob.Store) (string, error) {
	ids, err := versionIDs(ctx, store)
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[len(ids)-1], nil
}

// ReadManifest fetches the manifest, and the ETag that a conditional put of the next one needs. It
// returns ErrNoVersion if there is no manifest. A manifest that was put back, perhaps from a
// backup, is a *codec.CorruptError if the lake has published more since: it lacks versions and
// takedowns.
func ReadManifest(ctx context.Context, store blob.Store) (*Manifest, string, error) {
	m, etag, err := ReadManifestUnchecked(ctx, store)
	if err == nil {
		err = m.older(ctx, store)
	}
	if err != nil {
		return nil, "", err
	}
	return m, etag, nil
}

// ReadManifestUnchecked is Read without the check whether the lake has published more since. It
// reads nothing but the manifest, for callers that ask often.
func ReadManifestUnchecked(ctx context.Context, store blob.Store) (*Manifest, string, error) {
	m, etag, err := readManifest(ctx, store)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, "", ErrNoVersion
	}
	if err != nil {
		return nil, "", err
	}
	return m, etag, nil
}

// readManifest fetches the manifest, and its ETag also if it is damaged.
func readManifest(ctx context.Context, store blob.Store) (m *Manifest, etag string, err error) {
	m, err = codec.Confirm(func() (*Manifest, error) {
		data, info, err := store.Get(ctx, ManifestKey)
		if err != nil {
			return nil, err
		}
		etag = info.ETag
		return DecodeManifest(data)
	})
	return m, etag, err
}

// Sections of the errors about a version that has not the bytes that its reference vouches for.
const (
	sizeSection = "size"
	hashSection = "hash"
)

// ReadVersion fetches and checks one version.
func ReadVersion(ctx context.Context, store blob.Store, ref VersionRef) (*Version, error) {
	return codec.Confirm(func() (*Version, error) { return readVersion(ctx, store, ref) })
}

func readVersion(ctx context.Context, store blob.Store, ref VersionRef) (*Version, error) {
	data, _, err := store.Get(ctx, ref.Object)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != ref.Bytes {
		return nil, codec.Corrupt(ref.Object, sizeSection, -1, ref.Bytes, len(data))
	}
	if got := fmt.Sprintf("%016x", xxhash.Sum64(data)); got != ref.XXH64 {
		return nil, codec.Corrupt(ref.Object, hashSection, -1, "xxh64 "+ref.XXH64, got)
	}
	v, err := DecodeVersion(store, data, ref.Object)
	if err != nil {
		return nil, err
	}
	if v.ID != ref.ID || v.Commit != ref.Commit {
		return nil, codec.Corrupt(ref.Object, "id", -1, ref.ID+" of commit "+ref.Commit, v.ID+" of commit "+v.Commit)
	}
	return v, nil
}

// Follower polls a lake's manifest and never returns an older one after a newer one. It is safe for
// concurrent use.
type Follower struct {
	store blob.Store

	mu   sync.Mutex
	last *Manifest
	// generation, sum and etag are of the manifest in the store.
	generation uint64
	sum        uint64
	etag       string
	// stale is why last is not the manifest in the store, nil if it is.
	stale error
}

// NewFollower returns a follower of the manifest in store.
func NewFollower(store blob.Store) *Follower { return &Follower{store: store} }

// Stale returns the *codec.CorruptError of a manifest that was put back (see Poll) and not mended
// since, nil if there is none.
func (f *Follower) Stale() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale
}

// Poll returns the newest manifest and whether it differs from the one that the previous call
// returned. An unchanged manifest costs one Stat. An error leaves the follower as it was.
//
// If the first manifest was put back, perhaps from a backup, although the lake has published more
// since, Poll returns its replacement (see Recover), with the newest version and all takedowns.
func (f *Follower) Poll(ctx context.Context) (m *Manifest, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.poll(ctx)
}

func (f *Follower) poll(ctx context.Context) (m *Manifest, changed bool, err error) {
	if f.last != nil {
		info, err := f.store.Stat(ctx, ManifestKey)
		if errors.Is(err, blob.ErrNotExist) {
			return nil, false, fmt.Errorf("%w: generation %d was seen, now there is no manifest", ErrGeneration, f.generation)
		}
		if err != nil {
			return nil, false, err
		}
		if info.ETag == f.etag {
			return f.last, false, nil
		}
	}
	data, info, err := f.store.Get(ctx, ManifestKey)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, ErrNoVersion
	}
	if err != nil {
		return nil, false, err
	}
	m, err = DecodeManifest(data)
	if err != nil {
		return nil, false, err
	}
	sum := xxhash.Sum64(data)
	if f.last != nil {
		if m.Generation < f.generation || (m.Generation == f.generation && sum != f.sum) {
			return nil, false, fmt.Errorf("%w: generation %d was seen, now it is %d", ErrGeneration, f.generation, m.Generation)
		}
		if sum == f.sum {
			f.etag = info.ETag
			return f.last, false, nil
		}
	}
	generation := m.Generation
	var stale error
	if f.last == nil || f.stale != nil { // else the generation tells
		stale = m.older(ctx, f.store)
	}
	if stale != nil {
		if !errors.Is(stale, codec.ErrCorrupt) {
			return nil, false, stale
		}
		s, err := Look(ctx, f.store)
		if err != nil {
			return nil, false, err
		}
		if !s.manifestLost { // another writer has replaced it since
			return f.poll(ctx)
		}
		if s.Manifest == nil {
			return nil, false, stale
		}
		m = s.Manifest
	}
	f.last, f.generation, f.sum, f.etag, f.stale = m, generation, sum, info.ETag, stale
	return m, true, nil
}

var (
	hexDigits = regexp.MustCompile(`^[0-9a-f]+$`)
	commitID  = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func validCommit(id string) bool { return commitID.MatchString(id) }

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
