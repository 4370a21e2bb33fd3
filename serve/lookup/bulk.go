package lookup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// bulkTexts is how many texts are looked up in the perfect hash together.
	bulkTexts = 4096
	// bulkPairs is how many pairs of domain and dataset have their totals in memory at once, some 8
	// MiB, unless one domain has more.
	bulkPairs = 1 << 16
	// textsInTurn is how many texts are worked on between two chances for other requests.
	textsInTurn = 64
)

// BulkQuery says what to look up of each domain.
type BulkQuery struct {
	// Datasets are the only datasets that count, ascending. Nil stands for all.
	Datasets []uint32
	// PresenceOnly leaves out the totals. Then nothing is read but mapped files, and the overlay of
	// a domain of which takedowns or retired batches may have taken something away.
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
	names *urlnorm.Normalizer // by the version's list
	own   *turns.Turn         // of the context that Bulk was made for

	// Of the texts that are looked up together.
	lines    []bulkLine
	hosts    []byte
	domains  []bulkDomain
	index    map[segment.Key]int32 // of domains
	keys     []segment.Key
	ordinals [][]uint32 // of the segments

	// Of the domains whose totals are in memory together.
	group  int
	loaded []int32 // indexes of domains
	totals []DatasetTotals
	finds  [][]bulkFind // of the segments
	set    []uint32
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
	name   string
	key    segment.Key
	suffix bool // it is a public suffix

	group    int // in which it was loaded, from 1
	from, to int // in totals
}

// bulkFind are entries to be read: those of a domain in a segment.
type bulkFind struct {
	domain int32
	segment.EntryRange
	set  []uint32 // that the entries have to be of
	left []overlay.Entry
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
		Version: s.version.ID, TakedownEpoch: v.takedowns.epoch, s: s, v: v, q: q, names: names, own: turns.Own(ctx),
		index: map[segment.Key]int32{}, ordinals: make([][]uint32, len(s.segments)), finds: make([][]bulkFind, len(s.segments)),
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
		u, singleLabel, err := parseHost(b.names, text)
		line := bulkLine{domain: -1}
		if err != nil {
			if !errors.As(err, &line.reject) {
				return err
			}
		} else if b.hosts = append(b.hosts, u.Host...); singleLabel != nil || b.s.LacksSuffixes() {
			targets[i] = Target{Host: strings.Clone(u.Host), singleLabel: singleLabel}
		}
		b.lines = append(b.lines, line)
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
	b.domains = append(b.domains, bulkDomain{name: name, key: k, suffix: b.s.IsPublicSuffix(Target{Host: name})})
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
		for ; end < len(b.lines) && len(b.totals) < bulkPairs; end++ {
			if end%textsInTurn == 0 {
				if err := b.own.Yield(ctx); err != nil {
					return err
				}
			}
			if d := b.lines[end].domain; d >= 0 {
				if err := b.load(ctx, d); err != nil {
					return err
				}
			}
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
			a, err := b.of(ctx, &b.lines[at])
			if err != nil {
				return err
			}
			if err := answer(at, &a); err != nil {
				return err
			}
		}
	}
	return nil
}

// of returns the answer for a line whose domain the group has.
func (b *Bulk) of(ctx context.Context, l *bulkLine) (BulkAnswer, error) {
	if l.domain < 0 {
		return BulkAnswer{Reject: l.reject}, nil
	}
	d := &b.domains[l.domain]
	if d.from == d.to {
		if err := (Target{Host: l.host}).several(); err != nil {
			some := false
			if b.q.Datasets != nil {
				var failed error
				if some, failed = b.s.contains(ctx, b.v, d.key); failed != nil {
					return BulkAnswer{}, failed
				}
			}
			if a := (BulkAnswer{}); !some && errors.As(err, &a.Reject) {
				return a, nil
			}
		}
	}
	return BulkAnswer{
		Host: l.host, Domain: d.name, DomainID: d.key.ID, OtherDomains: l.others,
		PublicSuffix: d.suffix && l.host == d.name, Datasets: b.totals[d.from:d.to:d.to],
	}, nil
}

// begin begins a group of domains.
func (b *Bulk) begin() {
	b.group++
	b.loaded, b.totals, b.set = b.loaded[:0], b.totals[:0], b.set[:0]
	for i := range b.finds {
		b.finds[i] = b.finds[i][:0]
	}
}

// load finds the datasets of a domain and what is to be read for their totals, unless the group has
// it.
func (b *Bulk) load(ctx context.Context, at int32) error {
	d := &b.domains[at]
	if d.group == b.group {
		return nil
	}
	d.group, d.from, d.to = b.group, len(b.totals), len(b.totals)
	b.union = b.union[:0]
	sources := 0
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
		full := b.set[from:len(b.set):len(b.set)]
		var left []overlay.Entry
		if b.v.overlays[i].May(d.key) {
			if left, err = b.v.overlays[i].Entries(ctx, d.key, 0, 1<<32-1); err != nil {
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
			b.finds[i] = append(b.finds[i], b.find(at, d.key, full, left))
		}
	}
	if sources > 1 {
		slices.Sort(b.union)
		b.union = slices.Compact(b.union)
	}
	for _, id := range b.union {
		known, ok := b.s.Dataset(id)
		if !ok {
			return codec.Corrupt(segment.Prefix("*")+segment.MembershipName, "bitmaps", -1,
				"datasets of version "+b.s.version.ID, id)
		}
		b.totals = append(b.totals, DatasetTotals{ID: id, Name: known.Name})
	}
	d.to = len(b.totals)
	return nil
}

// find is what is to be read of a domain in a segment: the entries from the first dataset that was
// asked for to the last.
func (b *Bulk) find(at int32, k segment.Key, full []uint32, left []overlay.Entry) bulkFind {
	f := bulkFind{domain: at, left: left, set: full}
	if only := b.q.Datasets; only != nil {
		from, _ := slices.BinarySearch(full, only[0])
		to, ok := slices.BinarySearch(full, only[len(only)-1])
		if ok {
			to++
		}
		f.set = full[from:to]
	}
	f.EntryRange = segment.EntryRange{Key: k, First: f.set[0], Last: f.set[len(f.set)-1]}
	return f
}

// appendVisible appends those datasets of full that were asked for, may be read, and of which
// something is left. All ascend.
func (b *Bulk) appendVisible(out, full []uint32, left []overlay.Entry) []uint32 {
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
		finds := b.finds[i]
		slices.SortFunc(finds, func(a, b bulkFind) int { return segment.CompareKeys(a.Key, b.Key) })
		ranges := make([]segment.EntryRange, len(finds))
		for j := range finds {
			ranges[j] = finds[j].EntryRange
		}
		return b.s.segments[i].EntryRanges(ctx, ranges, func(j int, entries []segment.Entry) error {
			f := &finds[j]
			if len(entries) != len(f.set) {
				return b.s.disagree(i, f.ID)
			}
			for n := range entries {
				if entries[n].Dataset != f.set[n] {
					return b.s.disagree(i, f.ID)
				}
			}
			if len(f.left) > 0 {
				var err error
				if entries, err = b.v.apply(i, entries, f.left); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			d := &b.domains[f.domain]
			totals := b.totals[d.from:d.to]
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
