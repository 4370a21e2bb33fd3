package numbers_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
)

func name(t testing.TB, host, domain string) domain64.Name {
	t.Helper()
	n, err := domain64.SplitHost(host, domain)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func assign(t testing.TB, r *numbers.Registry, names ...domain64.Name) []domain64.Code {
	t.Helper()
	codes, err := r.Assign(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	return codes
}

// all returns the content of a registry, and checks that it has the order of codes, every parent,
// and numbers without a gap.
func all(t testing.TB, r *numbers.Registry) map[domain64.Name]domain64.Code {
	t.Helper()
	got := map[domain64.Name]domain64.Code{}
	last := domain64.Code(0)
	most := map[string]uint32{}
	have := map[string]uint32{}
	for e, err := range r.All(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Code <= last {
			t.Fatalf("%x after %x", e.Code, last)
		}
		last = e.Code
		if _, ok := got[e.Name]; ok {
			t.Fatalf("%v twice", e.Name)
		}
		got[e.Name] = e.Code
		level, _ := r.Layout().Level(e.Code)
		if level != e.Name.Level() {
			t.Fatalf("%v has the code %s", e.Name, r.Layout().Format(e.Code))
		}
		if parent := r.Layout().Parent(e.Code); parent != 0 {
			above := e.Name.With(level, "")
			if got[above] != parent {
				t.Fatalf("%v is below %s, %v is %s", e.Name, r.Layout().Format(parent), above, r.Layout().Format(got[above]))
			}
		}
		table := fmt.Sprint(level, r.Layout().Parent(e.Code))
		have[table]++
		most[table] = max(most[table], r.Layout().Decode(e.Code)[level])
	}
	if !maps.Equal(most, have) {
		t.Fatal("numbers with gaps")
	}
	s, err := r.State(t.Context())
	if err != nil || s.Names != int64(len(got)) {
		t.Fatalf("state %+v, %v for %d names", s, err, len(got))
	}
	return got
}

// The example of the original document, but for the row that contradicts the others.
func TestDocumentsExample(t *testing.T) {
	store := blob.NewMemory()
	r := numbers.Open(store, domain64.Document)
	got := assign(t, r,
		name(t, "jadud.com", "jadud.com"), name(t, "research.jadud.com", "jadud.com"), name(t, "teaching.jadud.com", "jadud.com"),
		name(t, "teaching.jadud.com", "jadud.com").With(domain64.Path, "/olin"),
		name(t, "teaching.jadud.com", "jadud.com").With(domain64.Path, "/berea"))
	want := []domain64.Code{72057598332895232, 0x0100000101000000, 72057598366449664, 72057598366449665, 72057598366449666}
	if !slices.Equal(got, want) {
		t.Errorf("codes %x, want %x", got, want)
	}
	names, err := r.Names(t.Context(), want)
	if err != nil || names[4].String() != "teaching.jadud.com/berea" || names[0].Host() != "jadud.com" {
		t.Errorf("names %v, %v", names, err)
	}
	// A number of its own for each layout.
	other := numbers.Open(store, domain64.Production)
	if got := assign(t, other, name(t, "teaching.jadud.com", "jadud.com")); got[0] != 72057598332895488 {
		t.Errorf("first subdomain in %v: %d", domain64.Production, got[0])
	}
	layouts, err := numbers.Layouts(t.Context(), store)
	if want := map[domain64.Layout]int64{domain64.Document: 6, domain64.Production: 3}; err != nil || !maps.Equal(layouts, want) {
		t.Errorf("layouts %v, %v; want %v", layouts, err, want)
	}
	if _, err := r.Names(t.Context(), []domain64.Code{0x0100000103000000}); err == nil || !strings.Contains(err.Error(), "01:000001:03:000000") {
		t.Errorf("a name of a code that was not given: %v", err)
	}
}

// model is the registry as maps: numbers in the order of arrival.
type model struct {
	layout domain64.Layout
	code   map[domain64.Name]domain64.Code
	next   map[domain64.Name]map[domain64.Level]uint32
}

func (m *model) assign(n domain64.Name) domain64.Code {
	if c, ok := m.code[n]; ok || n == (domain64.Name{}) {
		return c
	}
	level := n.Level()
	above := n.With(level, "")
	parent := m.assign(above)
	if m.next[above] == nil {
		m.next[above] = map[domain64.Level]uint32{}
	}
	m.next[above][level]++
	m.code[n] = m.layout.Child(parent, level, m.next[above][level])
	return m.code[n]
}

func randomName(r *rand.Rand, n int) domain64.Name {
	out := domain64.Name{TLD: fmt.Sprintf("t%d", r.IntN(9))}
	if r.IntN(20) > 0 {
		out.Domain = fmt.Sprintf("d%d", r.IntN(n))
		if r.IntN(2) > 0 {
			out.Sub = fmt.Sprintf("s%d.x", r.IntN(7))
		}
	}
	if r.IntN(5) == 0 {
		out.Path = fmt.Sprintf("/%d", r.IntN(9))
	}
	return out
}

func TestNumbersEqualAModel(t *testing.T) {
	for _, layout := range []domain64.Layout{domain64.Document, domain64.Production} {
		r := rand.New(rand.NewPCG(7, uint64(layout.Max(domain64.Sub))))
		store := blob.NewMemory()
		m := model{layout, map[domain64.Name]domain64.Code{}, map[domain64.Name]map[domain64.Level]uint32{}}
		for _, n := range []int{0, 1, 3, 2000, 50, 900} {
			var names []domain64.Name
			for range n {
				names = append(names, randomName(r, 400))
			}
			if n == 900 { // for which nothing is looked up
				slices.SortFunc(names, func(x, y domain64.Name) int {
					return cmp.Or(strings.Compare(x.TLD, y.TLD), strings.Compare(x.Domain, y.Domain),
						strings.Compare(x.Sub, y.Sub), strings.Compare(x.Path, y.Path))
				})
			}
			found, err := numbers.Open(store, layout).Find(t.Context(), names)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				if found[i] != m.code[name] {
					t.Fatalf("Find %v: %s, want %s", name, layout.Format(found[i]), layout.Format(m.code[name]))
				}
			}
			// By level, as Assign does: all top-level domains of a batch come before its domains.
			for level := range domain64.Levels {
				for _, name := range names {
					for l := domain64.Path; l > level; l-- {
						name = name.With(l, "")
					}
					m.assign(name)
				}
			}
			got := assign(t, numbers.Open(store, layout), names...)
			for i, name := range names {
				if got[i] != m.code[name] {
					t.Fatalf("Assign %v: %s, want %s", name, layout.Format(got[i]), layout.Format(m.code[name]))
				}
			}
			again := assign(t, numbers.Open(store, layout), names...)
			if !slices.Equal(got, again) {
				t.Fatal("the same names have other codes")
			}
		}
		reg := numbers.Open(store, layout)
		if got := all(t, reg); !maps.Equal(got, m.code) {
			t.Fatalf("%d names, want %d", len(got), len(m.code))
		}
		// Any part of the tree.
		codes := slices.Sorted(maps.Values(m.code))
		for range 50 {
			below := codes[r.IntN(len(codes))]
			var want, got []domain64.Code
			for _, c := range codes {
				if layout.Range(below).Contains(c.Signed()) {
					want = append(want, c)
				}
			}
			for e, err := range reg.All(t.Context(), below) {
				if err != nil || m.code[e.Name] != e.Code {
					t.Fatalf("below %s: %v, %v", layout.Format(below), e, err)
				}
				got = append(got, e.Code)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("below %s: %x, want %x", layout.Format(below), got, want)
			}
		}
	}
}

// In the document's layout 255 subdomains have numbers, and the next is refused with its parent's
// name; nothing of its batch is assigned.
func TestFullTable(t *testing.T) {
	r := numbers.Open(blob.NewMemory(), domain64.Document)
	var names []domain64.Name
	for i := range 256 {
		names = append(names, name(t, fmt.Sprintf("h%d.example.com", i), "example.com"))
	}
	codes := assign(t, r, names[:255]...)
	if want := "01:000001:FF:000000"; r.Layout().Format(codes[254]) != want {
		t.Errorf("the 255th subdomain is %s, want %s", r.Layout().Format(codes[254]), want)
	}
	before := all(t, r)
	_, err := r.Assign(t.Context(), []domain64.Name{name(t, "new.example.org", "example.org"), names[3], names[255]})
	var full *numbers.FullError
	if !errors.As(err, &full) || full.Parent != "example.com" || full.Name != "h255.example.com" || full.Max != 255 || full.Level != domain64.Sub {
		t.Fatalf("error %v (%+v)", err, full)
	}
	if !strings.Contains(err.Error(), "8-24-24-8") {
		t.Errorf("no advice: %v", err)
	}
	if !maps.Equal(all(t, r), before) {
		t.Error("something of a refused batch was assigned")
	}
	assign(t, r, name(t, "new.example.org", "example.org"), names[3]) // others go on
	// 255 top-level domains.
	var tlds []domain64.Name
	for i := range 256 {
		tlds = append(tlds, domain64.Name{TLD: fmt.Sprint("t", i)})
	}
	_, err = numbers.Open(blob.NewMemory(), domain64.Production).Assign(t.Context(), tlds)
	if !errors.As(err, &full) || full.Parent != "" || full.Name != "t255" {
		t.Errorf("256 top-level domains: %v", err)
	}
}

// Writers at once, each with a store that now and then loses the reply of a put or fails it, get
// the same code for the same name, and leave no gap.
func TestWritersAtOnce(t *testing.T) {
	memory := blob.NewMemory()
	got := make([]map[domain64.Name]domain64.Code, 6)
	var g errgroup.Group
	for w := range got {
		got[w] = map[domain64.Name]domain64.Code{}
		g.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			var store blob.Store = &flaky{Store: memory, r: rand.New(rand.NewPCG(uint64(w), 4))}
			reg := numbers.Open(store, domain64.Document)
			for range 20 {
				var names []domain64.Name
				for range 1 + r.IntN(60) {
					names = append(names, randomName(r, 60))
				}
				var codes []domain64.Code
				var err error
				for { // others' writes make it start again, which gives it more puts to fail
					if codes, err = reg.Assign(context.Background(), names); !errors.Is(err, errFlaky) {
						break
					}
				}
				if err != nil {
					return err
				}
				for i, n := range names {
					if c, ok := got[w][n]; ok && c != codes[i] {
						return fmt.Errorf("%v had the code %x and has %x", n, c, codes[i])
					}
					got[w][n] = codes[i]
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	final := all(t, numbers.Open(memory, domain64.Document))
	for w := range got {
		for n, c := range got[w] {
			if final[n] != c {
				t.Fatalf("writer %d got %x for %v, the registry has %x", w, c, n, final[n])
			}
		}
	}
}

var errFlaky = errors.New("the connection broke")

// flaky fails one put of the document in five, and one of a piece in fifty, half of them after they
// have taken effect.
type flaky struct {
	blob.Store
	mu sync.Mutex
	r  *rand.Rand
}

func (f *flaky) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	f.mu.Lock()
	dice := f.r.IntN(10)
	if key != numbers.Key {
		dice = f.r.IntN(100)
	}
	f.mu.Unlock()
	if dice == 0 {
		return blob.Info{}, errFlaky
	}
	info, err := f.Store.Put(ctx, key, data, cond)
	if dice == 1 && err == nil {
		return blob.Info{}, errFlaky
	}
	return info, err
}

// A writer that dies after any number of changes has assigned all of a batch or nothing, and
// another goes on.
func TestDeathAtEachChange(t *testing.T) {
	batch := func(n int) (names []domain64.Name) {
		for i := range 300 {
			names = append(names, domain64.Name{TLD: "com", Domain: fmt.Sprintf("d%d", i*n)})
		}
		return names
	}
	for call := 0; ; call++ {
		memory := blob.NewMemory()
		assign(t, numbers.Open(memory, domain64.Document), batch(2)...)
		before := all(t, numbers.Open(memory, domain64.Document))
		faults := blobtest.NewFaulty(memory)
		faults.CrashAfter(call)
		_, err := numbers.Open(faults, domain64.Document).Assign(t.Context(), batch(3))
		got := all(t, numbers.Open(memory, domain64.Document))
		for n, c := range before {
			if got[n] != c {
				t.Fatalf("%v had the code %x and has %x", n, c, got[n])
			}
		}
		if len(got) != len(before) && len(got) != 1+300+200 {
			t.Fatalf("%d names after a crash after %d changes", len(got), call)
		}
		assign(t, numbers.Open(memory, domain64.Document), batch(3)...)
		if n := len(all(t, numbers.Open(memory, domain64.Document))); n != 501 {
			t.Fatalf("%d names, want 501", n)
		}
		if err == nil {
			if call < 5 {
				t.Fatalf("only %d changes", call)
			}
			return
		}
	}
}

// Damage to any object is named, and a lost document is no new beginning.
func TestDamageIsFound(t *testing.T) {
	store := blob.NewMemory()
	var names []domain64.Name
	for i := range 2000 {
		names = append(names, domain64.Name{TLD: "com", Domain: fmt.Sprintf("d%d", i)})
	}
	assign(t, numbers.Open(store, domain64.Document), names...)
	use := func() error {
		r := numbers.Open(store, domain64.Document)
		_, err := r.Assign(t.Context(), names)
		for _, allErr := range r.All(t.Context(), 0) {
			err = errors.Join(err, allErr)
		}
		return err
	}
	var keys []string
	for info, err := range store.List(t.Context(), "registry/") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if len(keys) < 10 {
		t.Fatalf("%d objects", len(keys))
	}
	for _, key := range keys {
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, how := range []string{"flip", "lose"} {
			if how == "lose" {
				err = store.Delete(t.Context(), key)
			} else {
				bad := slices.Clone(data)
				bad[len(bad)/2] ^= 4
				_, err = store.Put(t.Context(), key, bad, blob.Condition{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := use(); !errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s of %s: %v", how, key, err)
			}
			found := 0
			for named, err := range numbers.Check(t.Context(), store) {
				if err != nil && named == key {
					found++
				}
			}
			if found != 1 {
				t.Errorf("Check names %s %d times", key, found)
			}
			if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for key, err := range numbers.Check(t.Context(), store) {
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Assign of a batch of new names, and of one whose names all have numbers.
func BenchmarkAssign(b *testing.B) {
	const batch, batches = 100_000, 10
	names := make([]domain64.Name, 0, batch*batches)
	for i := range batch * batches {
		n := domain64.Name{TLD: []string{"com", "net", "org"}[i%3], Domain: fmt.Sprintf("site-%07d", i/4)}
		if i%4 > 0 {
			n.Sub = []string{"", "www", "blog", "mail.eu"}[i%4]
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(x, y domain64.Name) int {
		return cmp.Or(strings.Compare(x.TLD, y.TLD), strings.Compare(x.Domain, y.Domain), strings.Compare(x.Sub, y.Sub))
	})
	store := blob.NewMemory()
	run := func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if b.Name() == "BenchmarkAssign/new" {
				store = blob.NewMemory()
			}
			b.StartTimer()
			for some := range slices.Chunk(names, batch) {
				if _, err := numbers.Open(store, domain64.Production).Assign(b.Context(), some); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(len(names))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mnames/s")
	}
	b.Run("new", run)
	b.Run("known", run)
}
