package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Takedowns is a set of rules in memory. It is safe for concurrent use once no rule is added any
// more.
type Takedowns struct {
	all []Takedown
	// byName has the rules of each name of Rule.Names. domains has the rules of kind Domain.
	byName  map[string][]int
	domains map[string][]int
}

// NewTakedowns returns a set.
func NewTakedowns(rules ...Takedown) *Takedowns {
	s := &Takedowns{byName: map[string][]int{}, domains: map[string][]int{}}
	for _, r := range rules {
		s.add(r)
	}
	return s
}

func (s *Takedowns) add(r Takedown) {
	i := len(s.all)
	s.all = append(s.all, r)
	for _, name := range r.Names() {
		s.byName[name] = append(s.byName[name], i)
	}
	if r.Kind == DomainTarget {
		s.domains[r.Host] = append(s.domains[r.Host], i)
	}
}

// Len is the number of rules.
func (s *Takedowns) Len() int { return len(s.all) }

// All returns the rules. They must not be changed.
func (s *Takedowns) All() []Takedown { return s.all }

// Find returns the rule with an id.
func (s *Takedowns) Find(id string) (Takedown, bool) {
	i := slices.IndexFunc(s.all, func(r Takedown) bool { return r.ID == id })
	if i < 0 {
		return Takedown{}, false
	}
	return s.all[i], true
}

// With returns the set with another rule.
func (s *Takedowns) With(r Takedown) *Takedowns {
	return NewTakedowns(append(slices.Clone(s.all), r)...)
}

// Without returns the set without a rule.
func (s *Takedowns) Without(id string) *Takedowns {
	return NewTakedowns(slices.DeleteFunc(slices.Clone(s.all), func(r Takedown) bool { return r.ID == id })...)
}

// Names returns all domains of which the rules can hide rows, ascending; see Target.Names.
func (s *Takedowns) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Domains returns the domains that rules of kind Domain name, ascending.
func (s *Takedowns) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// Pick returns the set of the rules with these ids, and whether it has all of them.
func (s *Takedowns) Pick(ids []string) (picked *Takedowns, all bool) {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	picked = NewTakedowns()
	for i := range s.all {
		if wanted[s.all[i].ID] {
			picked.add(s.all[i])
		}
	}
	return picked, picked.Len() == len(wanted)
}

