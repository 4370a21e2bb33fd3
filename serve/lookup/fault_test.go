package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

func TestRepeatedFailuresAreLoggedAtGrowingIntervals(t *testing.T) {
	var log bytes.Buffer
	l := failureLog{log: slog.New(slog.NewTextHandler(&log, nil)), what: "polling"}
	now := time.Unix(0, 0)
	poll := func(times int, err func(i int) error) (lines int) {
		log.Reset()
		for i := range times {
			l.note(t.Context(), err(i), now)
			now = now.Add(2 * time.Second)
		}
		return strings.Count(log.String(), "\n")
	}
	denied := func(i int) error { return fmt.Errorf("get manifest (request %d): %w", i, blob.ErrDenied) }
	none := func(int) error { return nil }
	if n := poll(10, none); n != 0 {
		t.Errorf("%d lines without a failure", n)
	}
	if n := poll(30, denied); n != 1 {
		t.Errorf("%d lines in the first minute", n)
	}
	// Lines follow after 1, 3, 7, 15, 31 and 63 minutes, and then every hour: about 28 within a
	// day.
	if n := poll(24*60*30, denied); n < 26 || n > 30 {
		t.Errorf("%d lines in a day", n)
	}
	if n := poll(1, func(int) error { return catalog.ErrGeneration }); n != 1 {
		t.Errorf("%d lines when something else fails", n)
	}
	if n := poll(10, none); n != 1 || !strings.Contains(log.String(), "works again") {
		t.Errorf("%d lines when it works again: %s", n, log.String())
	}
	if n := poll(1, denied); n != 1 {
		t.Errorf("%d lines when it fails again", n)
	}
	empty := func(int) error { return fmt.Errorf("get: %w", catalog.ErrNoVersion) }
	if n := poll(10, empty); n != 1 || !strings.Contains(log.String(), "level=INFO msg=\"nothing is published yet") {
		t.Errorf("%d lines for an empty lake: %s", n, log.String())
	}
	if n := poll(10, none); n != 0 {
		t.Errorf("%d lines when it is no longer empty: %s", n, log.String())
	}
}

func TestReasonDisclosesNoPaths(t *testing.T) {
	const secret = "/srv/private"
	for _, err := range []error{
		errors.New("open " + secret),
		fmt.Errorf("%s: %w", secret, blob.ErrDenied),
		fmt.Errorf("%s: %w", secret, context.DeadlineExceeded),
		&NotReadyError{fmt.Errorf("%s: %w", secret, catalog.ErrNoVersion)},
		&PanicError{Value: secret},
	} {
		if text := Reason(err); text == "" || strings.Contains(text, secret) {
			t.Errorf("%v: %q", err, text)
		}
	}
	damage := codec.Corrupt("index/manifest.json", "seal", 7, "this", "that")
	if got := Reason(fmt.Errorf("%s: %w", secret, damage)); got != lake.Explain("", damage) {
		t.Errorf("damage: %q", got)
	}
}

// panics is a store in which reads of the objects chosen by is panic.
type panics struct {
	blob.Store
	is func(key string) bool
}

func (p *panics) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if p.is != nil && p.is(key) {
		panic(key)
	}
	return p.Store.Get(ctx, key)
}

func (p *panics) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if p.is != nil && p.is(key) {
		panic(key)
	}
	return p.Store.ReadRange(ctx, key, off, n)
}

func (p *panics) Unwrap() blob.Store { return p.Store }

func TestPanicsAreErrorsOfTheirRequest(t *testing.T) {
	store := &panics{Store: blob.NewMemory()}
	var versions []string
	for b := range 3 {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", b),
			[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", b)}})
		versions = append(versions, testlake.Publish(t, store).Version)
	}
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	is := func(part string) func(string) bool {
		return func(key string) bool { return strings.Contains(key, part) }
	}
	tg := target(t, "example.com")
	fails := func(what string, f func() error) {
		t.Helper()
		var p *PanicError
		if err := f(); !errors.As(err, &p) || len(p.Stack) == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	page := func() error {
		_, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 10})
		return err
	}
	store.is = is("part-b1-")
	fails("page of three parts", page)
	s.clearCaches(true, true)
	store.is = is("parts.idx")
	fails("page indexes", page)
	s.clearCaches(true, true)
	store.is = is("postings.idx")
	fails("domain", func() error {
		_, err := snap.Domain(t.Context(), tg, "")
		return err
	})
	store.is = is("index/versions/" + versions[0])
	fails("older version", func() error {
		_, err := s.Acquire(t.Context(), versions[0])
		return err
	})
	store.is = nil
	if err := page(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	acquire(t, s, versions[0])

	fresh := NewServer(store, Options{CacheDir: t.TempDir()})
	defer fresh.Close()
	for _, part := range []string{catalog.ManifestKey, "index/versions/", "segment.json", "files.tsv", "postings.dat"} {
		store.is = is(part)
		fails(part, func() error { return fresh.Refresh(t.Context()) })
	}
	store.is = nil
	if err := fresh.Refresh(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
