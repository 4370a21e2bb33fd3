package rewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
)

// rules is a public suffix list by the words of publicsuffix.org, slow and simple: "a.b", "*.b" and
// "!c.b".
type rules map[string]bool

// domain returns the registrable domain of a host.
func (r rules) domain(host string) string {
	labels := strings.Split(host, ".")
	suffix := 1 // labels
	for n := 1; n <= len(labels); n++ {
		name := strings.Join(labels[len(labels)-n:], ".")
		if r["!"+name] {
			suffix = n - 1
			break
		}
		if r[name] {
			suffix = max(suffix, n)
		}
		if _, parent, ok := strings.Cut(name, "."); ok && r["*."+parent] {
			suffix = max(suffix, n)
		}
	}
	return strings.Join(labels[len(labels)-min(len(labels), suffix+1):], ".")
}

// randomRules returns a list with some rules for the names of randomHost.
func randomRules(rng *rand.Rand) rules {
	r := rules{}
	for range rng.IntN(8) {
		name := []string{"x", "y", "a.x", "b.x", "c.x", "a.a.x", "b.a.x", "a.y", "b.y", "c.b.y"}[rng.IntN(10)]
		switch rng.IntN(5) {
		case 0:
			r["*."+name] = true
		case 1:
			if strings.Contains(name, ".") {
				r["!"+name] = true
			}
		default:
			r[name] = true
		}
	}
	return r
}

func randomHost(rng *rand.Rand) string {
	host := []string{"x", "y"}[rng.IntN(2)]
	for range rng.IntN(5) {
		host = []string{"a", "b", "c", "www", "d" + fmt.Sprint(rng.IntN(20))}[rng.IntN(5)] + "." + host
	}
	return host
}

// randomRows returns distinct rows.
func randomRows(rng *rand.Rand, n int, list rules) []row.Row {
	seen := map[string]bool{}
	var rows []row.Row
	for range n {
		r := row.Row{Host: randomHost(rng), PathQuery: fmt.Sprintf("/%x", rng.Uint32N(1000)), Scheme: "https", Port: -1}
		if rng.IntN(3) == 0 {
			r.Scheme, r.Port = "http", 8080
		}
		if r.HasTS = rng.IntN(2) == 0; r.HasTS {
			r.TS = rng.Int64N(1e12)
		}
		if r.HasSize = rng.IntN(4) == 0; r.HasSize {
			r.Size = rng.Int64N(1e6)
		}
		if rng.IntN(5) == 0 {
			r.Extras, r.RawURL = `{"a":1}`, "HTTPS://"+r.Host
		}
		if key := string(r.AppendKey(nil)); !seen[key] {
			seen[key] = true
			r.Domain = list.domain(r.Host)
			rows = append(rows, r)
		}
	}
	return rows
}

// sortedBy returns rows with the domains of a list, in order.
func sortedBy(rows []row.Row, list rules) []row.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Domain = list.domain(rows[i].Host)
	}
	slices.SortFunc(rows, func(a, b row.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) })
	return rows
}

// changeTo returns the change to a list. A domain is affected if one of the rows of it moves, or
// by chance.
func changeTo(list rules, rows []row.Row, rng *rand.Rand) *Change {
	affected := map[string]bool{}
	for _, r := range rows {
		if list.domain(r.Host) != r.Domain || rng.IntN(20) == 0 {
			affected[r.Domain] = true
		}
	}
	return &Change{To: "other", Domain: list.domain, Affected: func(d string) bool { return affected[d] }}
}

func readRecord(t testing.TB, store blob.Store, key string) *lake.Batch {
	t.Helper()
	data, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// objects returns all objects of a store by key, without staging.
func objects(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, "staging/") {
			continue
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = string(data)
	}
	return all
}

// tiny are options by which a few rows go through shuffle files and runs, and are in several tasks.
func tiny(t testing.TB, rng *rand.Rand) Options {
	return Options{
		TempDir: t.TempDir(), Arena: []int64{16 << 10, 1 << 20}[rng.IntN(2)],
		Limits: []row.MergeLimits{row.DefaultMergeLimits, {AnyPrefix: 1 << 10, OneDigit: 8 << 10, Task: 4 << 10}}[rng.IntN(2)],
	}
}

// follow writes a batch again by the list of a change, if a row moves, as package publish does.
func follow(ctx context.Context, store blob.Store, run string, ref segment.BatchRef, c *Change, opt Options) (Result, error) {
	moves, err := Moves(ctx, store, ref, c)
	if err != nil || !moves {
		return Result{Digest: ref.Digest}, err
	}
	data, _, err := store.Get(ctx, ref.Key())
	var record *lake.Batch
	if err == nil {
		record, err = lake.DecodeBatch(data, ref.Key())
	}
	if err != nil {
		return Result{}, postings.Damaged(ref, err)
	}
	opt.Domain = c.Domain
	return Do(ctx, store, run, Again(ref, record, c.To), opt)
}

