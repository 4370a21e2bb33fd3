package shard

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
)

// modelURL is what the test expects of a URL: a model without files.
type modelURL struct {
	queue, url, meta string
	priority         uint16
	depth            uint32
	order            int // of the numbers of entries
	due              int64
	state            ListState
	seq              uint64 // of the leased entry
	status           uint16
	fetched          int64
	created          uint32
}

// less says that a URL is taken before another.
func (u *modelURL) less(v *modelURL) bool {
	return cmp.Or(-cmp.Compare(u.priority, v.priority), cmp.Compare(u.depth, v.depth), cmp.Compare(u.order, v.order)) < 0
}

// model is a shard as a map.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	s       *Shard
	dir     string
	now     int64 // in milliseconds
	order   int
	step    int
	urls    map[string]*modelURL // by queue and URL
	visited []string
	// committed is the model when the journal was written last.
	committed *model
}

// TestShardEqualsModel adds, updates, takes, settles, returns, deletes and lists entries at random,
// writes files in between, and dies: the folder as it was after the last commit has to open to the
// same state.
func TestShardEqualsModel(t *testing.T) {
	for seed := range 6 / uint64(testenv.Every(3)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{
				t: t, rng: rand.New(rand.NewPCG(seed, 5)), dir: filepath.Join(tempDir(t), "shard"), now: 1_000_000, urls: map[string]*modelURL{},
			}
			m.live()
		})
	}
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("step %d: %s", m.step, fmt.Sprintf(format, args...))
}

func (m *model) open() {
	s, torn, err := Open(m.dir, Options{MemoryBytes: 1 << 20, sweep: 50, Now: func() time.Time { return time.UnixMilli(m.now) }})
	if err != nil || torn != nil {
		m.fatalf("open: %v, %v", torn, err)
	}
	m.s = s
}

func (m *model) queue() string {
	return QueueName([]string{"DEFAULT", "news"}[m.rng.IntN(2)], fmt.Sprintf("site%d.example", m.rng.IntN(12)))
}

// one returns a URL in a state, or nil.
func (m *model) one(state ListState) *modelURL {
	var all []*modelURL
	for _, u := range m.urls {
		if u.state == state {
			all = append(all, u)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *modelURL) int { return cmp.Compare(a.queue+a.url, b.queue+b.url) })
	return all[m.rng.IntN(len(all))]
}

// promote has the model's due URLs wait.
func (m *model) promote() {
	if m.s.o.between != nil { // nothing becomes due while files are written
		return
	}
	for more := true; more; {
		var err error
		if _, more, err = m.s.Promote(m.now, 1); err != nil {
			m.fatalf("promote: %v", err)
		}
	}
	for _, u := range m.urls {
		if u.state == Later && u.due <= m.now {
			u.state, u.due = Waiting, 0
		}
	}
}

func (m *model) wait(u *modelURL, due int64) {
	m.order++
	u.order, u.due, u.state = m.order, due, Waiting
	if due > 0 {
		u.state = Later
	}
}

func (m *model) add() {
	queue := m.queue()
	var entries []Entry
	for range 1 + m.rng.IntN(20) {
		e := Entry{
			Queue: queue, URL: fmt.Sprintf("https://%s/%d", queue[len(crawlOf(queue))+1:], m.rng.IntN(400)),
			Priority: uint16(m.rng.IntN(3)), Depth: uint32(m.rng.IntN(3)), Metadata: []byte(fmt.Sprint("m", m.rng.IntN(9))),
		}
		if m.rng.IntN(5) == 0 {
			e.Due = m.now + 1 + int64(m.rng.IntN(2000))
		}
		if m.rng.IntN(3) == 0 {
			e.Update, e.Settled = true, m.rng.IntN(3) == 0
		}
		entries = append(entries, e)
	}
	asked := slices.Clone(entries)
	statuses, done, err := add(m.s, entries)
	if err != nil {
		m.fatalf("%v", err)
	}
	ended := 0
	for i, e := range asked {
		u := m.urls[e.Queue+e.URL]
		want := Added
		switch {
		case u != nil && !e.Update:
			want = Known
		case u != nil:
			want = Updated
		}
		if statuses[i] != want {
			m.fatalf("%s: status %d, want %d", e.URL, statuses[i], want)
		}
		if want == Known {
			continue
		}
		if u == nil {
			u = &modelURL{queue: e.Queue, url: e.URL, created: uint32(m.now / 1000)}
			m.urls[e.Queue+e.URL] = u
		}
		if u.state == Leased && want == Updated {
			ended++
		}
		u.priority, u.depth, u.meta = e.Priority, e.Depth, string(e.Metadata)
		m.wait(u, e.Due)
		if e.Settled {
			u.state, u.due = Done, 0
		}
	}
	if len(done.Ended) != ended {
		m.fatalf("%d leases ended, want %d", len(done.Ended), ended)
	}
}

