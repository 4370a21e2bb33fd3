package lakecheck_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/suppress"
)

// change is a change of a lake. One that was interrupted may be made again.
type change func(ctx context.Context, store blob.Store, dir string) error

// ingestMore ingests a batch.
func ingestMore(dataset, batch string) change {
	return func(ctx context.Context, store blob.Store, dir string) error {
		input := filepath.Join(dir, dataset+batch)
		if err := os.WriteFile(input, []byte("https://"+dataset+".test/"+batch+"\n"), 0o600); err != nil {
			return err
		}
		spec := ingest.Spec{Lake: store.URL(), Dataset: dataset, Batch: batch, Inputs: []string{input}}
		_, err := testlake.Steps(ctx, store, spec, dir)
		return err
	}
}

func publishAll(ctx context.Context, store blob.Store, dir string) error {
	_, err := publish.All(ctx, store, testlake.Run(), dir)
	return err
}

func takeDown(ctx context.Context, store blob.Store, dir string) error {
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "alpha.test")
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	rule := catalog.Takedown{ID: catalog.NewTakedownID(now), Target: target, Reason: "test", Created: now}
	_, err = suppress.Add(ctx, store, rule, suppress.Options{TempDir: dir})
	return err
}

func setReaders(names string) change {
	return func(ctx context.Context, store blob.Store, _ string) error {
		r, err := access.ParseReaders(names)
		if err == nil {
			_, err = access.Change(ctx, store, access.Edit{Dataset: "alpha", Readers: &r})
		}
		return err
	}
}

func revoke(ctx context.Context, store blob.Store, _ string) error {
	_, err := access.Revoke(ctx, store, "ada", "", time.Now())
	return err
}

// putBacks are documents that are put back as they were before a change of the lake.
var putBacks = map[string]struct {
	key     string
	prepare []change
	change  change                                            // may be interrupted; a publish follows
	write   func(ctx context.Context, store blob.Store) error // is refused
	mend    func(ctx context.Context, store blob.Store) error
}{
	"manifest of before a publish": {
		catalog.ManifestKey, []change{ingestMore("alpha", "b2")}, publishAll, touch, rebuild,
	},
	"manifest of before several publishes": {
		catalog.ManifestKey, []change{ingestMore("alpha", "b2"), publishAll, ingestMore("gamma", "b3")}, publishAll,
		touch, rebuild,
	},
	"manifest of before a takedown": {catalog.ManifestKey, nil, takeDown, touch, rebuild},
	"registry of before a new dataset": {
		lake.RegistryKey, []change{ingestMore("gamma", "b1")}, publishAll,
		func(ctx context.Context, store blob.Store) error {
			_, err := catalog.RegisterDataset(ctx, store, lake.Dataset{Name: "delta"})
			return err
		}, rebuild,
	},
	"readers of before a change": {
		access.ListKey, nil, setReaders("none"),
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
		access.TokensKey, nil, revoke,
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

// touch writes a manifest that follows the one that is there.
func touch(ctx context.Context, store blob.Store) error {
	_, _, err := catalog.SetTag(ctx, store, "touched", "", false)
	return err
}

func rebuild(ctx context.Context, store blob.Store) error {
	_, err := publish.Rebuild(ctx, store, testlake.Run(), "")
	return err
}

// atEnd is how many of the last changes of a store are interrupted.
const atEnd = 6

// A document that is put back as it was before a change has an intact seal. A check names it, no
// writer builds on it, and the command that the check names restores the state of the lake. This
// also holds if the change was interrupted and made again, or if a reply was lost. An interrupted
// change is no damage.
func TestDocumentsThatArePutBack(t *testing.T) {
	base := blob.NewMemory()
	for _, do := range []change{
		ingestMore("alpha", "b1"), ingestMore("alpha", "gone"), ingestMore("beta", "b1"), setReaders("ada"),
	} {
		perform(t, base, do)
	}
	testlake.Publish(t, base)
	testlake.Retire(t, base, catalog.BatchName{DatasetID: 1, Batch: "gone"})
	testlake.Publish(t, base)
	token, _, err := access.NewToken(t.Context(), base, "ada", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range putBacks {
		t.Run(name, func(t *testing.T) {
			want, changes := "", 0
			// Interrupted is the change of the store that fails, 0 for none. What comes long before
			// the end is not visible.
			for interrupted := 0; interrupted <= changes; interrupted = max(interrupted+1, changes-atEnd) {
				for _, lost := range []bool{false, true} {
					store := blobtest.NewFaulty(blob.NewMemory())
					blobtest.Copy(t, base, store.Unwrap())
					for _, do := range c.prepare {
						perform(t, store, do)
					}
					before := store.Changes()
					switch {
					case interrupted == 0:
					case lost: // the reply to a put
						store.Inject(blobtest.Fault{Op: blob.OpPut, Nth: interrupted, After: true})
					default:
						store.CrashAfter(interrupted - 1)
					}
					err := c.change(t.Context(), store, t.TempDir())
					if interrupted == 0 {
						changes = store.Changes() - before
					}
					store.Heal()
					if err != nil {
						sound(t, store)
						perform(t, store, c.change)
					}
					testlake.Publish(t, store)
					sound(t, store)
					if want == "" {
						want = stateOf(t, store, token)
					}
					checkPutBack(t, store, base, name, want, token)
					if t.Failed() {
						t.Fatalf("interrupted at change %d of %d, after it: %v", interrupted, changes, lost)
					}
				}
			}
		})
	}
}

// perform makes a change of a lake.
func perform(t *testing.T, store blob.Store, do change) {
	t.Helper()
	if err := do(t.Context(), store, t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

// checkPutBack puts a document back as it is in before.
func checkPutBack(t *testing.T, store, before blob.Store, name, want, token string) {
	t.Helper()
	c := putBacks[name]
	if got := stateOf(t, store, token); got != want {
		t.Errorf("after the change the lake has %s, want %s", got, want)
	}
	data, _, err := before.Get(t.Context(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), c.key, data, blob.Condition{}); err != nil {
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
	if got := stateOf(t, store, token); got != want {
		t.Errorf("the lake has %s, want %s", got, want)
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
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
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

// The mark that keeps a lake from being opened is named when it is lost or cut, and the command
// that the check names writes it again.
func TestLostMark(t *testing.T) {
	for _, cut := range []bool{false, true} {
		store := blob.NewMemory()
		for _, do := range []change{ingestMore("alpha", "b1"), setReaders("ada"), publishAll} {
			perform(t, store, do)
		}
		sound(t, store)
		data, _, err := store.Get(t.Context(), access.MarkKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), access.MarkKey); err != nil {
			t.Fatal(err)
		}
		if cut {
			if _, err := store.Put(t.Context(), access.MarkKey, data[:len(data)/2], blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
		if err != nil || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], access.MarkKey) {
			t.Fatalf("problems %q, %v", r.Problems, err)
		}
		if _, _, err := access.Repair(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		sound(t, store)
	}
}