// A batch that follows another list has the rows and the index that the new list gives, whatever
// the lists; its parts are those that its rows have if they follow the list already; its postings
// are those of its parts; and the old list gives the old answers again.
func TestMovedBatchIsOneOfTheNewList(t *testing.T) {
	ctx := context.Background()
	moved, untouched := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		from, to := randomRules(rng), randomRules(rng)
		l := &indextest.Lake{Store: blob.NewMemory()}
		rows := randomRows(rng, 1+rng.IntN(400), from)
		o := indextest.Options{Width: rng.IntN(3), Tasks: 1 + rng.IntN(4)}
		if rng.IntN(2) == 0 {
			o.Limits = part.Limits{PageRows: 3, RowGroupBytes: 2000, PartBytes: 4000}
		}
		l.AddBatch(t, 1, "b", rows, o)
		before := objects(t, l.Store)
		ref := l.Batches[0]
		for step, list := range []rules{to, from} {
			c := changeTo(list, l.Rows[1], rng)
			c.To = fmt.Sprint("list", step)
			if rng.IntN(3) == 0 {
				c.Affected = nil
			}
			want := sortedBy(rows, list)
			opt := tiny(t, rng)
			res, err := follow(ctx, l.Store, fmt.Sprint("run", step), ref, c, opt)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			n := 0
			for _, r := range l.Rows[1] {
				if list.domain(r.Host) != r.Domain {
					n++
				}
			}
			if (n == 0) != (res.Digest == ref.Digest) || res.Moved != int64(n) {
				t.Fatalf("seed %d: %d rows move, %+v", seed, n, res)
			}
			if n == 0 {
				untouched++
				continue
			}
			moved++
			ref.Digest = res.Digest
			b := readRecord(t, l.Store, ref.Key())
			other := &indextest.Lake{Store: blob.NewMemory()}
			own := other.AddBatch(t, 1, "b", want, indextest.Options{Width: rng.IntN(3), Tasks: 1 + rng.IntN(4)})
			opt.Arena = 1 << 20
			same, err := Do(ctx, other.Store, "run", Again(other.Batches[0], own, c.To), opt)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			ofList := readRecord(t, other.Store, lake.BatchKey(1, "b", same.Digest))
			if diff := cmp.Diff(ofList.Parts, b.Parts) + cmp.Diff(ofList.Postings, b.Postings); diff != "" {
				t.Fatalf("seed %d: parts differ from those of a batch by the list: %s", seed, diff)
			}
			l.Rows = map[uint32][]row.Row{1: want}
			seg, err := indexbuild.BuildSegment(ctx, l.Store, []segment.BatchRef{ref}, indexbuild.Options{TempDir: t.TempDir()})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			l.CompareSegment(t, seg)
			if _, err := verify.Segment(ctx, l.Store, seg, true, t.TempDir()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			domains := map[string]bool{}
			for _, r := range want {
				domains[r.Domain] = true
			}
			if b.Domains != int64(len(domains)) || b.PublicSuffix != c.To || b.Rows != int64(len(rows)) {
				t.Fatalf("seed %d: %d domains by %q, want %d", seed, b.Domains, b.PublicSuffix, len(domains))
			}
			// Lost postings come out of the parts under the same names.
			for _, p := range b.Postings {
				if err := l.Store.Delete(ctx, p.Key); err != nil {
					t.Fatal(err)
				}
			}
			restored := 0
			err = postings.Restore(ctx, l.Store, ref, t.TempDir(), func(string) error { restored++; return nil })
			if err != nil || restored != len(b.Postings) {
				t.Fatalf("seed %d: %d of %d postings restored: %v", seed, restored, len(b.Postings), err)
			}
		}
		after := objects(t, l.Store)
		for key, data := range before {
			if after[key] != data {
				t.Fatalf("seed %d: %s has changed", seed, key)
			}
		}
	}
	if moved < 40 || untouched == 0 {
		t.Errorf("%d batches moved, %d untouched", moved, untouched)
	}
}

// smallBatch is a batch of which a third of the rows moves.
func smallBatch(t testing.TB, store blob.Store) (segment.BatchRef, *Change) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := &indextest.Lake{Store: store}
	var rows []row.Row
	for i := range 300 {
		host := fmt.Sprintf("h%d.%c.x", i%40, 'a'+i%3)
		rows = append(rows, row.Row{Host: host, Domain: rules{}.domain(host), PathQuery: fmt.Sprint("/", i), Scheme: "https", Port: -1})
	}
	l.AddBatch(t, 1, "b", rows, indextest.Options{Width: 1, Tasks: 3, Limits: indextest.TinyParts})
	return l.Batches[0], changeTo(rules{"a.x": true}, l.Rows[1], rng)
}

