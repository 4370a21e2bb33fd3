package catalog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/urlnorm"
)

// TargetKind says what a rule names.
type TargetKind string

// The kinds of rules.
const (
	// DomainTarget hides a domain with all hosts below it.
	DomainTarget TargetKind = "domain"
	// HostTarget hides one host, without hosts below it.
	HostTarget TargetKind = "host"
	// URLTarget hides one URL.
	URLTarget TargetKind = "url"
	// PrefixTarget hides all URLs of one host that begin with a text.
	PrefixTarget TargetKind = "prefix"
)

// maxReason is the most bytes of a reason, and of a name.
const maxReason = 2000

// Target is what a rule hides, in canonical form.
type Target struct {
	Kind TargetKind `json:"kind"`
	Host string     `json:"host"` // of a Domain, the domain
	// Scheme is "" if URLs of all schemes are meant. It is that of a URL or a Prefix.
	Scheme string `json:"scheme,omitempty"`
	// Port is 0 for the scheme's default.
	Port int32 `json:"port,omitempty"`
	// Path is the path and query of a URL, or what they begin with.
	Path string `json:"path,omitempty"`
}

// Takedown is a takedown.
type Takedown struct {
	ID string `json:"id"`
	Target
	// DatasetID is the only dataset in which the rule hides rows, 0 for all. Dataset is its name.
	DatasetID uint32 `json:"dataset_id,omitempty"`
	Dataset   string `json:"dataset,omitempty"`
	// From and To limit the rule to rows with a time from From on and before To, in milliseconds
	// since 1970. With either, rows without a time are not hidden.
	From *int64 `json:"from,omitempty"`
	To   *int64 `json:"to,omitempty"`
	// Reason and By are what the person who added the rule gave, Created is when.
	Reason  string    `json:"reason"`
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
}

// TargetError says why a text names nothing that a rule can hide, and what to write instead.
type TargetError struct {
	Kind         TargetKind
	Text, Detail string
}

func (e *TargetError) Error() string { return fmt.Sprintf("--%s %q: %s", e.Kind, e.Text, e.Detail) }

var targetScheme = regexp.MustCompile(`(?i)^\s*(https?|ftp)[:]`)

// ParseTarget makes the target of a kind from any spelling. The domain of a Domain is found by
// list. A URL or Prefix without a scheme is meant with every scheme. The error is a *TargetError.
func ParseTarget(list *urlnorm.SuffixList, kind TargetKind, text string) (Target, error) {
	bad := func(format string, args ...any) (Target, error) {
		return Target{}, &TargetError{kind, text, fmt.Sprintf(format, args...)}
	}
	text = strings.TrimSpace(text)
	// A canonical URL lacks control characters: the names of two lines would become one.
	if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
		return bad("character %d is %q; give one name or URL", utf8.RuneCountInString(text[:i])+1, text[i])
	}
	raw := text
	if kind == DomainTarget || kind == HostTarget {
		if strings.ContainsAny(text, "/?#@ \\") || text == "" {
			return bad("give a name alone, as in --%s example.com", kind)
		}
		if name, ok := strings.CutPrefix(text, "*."); ok {
			return bad("patterns are not known; --domain %s hides a domain with all its hosts", name)
		}
		raw = "http://" + text + "/"
	}
	u, err := urlnorm.Parse(list, raw)
	if err != nil {
		return bad("%v", err)
	}
	u = u.Clone()
	t := Target{Kind: kind, Host: u.Host}
	switch kind {
	case DomainTarget:
		below := list.Domain("a." + u.Host)
		switch {
		case u.Port >= 0:
			return bad("a domain has no port")
		case u.Domain != u.Host:
			return bad("it is a host of the domain %s; use --host %s, or --domain %s", u.Domain, u.Host, u.Domain)
		case below == "a."+u.Host && u.Host != "localhost" && !strings.HasPrefix(u.Host, "["):
			return bad("it is a public suffix, and each name below it is a domain of its own; use --host %s for that host alone",
				u.Host)
		}
		return t, nil
	case HostTarget:
		if u.Port >= 0 {
			return bad("it has a port, and a host has all of them; use --prefix http://%s:%d/", u.Host, u.Port)
		}
		return t, nil
	case URLTarget, PrefixTarget:
	default:
		return bad("no such kind")
	}
	rest := text
	if m := targetScheme.FindString(text); m != "" {
		t.Scheme = u.Scheme
		rest = strings.TrimLeft(text[len(m):], "/\\")
	}
	rest = strings.TrimLeft(rest, "/\\")
	t.Path = u.PathQuery
	if u.Port > 0 {
		t.Port = u.Port
	}
	if kind == URLTarget {
		return t, nil
	}
	if !strings.ContainsAny(rest, "/\\") {
		return bad("a prefix has the whole host and a slash, as in --prefix https://%s/; use --host %s for the host",
			u.Host, u.Host)
	}
	if strings.ContainsRune(text, '#') {
		return bad("it has a fragment, which no URL of a lake has")
	}
	// A prefix that ends in what the canonical form drops or moves would hide more than it says.
	if text[len(text)-1] != t.Path[len(t.Path)-1] || strings.Contains(text, "?") != strings.Contains(t.Path, "?") {
		return bad("its canonical form is %s, which ends otherwise; write what the URLs in the lake begin with", t)
	}
	return t, nil
}

