package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

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
		c.that(section+".commit", commitID.MatchString(v.Commit), "a commit id", v.Commit)
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

// ReadManifestUnchecked is ReadManifest without the check whether the lake has published more
// since. It reads nothing but the manifest, for callers that ask often.
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
	if got := xxh64(data); got != ref.XXH64 {
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

// Tag is a name for a version, which can be used in the place of its id.
type Tag struct {
	Name    string `json:"name"`
	Version string `json:"version"` // its id
}

var (
	// ErrTagged means that another version has the tag.
	ErrTagged = errors.New("tag of another version")
	// ErrUnknownTag means that no version has the tag.
	ErrUnknownTag = errors.New("unknown tag")
	// ErrBadTag means that a name cannot be one of a tag.
	ErrBadTag = errors.New("bad name of a tag")
)

// maxTags is the most tags of a lake: every server reads all of them whenever it polls.
const maxTags = 1000

// Versions begin with a digit, so that a tag is never taken for one.
var tagName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

// ValidTag reports whether a name is valid for a tag: 1 to 64 of A-Z a-z 0-9 . _ -, the first a
// letter. Current cannot.
func ValidTag(name string) bool {
	return tagName.MatchString(name) && !strings.EqualFold(name, Current)
}

// Current stands for the current version wherever a version is named.
const Current = "current"

// lost is the line that says that a tag is lost with its version.
func (t Tag) lost() string {
	return fmt.Sprintf("%s: the name %s of version %s is lost with it", ManifestKey, t.Name, t.Version)
}

// LostTags are lines that name the tags of versions, which are given by the keys of their objects.
func (m *Manifest) LostTags(keys []string) (lines []string) {
	for _, t := range m.Tags {
		if slices.Contains(keys, VersionKey(t.Version)) {
			lines = append(lines, t.lost())
		}
	}
	return lines
}

// findTag returns the index of a tag, or where it would be.
func (m *Manifest) findTag(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Tags, name, func(t Tag, name string) int { return cmp.Compare(t.Name, name) })
}

// TagsOf returns the tags of a version.
func (m *Manifest) TagsOf(id string) (names []string) {
	for _, t := range m.Tags {
		if t.Version == id {
			names = append(names, t.Name)
		}
	}
	return names
}

func (m *Manifest) checkTags(c *checker) {
	c.that("tags", len(m.Tags) <= maxTags, fmt.Sprintf("at most %d", maxTags), len(m.Tags))
	for i, t := range m.Tags {
		section := "tags[" + strconv.Itoa(i) + "]"
		c.that(section+".name", ValidTag(t.Name), "a name of a tag", t.Name)
		c.that(section+".name", i == 0 || m.Tags[i-1].Name < t.Name, "ascending names", t.Name)
		listed := slices.ContainsFunc(m.Versions, func(v VersionRef) bool { return v.ID == t.Version })
		c.that(section+".version", listed, "one of versions", t.Version)
	}
}

// SetTag gives a version a tag. It returns the version, and the one that had the tag before, "" if
// none had. Version is an id or another tag, or "" for the current version. If another version has
// the tag, the error is ErrTagged, unless move is set. Setting a tag again changes nothing.
func SetTag(ctx context.Context, store blob.Store, name, version string, move bool) (id, before string, err error) {
	if !ValidTag(name) {
		return "", "", fmt.Errorf("%w: %q; use 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter, but not current", ErrBadTag, name)
	}
	err = updateManifest(ctx, store, func(m *Manifest) (changed bool, err error) {
		ref, err := m.Version(version)
		if err != nil {
			return false, err
		}
		id, before = ref.ID, ""
		i, ok := m.findTag(name)
		if ok {
			before = m.Tags[i].Version
		}
		switch {
		case !ok && len(m.Tags) == maxTags:
			return false, fmt.Errorf("the lake has %d tags, which is the most; remove one first", maxTags)
		case !ok:
			m.Tags = slices.Insert(m.Tags, i, Tag{name, id})
		case m.Tags[i].Version == id:
			return false, nil
		case !move:
			return false, fmt.Errorf("%w: %s names %s", ErrTagged, name, m.Tags[i].Version)
		default:
			m.Tags[i].Version = id
		}
		return true, nil
	})
	if err != nil {
		return "", "", fmt.Errorf("set tag %s: %w", strconv.Quote(name), err)
	}
	return id, before, nil
}

