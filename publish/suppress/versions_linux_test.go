package suppress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/suppress"
)

// roled is a bucket for a role that may not do everything.
type roled struct {
	blob.Store
	blob.Versioned
	mayAsk, mayList, mayRead bool
	mayDelete                func(blob.Version) bool
	versioning               blob.Versioning // if not empty
	deleted                  int
	before                   func() // a deletion
}

func (r *roled) Versioning(ctx context.Context) (blob.Versioning, error) {
	if !r.mayAsk {
		return "", fmt.Errorf("ask: %w", blob.ErrDenied)
	}
	if r.versioning != "" {
		return r.versioning, nil
	}
	return r.Versioned.Versioning(ctx)
}

func (r *roled) OldVersions(ctx context.Context, prefix string) iter.Seq2[blob.Version, error] {
	if r.mayList {
		return r.Versioned.OldVersions(ctx, prefix)
	}
	return func(yield func(blob.Version, error) bool) {
		yield(blob.Version{}, fmt.Errorf("list: %w", blob.ErrDenied))
	}
}

func (r *roled) AtVersion(v blob.Version) blob.Store {
	if r.mayRead {
		return r.Versioned.AtVersion(v)
	}
	return unreadable{r.Store}
}

func (r *roled) DeleteVersions(ctx context.Context, all []blob.Version, failed func(blob.Version, error)) error {
	if r.before != nil {
		r.before()
	}
	var may []blob.Version
	for _, v := range all {
		if r.mayDelete == nil || r.mayDelete(v) {
			may = append(may, v)
		} else {
			failed(v, fmt.Errorf("delete: %w", blob.ErrDenied))
		}
	}
	r.deleted += len(may)
	return r.Versioned.DeleteVersions(ctx, may, failed)
}

type unreadable struct{ blob.Store }

func (unreadable) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return nil, fmt.Errorf("open: %w", blob.ErrDenied)
}

func (unreadable) ReadRange(context.Context, string, int64, int64) ([]byte, error) {
	return nil, fmt.Errorf("read: %w", blob.ErrDenied)
}

func (unreadable) Get(context.Context, string) ([]byte, blob.Info, error) {
	return nil, blob.Info{}, fmt.Errorf("get: %w", blob.ErrDenied)
}

