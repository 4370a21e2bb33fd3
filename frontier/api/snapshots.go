package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier"
)

// snapshotTimeout bounds how long a process works on its part of a snapshot: it waits for files
// that are being merged.
const snapshotTimeout = 10 * time.Minute

// snapshotAnswer is the answer to POST /v1/snapshots.
type snapshotAnswer struct {
	ID string `json:"id"`
	// ShardCount is how many shards the frontier has.
	ShardCount int `json:"shard_count"`
	frontier.SnapshotPart
}

func (h *Handler) snapshotRoutes() {
	h.mux.HandleFunc("POST /v1/snapshots", h.snapshot)
	h.mux.HandleFunc("GET /v1/snapshots/{id}/files/{path...}", h.snapshotFile)
	h.mux.HandleFunc("DELETE /v1/snapshots/{id}", h.dropSnapshot)
}

// snapshot makes a snapshot of this process and of the others, of which each links the files of its
// shards. They share the folder of the data, so each can return the files of all.
func (h *Handler) snapshot(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(forwarded)
	asked := id != ""
	if !asked {
		id = time.Now().UTC().Format("20060102T150405.000Z") + "-" + rand.Text()[:6]
		id = strings.Replace(id, ".", "-", 1)
	}
	all := snapshotAnswer{ID: id, ShardCount: h.f.Shards()}
	var err error
	all.SnapshotPart, err = h.f.Snapshot(r.Context(), id, rand.Text(), !asked)
	if err == nil && !asked {
		for _, other := range h.f.Others() {
			err = errors.Join(err, h.snapshotOf(r.Context(), other, &all))
		}
		if err == nil {
			err = checkShards(&all)
		}
		if err != nil {
			err = errors.Join(err, h.f.DropSnapshot(id))
		}
	}
	if err != nil {
		h.log.Error("snapshot: " + err.Error())
		h.problem(w, http.StatusServiceUnavailable, "snapshot: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	answer(w, all)
}

// snapshotOf adds the part of another process.
func (h *Handler) snapshotOf(ctx context.Context, name string, all *snapshotAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	ctx, done, err := h.toPeer(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base(name)+"/v1/snapshots", nil)
	if err != nil {
		return err
	}
	req.Header.Set(forwarded, all.ID)
	client := http.Client{Transport: h.client.Transport}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", base(name), res.Status)
	}
	var part snapshotAnswer
	if err := json.UnmarshalRead(res.Body, &part); err != nil {
		return fmt.Errorf("%s: %w", base(name), err)
	}
	all.Shards = append(all.Shards, part.Shards...)
	all.Files = append(all.Files, part.Files...)
	return nil
}

// checkShards says whether each shard is there once.
func checkShards(all *snapshotAnswer) error {
	count := make([]int, all.ShardCount)
	for _, n := range all.Shards {
		if n < 0 || n >= len(count) {
			return fmt.Errorf("there is a shard %d of %d", n, len(count))
		}
		count[n]++
	}
	for n, c := range count {
		if c != 1 {
			return fmt.Errorf("shard %d is served by %d processes at the moment; try again in a second", n, c)
		}
	}
	return nil
}

// keepInterval is how often a snapshot is kept while one of its files is sent: that may take longer
// than a snapshot stays that nobody reads. Tests make it shorter.
var keepInterval = time.Minute

// keptFile keeps its snapshot while it is read.
type keptFile struct {
	io.ReadSeeker
	keep func() error
	kept time.Time
}

func (k *keptFile) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(k.kept) >= keepInterval {
		if err := k.keep(); err != nil {
			return 0, err
		}
		k.kept = now
	}
	return k.ReadSeeker.Read(p)
}

func (h *Handler) snapshotFile(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	root, err := h.f.OpenSnapshot(id)
	if errors.Is(err, frontier.ErrNoSnapshot) {
		h.problem(w, http.StatusNotFound, err.Error())
		return
	}
	if err != nil {
		h.failed(w, err)
		return
	}
	defer root.Close()
	path := r.PathValue("path")
	f, err := root.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		h.problem(w, http.StatusNotFound, "the snapshot has no file "+path)
		return
	}
	if err != nil {
		h.failed(w, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, &keptFile{f, func() error { return h.f.KeepSnapshot(id) }, time.Now()})
}

func (h *Handler) dropSnapshot(w http.ResponseWriter, r *http.Request) {
	switch err := h.f.DropSnapshot(r.PathValue("id")); {
	case errors.Is(err, frontier.ErrNoSnapshot):
		h.problem(w, http.StatusNotFound, err.Error())
	case err != nil:
		h.failed(w, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
