package lakecheck_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Changes of a lake after which a document of before is put back.
func ingestMore(t *testing.T, store blob.Store, dataset, batch string) {
	t.Helper()
	testlake.Ingest(t, store, dataset, batch, []testlake.Record{{URL: "https://" + dataset + ".test/" + batch}})
	testlake.Publish(t, store)
}

func retireAlpha(t *testing.T, store blob.Store) {
	t.Helper()
	out := registry.RetireBatches(t.Context(), store, "retire-1", []registry.BatchID{{DatasetID: 1, Batch: "b1"}})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	testlake.Publish(t, store)
}

func takeDown(t *testing.T, store blob.Store, host string) {
	t.Helper()
	target, err := takedown.ParseTarget(urlnorm.BuiltinSuffixes(), takedown.Domain, host)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	rule := takedown.Rule{ID: takedown.NewID(now), Target: target, Reason: "test", Created: now}
	if _, err := suppress.Add(t.Context(), store, rule, suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
}

func setReaders(t *testing.T, store blob.Store, names string) {
	t.Helper()
	r, err := access.ParseReaders(names)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := access.Change(t.Context(), store, access.Edit{Dataset: "alpha", Readers: &r}); err != nil {
		t.Fatal(err)
	}
}

// putBacks are documents that are put back as they were before a change of the lake.
var putBacks = map[string]struct {
	key    string
	change func(t *testing.T, store blob.Store)
	write  func(ctx context.Context, store blob.Store) error // is refused
	mend   func(ctx context.Context, store blob.Store) error
}{
	"manifest of before a publish": {
		manifest.Key,
		func(t *testing.T, store blob.Store) { ingestMore(t, store, "alpha", "b2") }, manifest.Touch, rebuild,
	},
	"manifest of before several publishes": {
		manifest.Key,
		func(t *testing.T, store blob.Store) {
			ingestMore(t, store, "alpha", "b2")
			ingestMore(t, store, "gamma", "b3")
		}, manifest.Touch, rebuild,
	},
	"manifest of before a takedown": {
		manifest.Key,
		func(t *testing.T, store blob.Store) { takeDown(t, store, "alpha.test") }, manifest.Touch, rebuild,
	},
	"ledger of before an ingest": {
		registry.ShardKey(1),
		func(t *testing.T, store blob.Store) { ingestMore(t, store, "alpha", "b2") }, register("b9"), rebuild,
	},
	"ledger of before a retirement": {
		registry.ShardKey(1), retireAlpha, register("b9"), rebuild,
	},
	"registry of before a new dataset": {
		lake.RegistryKey,
		func(t *testing.T, store blob.Store) { ingestMore(t, store, "gamma", "b1") },
		func(ctx context.Context, store blob.Store) error {
			_, err := registry.RegisterDataset(ctx, store, lake.Dataset{Name: "delta"})
			return err
		}, rebuild,
	},
	"readers of before a change": {
		access.ListKey,
		func(t *testing.T, store blob.Store) { setReaders(t, store, "none") },
		func(ctx context.Context, store blob.Store) error {
			_, err := access.Change(ctx, store, access.Edit{Dataset: "beta", Readers: &access.Readers{}})
			return err
		},
		func(ctx context.Context, store blob.Store) error {
			_, _, err := access.Repair(ctx, store)
			return err
		},
	},
	"tokens of before a revocation": {
		access.TokensKey,
		func(t *testing.T, store blob.Store) {
			if ended, err := access.Revoke(t.Context(), store, "ada", "", time.Now()); err != nil || len(ended) != 1 {
				t.Fatal(ended, err)
			}
		},
		func(ctx context.Context, store blob.Store) error {
			_, _, err := access.NewToken(ctx, store, "eve", time.Now(), nil)
			return err
		},
		func(ctx context.Context, store blob.Store) error {
			_, err := access.RevokeAll(ctx, store)
			return err
		},
	},
}

func rebuild(ctx context.Context, store blob.Store) error {
	done, err := publish.Rebuild(ctx, store, publish.RebuildAll, "")
	if err == nil && len(done.Unmended) > 0 {
		err = fmt.Errorf("not mended: %q", done.Unmended)
	}
	return err
}

// register returns a write of the ledger.
func register(batch string) func(ctx context.Context, store blob.Store) error {
	return func(ctx context.Context, store blob.Store) error {
		_, err := registry.RegisterIngest(ctx, store, 1, batch, "run-"+batch)
		return err
	}
}

// A document that is put back as it was before a change has an intact seal. A check names it, no
// writer builds on it, and the command that the check names restores the state of the lake.
func TestDocumentsThatArePutBack(t *testing.T) {
	for name, c := range putBacks {
		t.Run(name, func(t *testing.T) {
			store := blob.NewMemory()
			ingestMore(t, store, "alpha", "b1")
			ingestMore(t, store, "beta", "b1")
			setReaders(t, store, "ada")
			text, _, err := access.NewToken(t.Context(), store, "ada", time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			before, _, err := store.Get(t.Context(), c.key)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, store)
			sound(t, store)
			want := stateOf(t, store, text)
			if _, err := store.Put(t.Context(), c.key, before, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(r.Problems, func(p string) bool {
				return strings.HasPrefix(p, c.key) && strings.Contains(p, "put back")
			}) {
				t.Errorf("problems %q", r.Problems)
			}
			if err := c.write(t.Context(), store); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("a write on the older document: %v", err)
			}
			if err := c.mend(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			testlake.Publish(t, store)
			sound(t, store)
			if got := stateOf(t, store, text); got != want {
				t.Errorf("the lake has %s, want %s", got, want)
			}
		})
	}
}

// sound fails the test if a check finds anything.
func sound(t *testing.T, store blob.Store) {
	t.Helper()
	r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("problems %q, %v", r.Problems, err)
	}
}

// stateOf describes the state of a lake: its batches, takedowns and readers, and whether a token is
// valid.
func stateOf(t *testing.T, store blob.Store, token string) string {
	t.Helper()
	m, _, err := manifest.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := manifest.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
	if err != nil {
		t.Fatal(err)
	}
	var batches []string
	for b, err := range v.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, fmt.Sprintf("%d/%s", b.DatasetID, b.Batch))
	}
	slices.Sort(batches)
	l, err := access.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.LoadTokens(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	_, tokenErr := tokens.Find(token, time.Now())
	readers, _ := l.Of("alpha")
	return fmt.Sprintf("batches %v, takedowns %d, readers %s, token %v", batches, m.TakedownEpoch, readers, tokenErr == nil)
}

