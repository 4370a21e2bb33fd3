package compat

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
)

// contents are the objects of a lake by key.
type contents map[string][]byte

func read(t *testing.T, store blob.Store) contents {
	t.Helper()
	all := contents{}
	for info, err := range store.List(t.Context(), "") {
		var data []byte
		if err == nil {
			data, _, err = store.Get(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

// store returns a new store with the objects.
func (c contents) store(t *testing.T) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	for key, data := range c {
		if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// changed returns the keys of objects that were added, changed or removed since.
func (c contents) changed(now contents) (keys []string) {
	for key, data := range c {
		if got, ok := now[key]; !ok {
			keys = append(keys, "deleted "+key)
		} else if !bytes.Equal(got, data) {
			keys = append(keys, "changed "+key)
		}
	}
	for key := range now {
		if _, ok := c[key]; !ok {
			keys = append(keys, "added "+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// find returns the only key, or the first of several, that matches a pattern.
func (c contents) find(t *testing.T, pattern string, suits func(data []byte) bool) string {
	t.Helper()
	form := regexp.MustCompile(pattern)
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if form.MatchString(key) && (suits == nil || suits(c[key])) {
			return key
		}
	}
	t.Fatalf("the lake has no %s: write a fixture that has", pattern)
	return ""
}

// last is find for the last key.
func (c contents) last(t *testing.T, pattern string) string {
	t.Helper()
	form := regexp.MustCompile(pattern)
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(c)), func(key string) bool { return !form.MatchString(key) })
	if len(keys) == 0 {
		return c.find(t, pattern, nil)
	}
	return keys[len(keys)-1]
}

var seal = regexp.MustCompile(`,\n  "xxh64": "[0-9a-f]{16}"\n}\n$`)

// sealAgain gives a JSON document that was changed the seal of its new bytes.
func sealAgain(data []byte) []byte {
	at := seal.FindIndex(data)
	if at == nil {
		return data
	}
	return fmt.Appendf(bytes.Clone(data[:at[0]]), ",\n  \"xxh64\": \"%016x\"\n}\n", xxhash.Sum64(data[:at[0]]))
}

// replace gives an object other bytes, and all objects that name it by its hashes those of the new
// bytes, up to the manifest, as a program does that writes them. It returns the object's key, which
// has a digest, too. The bytes have to be as many as before.
func (c contents) replace(t *testing.T, key string, data []byte) string {
	t.Helper()
	old := c[key]
	if len(old) != len(data) {
		t.Fatalf("%s: %d bytes instead of %d", key, len(data), len(old))
	}
	delete(c, key)
	was, is := lake.Digest(old), lake.Digest(data)
	name := func(key string) string { // of an object that is named by its digest, as pieces in folders are
		key = strings.ReplaceAll(key, "/"+was[:2]+"/"+was, "/"+is[:2]+"/"+is)
		return strings.ReplaceAll(key, was, is)
	}
	key = name(key)
	c[key] = data
	rawWas, _ := hex.DecodeString(was)
	rawIs, _ := hex.DecodeString(is)
	pairs := [][2][]byte{
		{[]byte(was), []byte(is)}, {rawWas, rawIs},
		{fmt.Appendf(nil, "%016x", xxhash.Sum64(old)), fmt.Appendf(nil, "%016x", xxhash.Sum64(data))},
	}
	for _, other := range slices.Sorted(maps.Keys(c)) {
		next, ok := c[other]
		if !ok || other == key {
			continue
		}
		for _, p := range pairs {
			next = bytes.ReplaceAll(next, p[0], p[1])
		}
		if !bytes.Equal(next, c[other]) {
			c.replace(t, other, sealAgain(next))
		}
	}
	return key
}

var formatMember = regexp.MustCompile(`^(\{\n  "format": )(\d+)`)

// raise raises the format of a sealed document by one.
func raise(t *testing.T, data []byte) []byte {
	t.Helper()
	m := formatMember.FindSubmatchIndex(data)
	if m == nil {
		t.Fatalf("a document that does not begin with its format: %.60s", data)
	}
	n, err := strconv.Atoi(string(data[m[4]:m[5]]))
	if err != nil {
		t.Fatal(err)
	}
	return sealAgain(slices.Concat(data[:m[4]], []byte(strconv.Itoa(n+1)), data[m[5]:]))
}

// newer is a lake in which one object has a format that this program does not know.
type newer struct {
	name string
	// make makes it and returns the key that errors are to name, with what follows the key.
	make func(t *testing.T, c contents) (key, says string)
	// refused are the operations that must fail: all that read the object.
	refused []string
	// late tells that an operation may have added objects to which nothing refers when it meets the
	// object. docs/compatibility.md says of which kinds: a document that names them has a newer
	// format, too, and is met first.
	late bool
}

// document is a kind of sealed document at a key that matches a pattern.
func document(name, pattern string, refused ...string) newer {
	return newer{name, func(t *testing.T, c contents) (string, string) {
		key := c.find(t, pattern, nil)
		if strings.HasPrefix(key, "index/takedowns/") { // the one that the manifest names
			key = regexp.MustCompile(pattern + `[^"]+`).FindString(string(c[catalog.ManifestKey]))
		}
		return c.replace(t, key, raise(t, c[key])), says(2, 1)
	}, refused, false}
}

func says(found, known int) string {
	return fmt.Sprintf(": format %d, but this program knows formats up to %d; it needs a newer urlake", found, known)
}

// segmentFile is a file of a segment, whose format is in segment.json.
func segmentFile(name string) newer {
	return newer{"segment file " + name, func(t *testing.T, c contents) (string, string) {
		form := regexp.MustCompile(`(?s)("name": "` + name + `",\s+"format": )1`)
		for _, key := range slices.Sorted(maps.Keys(c)) { // all, so that every reader meets one
			if strings.HasSuffix(key, "/segment.json") {
				if !form.Match(c[key]) {
					t.Fatalf("%s lists no %s in format 1", key, name)
				}
				c.replace(t, key, sealAgain(form.ReplaceAll(c[key], []byte("${1}2"))))
			}
		}
		return "index/segments/", "/" + strings.ReplaceAll(name, `\.`, ".") + says(2, 1)
	}, []string{"serve", "takedown", "verify"}, false}
}

// rootOf is a piece that a document names as the root of one of its maps: the last document that
// matches a pattern.
func rootOf(name, pattern, member string, refused ...string) newer {
	return newer{name, func(t *testing.T, c contents) (string, string) {
		doc := c[c.last(t, pattern)]
		if pattern == takedownDocument {
			doc = c[regexp.MustCompile(takedownDocument+`[^"]+`).FindString(string(c[catalog.ManifestKey]))]
		}
		m := regexp.MustCompile(`(?s)"` + member + `": \{\s+"root": "([0-9a-f]{32})"`).FindSubmatch(doc)
		if m == nil {
			t.Fatalf("no root of %s in %s", member, doc)
		}
		key := c.find(t, `/pieces/[0-9a-f]{2}/`+string(m[1])+`$`, nil)
		data := bytes.Clone(c[key])
		binary.LittleEndian.PutUint32(data[4:], 2)
		return c.replace(t, key, data), says(2, 1)
	}, refused, true}
}

// newerKinds has every kind of object with a format. Whoever adds one adds it here.
func newerKinds() []newer {
	everything := []string{"serve", "ingest", "publish", "compact", "gc", "takedown", "retire", "rebuild", "verify", "tag", "rules"}
	except := func(not ...string) []string {
		return slices.DeleteFunc(slices.Clone(everything), func(op string) bool { return slices.Contains(not, op) })
	}
	manifestReaders := except("ingest", "retire", "rules")
	kinds := []newer{
		document("manifest", `^index/manifest\.json$`, manifestReaders...),
		document("version", `^index/versions/`, "gc", "takedown", "verify"),
		{"current version", func(t *testing.T, c contents) (string, string) {
			m, err := catalog.DecodeManifest(c[catalog.ManifestKey])
			if err != nil {
				t.Fatal(err)
			}
			key := catalog.VersionKey(m.CurrentVersion)
			return c.replace(t, key, raise(t, c[key])), says(2, 1)
		}, except("ingest", "retire", "rules", "tag"), false},
		document("takedowns", `index/takedowns/documents/`, "serve", "publish", "compact", "gc", "takedown", "verify"),
		document("registry", `^registry/datasets\.json$`, "ingest", "publish", "compact", "gc", "retire", "rebuild", "verify", "rules"),
		document("copy of the registry", `^registry/datasets\.copy\.json$`, "compact", "gc", "rebuild", "rules"),
		document("what waits to be published", `^pending/`, "publish", "gc", "retire", "rebuild", "verify"),
		document("list of garbage", `^index/trash/lists/`, "gc"),
		document("sweep", `^index/trash/sweep\.json$`, "ingest", "publish", "gc", "takedown", "rules"),
		document("unpublished batch record", unpublished, "publish", "gc", "verify"),
		rootOf("datasets of the current version", currentVersion, "dataset_pieces", "serve"),
		rootOf("batches of the current version", currentVersion, "batch_pieces", "gc", "verify"),
		rootOf("dead batches of the current version", currentVersion, `dead": \{.*?"batch_pieces`, "gc", "verify"),
		rootOf("datasets of the registry", `^registry/datasets\.json$`, "dataset_pieces", "ingest", "verify", "rebuild"),
		rootOf("names of the registry", `^registry/datasets\.json$`, "name_pieces", "ingest", "verify", "rebuild"),
		rootOf("rules of takedowns", takedownDocument, "rule_pieces", "takedown", "verify"),
		rootOf("records of takedowns", takedownDocument, "record_pieces", "takedown", "verify"),
		{"segment.json", func(t *testing.T, c contents) (string, string) {
			for _, key := range slices.Sorted(maps.Keys(c)) { // all: some are garbage
				if strings.HasSuffix(key, "/segment.json") {
					c.replace(t, key, raise(t, c[key]))
				}
			}
			return "index/segments/", "/segment.json" + says(2, 1)
		}, []string{"verify", "takedown"}, false},
		document("cursor of a frontier's visits", `^frontier/visits/[^/]+/cursor\.json$`, "visits"),
		{"lease", func(t *testing.T, c contents) (string, string) {
			key := "index/leases/server-0011223344556677.json"
			data, err := codec.Seal(map[string]any{"format": 2, "holds": []string{"everything"}})
			if err != nil {
				t.Fatal(err)
			}
			c[key] = data
			return key, says(2, 1)
		}, []string{"gc"}, false},
		{"plan of a publish", func(t *testing.T, c contents) (string, string) {
			key := lake.StagingPrefix("run-of-a-newer-worker") + "publish-0.json"
			data, err := codec.Seal(map[string]any{"format": 9, "batches_in_bottles": 3})
			if err != nil {
				t.Fatal(err)
			}
			c[key] = data
			return key, says(9, 1)
		}, []string{"gc"}, false},
		{"public suffix list", func(t *testing.T, c contents) (string, string) {
			m := regexp.MustCompile(`"public_suffix_list": "([^"]+)"`).FindSubmatch(c[lake.RegistryKey])
			if m == nil {
				t.Fatal("the registry names no list")
			}
			key := lake.SuffixListKey(string(m[1]))
			text := bytes.Replace(c[key], []byte("format 1\n"), []byte("format 2\n"), 1)
			c[key] = append(text, "// with another digest\n"...)
			for i := range 100 { // a process remembers few lists, among them this one
				other := blob.NewMemory()
				list := testlake.SetList(t, other, fmt.Sprintf("a%d", i))
				if _, err := lake.LoadSuffixList(t.Context(), other, list.Identity()); err != nil {
					t.Fatal(err)
				}
			}
			return key, says(2, 1)
		}, []string{"ingest", "verify", "takedown"}, true},
		{"unknown member of the manifest", func(t *testing.T, c contents) (string, string) {
			c[catalog.ManifestKey] = sealAgain(bytes.Replace(c[catalog.ManifestKey], []byte(`  "generation"`), []byte("  \"colour\": 1,\n  \"generation\""), 1))
			return catalog.ManifestKey, ": format 1 with the member colour, which this program does not know; it needs a newer urlake"
		}, manifestReaders, false},
		{"unknown member of the registry", func(t *testing.T, c contents) (string, string) {
			c[lake.RegistryKey] = sealAgain(bytes.Replace(c[lake.RegistryKey], []byte(`  "next_id"`), []byte("  \"colour\": 1,\n  \"next_id\""), 1))
			return lake.RegistryKey, ": format 1 with the member colour, which this program does not know; it needs a newer urlake"
		}, []string{"ingest", "publish", "gc", "rebuild", "verify", "rules"}, false},
	}
	for _, name := range []string{
		`batches\.tsv\.zst`, `domain_to_datasets\.roar`, `domains\.mphf`, `domains\.txt\.zst`,
		`files\.tsv\.zst`, `parts\.idx\.zst`, `postings/0000/postings\.dat\.zst`, `postings/0000/postings\.idx\.zst`,
	} {
		kinds = append(kinds, segmentFile(name))
	}
	return kinds
}

// Patterns of keys. The day is that of the batch that the fixture leaves unpublished.
const (
	unpublished    = `^batches/dataset_id=\d+/2024-03-10/[0-9a-f]{32}\.json$`
	currentVersion = `^index/versions/`

	takedownDocument = `index/takedowns/documents/`
)

// operations are all that programs do with a lake, as far as it can meet objects of a newer one.
func operations() map[string]func(ctx context.Context, t *testing.T, store blob.Store) error {
	type operation = func(ctx context.Context, t *testing.T, store blob.Store) error
	return map[string]operation{
		"serve": func(ctx context.Context, t *testing.T, store blob.Store) error {
			log := slog.New(slog.DiscardHandler)
			server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: log})
			defer server.Close()
			if err := server.Refresh(ctx); err != nil {
				return fmt.Errorf("%w", reasonOf(err))
			}
			handler := api.New(server, log, api.NewMetrics(server, blob.NewCounting(store)))
			for _, path := range []string{"/v1/datasets", "/v1/domain/site-1.example", "/v1/domain/site-1.example/datasets/1/urls"} {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
				if w.Code != 200 {
					return errors.New(w.Body.String())
				}
			}
			return nil
		},
		"ingest": func(ctx context.Context, t *testing.T, store blob.Store) error {
			records := []testlake.Record{{URL: "https://site-1.example/new"}}
			_, err := testlake.Steps(ctx, store, testlake.Spec(t, store, "crawl", "new", records), t.TempDir())
			return err
		},
		"visits": func(ctx context.Context, t *testing.T, store blob.Store) error {
			_, err := feed.Collect(ctx, store, visitsSpec(t, store.URL()), func(feed.Collecting) {})
			return err
		},
		"publish": func(ctx context.Context, t *testing.T, store blob.Store) error {
			_, err := publish.All(ctx, store, testlake.Run(), t.TempDir())
			return err
		},
		"compact": func(ctx context.Context, t *testing.T, store blob.Store) error {
			_, err := publish.CompactAll(ctx, store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir())
			return err
		},
		"gc": func(ctx context.Context, _ *testing.T, store blob.Store) error {
			_, err := gc.Collect(ctx, store, gc.Options{Keep: 1})
			return err
		},
		"takedown": func(ctx context.Context, t *testing.T, store blob.Store) error {
			_, list, err := catalog.LoadRules(ctx, store)
			if err != nil {
				return err
			}
			target, err := catalog.ParseTarget(list, catalog.DomainTarget, "site-2.example")
			if err != nil {
				return err
			}
			rule := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC().Truncate(time.Second)}
			_, err = suppress.Add(ctx, store, rule, suppress.Options{TempDir: t.TempDir()})
			return err
		},
		"retire": func(ctx context.Context, _ *testing.T, store blob.Store) error {
			return testlake.TryRetire(ctx, store, catalog.BatchName{DatasetID: 1, Batch: "2024-03-08"})
		},
		"rebuild": func(ctx context.Context, t *testing.T, store blob.Store) error {
			done, err := publish.Rebuild(ctx, store, testlake.Run(), t.TempDir())
			if len(done.Lost) > 0 {
				err = errors.Join(err, errors.New(strings.Join(done.Lost, "\n")))
			}
			return err
		},
		"verify": func(ctx context.Context, t *testing.T, store blob.Store) error {
			report, err := lakecheck.Lake(ctx, store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
			if len(report.Problems) > 0 {
				err = errors.Join(err, errors.New(strings.Join(report.Problems, "\n")))
			}
			return err
		},
		"tag": func(ctx context.Context, _ *testing.T, store blob.Store) error {
			_, _, err := catalog.SetTag(ctx, store, "newest", catalog.Current, false)
			return err
		},
		"rules": func(ctx context.Context, _ *testing.T, store blob.Store) error {
			have, err := catalog.ReadRules(ctx, store)
			if err != nil {
				return err
			}
			list, err := urlnorm.ParseSuffixList([]byte("example\nother.example\n"))
			if err != nil {
				return err
			}
			return catalog.SetRules(ctx, store, have, list)
		},
	}
}

// reasonOf is an error with the text that /readyz shows of it.
func reasonOf(err error) error { return errors.New(lookup.Reason(err)) }

// A lake of a newer urlake is refused, by an error that names the object, its format and the newest
// known one, and is left alone: an operation that meets an object of a newer format changes
// nothing, and none changes or deletes that object.
func TestNewerFormatsAreRefused(t *testing.T) {
	dirs := All(t)
	lakes := read(t, open(t, Unpack(t, dirs[len(dirs)-1])))
	for _, kind := range newerKinds() {
		t.Run(kind.name, func(t *testing.T) {
			if kind.name != "public suffix list" { // a process remembers lists, also those of other tests
				t.Parallel()
			}
			before := maps.Clone(lakes)
			key, text := kind.make(t, before)
			for name, do := range operations() {
				store := before.store(t)
				err := do(context.WithoutCancel(t.Context()), t, store)
				diff := before.changed(read(t, store))
				switch {
				case err == nil && slices.Contains(kind.refused, name):
					t.Errorf("%s works", name)
				case err == nil:
					if slices.ContainsFunc(diff, func(line string) bool {
						return !strings.HasSuffix(key, "/") && strings.Contains(line, key) && !strings.HasPrefix(line, "added ")
					}) {
						t.Errorf("%s works, but %s", name, diff)
					}
				case !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), text):
					t.Errorf("%s: %v\nwant %s%s", name, err, key, text)
				case kind.late && !slices.ContainsFunc(diff, func(line string) bool { return !strings.HasPrefix(line, "added ") }):
				case len(diff) > 0:
					t.Errorf("%s fails, but has %s", name, diff)
				}
			}
		})
	}
}

// Objects that a newer urlake has put into folders of its own, or beside those that are known,
// stay.
func TestUnknownObjectsStay(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		store := open(t, Unpack(t, dir))
		unknown := []string{
			"colours/1.json", "index/colours/1.json", "index/manifest.colours.json", "registry/colours.json", "registry/pieces/colours.json",
			"batches/colours/1.json", "batches/dataset_id=1/2024-03-01/colours-1.zst", "urls/dataset_id=1/domain_prefix=any/colours-1.parquet",
			"urls/colours.bin", "index/segments/" + strings.Repeat("0", 32) + ".colours", "index/versions/colours.json", "index/trash/colours.json",
			"index/deletions/colours.zst", "index/takedowns/colours.json", "index/pieces/colours", "rejects/colours.zst", "reports/colours.zst",
			"frontier/colours.json", "frontier/visits/visits/colours.json", "rules/colours.txt", "index/leases.colours.json", "README.txt",
		}
		for _, key := range unknown {
			if _, err := store.Put(t.Context(), key, []byte("colours"), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		for name, do := range operations() {
			if err := do(context.WithoutCancel(t.Context()), t, store); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for range 2 {
			if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range unknown {
			if _, err := store.Stat(t.Context(), key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		verifyDeep(t, store)
	})
}

// A server that meets a newer manifest goes on with the version that it has, and says why.
func TestServerGoesOnBesideANewerManifest(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		lakeURL := Unpack(t, dir)
		asker := Ask(t, lakeURL)
		store := open(t, lakeURL)
		data, info, err := store.Get(t.Context(), catalog.ManifestKey)
		if err != nil {
			t.Fatal(err)
		}
		want := asker.Get("/v1/domain/site-1.example")
		if _, err := store.Put(t.Context(), catalog.ManifestKey, raise(t, data), blob.Condition{IfMatch: info.ETag}); err != nil {
			t.Fatal(err)
		}
		text := catalog.ManifestKey + says(catalog.ManifestFormat+1, catalog.ManifestFormat)
		if err := asker.server.Refresh(t.Context()); !codec.IsFormat(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("refresh: %v", err)
		}
		if got := asker.Get("/v1/domain/site-1.example"); got.Status != 200 || !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%d %s, want %s", got.Status, got.Body, want.Body)
		}
		if err := asker.server.Status().Err; err == nil || lookup.Reason(err) != text {
			t.Errorf("the reason is %v, want %s", err, text)
		}
	})
}

// Verbs of starter say what is the matter, and name no command that would mend it.
func TestVerbsOnANewerLake(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		lakeURL := Unpack(t, dir)
		store := open(t, lakeURL)
		for _, key := range []string{catalog.ManifestKey, lake.RegistryKey} {
			data, info, err := store.Get(t.Context(), key)
			if err == nil {
				_, err = store.Put(t.Context(), key, raise(t, data), blob.Condition{IfMatch: info.ETag})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{
			{"versions"}, {"versions", "--parts"}, {"datasets"}, {"tag"}, {"diff"}, {"rules"}, {"takedown", "list"}, {"takedown", "lift", "x", "--reason", "x"},
			{"takedown", "add", "--domain", "site-1.example", "--reason", "x"}, {"takedown", "status", "20260101-0011223344"},
			{"rejects", "--dataset", "forum"}, {"verify"}, {"tag", "current", "x"}, {"retire", "--dataset", "forum", "--no-publish"},
			{"restore", "--dataset", "forum", "--no-publish"},
		} {
			out, errs, code := Starter(append(args, "--lake", lakeURL)...)
			if code != 1 || !strings.Contains(errs+out, "it needs a newer urlake") || strings.Contains(errs+out, "mend it") {
				t.Errorf("starter %s: exit %d: %s%s", strings.Join(args, " "), code, out, errs)
			}
		}
	})
}
