package pathtree

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Totals count what an index has.
type Totals struct {
	// Domains, Nodes and Entries are their numbers. Rows are those of all entries of hosts, which
	// are the rows of the segment.
	Domains int64 `json:"domains"`
	Nodes   int64 `json:"nodes"`
	Entries int64 `json:"entries"`
	Rows    int64 `json:"rows"`
}

// Writer writes the frames of an index. Nodes ascend by domain, level and path. It is for one
// goroutine.
type Writer struct {
	frames *seekable.Writer
	totals Totals

	data      []byte // of the open frame
	key       []byte // of the last node
	scratch   []byte
	directory []byte // the fences of all frames
	fence     []byte // the last of them
	fences    uint64
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{frames: seekable.NewWriter(w, 0)} }

// Add adds a node, which is not kept.
func (w *Writer) Add(k segment.Key, n *Node) error {
	level := Level(n.Path)
	if !ValidPath(n.Path) || len(n.Entries) == 0 {
		return fmt.Errorf("tree of domain %016x: node %q with %d entries", k.ID, n.Path, len(n.Entries))
	}
	key := appendKey(w.scratch[:0], k, level, n.Path)
	if bytes.Compare(w.key, key) >= 0 {
		return fmt.Errorf("tree of domain %016x: nodes do not ascend", k.ID)
	}
	before := w.key
	if len(w.data) == 0 {
		before = nil
	}
	at := len(w.data)
	w.data = AppendEntries(appendShared(w.data, before, key), n)
	if at > 0 && len(w.data) > frameBytes {
		if err := w.flush(w.data[:at]); err != nil {
			return err
		}
		at, w.data = 0, AppendEntries(appendShared(w.data, nil, key), n)
	}
	if at == 0 {
		fence := key[:codec.CommonPrefix(w.key, key)+1]
		w.directory = appendShared(w.directory, w.fence, fence)
		w.fence = append(w.fence[:0], fence...)
		w.fences++
	}
	if w.totals.Nodes++; codec.CommonPrefix(w.key, key) < domainBytes {
		w.totals.Domains++
	}
	w.totals.Entries += int64(len(n.Entries))
	if level == 1 {
		for i := range n.Entries {
			w.totals.Rows += n.Entries[i].Rows
		}
	}
	w.key, w.scratch = key, w.key
	return nil
}

// flush writes a frame of nodes.
func (w *Writer) flush(nodes []byte) error {
	_, _, err := w.frames.Frame(nil, nodes)
	w.data = w.data[:0]
	return err
}

// Written describes a file that a Writer has written.
type Written struct {
	Totals
	File seekable.File
}

// Finish writes the directory and the footer, and returns what the index has: no nodes if the
// segment has no rows.
func (w *Writer) Finish() (Written, error) {
	if len(w.data) > 0 {
		if err := w.flush(w.data); err != nil {
			return Written{}, err
		}
	}
	if _, _, err := w.frames.Frame(nil, append(codec.AppendUvarint(nil, w.fences), w.directory...)); err != nil {
		return Written{}, err
	}
	file, err := w.frames.Finish()
	return Written{w.totals, file}, err
}

// InfoName is the name of the document of an index in the folder of its segment.
const InfoName = "tree.json"

// InfoKey is the key of the document of a segment's index.
func InfoKey(segmentID string) string { return segment.Prefix(segmentID) + InfoName }

// Info is the document that names the file of an index and vouches for its bytes. It is written
// last, so an index with a document is whole.
type Info struct {
	Format  int    `json:"format"`
	Segment string `json:"segment"`
	Totals
	// File is in the same folder, and is named by a digest of its bytes.
	File        string `json:"file"`
	Bytes       int64  `json:"bytes"`
	XXH64       string `json:"file_xxh64"`
	FooterBytes int64  `json:"footer_bytes"`
	FooterXXH64 string `json:"footer_xxh64"`
}

// Store stores an index that was written to a local file, first the file, then the document.
func Store(ctx context.Context, store blob.Store, segmentID string, w Written, file io.ReadSeeker) (*Info, error) {
	f := w.File
	hash := xxh3.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, err
	}
	sum := hash.Sum128().Bytes()
	i := &Info{
		Format: Format, Segment: segmentID, Totals: w.Totals, File: fmt.Sprintf("tree-%x.zst", sum), Bytes: f.Bytes,
		XXH64: fmt.Sprintf("%016x", f.XXH64), FooterBytes: f.FooterBytes, FooterXXH64: fmt.Sprintf("%016x", f.FooterXXH64),
	}
	if err := i.check(InfoKey(segmentID), segmentID); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	out, err := store.Create(ctx, i.Object())
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(out, file); err != nil {
		out.Abort()
		return nil, err
	}
	done, err := out.Finish()
	if err != nil {
		return nil, err
	}
	if done.Size != f.Bytes {
		return nil, fmt.Errorf("write %s: %d bytes arrived of %d", done.Key, done.Size, f.Bytes)
	}
	data, err := codec.Seal(i)
	if err != nil {
		return nil, err
	}
	_, err = store.Put(ctx, InfoKey(segmentID), data, blob.Condition{})
	return i, err
}

// Object is the key of the file.
func (i *Info) Object() string { return segment.Prefix(i.Segment) + i.File }

// ReadInfo reads the document of a segment's index. The error is blob.ErrNotExist if there is none.
func ReadInfo(ctx context.Context, store blob.Store, segmentID string) (*Info, error) {
	key := InfoKey(segmentID)
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	i := new(Info)
	if err := codec.Unseal(data, key, Format, i); err != nil {
		return nil, err
	}
	return i, i.check(key, segmentID)
}

// IsFile reports whether a key is that of the file of an index.
func IsFile(key string) bool { return fileName.MatchString(path.Base(key)) }

var fileName = regexp.MustCompile(`^tree-[0-9a-f]{32}\.zst$`)

// check returns a *codec.CorruptError, which names the document, if the index cannot be that of a
// segment.
func (i *Info) check(key, segmentID string) error {
	bad := func(section string, want, got any) error { return codec.Corrupt(key, section, -1, want, got) }
	switch {
	case i.Format != Format:
		return bad("format", Format, i.Format)
	case i.Segment != segmentID:
		return bad("segment", segmentID, i.Segment)
	case !fileName.MatchString(i.File):
		return bad("file", "a name with a digest", i.File)
	case i.FooterBytes < 1 || i.Bytes < i.FooterBytes:
		return bad("bytes", "those of the footer at least", i.Bytes)
	case i.Domains < 0 || i.Nodes < i.Domains || i.Entries < i.Nodes || i.Rows < i.Domains,
		i.Domains == 0 && i.Entries+i.Rows > 0:
		return bad("counts", "counts of nodes", fmt.Sprintf("%+v", i.Totals))
	}
	for _, s := range []string{i.XXH64, i.FooterXXH64} {
		if _, err := strconv.ParseUint(s, 16, 64); err != nil || len(s) != 16 {
			return bad("file_xxh64", "16 hex digits", s)
		}
	}
	return nil
}
