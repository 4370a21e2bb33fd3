package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/suppress"
)

// changeEvery is how many publishes there are between two changes of the takedowns, of which there
// are at most mostChanges: the rules add up.
const (
	changeEvery = 2
	mostChanges = 200
)

// flipRule is a takedown, as the test understands it.
type flipRule struct {
	kind     catalog.TargetKind
	text     string // a domain, a host, a URL, or what URLs begin with
	dataset  int    // 0 for all
	from, to int64  // 0 for no limit
}

// hides reports whether a takedown hides a row.
func (r *flipRule) hides(dataset int, row testlake.Record) bool {
	if r.dataset != 0 && r.dataset != dataset || r.from != 0 && row.TS < r.from || r.to != 0 && row.TS >= r.to {
		return false
	}
	host := strings.Split(row.URL, "/")[2]
	switch r.kind {
	case catalog.DomainTarget:
		return host == r.text || strings.HasSuffix(host, "."+r.text)
	case catalog.HostTarget:
		return host == r.text
	case catalog.URLTarget:
		return row.URL == r.text
	default:
		return strings.HasPrefix(row.URL, r.text)
	}
}

// flipTakedowns are the takedowns of a lake, which one goroutine changes.
type flipTakedowns struct {
	rng *rand.Rand
	// undropped is held while a takedown that will be lifted is in force, and while a compaction
	// runs: what a compaction has dropped does not come back when its takedown is lifted.
	undropped sync.Mutex
	lift      string // the id of the takedown that is to be lifted, "" for none
	liftAt    int    // the change that does so
	slowest   time.Duration

	mu    sync.Mutex
	rules [][]flipRule // by epoch
	added map[catalog.TargetKind]int
	// lifted and hidden count the takedowns that were lifted, and the rows of walks that were
	// hidden.
	lifted, hidden int
}

// of returns the takedowns of an epoch.
func (k *flipTakedowns) of(epoch int) ([]flipRule, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if epoch < 0 || epoch >= len(k.rules) {
		return nil, fmt.Errorf("epoch %d, and the lake has had %d", epoch, len(k.rules)-1)
	}
	return k.rules[epoch], nil
}

// hides reports whether takedowns hide a row.
func hides(rules []flipRule, dataset int, row testlake.Record) bool {
	return slices.ContainsFunc(rules, func(r flipRule) bool { return r.hides(dataset, row) })
}

// choose makes a takedown that hides some of the rows with a serial number.
func (k *flipTakedowns) choose(spec int, domain string, temporary bool) flipRule {
	if temporary {
		return flipRule{kind: catalog.DomainTarget, text: domain, dataset: k.rng.IntN(len(flipDatasets) + 1)}
	}
	host := flipHost(spec, k.rng.IntN(3), domain)
	var r flipRule
	switch k.rng.IntN(4) {
	case 0:
		r = flipRule{kind: catalog.HostTarget, text: flipHost(spec, 2, domain)}
	case 1:
		r = flipRule{kind: catalog.PrefixTarget, text: fmt.Sprintf("https://%s/%d/", host, spec)}
	case 2:
		r = flipRule{kind: catalog.URLTarget, text: fmt.Sprintf("https://%s/%d/%d", host, spec, k.rng.IntN(60))}
	default:
		first := flipTime(spec, 0)
		r = flipRule{kind: catalog.DomainTarget, text: domain, from: first, to: first + flipTime(0, 20) - flipTime(0, 0)}
	}
	if k.rng.IntN(4) == 0 {
		r.dataset = 1 + k.rng.IntN(len(flipDatasets))
	}
	return r
}