func (m *model) take() {
	m.promote()
	queue := m.queue()
	var list []*modelURL
	for _, u := range m.urls {
		if u.queue == queue && u.state == Waiting {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b *modelURL) int {
		if a.less(b) {
			return -1
		}
		return 1
	})
	n := 1 + m.rng.IntN(4)
	taken, left, err := m.s.Take(queue, n)
	if err != nil || len(taken) != min(n, len(list)) || int(left) != len(list)-len(taken) {
		m.fatalf("%q: took %d of %d, %d are left, %v", queue, len(taken), len(list), left, err)
	}
	for i, e := range taken {
		u := list[i]
		if u.url != e.URL || u.priority != e.Priority || u.depth != e.Depth || u.meta != string(e.Metadata) || u.created != e.Created {
			m.fatalf("%q: took %+v, want %+v", queue, e, u)
		}
		u.state, u.seq = Leased, e.Seq
	}
}

func (m *model) settle() {
	u := m.one(Leased)
	if u == nil {
		return
	}
	status, again := uint16(200+m.rng.IntN(300)), int64(0)
	if m.rng.IntN(3) == 0 {
		again = m.now + 1 + int64(m.rng.IntN(2000))
	}
	if ok, err := m.s.Done(u.seq, Visit{Time: m.now, Status: status}, again); !ok || err != nil {
		m.fatalf("done %d: %v, %v", u.seq, ok, err)
	}
	if ok, err := m.s.Done(u.seq, Visit{Time: m.now}, 0); ok || err != nil {
		m.fatalf("done twice")
	}
	m.wait(u, again)
	u.status, u.fetched = status, m.now
	if again == 0 {
		u.state = Done
	}
	m.visited = append(m.visited, u.url)
}

func (m *model) back() {
	u := m.one(Leased)
	if u == nil {
		return
	}
	due := []int64{0, m.now + 1 + int64(m.rng.IntN(500))}[m.rng.IntN(2)]
	if _, ok, err := m.s.Back(u.seq, due); !ok || err != nil {
		m.fatalf("back %d: %v, %v", u.seq, ok, err)
	}
	m.wait(u, due)
}

// remove deletes a queue or a crawl, or the URLs of it that were created before some time.
func (m *model) remove() {
	queue := m.queue()
	crawl := crawlOf(queue)
	if m.rng.IntN(4) == 0 {
		queue = ""
	}
	before := uint32(0)
	if m.rng.IntN(3) > 0 {
		before = uint32(m.now/1000) - uint32(m.rng.IntN(4))
	}
	want, leased := int64(0), 0
	for k, u := range m.urls {
		if (u.queue == queue || queue == "" && crawlOf(u.queue) == crawl) && (before == 0 || u.created < before) {
			want++
			if u.state == Leased {
				leased++
			}
			delete(m.urls, k)
		}
	}
	got, err := m.s.Delete(crawl, queue, before)
	if err != nil || got.URLs != want || len(got.Ended) != leased {
		m.fatalf("deleted %+v, %v; want %d, %d leased", got, err, want, leased)
	}
}

// act does something at random.
func (m *model) act() {
	if m.s.o.between == nil {
		m.now += int64(m.rng.IntN(50))
	}
	switch n := m.rng.IntN(92); {
	case n < 35:
		m.add()
	case n < 60:
		m.take()
	case n < 80:
		m.settle()
	case n < 90:
		m.back()
	case n < 91 && m.rng.IntN(2) == 0:
		m.check()
	default:
		m.remove()
	}
}

// die closes the shard, and opens a copy of its folder. The caller of the shard says which leases
// there are.
func (m *model) die(as string) {
	if err := m.s.Close(); err != nil {
		m.fatalf("%v", err)
	}
	m.dir = as
	m.open()
	m.promote()
	byQueue := map[string][]uint64{}
	for _, k := range slices.Sorted(maps.Keys(m.urls)) {
		u := m.urls[k]
		switch {
		case u.state != Leased:
		case m.rng.IntN(4) == 0: // this lease was lost: it waits again, where it was
			u.state = Waiting
		default:
			byQueue[u.queue] = append(byQueue[u.queue], u.seq)
		}
	}
	for queue, seqs := range byQueue {
		if unknown, err := m.s.Resume(queue, append(seqs, 1<<40)); err != nil || !slices.Equal(unknown, []uint64{1 << 40}) {
			m.fatalf("unknown %v of %v, %v", unknown, seqs, err)
		}
	}
	if err := m.s.Resumed(); err != nil {
		m.fatalf("%v", err)
	}
}

// note keeps the model as what is certain.
func (m *model) note() {
	c := &model{urls: map[string]*modelURL{}, visited: slices.Clone(m.visited)}
	for k, u := range m.urls {
		own := *u
		c.urls[k] = &own
	}
	m.committed = c
}