// The marks that keep a lake from being opened, or a retirement from being undone, are named when
// they are lost or cut, and the command that the check names writes them again.
func TestLostMarks(t *testing.T) {
	for _, cut := range []bool{false, true} {
		for _, which := range []string{access.MarkKey, "retired"} {
			t.Run(fmt.Sprintf("%s,cut=%v", which, cut), func(t *testing.T) {
				store := blob.NewMemory()
				ingestMore(t, store, "alpha", "b1")
				ingestMore(t, store, "beta", "b1")
				setReaders(t, store, "ada")
				retireAlpha(t, store)
				sound(t, store)
				key := which
				for info, err := range store.List(t.Context(), "batches/") {
					if err != nil {
						t.Fatal(err)
					}
					if which == "retired" && strings.HasSuffix(info.Key, lake.RetiredSuffix) {
						key = info.Key
					}
				}
				data, _, err := store.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if cut {
					if _, err := store.Put(t.Context(), key, data[:len(data)/2], blob.Condition{}); err != nil {
						t.Fatal(err)
					}
				}
				r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
				if err != nil || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], key) {
					t.Fatalf("problems %q, %v", r.Problems, err)
				}
				if which == access.MarkKey {
					_, _, err = access.Repair(t.Context(), store)
				} else {
					err = rebuild(t.Context(), store)
				}
				if err != nil {
					t.Fatal(err)
				}
				sound(t, store)
			})
		}
	}
}
