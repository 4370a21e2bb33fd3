// Package segment holds the files of a segment: one self-contained, immutable index over a set of
// batches. Each file's format has its writer and its reader here, together with the lookups on it;
// docs/formats describes every byte. Package indexbuild builds and verifies segments, serve/lookup
// answers from them.
//
//	index/segments/{id}/
//	    segment.json               names, sizes and hashes of the others; written last
//	    batches.tsv.zst            the batches that the segment covers
//	    domains.txt.zst            sorted unique domains, one per line
//	    domains.starts.zst         where the frames of domains.txt begin
//	    domains.reversed.zst       the domains with their bytes reversed, sorted
//	    domains.reversed.starts.zst where the frames of domains.reversed begin
//	    domains.mphf               domain → ordinal, its line number (package mph)
//	    domain_to_datasets.roar    ordinal → set of datasets
//	    postings/{shard}/
//	        postings.idx.zst       domain and dataset → totals and rows
//	        postings.dat.zst       rows of entries that have several tuples
//	    files.tsv.zst              file_id → part of the lake
//	    parts.idx.zst              rows of a part → pages and their checksums
//	    parts.keys.zst             the first keys of pages within large domains
//
// No byte of a segment is used unless its reference vouches for it. The reference has the hash of
// segment.json, which has the hashes of everything else. Small files and the footers of compressed
// files are checked when the segment is opened, frames when they are read (footers hold their
// checksums), and mapped files block by block at first touch. A mismatch is a *codec.CorruptError:
// damage never gives a wrong answer or a panic.
package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sort"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// openParallel is how many footers are fetched at once when a segment is opened: enough to hide an
// object store's latency behind a thousand shards.
const openParallel = 16

// smallFiles is the size up to which files.tsv is read when a segment is opened: one request, as
// its footer is, which saves one when a part is looked up.
const smallFiles = 256 << 10

// The blocks that segment.json has hashes of are those that package mph checks.
var _ [mapped.BlockSize]struct{} = [mph.BlockSize]struct{}{}

// Options are options of Open.
type Options struct {
	// CacheDir holds copies of the mapped files where the store does not keep objects in files.
	// Copies stay for the next Open; PruneCache removes them.
	CacheDir string
	// Cache keeps decoded frames; nil keeps none.
	Cache Cache
	// WholeFiles reads all of files.tsv, whatever its size, so that Files has it and that the
	// datasets of all files are known. Otherwise a large one is read where it is looked up.
	WholeFiles bool
	// Residency bounds the resident memory of mapped files; nil sets no bound.
	Residency *mapped.Residency
	// PostingsOnly opens the domains, the files, the page index and the postings: no mapped files,
	// which another store would have to copy as a whole, no reversed domains and no page keys. The
	// methods that need them fail.
	PostingsOnly bool
}

// Segment is an open segment. It is safe for concurrent use until Close.
type Segment struct {
	info     *Info
	cache    Cache
	domains  Names
	reversed Names

	mphf   *mapped.File
	roar   *mapped.File
	table  *mph.Table
	member *membership.Reader
	shards []shard
	owners *owners // of the files
	files  *Files  // nil unless the whole file was read
	lines  *frames // of files.tsv, nil if the whole file was read
	parts  *frames
	keys   *frames // of pages
}

// shard is an open shard of postings.
type shard struct {
	idx, dat *frames
	want     expectation
}

// Open opens the segment of ref: it reads segment.json, the footers of all compressed files and
// files.tsv if that is small, and maps the perfect hash and the sets of datasets.
func Open(ctx context.Context, store blob.Store, ref Ref, opt Options) (*Segment, error) {
	s, err := open(ctx, store, ref, opt)
	if err != nil {
		return nil, fmt.Errorf("open segment %q: %w", ref.ID, err)
	}
	return s, nil
}