// String returns the target's text.
func (t Target) String() string {
	if t.Kind == DomainTarget || t.Kind == HostTarget {
		return t.Host
	}
	s := t.Host
	if t.Scheme != "" {
		s = t.Scheme + "://" + s
	}
	if t.Port > 0 {
		s += ":" + strconv.Itoa(int(t.Port))
	}
	return s + t.Path
}

// Digest is what the record of a rule has in the place of its text: the SHA-256 of the kind, a
// space and the text. Whoever has the text can tell that the rule was about it.
func (t Target) Digest() string {
	sum := sha256.Sum256([]byte(string(t.Kind) + " " + t.String()))
	return hex.EncodeToString(sum[:])
}

// Same reports whether two rules hide the same rows.
func (r *Takedown) Same(o *Takedown) bool {
	same := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	return r.Target == o.Target && r.DatasetID == o.DatasetID && same(r.From, o.From) && same(r.To, o.To)
}

// NewTakedownID returns an id for a rule that is added now.
func NewTakedownID(now time.Time) string {
	var b [5]byte
	rand.Read(b[:])
	return now.UTC().Format("20060102") + "-" + hex.EncodeToString(b[:])
}

var idForm = regexp.MustCompile(`^[0-9]{8}-[0-9a-f]{10}$`)

// validTakedownID reports whether a text is a valid id of a rule.
func validTakedownID(id string) bool { return idForm.MatchString(id) }

// check returns an error for a rule that cannot be stored.
func (r *Takedown) check() error {
	paths := r.Kind == URLTarget || r.Kind == PrefixTarget
	switch {
	case !validTakedownID(r.ID):
		return fmt.Errorf("id %q", r.ID)
	case r.Kind != DomainTarget && r.Kind != HostTarget && !paths:
		return fmt.Errorf("kind %q", r.Kind)
	case r.Host == "" || len(r.Host) > 255:
		return fmt.Errorf("a host of %d bytes", len(r.Host))
	case paths != strings.HasPrefix(r.Path, "/"), !paths && (r.Scheme != "" || r.Port != 0 || r.Path != ""):
		return fmt.Errorf("%s with the path %q", r.Kind, r.Path)
	case r.Port < 0 || r.Port > 65535:
		return fmt.Errorf("port %d", r.Port)
	case r.Reason == "" || len(r.Reason) > maxReason || len(r.By) > maxReason:
		return fmt.Errorf("a reason of %d bytes, allowed are 1 to %d", len(r.Reason), maxReason)
	case r.From != nil && r.To != nil && *r.From >= *r.To:
		return errors.New("a time span that ends before it begins")
	}
	return nil
}