// snapshot copies the folder as a dying process leaves it, mostly after a commit. Without one the
// model goes back to what was certain.
func (m *model) snapshot() (copied string) {
	if m.rng.IntN(3) > 0 {
		if err := m.s.Commit(); err != nil {
			m.fatalf("%v", err)
		}
		m.note()
	} else {
		m.urls, m.visited = m.committed.urls, m.committed.visited
		m.note()
	}
	copied = filepath.Join(tempDir(m.t), "shard")
	if err := os.CopyFS(copied, os.DirFS(m.dir)); err != nil {
		m.fatalf("%v", err)
	}
	return copied
}

func (m *model) live() {
	m.open()
	m.note()
	for ; m.step < 800; m.step++ {
		switch action := m.rng.IntN(100); {
		case action < 90:
			m.act()
		case action < 92:
			m.check()
		case action < 96:
			// While files are written, the others go on, and sometimes the process dies.
			died := ""
			m.promote()
			m.note() // writing begins with a commit
			pauses := 0
			m.s.o.between = func() {
				if pauses++; pauses == 5 && died == "" { // there is one before the checkpoint
					m.note()
				}
				for range m.rng.IntN(12) {
					if died == "" {
						m.act()
					}
				}
				if died == "" && m.rng.IntN(8) == 0 {
					died = m.snapshot()
				}
			}
			if err := m.s.Flush(); err != nil {
				m.fatalf("%v", err)
			}
			m.s.o.between = nil
			if died != "" {
				m.die(died)
			}
		default:
			m.die(m.snapshot())
		}
	}
	m.check()
	var got []string
	_, err := m.s.Visits(0, 0, func(_ int64, v Visit) bool { got = append(got, v.URL); return true })
	if err != nil || !slices.Equal(got, m.visited) {
		m.fatalf("%d visits, want %d, %v", len(got), len(m.visited), err)
	}
	if err := m.s.Close(); err != nil {
		m.fatalf("%v", err)
	}
}

// check compares everything that the shard tells with the model.
func (m *model) check() {
	want := map[string]*modelURL{}
	counts := map[string]Counts{}
	var sum Counts
	for _, u := range m.urls {
		c := counts[u.queue]
		c[u.state]++
		sum[u.state]++
		counts[u.queue] = c
	}
	m.checkHeads()
	st := m.s.Stats()
	if got := (Counts{st.Pending, st.Leased, st.Later, st.Done}); got != sum || int(st.Queues) != len(counts) {
		m.fatalf("counts %v in %d queues, want %v in %d", got, st.Queues, sum, len(counts))
	}
	for _, crawl := range []string{"DEFAULT", "news"} {
		of, queues, total := map[string]Counts{}, int64(0), Counts{}
		for name, c := range counts {
			if crawlOf(name) == crawl {
				of[name], total = c, total.Plus(c)
				queues++
			}
		}
		got := map[string]Counts{}
		m.s.Queues(crawl, func(name string, c Counts) bool { got[name] = c; return true })
		if !maps.Equal(got, of) {
			m.fatalf("queues %v, want %v", got, of)
		}
		if c, n := m.s.Count(crawl, ""); c != total || n != queues {
			m.fatalf("%s: %v, %d, want %v, %d", crawl, c, n, total, queues)
		}
		clear(want)
		for k, u := range m.urls {
			if crawlOf(u.queue) == crawl {
				want[k] = u
			}
		}
		m.checkList(crawl, "", want)
	}
	queue := m.queue()
	maps.DeleteFunc(want, func(string, *modelURL) bool { return true })
	for k, u := range m.urls {
		if u.queue == queue {
			want[k] = u
		}
	}
	m.checkList(crawlOf(queue), queue, want)
	for i := range 400 {
		url := fmt.Sprintf("https://%s/%d", queue[len(crawlOf(queue))+1:], i)
		got, ok, err := m.s.Find(queue, url)
		u := want[queue+url]
		if err != nil || ok != (u != nil) {
			m.fatalf("find %s: %v, %v, want %v", url, ok, err, u)
		}
		if ok {
			m.compare(&got, u)
		}
	}
}

func (m *model) checkList(crawl, queue string, want map[string]*modelURL) {
	m.t.Helper()
	got := map[string]bool{}
	for after := (Cursor{}); ; {
		list, next, err := m.s.List(crawl, queue, after, 1+m.rng.IntN(90))
		if err != nil {
			m.fatalf("%v", err)
		}
		if len(list) == 0 {
			break
		}
		for i := range list {
			k := list[i].Queue + list[i].URL
			if want[k] == nil || got[k] {
				m.fatalf("listed %+v, twice %v", list[i], got[k])
			}
			got[k] = true
			m.compare(&list[i], want[k])
		}
		after = next
	}
	if len(got) != len(want) {
		m.fatalf("listed %d URLs, want %d", len(got), len(want))
	}
}