func open(ctx context.Context, store blob.Store, ref Ref, opt Options) (s *Segment, err error) {
	info, err := ReadInfo(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	s = &Segment{info: info, cache: opt.Cache, shards: make([]shard, 1<<info.ShardBits)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	prefix := Prefix(ref.ID)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(openParallel)
	openFrames := func(to **frames, name string, width int) {
		g.Go(func() (err error) {
			*to, err = newFrames(gctx, store, prefix+name, info.File(name), width)
			return err
		})
	}
	openMapped := func(to **mapped.File, name string) {
		g.Go(func() (err error) {
			f := info.File(name)
			*to, err = mapped.Open(gctx, store, prefix+name, f.sums,
				mapped.Options{CacheDir: opt.CacheDir, CopyName: copyName(ref.ID, f), Residency: opt.Residency})
			return err
		})
	}
	if !opt.PostingsOnly {
		openMapped(&s.mphf, MPHFName)
		openMapped(&s.roar, MembershipName)
	}
	if f := info.File(FilesName); opt.WholeFiles || f.Bytes <= smallFiles {
		g.Go(func() (err error) {
			s.files, err = readFiles(gctx, store, prefix+FilesName, info)
			return err
		})
	} else {
		openFrames(&s.lines, FilesName, filesFence)
	}
	openNames := func(to *Names, name, startsName string) {
		*to = Names{cache: opt.Cache, domains: info.Domains}
		openFrames(&to.frames, name, 0)
		if !opt.PostingsOnly {
			g.Go(func() error {
				_, texts, err := readWhole(gctx, store, prefix+startsName, info.File(startsName), 0)
				if err != nil {
					return err
				}
				to.starts, err = parseStarts(texts, prefix+startsName, info.File(name).Frames)
				return err
			})
		}
	}
	openNames(&s.domains, DomainsName, DomainStartsName)
	openFrames(&s.parts, PartsName, partsFence)
	if !opt.PostingsOnly {
		openNames(&s.reversed, ReversedName, ReversedStartsName)
		openFrames(&s.keys, PageKeysName, partsFence)
	}
	for i := range s.shards {
		openFrames(&s.shards[i].idx, PostingsName(i), postingsFence)
		openFrames(&s.shards[i].dat, PayloadsName(i), 0)
	}
	if err := g.Wait(); err != nil {
		return s, err
	}

	if s.files != nil {
		s.owners = ownersOf(s.files.info)
	} else if s.owners, err = fencedOwners(s.lines, info.Parts); err != nil {
		return s, err
	}
	for _, n := range []*Names{&s.domains, &s.reversed} {
		if n.frames == nil {
			continue // opt.PostingsOnly
		}
		if err := n.check(); err != nil {
			return s, err
		}
	}
	if !opt.PostingsOnly {
		if err := s.openTables(); err != nil {
			return s, err
		}
	}
	for i := range s.shards {
		s.shards[i].want = expectation{
			shard: i, shardBits: info.ShardBits, owners: s.owners, datBytes: s.shards[i].dat.RawBytes(),
		}
	}
	return s, nil
}

// openTables opens the perfect hash and the sets of datasets.
func (s *Segment) openTables() (err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.mphf, s.roar)
	if s.table, err = openTable(s.mphf, s.info); err != nil {
		return err
	}
	s.member, err = membership.Open(s.roar, s.info.Domains)
	return err
}

// errPostingsOnly is the error of lookups that need a file which was not opened.
var errPostingsOnly = errors.New("segment was opened for its postings only")

// openTable opens the perfect hash.
func openTable(f *mapped.File, info *Info) (*mph.Table, error) {
	// mph.Open reads the first block and the last two.
	if err := f.Check(0, min(1, f.Size())); err != nil {
		return nil, err
	}
	from := max(0, (f.Size()-1)/mapped.BlockSize-1) * mapped.BlockSize
	if err := f.Check(from, f.Size()-from); err != nil {
		return nil, err
	}
	expect := mph.Expect{Domains: uint64(info.Domains), DomainsXXH64: info.File(DomainsName).sums.XXH64}
	return mph.Open(f.Data(), f.Name(), expect, f.Check)
}

// readWhole reads all of a frame file in one read.
func readWhole(ctx context.Context, store blob.Store, key string, f *File, width int) (*seekable.Frames, [][]byte, error) {
	data, err := store.ReadRange(ctx, key, 0, f.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if got := xxhash.Sum64(data); got != f.sums.XXH64 {
		return nil, nil, codec.Corrupt(key, "file", -1, "xxh64 "+f.XXH64, formatSum(got))
	}
	frames, err := seekable.Open(data[f.Bytes-f.TailBytes:], f.Bytes, key, width)
	if err != nil {
		return nil, nil, err
	}
	texts := make([][]byte, frames.Len())
	for i := range texts {
		off, n := frames.Range(i, i+1)
		if texts[i], err = frames.Decode(i, data[off:off+n]); err != nil {
			return nil, nil, err
		}
	}
	return frames, texts, nil
}

// readFiles reads all of files.tsv.zst in one read.
func readFiles(ctx context.Context, store blob.Store, key string, info *Info) (*Files, error) {
	f := info.File(FilesName)
	frames, texts, err := readWhole(ctx, store, key, f, filesFence)
	if err != nil {
		return nil, err
	}
	text := bytes.Join(texts, nil)
	starts, line := make([]int, len(texts)), 0 // of the frames
	for i := range texts {
		starts[i] = line
		line += bytes.Count(texts[i], []byte{'\n'})
	}
	files, err := parseFiles(text, key, info.Parts)
	if err != nil {
		return nil, err
	}
	for i, id := range starts {
		fence := binary.BigEndian.AppendUint32(nil, uint32(id))
		if id < len(files.info) {
			fence = binary.BigEndian.AppendUint32(fence, files.info[id].DatasetID)
		}
		if !bytes.Equal(fence, frames.Fence(i)) {
			return nil, codec.Corrupt(key, frameSection(i), -1, fmt.Sprintf("fence %x", fence), fmt.Sprintf("%x", frames.Fence(i)))
		}
	}
	return files, nil
}

// Close unmaps the segment's files. No other call may be in flight or follow. Results of earlier
// lookups stay valid.
func (s *Segment) Close() error {
	err := s.mphf.Close()
	if rerr := s.roar.Close(); err == nil {
		err = rerr
	}
	return err
}

// Info returns the segment's segment.json, which must not be changed.
func (s *Segment) Info() *Info { return s.info }

// Files returns the segment's table of parts, which is nil unless the segment was opened with
// WholeFiles.
func (s *Segment) Files() *Files { return s.files }

// File returns the part with that id. It makes at most one read.
func (s *Segment) File(ctx context.Context, id uint32) (FileInfo, error) {
	if int64(id) >= s.owners.count {
		want := fmt.Sprintf("a file_id below %d", s.owners.count)
		return FileInfo{}, codec.Corrupt(Prefix(s.info.Segment)+FilesName, "lines", -1, want, id)
	}
	if s.files != nil {
		return s.files.info[id], nil
	}
	o := s.owners
	at := sort.Search(len(o.starts), func(i int) bool { return o.starts[i] > id }) - 1
	end := o.count
	if at+1 < len(o.starts) {
		end = int64(o.starts[at+1])
	}
	first := int64(o.starts[at])
	lines, err := load(ctx, s.lines, s.cache, at, func(data []byte) ([]FileInfo, int64, error) {
		lines, err := parseLines(data, s.lines.key, first, end-first)
		if err == nil && lines[0].DatasetID != o.datasets[at] {
			want := fmt.Sprintf("dataset %d of its fence", o.datasets[at])
			err = codec.Corrupt(s.lines.key, frameSection(at), -1, want, lines[0].DatasetID)
		}
		return lines, int64(len(data) + len(lines)*fileMemory), err
	})
	if err != nil {
		return FileInfo{}, err
	}
	return lines[int64(id)-first], nil
}

// fileMemory is what a FileInfo takes besides its text.
const fileMemory = 72

// MemoryBytes estimates what the open segment holds in memory, mapped files and the cache excluded.
func (s *Segment) MemoryBytes() int64 {
	n := s.domains.memoryBytes() + s.reversed.memoryBytes() + s.parts.MemoryBytes() + 8*int64(len(s.owners.starts))
	if s.keys != nil {
		n += s.keys.MemoryBytes()
	}
	if s.lines != nil {
		n += s.lines.MemoryBytes()
	} else {
		n += int64(s.files.Len()) * (fileMemory + 128)
	}
	for i := range s.shards {
		n += s.shards[i].idx.MemoryBytes() + s.shards[i].dat.MemoryBytes()
	}
	return n
}

// Ordinal returns the ordinal of a domain, or false if the segment does not have the domain.
func (s *Segment) Ordinal(k Key) (ordinal uint32, ok bool, err error) {
	if s.table == nil {
		return 0, false, errPostingsOnly
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.mphf)
	s.mphf.Touch()
	return s.table.Lookup(k.ID, k.Check)
}

// Ordinals sets ordinals[i] to the ordinal of keys[i], or to mph.Absent. It is faster than a call
// of Ordinal for each key.
func (s *Segment) Ordinals(keys []Key, ordinals []uint32) (err error) {
	if s.table == nil {
		return errPostingsOnly
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.mphf)
	return s.table.LookupBatch(keys, ordinals)
}