// versionedLake is a lake in a bucket with versioning after a takedown, a compaction and a
// collection. Rows of kvwsite.test were in two batches and in staging.
func versionedLake(t *testing.T, r catalog.Takedown) *roled {
	t.Helper()
	url := testenv.S3(t)
	server := testenv.NewS3Server(t)
	inner, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	// The first version checks that the bucket honours conditions. The gateway does not for keys
	// with a delete marker.
	testlake.Ingest(t, inner, "gamma", "b1", []testlake.Record{{URL: "https://elsewhere.test/"}})
	testlake.Publish(t, inner)
	server.SetVersioning(t, url, true)
	if err := treebuild.SetAlways(t.Context(), inner, true); err != nil {
		t.Fatal(err)
	}
	list := func(tag string, n int) (all []testlake.Record) {
		for i := range n {
			all = append(all, testlake.Record{URL: fmt.Sprintf("https://qzxhost.kvwsite.test/%s/%d", tag, i)},
				testlake.Record{URL: fmt.Sprintf("https://other%d.test/%s/%d", i%5, tag, i)})
		}
		return all
	}
	testlake.Ingest(t, inner, "alpha", "b1", list("x", 20))
	testlake.Ingest(t, inner, "beta", "b1", list("y", 20))
	testlake.Publish(t, inner)
	stage(t, inner, "staging/run-x/shuffle/000001/0", "qzxhost.kvwsite.test")
	stage(t, inner, "staging/run-x/shuffle/000002/0", "www.other1.test")
	stage(t, inner, "staging/run-x/merging/000001/0", "qzxhost.kvwsite.test")
	// A document, with the name where the second piece of a search begins.
	text := strings.Repeat("-", 1<<18-5) + "qzxhost.kvwsite.test"
	if _, err := inner.Put(t.Context(), "staging/run-x/split.json", []byte(text), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	add := func() error {
		_, err := suppress.Add(t.Context(), inner, r, suppress.Options{})
		return err
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if _, err := publish.CompactAll(t.Context(), inner, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for info, err := range inner.List(t.Context(), "staging/") {
		if err == nil {
			err = inner.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := gc.Collect(t.Context(), inner, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	versions, _ := blob.AsVersioned(inner)
	return &roled{Store: inner, Versioned: versions, mayAsk: true, mayList: true, mayRead: true}
}

// stage writes rows of a host as a split or a merge does.
func stage(t *testing.T, store blob.Store, key, host string) {
	t.Helper()
	b := row.NewBuffer(1 << 20)
	defer b.Release()
	_, domain, _ := strings.Cut(host, ".")
	n, err := b.Host(domain, host, urlnorm.DomainID(domain))
	if err == nil {
		err = b.AddPlain(n, []byte("/a"), true)
	}
	if err == nil && strings.Contains(key, "/merging/") {
		_, err = b.WriteRun(t.Context(), store, key)
	} else if err == nil {
		var rows, bytes [row.Partitions]int64
		_, err = b.WriteShuffle(t.Context(), store, key, &rows, &bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func inspect(t *testing.T, store blob.Store, id string) *suppress.State {
	t.Helper()
	s, err := suppress.Inspect(t.Context(), store, id, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func purge(t *testing.T, store blob.Store, id string, dryRun bool) *suppress.Purged {
	t.Helper()
	p, err := suppress.Purge(t.Context(), store, id, dryRun)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kindsOf(all []suppress.OlderVersion) map[string]int {
	kinds := map[string]int{}
	for _, v := range all {
		kinds[v.Kind]++
	}
	return kinds
}

// holdersOf returns the objects that have a byte of the site's name in any version, decompressed.
// What a takedown names is kept while it is in force.
func holdersOf(t *testing.T, store *roled) (keys []string) {
	t.Helper()
	for _, s := range []blob.Store{store.Store, testlake.OlderVersions(t, store.Store)} {
		for _, text := range []string{"kvwsite", "qzxhost"} {
			for _, key := range testlake.Holders(t, s, text) {
				if !strings.HasPrefix(key, catalog.TakedownRoot) {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// older returns the older versions of a bucket.
func older(t *testing.T, store blob.Versioned) map[[2]string]bool {
	t.Helper()
	all := map[[2]string]bool{}
	for v, err := range store.OldVersions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[[2]string{v.Key, v.ID}] = true
	}
	return all
}

// A collection leaves rows in older versions. Status names them, Purge deletes these and no others,
// and afterwards no version of any object has a byte of the site's name.
func TestPurgeDeletesOlderVersions(t *testing.T) {
	r := rule(t, 1, catalog.DomainTarget, "kvwsite.test")
	store := versionedLake(t, r)
	s := inspect(t, store, r.ID)
	if s.Gone || len(s.Holdings) != 0 || len(s.Unknown) != 0 || s.ObjectVersions.Versioning != "enabled" {
		t.Fatalf("%+v", s)
	}
	kinds := kindsOf(s.ObjectVersions.Holdings)
	for _, kind := range []string{"part", "index", "trees", "postings", "staging"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s among the older versions: %v", kind, kinds)
		}
	}
	staged, shuffled := "", 0 // of the run x, and of the ingests, whose staging was removed
	for _, v := range s.ObjectVersions.Holdings {
		switch {
		case strings.HasPrefix(v.Object, "staging/run-x/"):
			staged += v.Object + " "
		case strings.HasPrefix(v.Object, "staging/") && strings.Contains(v.Object, "/shuffle/"):
			shuffled++
		case v.Kind == "staging":
			t.Errorf("%s holds the site", v.Object)
		}
		if v.ID == "" || v.Bytes == 0 || v.Modified.IsZero() || v.Kind == "part" && v.Rows != 20 {
			t.Errorf("%+v", v)
		}
		if strings.Contains(v.Object, "000002") || strings.Contains(v.Object, "dataset_id=1/") {
			t.Errorf("%s has nothing of the site", v.Object)
		}
	}
	if want := "staging/run-x/merging/000001/0 staging/run-x/shuffle/000001/0 staging/run-x/split.json "; staged != want || shuffled != 2 {
		t.Errorf("in staging: %s, and %d shuffle files", staged, shuffled)
	}
	before := older(t, store)
	dry := purge(t, store, r.ID, true)
	if dry.Objects != len(s.ObjectVersions.Holdings) || dry.Bytes == 0 || store.deleted != 0 || !maps.Equal(older(t, store), before) {
		t.Fatalf("%+v", dry)
	}
	if len(holdersOf(t, store)) == 0 {
		t.Fatal("nothing has it before")
	}
	// A role that may not delete a version is told which.
	refused := s.ObjectVersions.Holdings[0]
	store.mayDelete = func(v blob.Version) bool { return v.ID != refused.ID }
	p := purge(t, store, r.ID, false)
	if p.Complete() || len(p.Refused) != 1 || p.Refused[0].ID != refused.ID ||
		!strings.Contains(p.Refused[0].Reason, "s3:DeleteObjectVersion") || p.Objects != dry.Objects-1 {
		t.Fatalf("%+v", p)
	}
	if s = inspect(t, store, r.ID); s.Gone || len(s.ObjectVersions.Holdings) != 1 {
		t.Fatalf("%+v", s.ObjectVersions)
	}
	store.mayDelete = nil
	if p = purge(t, store, r.ID, false); !p.Complete() || p.Objects != 1 {
		t.Fatalf("%+v", p)
	}
	if s = inspect(t, store, r.ID); !s.Gone {
		t.Fatalf("%+v", s)
	}
	if left := holdersOf(t, store); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, v := range dry.Versions {
		if !before[[2]string{v.Object, v.ID}] {
			t.Errorf("%s is named twice", v.Object)
		}
		delete(before, [2]string{v.Object, v.ID})
	}
	if got := older(t, store); !maps.Equal(got, before) {
		t.Errorf("older versions are left that were to go, or others went: %s", cmp.Diff(before, got))
	}
	sound(t, store, "purged")
	if p = purge(t, store, r.ID, false); !p.Complete() || p.Objects != 0 {
		t.Fatalf("again: %+v", p)
	}
}

// Without a permission the status names it and never says that everything is gone.
func TestStatusNamesMissingPermissions(t *testing.T) {
	r := rule(t, 1, catalog.DomainTarget, "kvwsite.test")
	store := versionedLake(t, r)
	whole := len(inspect(t, store, r.ID).ObjectVersions.Holdings)
	store.mayAsk = false // a list tells as much
	if s := inspect(t, store, r.ID); s.ObjectVersions.Versioning != "unknown" || len(s.ObjectVersions.Holdings) != whole {
		t.Errorf("%+v", s.ObjectVersions)
	}
	store.mayAsk, store.mayList = true, false
	// A run counts without being read.
	for _, c := range []struct {
		permission string
		found      int
	}{{"s3:ListBucketVersions", 0}, {"s3:GetObjectVersion", 1}} {
		s := inspect(t, store, r.ID)
		if s.Gone || len(s.ObjectVersions.Holdings) != c.found || len(s.Unknown) != 1 || !strings.Contains(s.Unknown[0], c.permission) {
			t.Errorf("%s: %+v", c.permission, s)
		}
		if p := purge(t, store, r.ID, false); p.Complete() || p.Objects != c.found {
			t.Errorf("%s: %+v", c.permission, p)
		}
		store.mayList, store.mayRead = true, false
	}
	store.mayRead = true
	if left := len(inspect(t, store, r.ID).ObjectVersions.Holdings); left != whole-1 {
		t.Errorf("%d of %d are left", left, whole)
	}
	store.versioning = blob.Unversioned
	if s := inspect(t, store, r.ID); s.ObjectVersions.Looked != 0 || !s.Gone {
		t.Errorf("unversioned: %+v", s)
	}
}

// Rows that are no longer to go stay: also if the lift comes between two deletions.
func TestPurgeOfALiftedTakedown(t *testing.T) {
	r := rule(t, 1, catalog.DomainTarget, "kvwsite.test")
	store := versionedLake(t, r)
	if _, err := suppress.Lift(t.Context(), store, r.ID, "", "", suppress.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := suppress.Purge(t.Context(), store, r.ID, false); !errors.Is(err, suppress.ErrLifted) || store.deleted != 0 {
		t.Errorf("%v, %d deleted", err, store.deleted)
	}
	if _, err := suppress.Purge(t.Context(), store, "20200101-0000000000", false); !errors.Is(err, suppress.ErrUnknown) {
		t.Error(err)
	}
}

// A takedown of some URLs of a domain finds the parts with them, path trees with their directories,
// and not names of the domain. Purge deletes these.
func TestOlderVersionsOfAURL(t *testing.T) {
	r := rule(t, 1, catalog.URLTarget, "https://qzxhost.kvwsite.test/x/3")
	store := versionedLake(t, r)
	s := inspect(t, store, r.ID)
	kinds := kindsOf(s.ObjectVersions.Holdings)
	if s.Gone || kinds["part"] != 1 || kinds["trees"] != 1 || kinds["staging"] != 5 || len(kinds) != 3 {
		t.Errorf("%+v", s.ObjectVersions.Holdings)
	}
	named := holdersOf(t, store)
	for _, v := range s.ObjectVersions.Holdings {
		if v.Kind == "trees" && !slices.Contains(named, v.Object+"/"+v.ID) {
			t.Errorf("%s has no name of the site", v.Object)
		}
	}
	if p := purge(t, store, r.ID, false); !p.Complete() || p.Objects != 7 {
		t.Errorf("%+v", p)
	}
	if s = inspect(t, store, r.ID); !s.Gone {
		t.Errorf("%+v", s)
	}
}
