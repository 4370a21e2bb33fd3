package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"

	"golang.org/x/time/rate"
)

const (
	// maxPieces is how many pieces a file has before it is copied whole again, and tail how many
	// bytes before the end of a piece are compared to see whether a file still has it.
	maxPieces = 64
	tail      = 64 << 10
	// attempts is how often a file is asked for.
	attempts = 3
)

// TakeOptions say what to copy.
type TakeOptions struct {
	// Frontier is the URL of a process of the frontier, as http://host:7070.
	Frontier string
	// Keep is how many snapshots to leave in the store, 0 for all.
	Keep int
	// Rate bounds the bytes that are copied a second, 0 is no bound: the frontier has other work.
	Rate int64
	// Note gets what is noteworthy but no error.
	Note func(text string)
}

// Taken says what became of a snapshot.
type Taken struct {
	Manifest *Manifest
	// Copied is how many bytes were uploaded; the rest was there already.
	Copied int64
	// Deleted counts the snapshots and the objects that were deleted.
	Deleted, DeletedObjects int
}

// Take copies a running frontier to a store. Only one Take uses a store at a time: others fail.
func Take(ctx context.Context, store blob.Store, o TakeOptions) (t *Taken, err error) {
	l, ctx, err := acquire(ctx, store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	c := &copier{store: store, base: strings.TrimSuffix(o.Frontier, "/"), existing: map[string]int64{}, limiter: newLimiter(o.Rate)}
	for info, err := range store.List(ctx, pieces) {
		if err != nil {
			return nil, err
		}
		c.existing[info.Key] = info.Size
	}
	if err := c.readPrevious(ctx, o.Note); err != nil {
		return nil, err
	}
	begun := time.Now().UTC()
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.end(context.WithoutCancel(ctx))) }()
	m := &Manifest{Format: format, ID: c.snapshot.ID, Taken: begun, Shards: c.snapshot.ShardCount, Files: make([]File, len(c.snapshot.Files))}
	t = &Taken{Manifest: m}
	for i, f := range c.snapshot.Files { // one by one, since the frontier and its disk have other work
		var copied int64
		if m.Files[i], copied, err = c.file(ctx, f); err != nil {
			return nil, err
		}
		t.Copied += copied
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if err := write(ctx, store, m); err != nil {
		return nil, err
	}
	t.Deleted, t.DeletedObjects, err = sweep(ctx, store, o.Keep)
	return t, err
}

// write writes the manifest, which makes the snapshot one.
func write(ctx context.Context, store blob.Store, m *Manifest) error {
	name := manifests + m.ID + suffix
	if err := m.check(name); err != nil {
		return err
	}
	data, err := codec.Seal(m)
	if err != nil {
		return err
	}
	w, err := store.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err = w.Finish()
	return err
}

// copier copies the files of a snapshot that a frontier holds.
type copier struct {
	store   blob.Store
	base    string
	limiter *rate.Limiter
	// previous are the files of the newest snapshot in the store, by path, and existing the sizes
	// of the store's objects.
	previous map[string]File
	existing map[string]int64
	snapshot struct {
		ID         string `json:"id"`
		ShardCount int    `json:"shard_count"`
		frontier.SnapshotPart
	}
}

func (c *copier) readPrevious(ctx context.Context, note func(string)) error {
	ids, err := IDs(ctx, c.store)
	if err != nil || len(ids) == 0 {
		return err
	}
	m, err := Read(ctx, c.store, ids[len(ids)-1])
	var corrupt *codec.CorruptError
	if errors.As(err, &corrupt) {
		note(err.Error() + "; everything is copied anew")
		return nil
	}
	if err != nil {
		return err
	}
	c.previous = map[string]File{}
	for _, f := range m.Files {
		c.previous[f.Path] = f
	}
	return nil
}

// begin lets the frontier make the snapshot.
func (c *copier) begin(ctx context.Context) error {
	res, err := c.do(ctx, http.MethodPost, "/v1/snapshots", "")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&c.snapshot); err != nil {
		return fmt.Errorf("%s/v1/snapshots: %w", c.base, err)
	}
	return nil
}

// end lets the frontier drop it.
func (c *copier) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	res, err := c.do(ctx, http.MethodDelete, "/v1/snapshots/"+c.snapshot.ID, "")
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (c *copier) do(ctx context.Context, method, path, bytes string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	want := []int{http.StatusOK, http.StatusNoContent}
	if bytes != "" {
		req.Header.Set("Range", "bytes="+bytes)
		want = []int{http.StatusPartialContent}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(want, res.StatusCode) {
		defer res.Body.Close()
		detail, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return nil, fmt.Errorf("%s%s: %s: %s", c.base, path, res.Status, strings.TrimSpace(string(detail)))
	}
	return res, nil
}

// read calls yield with the body of a range of a file, which has its bytes or fails. It is called
// again if the connection breaks.
func (c *copier) read(ctx context.Context, file string, from, size int64, yield func(io.Reader) error) (err error) {
	for n := range attempts {
		if n > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Duration(n) * time.Second):
			}
		}
		ours := false // the error is not the frontier's
		err = func() error {
			res, err := c.do(ctx, http.MethodGet, "/v1/snapshots/"+c.snapshot.ID+"/files/"+file, fmt.Sprintf("%d-%d", from, from+size-1))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.ContentLength != size {
				return fmt.Errorf("%s: %d bytes from byte %d on, not %d", file, res.ContentLength, from, size)
			}
			body := &watchedReader{Reader: &ratedReader{ctx, c.limiter, res.Body}}
			err = yield(body)
			ours = body.err == nil
			return err
		}()
		if err == nil || ours || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// watchedReader remembers whether reading has failed.