// IDs returns the ids of the rules that can hide rows of a domain in a dataset, ascending.
func (s *Takedowns) IDs(domain string, dataset uint32) (ids []string) {
	s.each(domain, func(r *Takedown) {
		if r.DatasetID == 0 || r.DatasetID == dataset {
			ids = append(ids, r.ID)
		}
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}

// For returns what tells which rows of a domain the rules hide, and nil if they hide none. Nil
// Rules hide nothing.
func (s *Takedowns) For(domain string) *Matcher {
	if s == nil {
		return nil
	}
	var m *Matcher
	s.each(domain, func(r *Takedown) {
		if m == nil {
			m = &Matcher{domain: domain}
		}
		m.add(r)
	})
	return m
}

// each calls do with the rules that can hide rows of a domain.
func (s *Takedowns) each(domain string, do func(r *Takedown)) {
	add := func(list []int) {
		for _, i := range list {
			do(&s.all[i])
		}
	}
	add(s.byName[domain])
	if !strings.HasPrefix(domain, "[") {
		for name := domain; ; {
			_, above, ok := strings.Cut(name, ".")
			if !ok {
				break
			}
			add(s.domains[above])
			name = above
		}
	}
}

// scope is where and when a rule holds.
type scope struct {
	dataset  uint32
	from, to *int64
}

func (s *scope) has(dataset uint32) bool { return s.dataset == 0 || s.dataset == dataset }

func (s *scope) hides(r *Row) bool {
	if !s.has(r.Dataset) {
		return false
	}
	if s.from == nil && s.to == nil {
		return true
	}
	return r.HasTS && (s.from == nil || *s.from <= r.TS) && (s.to == nil || r.TS < *s.to)
}

func anyHides(scopes []scope, r *Row) bool {
	for i := range scopes {
		if scopes[i].hides(r) {
			return true
		}
	}
	return false
}

// Row is a row as rules see it.
type Row struct {
	Dataset            uint32
	Scheme, Host, Path string
	Port               int32 // -1 for the scheme's default
	TS                 int64
	HasTS              bool
}

// Matcher tells which rows of one domain are hidden. A nil Matcher hides none.
type Matcher struct {
	domain string
	scopes []scope // of all rules
	all    []scope // of rules that hide the whole domain
	// under has the scopes of a name and all hosts below it, hosts those of a host alone.
	under, hosts map[string][]scope
	urls         map[address][]pathScope
	prefixes     map[string]*prefixes // by host
}

// address is the host and the path of a URL.
type address struct{ host, path string }

// pathScope is the scope of a rule about URLs.
type pathScope struct {
	scheme string
	port   int32
	scope
}

func (p *pathScope) hides(r *Row) bool {
	return (p.scheme == "" || p.scheme == r.Scheme) && p.port == max(r.Port, 0) && p.scope.hides(r)
}

// prefixes are those of one host. A path is looked up by each length that any of them has, so that
// many of them cost little more than one.
type prefixes struct {
	lengths []int // ascending
	rules   map[string][]pathScope
}

func (m *Matcher) add(r *Takedown) {
	s := scope{r.DatasetID, r.From, r.To}
	m.scopes = append(m.scopes, s)
	put := func(to *map[string][]scope) {
		if *to == nil {
			*to = map[string][]scope{}
		}
		(*to)[r.Host] = append((*to)[r.Host], s)
	}
	switch r.Kind {
	case DomainTarget:
		if below(m.domain, r.Host) {
			m.all = append(m.all, s)
		} else {
			put(&m.under)
		}
	case HostTarget:
		put(&m.hosts)
	case URLTarget:
		if m.urls == nil {
			m.urls = map[address][]pathScope{}
		}
		at := address{r.Host, r.Path}
		m.urls[at] = append(m.urls[at], pathScope{r.Scheme, r.Port, s})
	case PrefixTarget:
		if m.prefixes == nil {
			m.prefixes = map[string]*prefixes{}
		}
		p := m.prefixes[r.Host]
		if p == nil {
			p = &prefixes{rules: map[string][]pathScope{}}
			m.prefixes[r.Host] = p
		}
		p.rules[r.Path] = append(p.rules[r.Path], pathScope{r.Scheme, r.Port, s})
		if at, ok := slices.BinarySearchFunc(p.lengths, len(r.Path), cmp.Compare[int]); !ok {
			p.lengths = slices.Insert(p.lengths, at, len(r.Path))
		}
	}
}

// May reports whether any rule can hide rows of a dataset.
func (m *Matcher) May(dataset uint32) bool {
	return m != nil && slices.ContainsFunc(m.scopes, func(s scope) bool { return s.has(dataset) })
}

// HidesAll reports whether all rows of the domain in a dataset are hidden, whatever they are.
func (m *Matcher) HidesAll(dataset uint32) bool {
	return m != nil && slices.ContainsFunc(m.all, func(s scope) bool {
		return s.has(dataset) && s.from == nil && s.to == nil
	})
}

// NeedsPaths reports whether Hides looks at schemes, ports and paths.
func (m *Matcher) NeedsPaths() bool { return m != nil && (m.urls != nil || m.prefixes != nil) }

// Hides reports whether a row of the domain is hidden.
func (m *Matcher) Hides(r *Row) bool {
	if m == nil {
		return false
	}
	if anyHides(m.all, r) || anyHides(m.hosts[r.Host], r) {
		return true
	}
	if m.under != nil {
		for name := r.Host; ; {
			if anyHides(m.under[name], r) {
				return true
			}
			_, above, ok := strings.Cut(name, ".")
			if !ok {
				break
			}
			name = above
		}
	}
	if rules, ok := m.urls[address{r.Host, r.Path}]; ok {
		for i := range rules {
			if rules[i].hides(r) {
				return true
			}
		}
	}
	p := m.prefixes[r.Host]
	if p == nil {
		return false
	}
	for _, n := range p.lengths {
		if n > len(r.Path) {
			break
		}
		rules := p.rules[r.Path[:n]]
		for i := range rules {
			if rules[i].hides(r) {
				return true
			}
		}
	}
	return false
}