// A move that stops at any change of the store goes on from there and ends with the same objects.
func TestMoveGoesOnAfterACrash(t *testing.T) {
	whole := blob.NewMemory()
	ref, c := smallBatch(t, whole)
	opt := Options{TempDir: t.TempDir(), Arena: 16 << 10, Limits: row.MergeLimits{AnyPrefix: 1 << 10, OneDigit: 8 << 10, Task: 4 << 10}}
	want, err := follow(t.Context(), whole, "run", ref, c, opt)
	if err != nil || want.Moved != 100 {
		t.Fatalf("%+v, %v", want, err)
	}
	for n := 0; ; n += testenv.Every(5) {
		store := blobtest.NewFaulty(blob.NewMemory())
		smallBatch(t, store)
		store.CrashAfter(n)
		_, err := follow(t.Context(), store, "run", ref, c, opt)
		crashed := store.Crashed()
		if crashed != errors.Is(err, blobtest.ErrCrashed) {
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		store.Heal()
		got, err := follow(t.Context(), store, "run", ref, c, opt)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("crash after %d changes, then: %+v, %v, want %+v", n, got, err, want)
		}
		if diff := cmp.Diff(objects(t, whole), objects(t, store.Unwrap())); diff != "" {
			t.Fatalf("crash after %d changes: objects differ: %s", n, diff)
		}
		if !crashed {
			if n < 10 {
				t.Errorf("only %d changes", n)
			}
			break
		}
	}
}

// A store that fails once, at any operation, ends a move with its error; nothing is taken for
// damage. The next attempt goes on.
func TestMoveGoesOnAfterAFailure(t *testing.T) {
	whole := blob.NewMemory()
	ref, c := smallBatch(t, whole)
	opt := Options{TempDir: t.TempDir(), Arena: 16 << 10, Limits: row.MergeLimits{AnyPrefix: 1 << 10, OneDigit: 8 << 10, Task: 4 << 10}}
	want, err := follow(t.Context(), whole, "run", ref, c, opt)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n += testenv.Every(3) + n/6 {
		store := blobtest.NewFaulty(blob.NewMemory())
		smallBatch(t, store)
		store.Inject(blobtest.Fault{Nth: n, After: n%2 == 0})
		got, err := follow(t.Context(), store, "run", ref, c, opt)
		failed := store.Fired() > 0
		var d *postings.DamageError
		switch {
		case errors.As(err, &d), err != nil && !errors.Is(err, blobtest.ErrInjected), err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("failure of call %d: %+v, %v", n, got, err)
		}
		store.Heal()
		if got, err := follow(t.Context(), store, "run", ref, c, opt); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("failure of call %d, then: %+v, %v, want %+v", n, got, err, want)
		}
		if diff := cmp.Diff(objects(t, whole), objects(t, store.Unwrap())); diff != "" {
			t.Fatalf("failure of call %d: objects differ: %s", n, diff)
		}
		if !failed {
			if n < 100 {
				t.Errorf("only %d calls", n)
			}
			break
		}
	}
}

// Every object that a move reads is checked: damage is a *postings.DamageError that names it, or
// does not matter.
func TestMoveFindsDamage(t *testing.T) {
	good := blob.NewMemory()
	ref, c := smallBatch(t, good)
	want, err := follow(t.Context(), good, "run", ref, c, Options{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	smallBatch(t, store)
	found := 0
	all := objects(t, store)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		data := []byte(all[key])
		for _, how := range []string{"missing", "truncated", "flipped"} {
			bad := slices.Clone(data)
			switch how {
			case "missing":
				if err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			case "truncated":
				bad = bad[:len(bad)/2]
			case "flipped":
				bad[len(bad)/3] ^= 4
			}
			if how != "missing" {
				indextest.Put(t, store, key, bad)
			}
			got, err := follow(t.Context(), store, how+key[len(key)-40:len(key)-10], ref, c, Options{TempDir: t.TempDir()})
			var d *postings.DamageError
			switch {
			case err == nil && !reflect.DeepEqual(got, want):
				t.Errorf("%s %s: %+v, want %+v", key, how, got, want)
			case err != nil && (!errors.As(err, &d) || !strings.Contains(err.Error(), key)):
				t.Errorf("%s %s: %v", key, how, err)
			case err != nil:
				found++
			}
			indextest.Put(t, store, key, data)
		}
	}
	if found < 3*len(all)/2 {
		t.Errorf("%d damages of %d objects were found", found, len(all))
	}
}