// change adds a takedown, or lifts the one that is to be lifted. It returns when the server shows
// what it did.
func (f *flipper) change(n int, served func() int) error {
	k := &f.takedowns
	f.mu.Lock()
	newest := f.spec
	f.mu.Unlock()
	before, err := k.of(len(k.rules) - 1)
	if err != nil {
		return err
	}
	// The rules are known before the server can show them.
	next := func(rules []flipRule) int {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.rules = append(k.rules, rules)
		return len(k.rules) - 1
	}
	if k.lift != "" && n >= k.liftAt {
		epoch := next(before[1:]) // it is the first one
		res, err := suppress.Lift(f.t.Context(), f.store, k.lift, "test", "over", suppress.Options{TempDir: f.temp})
		if err != nil {
			return err
		}
		k.lift = ""
		k.undropped.Unlock()
		k.lifted++
		return f.shown(epoch, int(res.Epoch), served)
	}
	temporary := k.lift == "" && n%3 == 0 && k.undropped.TryLock()
	r := k.choose(1+k.rng.IntN(newest), f.domain(k.rng), temporary)
	if slices.Contains(before, r) {
		if temporary {
			k.undropped.Unlock()
		}
		return nil
	}
	rule := catalog.Takedown{Reason: "test", Created: time.Now().UTC().Truncate(time.Second)}
	rule.ID = catalog.NewTakedownID(rule.Created)
	if rule.Target, err = catalog.ParseTarget(urlnorm.BuiltinSuffixes(), r.kind, r.text); err != nil {
		return err
	}
	if r.dataset != 0 {
		rule.DatasetID, rule.Dataset = uint32(r.dataset), flipDatasets[r.dataset-1]
	}
	if r.to != 0 {
		rule.From, rule.To = &r.from, &r.to
	}
	after := append(slices.Clone(before), r)
	if temporary {
		after = append([]flipRule{r}, before...)
		k.lift, k.liftAt = rule.ID, n+1+k.rng.IntN(2)
	}
	epoch := next(after)
	res, err := suppress.Add(f.t.Context(), f.store, rule, suppress.Options{TempDir: f.temp})
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.added[r.kind]++
	k.mu.Unlock()
	return f.shown(epoch, int(res.Epoch), served)
}

// shown returns when the server has the takedowns of an epoch.
func (f *flipper) shown(want, got int, served func() int) error {
	if got != want {
		return fmt.Errorf("the change is epoch %d, want %d", got, want)
	}
	began := time.Now()
	late, tick := time.After(time.Minute), time.Tick(time.Millisecond)
	for served() < want {
		select {
		case <-tick:
		case <-late:
			return fmt.Errorf("the server has epoch %d a minute after %d", served(), want)
		}
	}
	f.takedowns.slowest = max(f.takedowns.slowest, time.Since(began))
	return nil
}

// flipHost is the host of rows with a serial number: the domain, or one below it.
func flipHost(spec, i int, domain string) string {
	switch i % 3 {
	case 0:
		return domain
	case 1:
		return "www." + domain
	default:
		return fmt.Sprintf("v%d.%s", spec%50, domain)
	}
}

// flipTime is the time of row i of those with a serial number.
func flipTime(spec, i int) int64 {
	return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(spec)*time.Hour + time.Duration(i)*time.Minute).UnixMilli()
}

// urls asks for a page of URLs. It may show nothing that was taken down before the server's last
// refresh, nor what is taken down at the epoch that the page names.
func (f *flipper) urls(get func(path string, v any) error, served func() int, path string) (page urlsAnswer, rules []flipRule, err error) {
	least := served()
	if err = get(path, &page); err != nil {
		return page, nil, err
	}
	if page.TakedownEpoch < least {
		return page, nil, fmt.Errorf("GET %s: epoch %d, and the server had %d before", path, page.TakedownEpoch, least)
	}
	if rules, err = f.takedowns.of(page.TakedownEpoch); err != nil {
		return page, nil, err
	}
	for _, item := range page.Items {
		row, err := recordOf(item)
		if err != nil {
			return page, nil, err
		}
		if hides(rules, page.DatasetID, row) {
			return page, nil, fmt.Errorf("GET %s: %s is taken down at epoch %d", path, item.URL, page.TakedownEpoch)
		}
	}
	return page, rules, nil
}

// recordOf is the row of an item.
func recordOf(item urlItem) (testlake.Record, error) {
	if item.TS == nil {
		return testlake.Record{}, fmt.Errorf("item %+v has no time", item)
	}
	ts, err := time.Parse(time.RFC3339Nano, *item.TS)
	return testlake.Record{URL: item.URL, TS: ts.UnixMilli(), HasTS: true}, err
}
