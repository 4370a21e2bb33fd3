package lookup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// bulkTexts is how many texts are looked up in the perfect hash together.
	bulkTexts = 4096
	// bulkPairs is how many pairs of domain and dataset, counted in each segment, have their totals
	// in memory at once, some 8 MiB, unless one domain has more.
	bulkPairs = 1 << 16
	// textsInTurn is how many texts are worked on between two chances for other requests.
	textsInTurn = 64
)

// BulkQuery says what to look up of each domain.
type BulkQuery struct {
	// Datasets are the only datasets that count, ascending. Nil stands for all.
	Datasets []uint32
	// PresenceOnly leaves out the totals. Then nothing is read but mapped files, and the entries
	// of deletion tables.
	PresenceOnly bool
}

// Bulk looks up many domains in one version, as one set of takedowns leaves it. It is for one
// goroutine.
type Bulk struct {
	// Version is the id of the version. TakedownEpoch tells which takedowns the answers take into
	// account.
	Version       string
	TakedownEpoch uint64

	s     *Snapshot
	v     *view
	q     BulkQuery
	pairs int                 // bulkPairs, fewer in tests
	names *urlnorm.Normalizer // by the version's list
	own   *turns.Turn         // of the context that Bulk was made for

	// Of the texts that are looked up together.
	lines    []bulkLine
	hosts    []byte
	domains  []bulkDomain
	index    map[segment.Key]int32 // of domains
	keys     []segment.Key
	ordinals [][]uint32 // of the segments
	last     BulkAnswer // that was passed on

	// Of the domains whose totals are in memory together.
	group  int
	loaded []bulkLoaded
	sets   []bulkSet
	set    []uint32 // of all sets
	totals []DatasetTotals
	ranges [][]segment.EntryRange // of the segments: what is to be read
	finds  [][]bulkFind           // of the segments: of each range
	union  []uint32
}

// bulkLine is one text.
type bulkLine struct {
	domain int32 // index of its domain, -1 if it has none
	host   string
	others []string
	reject *urlnorm.RejectError
}

// bulkDomain is a domain that was asked for at least once.
type bulkDomain struct {
	name string
	key  segment.Key
	// suffix tells that it is a public suffix, once isSuffix has looked.
	suffix, looked bool

	group  int   // in which it was loaded, from 1
	loaded int32 // its index in loaded
}

// bulkLoaded is a domain of the group.
type bulkLoaded struct {
	segment.Key
	domain       int32 // its index in domains
	sets, setEnd int32 // in sets
	from, to     int32 // in totals
}

// bulkSet is the set of datasets that a segment has of a domain.
type bulkSet struct{ segment, from, to int32 } // in set

// bulkFind says what to do with the entries of a range.
type bulkFind struct {
	loaded int32    // index in loaded
	set    []uint32 // that the entries have to be of
	left   []deletion.Entry
}

// BulkAnswer is what a version has of one text's domain.
type BulkAnswer struct {
	// Reject is why there is no answer, or nil. The other fields of such an answer are not set.
	Reject *urlnorm.RejectError
	// Host is canonical. Domain is its domain.
	Host, Domain string
	DomainID     uint64
	// OtherDomains are as in Answer.
	OtherDomains []string
	// PublicSuffix tells that the host is a public suffix: names below it are other domains.
	PublicSuffix bool
	// Datasets are those that have the domain, by id. Their totals are zero if the query is for
	// their presence only.
	Datasets []DatasetTotals
}

