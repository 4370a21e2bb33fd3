package suppress

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// OlderVersion is an older version of an object, which holds something that a rule hides.
type OlderVersion struct {
	// Kind is that of a Holding, or "staging".
	Kind     string    `json:"kind"`
	Object   string    `json:"object"`
	ID       string    `json:"version_id"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	// Rows are those that match, of a part.
	Rows int64 `json:"rows,omitempty"`
}

// ObjectVersions is what a bucket keeps of objects that were replaced or deleted.
type ObjectVersions struct {
	// Versioning is "none", "enabled", "suspended", or "unknown" if the role may not ask.
	Versioning string `json:"versioning"`
	// Looked counts the versions that were looked into, of objects that can hold something.
	Looked int `json:"looked_into"`
	// Holdings are the versions that hold something. Those of objects in staging may do so.
	Holdings []OlderVersion `json:"holdings"`
}

// The permissions that a role lacks, in the words of IAM.
const (
	mayList   = "s3:GetBucketVersioning and s3:ListBucketVersions"
	mayRead   = "s3:GetObjectVersion"
	mayDelete = "s3:DeleteObjectVersion"
)

// judgedAtOnce is how many versions are looked into at the same time.
const judgedAtOnce = 4

// listedAtOnce bounds the versions that wait to be looked into.
const listedAtOnce = 1000

// olderVersions looks into the older versions of all objects that can hold something.
func (in *inspector) olderVersions(ctx context.Context) error {
	store, ok := blob.AsVersioned(in.store)
	if !ok {
		return nil
	}
	out := &ObjectVersions{Holdings: []OlderVersion{}}
	in.state.ObjectVersions = out
	state, err := store.Versioning(ctx)
	switch {
	case errors.Is(err, blob.ErrDenied) && !errors.Is(err, blob.ErrCredentials):
		state = "unknown" // a list of versions tells it too
	case err != nil:
		return err
	}
	if out.Versioning = string(state); state == blob.Unversioned {
		return nil
	}
	l := versionLooker{in: in, store: store, judged: map[string]*judgement{}}
	roots := []string{"urls/", "staging/", segmentRoot}
	if in.namesGo() {
		roots = append(roots, "batches/")
	}
	for _, root := range roots {
		if err := l.look(ctx, root); err != nil {
			if errors.Is(err, blob.ErrDenied) && !errors.Is(err, blob.ErrCredentials) {
				in.state.Unknown = append(in.state.Unknown,
					fmt.Sprintf("older versions of objects: they may not be listed; allow %s: %v", mayList, err))
				break
			}
			return err
		}
	}
	if l.unread > 0 {
		in.state.Unknown = append(in.state.Unknown, fmt.Sprintf("older versions of objects: %d may not be read; allow %s: %v",
			l.unread, mayRead, l.refused))
	}
	slices.SortStableFunc(out.Holdings, func(a, b OlderVersion) int {
		return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Object, b.Object))
	})
	return nil
}

// judgement is what was found in a version. Versions of one key with one ETag have the same bytes.
type judgement struct {
	version  blob.Version
	kind     string
	holds    bool
	rows     int64
	err      error
	repeated []blob.Version
}

// versionLooker looks into older versions.
type versionLooker struct {
	in      *inspector
	store   blob.Versioned
	judged  map[string]*judgement // those of the last key, by ETag
	unread  int                   // versions that the role may not read
	refused error                 // why, of the first
}

// look looks into the older versions of objects below a prefix.
func (l *versionLooker) look(ctx context.Context, root string) error {
	var todo []*judgement
	key := ""
	for v, err := range l.store.OldVersions(ctx, root) {
		if err != nil {
			return err
		}
		if v.Key != key {
			if len(todo) >= listedAtOnce {
				if err := l.judge(ctx, todo); err != nil {
					return err
				}
				todo = nil
			}
			key = v.Key
			clear(l.judged)
		}
		kind, may := l.in.kindOf(v.Key)
		if !may {
			continue
		}
		l.in.state.ObjectVersions.Looked++
		of := fmt.Sprintf("%s %d", v.ETag, v.Size)
		if j, ok := l.judged[of]; ok && v.ETag != "" {
			j.repeated = append(j.repeated, v)
			continue
		}
		j := &judgement{version: v, kind: kind}
		l.judged[of] = j
		todo = append(todo, j)
	}
	return l.judge(ctx, todo)
}

// judge looks into versions, and keeps what it finds.
func (l *versionLooker) judge(ctx context.Context, todo []*judgement) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(judgedAtOnce)
	for _, j := range todo {
		group.Go(func() error {
			j.holds, j.rows, j.err = l.in.versionHolds(groupCtx, l.store.AtVersion(j.version), j.kind, j.version.Info)
			if errors.Is(j.err, codec.ErrCorrupt) || errors.Is(j.err, blob.ErrNotExist) ||
				errors.Is(j.err, blob.ErrDenied) && !errors.Is(j.err, blob.ErrCredentials) {
				return nil
			}
			return j.err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	state := l.in.state
	for _, j := range todo {
		all := append([]blob.Version{j.version}, j.repeated...)
		switch {
		case errors.Is(j.err, blob.ErrDenied):
			if l.unread += len(all); l.refused == nil {
				l.refused = j.err
			}
		case errors.Is(j.err, blob.ErrNotExist): // deleted meanwhile
		case j.err != nil:
			state.Unknown = append(state.Unknown, fmt.Sprintf("older version %s: %v", j.version.ID, j.err))
		case j.holds:
			for _, v := range all {
				state.ObjectVersions.Holdings = append(state.ObjectVersions.Holdings, OlderVersion{
					Kind: j.kind, Object: v.Key, ID: v.ID, Bytes: v.Size, Modified: v.Modified, Rows: j.rows,
				})
			}
		}
	}
	return nil
}

// kindOf returns the kind of an object, and whether it can hold something that the rule hides.
func (in *inspector) kindOf(key string) (kind string, may bool) {
	if _, may, ok := in.partMay(key); ok {
		return "part", may
	}
	if isStaged(key) {
		return "staging", true
	}
	switch {
	case segmentKey.MatchString(key):
		return "index", in.namesGo()
	case treeKey.MatchString(key):
		return "trees", true
	case pageKeysKey.MatchString(key):
		return "page keys", true
	case postingsKey.MatchString(key):
		return "postings", in.namesGo()
	}
	return "", false
}

// versionHolds reports whether a version holds something that the rule hides. Store has that
// version alone.
func (in *inspector) versionHolds(
	ctx context.Context, store blob.Store, kind string, info blob.Info,
) (holds bool, rows int64, err error) {
	switch kind {
	case "part":
		dataset, _, _ := in.partMay(info.Key)
		rows, err = in.part(ctx, store, info, dataset)
		return rows > 0, rows, err
	case "index":
		holds, err = in.listHas(ctx, store, info)
	case "trees":
		holds, err = in.treesHave(ctx, store, info)
	case "page keys":
		holds, err = in.pageKeysHave(ctx, store, info)
	case "postings":
		holds, err = in.looseHave(ctx, store, info)
	default:
		holds, err = in.stagedHas(ctx, store, info)
	}
	return holds, 0, err
}

var looseBatch = regexp.MustCompile(`^batches/dataset_id=([0-9]+)/([^/]+)/`)

// looseHave reports whether a postings object of which no batch record tells has the rule's domain,
// or a name below it.
func (in *inspector) looseHave(ctx context.Context, store blob.Store, info blob.Info) (bool, error) {
	m := looseBatch.FindStringSubmatch(info.Key)
	dataset, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil {
		return false, codec.Corrupt(info.Key, "key", -1, "the id of a dataset", m[1])
	}
	table, err := seekable.OpenSeekTable(func(off int64) (io.ReadCloser, error) {
		return store.Open(ctx, info.Key, off, -1)
	}, info.Size, info.Key)
	if err != nil {
		return false, err
	}
	start := table.Start
	if err := table.Close(); err != nil {
		return false, err
	}
	footer, err := store.ReadRange(ctx, info.Key, start, info.Size-start)
	if err != nil {
		return false, err
	}
	return in.postingsHave(ctx, store, segment.BatchRef{DatasetID: uint32(dataset), Batch: m[2]},
		lake.NewFrameObject(info.Key, seekable.File{
			Bytes: info.Size, FooterBytes: int64(len(footer)), FooterXXH64: xxhash.Sum64(footer),
		}))
}

// pageKeysHave reports whether page keys of a segment may have the host and the beginning of the
// path of a hidden row. They do not tell datasets and times, so a rule that is limited to some may
// count a key of other rows.
func (in *inspector) pageKeysHave(ctx context.Context, store blob.Store, info blob.Info) (bool, error) {
	for b, err := range segment.LoosePageKeys(ctx, store, info) {
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(b.Keys, func(k part.PageKey) bool { return !k.None() && in.mayBeOf(&k) }) {
			return true, nil
		}
	}
	return false, nil
}

// mayBeOf reports whether a page key may have been cut from a row that the rule hides.
func (in *inspector) mayBeOf(k *part.PageKey) bool {
	switch r := in.rule; r.Kind {
	case catalog.DomainTarget:
		return in.covers(k.Host)
	case catalog.HostTarget:
		return k.Host == r.Host
	case catalog.URLTarget:
		return k.Host == r.Host && strings.HasPrefix(r.Path, k.Path)
	default:
		return k.Host == r.Host && (strings.HasPrefix(r.Path, k.Path) || strings.HasPrefix(k.Path, r.Path))
	}
}

// treesHave reports whether an index of path trees may have the directory of a hidden row. It does
// not tell times, so a rule that is limited to some may count a directory of other rows.
func (in *inspector) treesHave(ctx context.Context, store blob.Store, info blob.Info) (bool, error) {
	index, err := pathtree.OpenFile(ctx, store, info.Key, info.Size)
	if err != nil {
		return false, err
	}
	for n, err := range index.All(ctx) {
		if err != nil {
			return false, err
		}
		if in.mayBeIn(n.Node) {
			return true, nil
		}
	}
	return false, nil
}

// mayBeIn reports whether a row that the rule hides may be directly in a directory.
func (in *inspector) mayBeIn(n *pathtree.Node) bool {
	r := in.rule
	slash := bytes.IndexByte(n.Path, '/')
	host, dir := n.Path[:slash], n.Path[slash:]
	own := string(dir) == r.Path[:pathtree.DirEnd(r.Path)]
	of := string(host) == r.Host
	switch r.Kind {
	case catalog.DomainTarget:
		of = in.covers(string(host))
	case catalog.HostTarget:
	case catalog.URLTarget:
		of = of && own
	default:
		of = of && (own || bytes.HasPrefix(dir, []byte(r.Path)))
	}
	return of && slices.ContainsFunc(n.Entries, func(e pathtree.Entry) bool {
		return e.Direct > 0 && (r.DatasetID == 0 || r.DatasetID == e.Dataset)
	})
}

var runKey = regexp.MustCompile(`/merging/`)

// stagedHas reports whether an object in staging has the name of the rule's host. Rows in staging
// are in forms that only the build understands which wrote them, but names of hosts are whole in
// all of them but in runs, which leave out what a row shares with the one before. So runs may have
// it. Staging is work under way, of which nobody needs an older version.
func (in *inspector) stagedHas(ctx context.Context, store blob.Store, info blob.Info) (bool, error) {
	if runKey.MatchString(info.Key) {
		return true, nil
	}
	stream, err := store.Open(ctx, info.Key, 0, info.Size)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	buffered := bufio.NewReaderSize(stream, 1<<20)
	text := io.Reader(buffered)
	if magic, _ := buffered.Peek(4); bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		dec, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(seekable.MaxFrame))
		if err != nil {
			return false, err
		}
		defer dec.Close()
		text = dec
	}
	has, err := contains(text, []byte(in.rule.Host))
	if err != nil && ctx.Err() == nil && !errors.Is(err, blob.ErrNotExist) && !errors.Is(err, blob.ErrDenied) {
		return false, codec.Corrupt(info.Key, "content", -1, "bytes or zstd frames", err)
	}
	return has, err
}

// contains reports whether a stream has a text.
func contains(r io.Reader, text []byte) (bool, error) {
	buf := make([]byte, 0, 1<<18)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if bytes.Contains(buf, text) {
			return true, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		// A text can begin in this piece and end in the next one.
		left := copy(buf, buf[len(buf)-len(text)+1:])
		buf = buf[:left]
	}
}

// ErrLifted means that a takedown is not in force any more, so its rows are not to go.
var ErrLifted = errors.New("the takedown was lifted, so that its rows are no longer to go")

// RefusedVersion is a version that the store does not delete.
type RefusedVersion struct {
	OlderVersion
	Reason string `json:"reason"`
}

// Purged is what Purge did.
type Purged struct {
	ID     string `json:"id"`
	DryRun bool   `json:"dry_run"`
	// Versioning is as in ObjectVersions, or "none" if the store is no bucket.
	Versioning string `json:"versioning"`
	// Objects and Bytes are those of the deleted versions, in a dry run of those to delete.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Versions are these versions.
	Versions []OlderVersion `json:"versions"`
	// Refused are those that stay.
	Refused []RefusedVersion `json:"refused"`
	// Unknown is what could not be looked into.
	Unknown []string `json:"unknown,omitempty"`
}

// Complete tells that no older version is left that holds something.
func (p *Purged) Complete() bool { return len(p.Refused) == 0 && len(p.Unknown) == 0 }

// Purge deletes the older versions of objects that hold what a takedown hides, and no other ones.
// It may be stopped anywhere, and be repeated.
func Purge(ctx context.Context, store blob.Store, id string, dryRun bool) (*Purged, error) {
	in, _, err := newInspector(ctx, store, id)
	if err != nil {
		return nil, err
	}
	if in.rule == nil {
		return nil, fmt.Errorf("%w: %s", ErrLifted, id)
	}
	if err := in.olderVersions(ctx); err != nil {
		return nil, err
	}
	out := &Purged{ID: id, DryRun: dryRun, Versions: []OlderVersion{}, Refused: []RefusedVersion{}, Unknown: in.state.Unknown}
	found := in.state.ObjectVersions
	if found == nil {
		out.Versioning = string(blob.Unversioned)
		return out, nil
	}
	out.Versioning = found.Versioning
	var todo []OlderVersion
	for _, v := range found.Holdings {
		if v.ID == blob.NullVersion && found.Versioning != string(blob.VersioningEnabled) {
			out.Refused = append(out.Refused, RefusedVersion{v, "while versioning is not enabled, a writer can make " +
				"this id that of the current version; enable versioning first"})
			continue
		}
		todo = append(todo, v)
	}
	versioned, _ := blob.AsVersioned(store)
	for batch := range slices.Chunk(todo, listedAtOnce) {
		var refused map[[2]string]string
		if !dryRun {
			if refused, err = deleteVersions(ctx, store, versioned, id, batch); err != nil {
				return out, err
			}
		}
		for _, v := range batch {
			if why, ok := refused[[2]string{v.Object, v.ID}]; ok {
				out.Refused = append(out.Refused, RefusedVersion{v, why})
				continue
			}
			out.Objects++
			out.Bytes += v.Bytes
			out.Versions = append(out.Versions, v)
		}
	}
	return out, nil
}

// deleteVersions deletes versions, unless the takedown was lifted meanwhile. It returns why the
// store does not delete some, by key and id.
func deleteVersions(
	ctx context.Context, store blob.Store, versioned blob.Versioned, id string, batch []OlderVersion,
) (map[[2]string]string, error) {
	in, _, err := newInspector(ctx, store, id)
	if err != nil {
		return nil, err
	}
	if in.rule == nil {
		return nil, fmt.Errorf("%w: %s", ErrLifted, id)
	}
	versions := make([]blob.Version, len(batch))
	for i, v := range batch {
		versions[i] = blob.Version{Info: blob.Info{Key: v.Object, Size: v.Bytes}, ID: v.ID}
	}
	refused := map[[2]string]string{}
	err = versioned.DeleteVersions(ctx, versions, func(v blob.Version, err error) {
		why := err.Error()
		if errors.Is(err, blob.ErrDenied) {
			why = "allow " + mayDelete + ", unless a lock or a time of retention holds it: " + why
		}
		refused[[2]string{v.Key, v.ID}] = why
	})
	return refused, err
}
