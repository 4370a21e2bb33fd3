package s3blob_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
)

// versioned opens an empty store, and its ability.
func versioned(t *testing.T) (blob.Store, blob.Versioned, func(on bool)) {
	t.Helper()
	rawURL := testenv.S3(t)
	store, err := blob.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := blob.AsVersioned(blob.NewCounting(store))
	if !ok {
		t.Fatal("a bucket keeps no versions")
	}
	server := testenv.NewS3Server(t)
	return store, v, func(on bool) { server.SetVersioning(t, rawURL, on) }
}

func put(t *testing.T, store blob.Store, key, text string) {
	t.Helper()
	if _, err := store.Put(t.Context(), key, []byte(text), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func older(t *testing.T, v blob.Versioned, prefix string) (all []blob.Version) {
	t.Helper()
	for o, err := range v.OldVersions(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// remove deletes versions, and fails if one is refused.
func remove(t *testing.T, v blob.Versioned, all ...blob.Version) {
	t.Helper()
	err := v.DeleteVersions(t.Context(), all, func(o blob.Version, err error) { t.Errorf("%s %s: %v", o.Key, o.ID, err) })
	if err != nil {
		t.Fatal(err)
	}
}

// Older versions are listed without the current ones and delete markers, also of deleted objects,
// and can be read and deleted while the current ones stay.
func TestOlderVersions(t *testing.T) {
	store, v, set := versioned(t)
	state := func(want blob.Versioning) {
		t.Helper()
		if got, err := v.Versioning(t.Context()); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	state(blob.Unversioned)
	put(t, store, "a/early", "zero")
	if all := older(t, v, ""); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	set(true)
	state(blob.VersioningEnabled)
	put(t, store, "a/early", "one")
	put(t, store, "a/gone", "first text")
	put(t, store, "a/gone", "second")
	put(t, store, "b/other", "x")
	put(t, store, "b/other", "y")
	if err := store.Delete(t.Context(), "a/gone"); err != nil {
		t.Fatal(err)
	}
	all := older(t, v, "a/")
	var texts []string
	for _, o := range all {
		at := v.AtVersion(o)
		data, info, err := at.Get(t.Context(), o.Key)
		if err != nil || info.Size != o.Size || info.ETag != o.ETag || o.Modified.IsZero() {
			t.Fatalf("%+v: %+v, %v", o, info, err)
		}
		part, err := at.ReadRange(t.Context(), o.Key, 1, 2)
		if err != nil || !bytes.Equal(part, data[1:3]) {
			t.Errorf("%q, %v", part, err)
		}
		stream, err := at.Open(t.Context(), o.Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := io.ReadAll(stream); err != nil || !bytes.Equal(whole, data) {
			t.Errorf("%q, %v", whole, err)
		}
		stream.Close()
		if stat, err := at.Stat(t.Context(), o.Key); err != nil || stat != info {
			t.Errorf("%+v, %v", stat, err)
		}
		if _, err := at.Stat(t.Context(), "b/other"); !errors.Is(err, blob.ErrNotExist) {
			t.Error(err)
		}
		if _, err := at.Put(t.Context(), o.Key, nil, blob.Condition{}); err == nil {
			t.Error("a version was written")
		}
		texts = append(texts, o.Key+" "+string(data))
	}
	slices.Sort(texts)
	if want := []string{"a/early zero", "a/gone first text", "a/gone second"}; !slices.Equal(texts, want) {
		t.Fatalf("%q", texts)
	}
	remove(t, v, all...)
	remove(t, v, all...) // again
	if left := older(t, v, ""); len(left) != 1 || left[0].Key != "b/other" {
		t.Fatalf("%+v", left)
	}
	if _, _, err := v.AtVersion(all[0]).Get(t.Context(), all[0].Key); !errors.Is(err, blob.ErrNotExist) {
		t.Error(err)
	}
	for key, want := range map[string]string{"a/early": "one", "b/other": "y"} {
		if got, _, err := store.Get(t.Context(), key); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	if _, err := store.Stat(t.Context(), "a/gone"); !errors.Is(err, blob.ErrNotExist) {
		t.Error(err)
	}
	set(false)
	state(blob.VersioningSuspended)
	put(t, store, "b/other", "z")
	if left := older(t, v, "b/"); len(left) != 2 {
		t.Errorf("suspended: %+v", left)
	}
	if err := v.DeleteVersions(t.Context(), []blob.Version{{Info: blob.Info{Key: "b/other"}}}, nil); err == nil {
		t.Error("a deletion without an id, which deletes the object")
	}
}

// A listing goes on after the 1,000 versions of one reply, and a deletion after the 1,000 of one
// request.
func TestManyOlderVersions(t *testing.T) {
	store, v, set := versioned(t)
	set(true)
	const n = 1100
	for i := range n {
		put(t, store, fmt.Sprintf("k/%d", i%2), fmt.Sprint(i))
	}
	all := older(t, v, "k/")
	ids := map[string]bool{}
	for _, o := range all {
		ids[o.Key+o.ID] = true
	}
	if len(all) != n-2 || len(ids) != n-2 {
		t.Fatalf("%d versions, %d ids", len(all), len(ids))
	}
	remove(t, v, all...)
	if left := older(t, v, ""); len(left) != 0 {
		t.Fatalf("%d are left", len(left))
	}
}

// What a role may not do is an ErrDenied, of single versions too.
func TestRefusedVersions(t *testing.T) {
	store, n := badNetwork(t)
	testenv.NewS3Server(t).SetVersioning(t, store.URL(), true)
	v, _ := blob.AsVersioned(store)
	put(t, store, "a", "1")
	put(t, store, "a", "2")
	all := older(t, v, "")
	refuse := func(query, method string) {
		n.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
			if r.Method != method || !r.URL.Query().Has(query) {
				gateway.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>no</Message></Error>`)
		})
	}
	refuse("versioning", http.MethodGet)
	if _, err := v.Versioning(t.Context()); !errors.Is(err, blob.ErrDenied) {
		t.Error(err)
	}
	refuse("versions", http.MethodGet)
	for _, err := range v.OldVersions(t.Context(), "") {
		if !errors.Is(err, blob.ErrDenied) {
			t.Error(err)
		}
	}
	refuse("versionId", http.MethodGet)
	if _, _, err := v.AtVersion(all[0]).Get(t.Context(), "a"); !errors.Is(err, blob.ErrDenied) {
		t.Error(err)
	}
	var refused []error
	failed := func(_ blob.Version, err error) { refused = append(refused, err) }
	refuse("delete", http.MethodPost)
	if err := v.DeleteVersions(t.Context(), all, failed); err != nil || len(refused) != 1 || !errors.Is(refused[0], blob.ErrDenied) {
		t.Errorf("%v, %v", refused, err)
	}
	n.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		fmt.Fprintf(w, `<DeleteResult><Error><Key>lake/a</Key><VersionId>%s</VersionId><Code>AccessDenied</Code>`+
			`<Message>it is locked</Message></Error></DeleteResult>`, all[0].ID)
	})
	refused = nil
	if err := v.DeleteVersions(t.Context(), all, failed); err != nil || len(refused) != 1 ||
		!errors.Is(refused[0], blob.ErrDenied) || !strings.Contains(refused[0].Error(), "it is locked") {
		t.Errorf("%v, %v", refused, err)
	}
	n.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, `<Error><Code>NotImplemented</Code></Error>`)
	})
	if got, err := v.Versioning(t.Context()); err != nil || got != blob.Unversioned {
		t.Errorf("a service without versions: %q, %v", got, err)
	}
}