type watchedReader struct {
	io.Reader
	err error
}

func (r *watchedReader) Read(p []byte) (n int, err error) {
	n, err = r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// file copies what the store does not have of a file.
func (c *copier) file(ctx context.Context, f frontier.SnapshotFile) (to File, copied int64, err error) {
	_, name, _ := strings.Cut(f.Path, "/") // what is before it is the part's
	to = File{Path: name, Size: f.Size, Modified: f.Modified}
	if to.Pieces, err = c.reuse(ctx, f, &to); err != nil {
		return to, 0, err
	}
	at := int64(0)
	for _, p := range to.Pieces {
		at += p.Size
	}
	if at == f.Size {
		return to, 0, nil
	}
	p := Piece{Object: path.Join(pieces, c.snapshot.ID, name), Size: f.Size - at}
	err = c.read(ctx, f.Path, at, p.Size, func(body io.Reader) error {
		w, err := c.store.Create(ctx, p.Object)
		if err != nil {
			return err
		}
		defer w.Abort()
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(w, sum), body)
		if err == nil && n != p.Size {
			err = fmt.Errorf("%s: %d bytes, not %d", f.Path, n, p.Size)
		}
		if err != nil {
			return err
		}
		p.SHA256 = hex.EncodeToString(sum.Sum(nil))
		_, err = w.Finish()
		return err
	})
	to.Pieces = append(to.Pieces, p)
	return to, p.Size, err
}

// reuse returns the pieces that the previous snapshot has of a file, if the file still begins with
// them: if it is the same, or has only grown. What is compared is the end of the last piece, where
// files of a shard have their checksums and visits their times.
func (c *copier) reuse(ctx context.Context, f frontier.SnapshotFile, to *File) ([]Piece, error) {
	old, ok := c.previous[to.Path]
	same := old.Size == f.Size && old.Modified == f.Modified
	grown := old.Size < f.Size && len(old.Pieces) < maxPieces && grows(path.Base(to.Path))
	if !ok || old.Size == 0 || !same && !grown {
		return nil, nil
	}
	for _, p := range old.Pieces {
		if size, ok := c.existing[p.Object]; !ok || size != p.Size {
			return nil, nil
		}
	}
	last := old.Pieces[len(old.Pieces)-1]
	n := min(last.Size, tail)
	had, err := c.store.ReadRange(ctx, last.Object, last.Size-n, n)
	if err != nil {
		return nil, err
	}
	same = false
	err = c.read(ctx, f.Path, old.Size-n, n, func(body io.Reader) error {
		got, err := io.ReadAll(body)
		same = string(got) == string(had)
		return err
	})
	if err != nil || !same {
		return nil, err
	}
	return slices.Clone(old.Pieces), nil
}

// grows says that bytes are added to the end of a file, and nothing else of it changes.
func grows(name string) bool {
	return name == "visits" || name == "visits.index" || path.Ext(name) == ".journal"
}

// sweep deletes all snapshots but the newest, and then the objects that no snapshot names. It
// deletes no object if it cannot read which are named.
func sweep(ctx context.Context, store blob.Store, keep int) (deleted, objects int, err error) {
	ids, err := IDs(ctx, store)
	if err != nil {
		return 0, 0, err
	}
	for keep > 0 && len(ids) > keep {
		if err := store.Delete(ctx, manifests+ids[0]+suffix); err != nil {
			return deleted, 0, err
		}
		deleted++
		ids = ids[1:]
	}
	named := map[string]struct{}{}
	for _, id := range ids {
		m, err := Read(ctx, store, id)
		if err != nil {
			return deleted, 0, fmt.Errorf("the objects of old snapshots stay: %w", err)
		}
		for _, f := range m.Files {
			for _, p := range f.Pieces {
				named[p.Object] = struct{}{}
			}
		}
	}
	var gone []string
	for info, err := range store.List(ctx, pieces) {
		if err != nil {
			return deleted, 0, err
		}
		if _, ok := named[info.Key]; !ok {
			gone = append(gone, info.Key)
		}
	}
	return deleted, len(gone), store.Delete(ctx, gone...)
}

func readAll(r io.ReadCloser) ([]byte, error) {
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}