// RemoveTag removes a tag and returns the version that had it. If none has, the error is
// ErrUnknownTag.
func RemoveTag(ctx context.Context, store blob.Store, name string) (id string, err error) {
	err = updateManifest(ctx, store, func(m *Manifest) (changed bool, err error) {
		i, ok := m.findTag(name)
		if !ok {
			return false, ErrUnknownTag
		}
		id = m.Tags[i].Version
		m.Tags = slices.Delete(m.Tags, i, i+1)
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("remove tag %s: %w", strconv.Quote(name), err)
	}
	return id, nil
}

// unknownVersion is the error for a name that is neither a version nor a tag.
func (m *Manifest) unknownVersion(name string) error {
	if len(m.Tags) > 0 && !ValidVersionID(name) {
		names := make([]string, len(m.Tags))
		for i, t := range m.Tags {
			names[i] = t.Name
		}
		const most = 10
		shown := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			shown += ", …"
		}
		return fmt.Errorf("%w %q; the tags are %s", ErrUnknownVersion, name, shown)
	}
	return fmt.Errorf("%w %q", ErrUnknownVersion, name)
}

// Summary describes a version that the manifest lists, as lists of versions show it.
type Summary struct {
	VersionRef
	// Current tells that the version is the manifest's current one.
	Current bool
	// Tags are the version's tags, ascending.
	Tags []string
	// The other fields of the version, see Version. Parent is "" for a lake's first.
	Parent, Created, BuiltBy, CanonicalForm, PublicSuffix string
	Counts                                                Counts
	// Views name what the version has of its segments (Segment.View).
	Views []string
	// Change is Counts less those of the parent. For a lake's first version it is Counts. It is nil
	// if the manifest no longer lists the parent.
	Change *Counts
}

// summaryReads is how many versions Summaries reads at once.
const summaryReads = 8

// Summaries describes m.Versions[from:to], in this order. It calls read for each of them, then for
// those of their parents that the manifest lists elsewhere: the parent of the first one, since a
// version follows the one before it in the list. Read returns what ReadSummary does. It is called
// concurrently.
func (m *Manifest) Summaries(
	ctx context.Context, from, to int, read func(context.Context, VersionRef) (Summary, error),
) ([]Summary, error) {
	list, err := readSummaries(ctx, m.Versions[from:to], read)
	if err != nil {
		return nil, err
	}
	counts := map[string]Counts{"": {}}
	for i := range list {
		counts[list[i].ID] = list[i].Counts
	}
	var refs []VersionRef
	for i := range list {
		id := list[i].Parent
		if _, have := counts[id]; have {
			continue
		}
		if ref, err := m.Version(id); err == nil {
			refs = append(refs, ref)
			counts[id] = Counts{} // set below
		}
	}
	parents, err := readSummaries(ctx, refs, read)
	if err != nil {
		return nil, err
	}
	for i := range parents {
		counts[parents[i].ID] = parents[i].Counts
	}
	for i := range list {
		s := &list[i]
		s.Current, s.Tags, s.Change = s.ID == m.CurrentVersion, m.TagsOf(s.ID), nil
		if before, ok := counts[s.Parent]; ok {
			change := s.Counts.less(before)
			s.Change = &change
		}
	}
	return list, nil
}

func readSummaries(
	ctx context.Context, refs []VersionRef, read func(context.Context, VersionRef) (Summary, error),
) ([]Summary, error) {
	list := make([]Summary, len(refs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(summaryReads)
	for i, ref := range refs {
		group.Go(func() (err error) {
			list[i], err = read(ctx, ref)
			return err
		})
	}
	return list, group.Wait()
}

// ReadSummary reads a version that the manifest lists, and describes it without Current,
// Tags and Change. A version that is missing is a *codec.CorruptError, as a damaged one is.
func ReadSummary(ctx context.Context, store blob.Store, ref VersionRef) (Summary, error) {
	v, err := ReadVersion(ctx, store, ref)
	if errors.Is(err, blob.ErrNotExist) {
		err = codec.Corrupt(ref.Object, "object", -1, "one that exists", "none")
	}
	if err != nil {
		return Summary{}, err
	}
	views := make([]string, len(v.Segments))
	for i := range v.Segments {
		views[i] = v.Segments[i].View()
	}
	return Summary{
		Views: views, VersionRef: ref, Parent: v.Parent, Created: v.Created, BuiltBy: v.BuiltBy,
		CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix, Counts: v.Counts,
	}, nil
}

func (c Counts) less(b Counts) Counts {
	return Counts{
		Segments: c.Segments - b.Segments, Datasets: c.Datasets - b.Datasets, Batches: c.Batches - b.Batches,
		Parts: c.Parts - b.Parts, Rows: c.Rows - b.Rows,
		PartBytes: c.PartBytes - b.PartBytes, IndexBytes: c.IndexBytes - b.IndexBytes,
	}
}