// Names are the domains whose rows the rule can hide, whatever the public suffix list: the host
// and all names above it. Rows of a Domain can also be of domains below it, if a list has it as a
// public suffix.
func (t *Target) Names() (names []string) { return slices.Collect(upward(t.Host)) }

// upward yields a name and all names above it. An IP address has none.
func upward(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for more := true; more && yield(name); {
			if more = name[:min(1, len(name))] != "["; more {
				_, name, more = strings.Cut(name, ".")
			}
		}
	}
}

// below reports whether host is the name or below it.
func below(host, name string) bool {
	rest, ok := strings.CutSuffix(host, name)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

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

// Names returns all domains whose rows the rules can hide, ascending; see Target.Names.
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
			m = &Matcher{
				domain: domain, under: map[string][]scope{}, hosts: map[string][]scope{},
				urls: map[address][]pathScope{}, prefixes: map[string]*prefixes{},
			}
		}
		m.add(r)
	})
	return m
}

// each calls do with the rules that can hide rows of a domain.
func (s *Takedowns) each(domain string, do func(r *Takedown)) {
	for name := range upward(domain) {
		list := s.domains[name]
		if name == domain {
			list = s.byName[name]
		}
		for _, i := range list {
			do(&s.all[i])
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
	return slices.ContainsFunc(scopes, func(s scope) bool { return s.hides(r) })
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

func anyPathHides(scopes []pathScope, r *Row) bool {
	return slices.ContainsFunc(scopes, func(p pathScope) bool {
		return (p.scheme == "" || p.scheme == r.Scheme) && p.port == max(r.Port, 0) && p.hides(r)
	})
}

// prefixes are those of one host. A path is looked up by each length that any of them has, so that
// many of them cost little more than one.
type prefixes struct {
	lengths []int // ascending
	rules   map[string][]pathScope
}

func (m *Matcher) add(r *Takedown) {
	s := scope{r.DatasetID, r.From, r.To}
	path := pathScope{r.Scheme, r.Port, s}
	m.scopes = append(m.scopes, s)
	switch r.Kind {
	case DomainTarget:
		if below(m.domain, r.Host) {
			m.all = append(m.all, s)
		} else {
			m.under[r.Host] = append(m.under[r.Host], s)
		}
	case HostTarget:
		m.hosts[r.Host] = append(m.hosts[r.Host], s)
	case URLTarget:
		at := address{r.Host, r.Path}
		m.urls[at] = append(m.urls[at], path)
	case PrefixTarget:
		p := m.prefixes[r.Host]
		if p == nil {
			p = &prefixes{rules: map[string][]pathScope{}}
			m.prefixes[r.Host] = p
		}
		p.rules[r.Path] = append(p.rules[r.Path], path)
		if at, ok := slices.BinarySearch(p.lengths, len(r.Path)); !ok {
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
func (m *Matcher) NeedsPaths() bool { return m != nil && len(m.urls)+len(m.prefixes) > 0 }

// Hides reports whether a row of the domain is hidden.
func (m *Matcher) Hides(r *Row) bool {
	if m == nil {
		return false
	}
	if anyHides(m.all, r) || anyHides(m.hosts[r.Host], r) {
		return true
	}
	if len(m.under) > 0 {
		for name := range upward(r.Host) {
			if anyHides(m.under[name], r) {
				return true
			}
		}
	}
	if len(m.urls) > 0 && anyPathHides(m.urls[address{r.Host, r.Path}], r) {
		return true
	}
	if p := m.prefixes[r.Host]; p != nil {
		for _, n := range p.lengths {
			if n > len(r.Path) {
				break
			}
			if anyPathHides(p.rules[r.Path[:n]], r) {
				return true
			}
		}
	}
	return false
}