// Bulk returns what looks up many domains for ctx.
func (s *Snapshot) Bulk(ctx context.Context, q BulkQuery) (*Bulk, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	names, err := urlnorm.New(cmp.Or(s.suffixes, urlnorm.BuiltinSuffixes()), urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	b := &Bulk{
		Version: s.version.ID, TakedownEpoch: v.takedowns.epoch, s: s, v: v, q: q, pairs: bulkPairs, names: names, own: turns.Own(ctx),
		index: map[segment.Key]int32{}, ordinals: make([][]uint32, len(s.segments)),
		ranges: make([][]segment.EntryRange, len(s.segments)), finds: make([][]bulkFind, len(s.segments)),
	}
	return b, nil
}

// Lookup calls answer for each text, in order. A text is any spelling of a host or URL. The answer
// is the same as that of Domain. It is valid during the call. An error of answer ends the calls.
//
// Equal domains are looked up once, and a frame of the index is read once for all domains in it, as
// long as their totals fit into memory together.
func (b *Bulk) Lookup(ctx context.Context, texts [][]byte, answer func(i int, a *BulkAnswer) error) error {
	for at := 0; at < len(texts); at += bulkTexts {
		some := texts[at:min(at+bulkTexts, len(texts))]
		if err := b.parse(ctx, some); err != nil {
			return err
		}
		if err := b.answer(ctx, func(i int, a *BulkAnswer) error { return answer(at+i, a) }); err != nil {
			return err
		}
	}
	return nil
}

// parse finds the domains of texts.
func (b *Bulk) parse(ctx context.Context, texts [][]byte) error {
	b.lines, b.hosts, b.domains, b.keys = b.lines[:0], b.hosts[:0], b.domains[:0], b.keys[:0]
	clear(b.index)
	b.group = 0
	ends := make([]int, 0, 2*len(texts)) // in hosts: of the host, and where its domain starts
	targets := map[int]Target{}          // those that need resolve
	for i, text := range texts {
		if i%textsInTurn == 0 {
			if err := b.own.Yield(ctx); err != nil {
				return err
			}
		}
		u, doubt, err := parseHost(b.names, text)
		b.lines = append(b.lines, bulkLine{domain: -1})
		if err != nil {
			if !errors.As(err, &b.lines[i].reject) {
				return err
			}
		} else if b.hosts = append(b.hosts, u.Host...); doubt != nil || b.s.LacksSuffixes() {
			targets[i] = Target{Host: strings.Clone(u.Host), doubt: doubt}
		}
		ends = append(ends, len(b.hosts), len(b.hosts)-len(u.Domain))
	}
	hosts := string(b.hosts)
	start := 0
	for i := range b.lines {
		line := &b.lines[i]
		end, at := ends[2*i], ends[2*i+1]
		line.host, start = hosts[start:end], end
		if line.reject != nil {
			continue
		}
		r := resolved{domain: hosts[at:end]}
		if t, ok := targets[i]; ok {
			var err error
			if r, err = b.s.resolve(ctx, b.v, t); errors.As(err, &line.reject) {
				continue
			} else if err != nil {
				return err
			}
		} else {
			r.key = segment.KeyOf(r.domain)
		}
		line.domain, line.others = b.add(r.domain, r.key), r.others
	}
	return b.locate()
}

// add returns the index of a domain.
func (b *Bulk) add(name string, k segment.Key) int32 {
	if i, ok := b.index[k]; ok {
		return i
	}
	i := int32(len(b.domains))
	b.domains = append(b.domains, bulkDomain{name: name, key: k})
	b.keys = append(b.keys, k)
	b.index[k] = i
	return i
}

// locate finds the ordinals of all domains.
func (b *Bulk) locate() error {
	for i, seg := range b.s.segments {
		b.ordinals[i] = slices.Grow(b.ordinals[i][:0], len(b.keys))[:len(b.keys)]
		if err := seg.Ordinals(b.keys, b.ordinals[i]); err != nil {
			return err
		}
	}
	return nil
}

// answer answers all lines, as many at a time as have totals that fit into memory.
func (b *Bulk) answer(ctx context.Context, answer func(i int, a *BulkAnswer) error) error {
	for at := 0; at < len(b.lines); {
		b.begin()
		end := at
		for ; end < len(b.lines) && len(b.set) < b.pairs; end++ {
			if end%textsInTurn == 0 {
				if err := b.own.Yield(ctx); err != nil {
					return err
				}
			}
			if d := b.lines[end].domain; d >= 0 {
				if err := b.load(d); err != nil {
					return err
				}
			}
		}
		if err := b.gather(ctx); err != nil {
			return err
		}
		if err := b.sum(ctx); err != nil {
			return err
		}
		for ; at < end; at++ {
			if at%textsInTurn == 0 {
				if err := b.own.Yield(ctx); err != nil {
					return err
				}
			}
			b.last = b.of(&b.lines[at])
			if err := answer(at, &b.last); err != nil {
				return err
			}
		}
	}
	return nil
}

// of returns the answer for a line whose domain the group has.
func (b *Bulk) of(l *bulkLine) BulkAnswer {
	if l.domain < 0 {
		return BulkAnswer{Reject: l.reject}
	}
	d := &b.domains[l.domain]
	have := &b.loaded[d.loaded]
	return BulkAnswer{
		Host: l.host, Domain: d.name, DomainID: d.key.ID, OtherDomains: l.others,
		PublicSuffix: l.host == d.name && b.isSuffix(d), Datasets: b.totals[have.from:have.to:have.to],
	}
}

// isSuffix tells whether a domain is a public suffix.
func (b *Bulk) isSuffix(d *bulkDomain) bool {
	if !d.looked {
		d.suffix, d.looked = b.s.IsPublicSuffix(Target{Host: d.name}), true
	}
	return d.suffix
}

// begin begins a group of domains.
func (b *Bulk) begin() {
	b.group++
	b.loaded, b.sets, b.set, b.totals = b.loaded[:0], b.sets[:0], b.set[:0], b.totals[:0]
	for i := range b.finds {
		b.ranges[i], b.finds[i] = b.ranges[i][:0], b.finds[i][:0]
	}
}

// load finds the datasets that the segments have of a domain, unless the group has it.
func (b *Bulk) load(at int32) error {
	d := &b.domains[at]
	if d.group == b.group {
		return nil
	}
	d.group = b.group
	first := len(b.sets)
	for i := range b.s.segments {
		ordinal := b.ordinals[i][at]
		if ordinal == mph.Absent {
			continue
		}
		from := len(b.set)
		var err error
		if b.set, err = b.s.appendAllMembers(i, ordinal, b.set); err != nil {
			return err
		}
		b.sets = append(b.sets, bulkSet{int32(i), int32(from), int32(len(b.set))})
	}
	b.loaded = append(b.loaded, bulkLoaded{Key: d.key, domain: at, sets: int32(first), setEnd: int32(len(b.sets))})
	return nil
}

// gather makes the totals of the group, still zero, and finds what is to be read for them. It goes
// by key, as postings do, so that sum passes through memory in order.
func (b *Bulk) gather(ctx context.Context) error {
	if !b.q.PresenceOnly {
		slices.SortFunc(b.loaded, func(a, b bulkLoaded) int { return segment.CompareKeys(a.Key, b.Key) })
	}
	for at := range b.loaded {
		if at%textsInTurn == 0 {
			if err := b.own.Yield(ctx); err != nil {
				return err
			}
		}
		l := &b.loaded[at]
		b.domains[l.domain].loaded = int32(at)
		if err := b.gatherDomain(ctx, at, l); err != nil {
			return err
		}
	}
	return nil
}

// gatherDomain is gather for loaded[at].
func (b *Bulk) gatherDomain(ctx context.Context, at int, l *bulkLoaded) error {
	b.union = b.union[:0]
	sources := 0
	for _, set := range b.sets[l.sets:l.setEnd] {
		i, full := set.segment, b.set[set.from:set.to:set.to]
		var left []deletion.Entry
		if b.v.tables[i].May(l.Key) {
			var err error
			if left, err = b.v.tables[i].Entries(ctx, l.Key, 0, 1<<32-1); err != nil {
				return err
			}
		}
		before := len(b.union)
		b.union = b.appendVisible(b.union, full, left)
		if len(b.union) == before {
			continue
		}
		sources++
		if !b.q.PresenceOnly {
			asked := b.asked(full)
			b.ranges[i] = append(b.ranges[i], segment.EntryRange{Key: l.Key, First: asked[0], Last: asked[len(asked)-1]})
			b.finds[i] = append(b.finds[i], bulkFind{loaded: int32(at), set: asked, left: left})
		}
	}
	if sources > 1 {
		slices.Sort(b.union)
		b.union = slices.Compact(b.union)
	}
	l.from = int32(len(b.totals))
	for _, id := range b.union {
		known, ok := b.s.Dataset(id)
		if !ok {
			return codec.Corrupt(segment.Prefix("*")+segment.MembershipName, "bitmaps", -1,
				"datasets of version "+b.s.version.ID, id)
		}
		b.totals = append(b.totals, DatasetTotals{ID: id, Name: known.Name})
	}
	l.to = int32(len(b.totals))
	return nil
}

// asked are the datasets of full from the first that was asked for to the last.
func (b *Bulk) asked(full []uint32) []uint32 {
	only := b.q.Datasets
	if only == nil {
		return full
	}
	from, _ := slices.BinarySearch(full, only[0])
	to, ok := slices.BinarySearch(full, only[len(only)-1])
	if ok {
		to++
	}
	return full[from:to]
}

// appendVisible appends those datasets of full that were asked for, may be read, and of which
// something is left. All ascend.
func (b *Bulk) appendVisible(out, full []uint32, left []deletion.Entry) []uint32 {
	if b.q.Datasets == nil && len(left) == 0 && b.s.readable == nil {
		return append(out, full...)
	}
	only := b.q.Datasets
	for _, id := range full {
		if b.q.Datasets != nil {
			for len(only) > 0 && only[0] < id {
				only = only[1:]
			}
			if len(only) == 0 || only[0] != id {
				continue
			}
		}
		if !b.s.mayRead(id) {
			continue
		}
		for len(left) > 0 && left[0].Dataset < id {
			left = left[1:]
		}
		if len(left) > 0 && left[0].Dataset == id && left[0].Rows == 0 {
			continue
		}
		out = append(out, id)
	}
	return out
}

// sum reads the totals of the group.
func (b *Bulk) sum(ctx context.Context) error {
	var mu sync.Mutex // guards totals
	return b.s.each(ctx, func(i int) bool { return len(b.finds[i]) > 0 }, func(ctx context.Context, i int) error {
		return b.s.segments[i].EntryRanges(ctx, b.ranges[i], func(j int, entries []segment.Entry) error {
			f, id := &b.finds[i][j], b.ranges[i][j].ID
			if len(entries) != len(f.set) {
				return b.s.disagree(i, id)
			}
			for n := range entries {
				if entries[n].Dataset != f.set[n] {
					return b.s.disagree(i, id)
				}
			}
			if len(f.left) > 0 {
				var err error
				if entries, err = b.v.apply(i, entries, f.left); err != nil {
					return err
				}
			}
			l := &b.loaded[f.loaded]
			totals := b.totals[l.from:l.to]
			mu.Lock()
			defer mu.Unlock()
			for n := range entries {
				for len(totals) > 0 && totals[0].ID < entries[n].Dataset {
					totals = totals[1:]
				}
				if len(totals) > 0 && totals[0].ID == entries[n].Dataset {
					totals[0].Add(entries[n].Totals)
				}
			}
			return nil
		})
	})
}