func (m *model) compare(l *Listed, u *modelURL) {
	m.t.Helper()
	if l.State != u.state || l.Due != u.due || l.Priority != u.priority || l.Depth != u.depth || string(l.Metadata) != u.meta ||
		l.Created != u.created || l.Status != u.status || int64(l.Fetched) != u.fetched/1000 {
		m.fatalf("listed %+v, want %+v", *l, *u)
	}
}

// tempDir returns a folder in memory, if there is one: these tests wait for the disk thousands of
// times, and none looks at what a machine forgets.
func tempDir(t *testing.T) string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm")
	}
	return t.TempDir()
}

// add is Add with the ids of the entries.
func add(s *Shard, entries []Entry) ([]AddStatus, Change, error) {
	ids := make([]ID, len(entries))
	for i, e := range entries {
		ids[i] = IDOf(e.Queue+"\x00"+e.URL, len(e.Queue))
	}
	return s.Add(ids, entries)
}

func open(t *testing.T, dir string) *Shard {
	t.Helper()
	s, torn, err := Open(dir, Options{MemoryBytes: 1 << 20})
	if err != nil || torn != nil {
		t.Fatal(torn, err)
	}
	return s
}

// TestFlippedBits holds that a changed bit in any file is found, or changes nothing.
func TestFlippedBits(t *testing.T) {
	most := 600 / testenv.Every(10) // bytes of a file
	dir := filepath.Join(tempDir(t), "shard")
	s := open(t, dir)
	fill := func(from int) {
		var entries []Entry
		for i := range 20 {
			entries = append(entries, Entry{Queue: QueueName("c", "a.example"), URL: fmt.Sprintf("https://a.example/%d", from+i)})
		}
		entries = append(entries,
			Entry{Queue: QueueName("c", "a.example"), URL: fmt.Sprintf("https://a.example/later/%d", from), Due: 1 << 60, Metadata: []byte("m")},
			Entry{Queue: QueueName("c", "gone.example"), URL: fmt.Sprintf("https://gone.example/%d", from)},
			Entry{Queue: QueueName("c", "old.example"), URL: fmt.Sprintf("https://old.example/%d", from)},
		)
		if _, _, err := add(s, entries); err != nil {
			t.Fatal(err)
		}
		if from == 0 {
			if got, err := s.Delete("c", QueueName("c", "gone.example"), 0); err != nil || got.URLs != 1 {
				t.Fatal(got, err)
			}
			if got, err := s.Delete("c", QueueName("c", "old.example"), 1<<31); err != nil || got.URLs != 1 {
				t.Fatal(got, err)
			}
		}
		taken, _, err := s.Take(entries[0].Queue, 3)
		if err != nil || len(taken) != 3 {
			t.Fatal(taken, err)
		}
		for _, e := range taken[:2] {
			if ok, err := s.Done(e.Seq, Visit{Time: 5, Status: 200}, 0); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	fill(0)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	fill(100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file := filepath.Join(dir, path)
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// Every byte of what is short.
		for i := 0; i < len(data); i += 1 + len(data)/most {
			copied := filepath.Join(tempDir(t), "shard")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				return err
			}
			changed := slices.Clone(data)
			changed[i] ^= 1 << (i % 8)
			if err := os.WriteFile(filepath.Join(copied, path), changed, 0o666); err != nil {
				return err
			}
			got, err := contents(copied)
			if err == nil && got != want {
				t.Fatalf("%s: byte %d changes the contents:\n%s\nwant\n%s", path, i, got, want)
			}
			if err := os.RemoveAll(copied); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents returns everything that a shard has, as text. What Open has cut from a journal is an
// error: bits do not flip in what a dying process has written last.
func contents(dir string) (text string, err error) {
	s, torn, err := Open(dir, Options{MemoryBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if torn != nil {
		return "", fmt.Errorf("%s", torn)
	}
	if err := s.Resumed(); err != nil {
		return "", err
	}
	taken, _, err := s.Take(QueueName("c", "a.example"), 1000)
	if err != nil {
		return "", err
	}
	for after := (Cursor{}); ; {
		list, next, err := s.List("c", "", after, 7)
		if err != nil {
			return "", err
		}
		for _, l := range list {
			text += fmt.Sprintf("%+v\n", l)
		}
		if after = next; len(list) == 0 {
			break
		}
	}
	for _, e := range taken {
		text += fmt.Sprintf("%d %s %d %d\n", e.Seq, e.URL, e.Priority, e.Tries)
	}
	_, err = s.Visits(0, 0, func(n int64, v Visit) bool { text += fmt.Sprintf("%d %+v\n", n, v); return true })
	return text, err
}
